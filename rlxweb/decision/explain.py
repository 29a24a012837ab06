"""Decisions as prose for people and as data for machines. Draws nothing, decides
nothing; the numbers are those that the decision carries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlxweb.decision.candidate import Candidate, candidate_name
from rlxweb.decision.decision import Decision
from rlxweb.decision.terms import TIMES, Terms, human_ns

SCHEMA = "rlxweb.explain/1"

# Told on lines of their own, or beside each candidate.
_APART = ("crossover", "n_samples", "notes", "predicted_ms", "source")


def terms_text(terms: Terms) -> str:
    """The parts that are not nothing, in order: "2 launches, dispatch 6.1 us, …"."""
    parts = []
    if terms.launches:
        parts.append(f"{terms.launches} launch{'es' * (terms.launches != 1)}")
    if terms.syncs:
        parts.append(f"{terms.syncs} wait{'s' * (terms.syncs != 1)}")
    for field in TIMES:
        ns = getattr(terms, field)
        if ns > 0:
            name = field.removesuffix("_ns").replace("readback", "read-back")
            parts.append(f"{name} {human_ns(ns)}")
    return ", ".join(parts)


def explain_decision(decision: Decision) -> str:
    """What was chosen and why, every candidate with its terms, the crossover."""
    facts = ", ".join(
        f"{k} {v}" for k, v in decision.numbers.items() if k not in _APART
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
        return f"not taken: {candidate.blocker}"
    if candidate.terms is None:
        said = "no prediction"
    else:
        said = f"predicted {human_ns(candidate.predicted_ns)}"
        said += f" ({', '.join(_qualities(candidate))})"
    if candidate.measured_ns is not None:
        said += f", measured {human_ns(candidate.measured_ns)}"
        if candidate.terms is not None:
            miss = candidate.predicted_ns / candidate.measured_ns - 1.0
            said += f" ({miss:+.0%})"
    return said


def _qualities(candidate: Candidate) -> list[str]:
    found = [candidate.source] if candidate.source else []
    if candidate.error is not None:
        found.append(f"model ±{candidate.error:.0%}")
    if candidate.correction != 1.0:
        found.append(f"x{candidate.correction:.2f} by earlier runs")
    if candidate.off:
        found.append(f"power off by {candidate.off:.1e}")
    return found or ["unsourced"]


def explain_json(decision: Decision) -> dict[str, Any]:
    """The decision as plain data under a schema."""
    return {"schema": SCHEMA, **decision.as_json()}
