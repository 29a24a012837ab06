"""Decisions as text for people and as data for machines. The numbers are those that the
decision carries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlxweb.cost.candidate import Candidate, candidate_name
from rlxweb.cost.cost_terms import TIME_FIELDS, Terms, format_ns
from rlxweb.cost.decision import Decision

SCHEMA = "rlxweb.explain/1"

# Told on lines of their own, or beside each candidate.
_SEPARATE_KEYS = ("crossover", "n_samples", "notes", "predicted_ms", "source")


def terms_text(terms: Terms) -> str:
    """Return the nonzero terms in order: "2 launches, dispatch 6.1 us, …"."""
    parts = []
    if terms.launches:
        parts.append(f"{terms.launches} launch{'es' * (terms.launches != 1)}")
    if terms.syncs:
        parts.append(f"{terms.syncs} wait{'s' * (terms.syncs != 1)}")
    for field in TIME_FIELDS:
        ns = getattr(terms, field)
        if ns > 0:
            name = field.removesuffix("_ns").replace("readback", "read-back")
            parts.append(f"{name} {format_ns(ns)}")
    return ", ".join(parts)


def explain_decision(decision: Decision) -> str:
    """Return the choice and its reason, every candidate with its terms, and the
    crossover, as text.
    """
    facts = ", ".join(
        f"{k} {v}" for k, v in decision.numbers.items() if k not in _SEPARATE_KEYS
    )
    lines = [f"{decision.what}: {decision.why}" + (f" ({facts})" if facts else "")]
    if decision.candidates:
        lines += ["", "candidates, fastest prediction first:"]
        lines += _candidate_lines(decision.candidates)
    crossover = decision.numbers.get("crossover")
    if crossover:
        lines += ["", f"crossover: {crossover}"]
    lines += [f"note: {note}" for note in decision.numbers.get("notes", ())]
    if decision.attempts:
        lines += ["attempts:", *(f"  {attempt}" for attempt in decision.attempts)]
    return "\n".join(lines)


def _candidate_lines(candidates: Sequence[Candidate]) -> list[str]:
    width = max(len(candidate_name(c)) for c in candidates)
    lines = []
    for candidate in candidates:
        name = candidate_name(candidate).ljust(width)
        lines.append(f"  {name}  {_verdict(candidate)}")
        if candidate.terms is not None and not candidate.blocker:
            lines.append(f"      {terms_text(candidate.terms)}")
    return lines


def _verdict(candidate: Candidate) -> str:
    if candidate.blocker:
        return f"excluded: {candidate.blocker}"
    if candidate.terms is None:
        text = "no prediction"
    else:
        text = f"predicted {format_ns(candidate.predicted_ns)}"
        text += f" ({', '.join(_qualities(candidate))})"
    if candidate.measured_ns is not None:
        text += f", measured {format_ns(candidate.measured_ns)}"
        if candidate.terms is not None:
            relative_error = candidate.predicted_ns / candidate.measured_ns - 1.0
            text += f" ({relative_error:+.0%})"
    return text


def _qualities(candidate: Candidate) -> list[str]:
    qualities = [candidate.source] if candidate.source else []
    if candidate.error is not None:
        qualities.append(f"model ±{candidate.error:.0%}")
    if candidate.correction != 1.0:
        qualities.append(
            f"corrected by a factor of {candidate.correction:.2f} based on earlier runs"
        )
    if candidate.off:
        qualities.append(f"power error {candidate.off:.1e}")
    return qualities or ["unknown source"]


def explain_json(decision: Decision) -> dict[str, Any]:
    """Return the decision as plain data with a schema version."""
    return {"schema": SCHEMA, **decision.as_json()}
