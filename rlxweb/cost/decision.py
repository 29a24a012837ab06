"""Decisions as plain data: candidates, their cost terms, what was chosen and why.

Also the attempts of a run on several devices, and the text that explains a decision.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from rlxweb.core.device import Device, parse_device

# --- Cost terms


@dataclass(frozen=True, slots=True)
class Terms:
    """Parts of a predicted time; all `*_ns` are in nanoseconds and add up.

    launches  kernels started (NumPy: calls into it)
    syncs     times the host waits for the device, the final wait included
    dispatch_ns  starting kernels        sync_ns      submit and wait
    upload_ns    inputs to the device    compute_ns   arithmetic, by measured rates
    traffic_ns   memory read and written by steps whose rate was not measured
    readback_ns  results to the host     host_ns      work left to the host
    other_ns     what a formula adds or scales beyond these (RLX's seed formulas do)
    """

    launches: int = 0
    syncs: int = 0
    dispatch_ns: float = 0.0
    sync_ns: float = 0.0
    upload_ns: float = 0.0
    compute_ns: float = 0.0
    traffic_ns: float = 0.0
    readback_ns: float = 0.0
    host_ns: float = 0.0
    other_ns: float = 0.0

    @property
    def total_ns(self) -> float:
        """Predicted time: the sum of all `*_ns` terms."""
        return float(sum(getattr(self, name) for name in TIME_FIELDS))

    def plus(self, other: Terms, times: int = 1) -> Terms:
        """Return these terms plus `times` the other terms."""
        own_terms, other_terms = asdict(self), asdict(other)
        return Terms(
            **{name: own_terms[name] + times * other_terms[name] for name in own_terms}
        )

    def slowed(self, factor: float) -> Terms:
        """Return the terms with compute and traffic multiplied by a factor."""
        compute, traffic = factor * self.compute_ns, factor * self.traffic_ns
        return replace(self, compute_ns=compute, traffic_ns=traffic)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "total_ns": self.total_ns}

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Terms:
        """Return the terms that `as_json` described."""
        return cls(**{field.name: data[field.name] for field in fields(cls)})


TIME_FIELDS = tuple(f.name for f in fields(Terms) if f.name.endswith("_ns"))
"""Names of the terms that add up."""


def format_ns(ns: float) -> str:
    """Format a time with 3 significant digits and its unit: "412 us", "1.30 ms"."""
    if not math.isfinite(ns):
        return "never"
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if ns >= factor * 0.9995:
            return f"{_three_digits(ns / factor)} {unit}"
    return f"{_three_digits(ns)} ns"


def _three_digits(value: float) -> str:
    """Format a number with 3 significant digits."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


# --- Candidates
#
# Whoever chooses (a graph's device, a Welch strategy) fills these in and picks the
# first of `rank_candidates`; nothing here measures or opens a device.


@dataclass(frozen=True, slots=True)
class Candidate:
    """Device and strategy that could run a job, with the predicted cost.

    engine      in words: "NumPy 2.4.6", "llvmpipe (vulkan)"
    strategy    "graph", or of a Welch job "ultra", "fast", "fused", "learned"
    how         the kind of execution: "fused_op", "block_fft_host"; "" if there is one
    terms       the model's prediction; None when the candidate is blocked
    correction  what observed runs of this shape multiply the model by
    error       the model's own relative error on what it was measured with (0.1 = 10 %)
    measured_ns a measured time of this very job, when there is one
    source      where the constants come from: "calibrated", "assumed" or "seed"
    blocker     why it cannot be taken; "" when it can
    adapter     as it was asked for: part of a name, "" for the best
    off         what its answer is expected to be off by, relative, beyond rounding
    """

    device: Device
    engine: str
    strategy: str = "graph"
    how: str = ""
    terms: Terms | None = None
    correction: float = 1.0
    error: float | None = None
    measured_ns: float | None = None
    source: str = ""
    blocker: str = ""
    adapter: str = ""
    off: float = 0.0

    @property
    def predicted_ns(self) -> float:
        """Predicted time: the terms times the correction; infinite when blocked."""
        if self.terms is None or self.blocker:
            return math.inf
        return self.terms.total_ns * self.correction

    def as_json(self) -> dict[str, Any]:
        """Return the candidate as plain data; a blocked candidate's prediction is null,
        not infinite.
        """
        blocked = self.terms is None or bool(self.blocker)
        return {field.name: getattr(self, field.name) for field in fields(self)} | {
            "device": self.device.label,
            "predicted_ns": None if blocked else self.predicted_ns,
            "terms": None if self.terms is None else self.terms.as_json(),
        }

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Candidate:
        """Return the candidate that `as_json` described."""
        names = (field.name for field in fields(cls))
        values = {name: data[name] for name in names if name in data}
        values["device"] = parse_device(data["device"])
        if data["terms"] is not None:
            values["terms"] = Terms.of_json(data["terms"])
        return cls(**values)


def rank_candidates(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Sort candidates by predicted time: earlier ones first among equals, blocked ones
    last.
    """
    return tuple(sorted(candidates, key=lambda c: c.predicted_ns))


def candidate_name(candidate: Candidate, with_how: bool = True) -> str:
    """Return the strategy and the engine as text: "fused (block_fft_host) on llvmpipe
    (vulkan)".
    """
    if candidate.strategy == "graph":
        return candidate.engine
    shows_how = with_how and candidate.how not in ("", "host")
    how = f" ({candidate.how})" if shows_how else ""
    return f"{candidate.strategy}{how} on {candidate.engine}"


def comparison_text(picked: Candidate, candidates: Iterable[Candidate]) -> str:
    """Explain why a candidate was picked: its time and the next best one's, else what
    blocks the others.

    "predicted 1.2 ms (calibrated); next best: fused on llvmpipe (vulkan), 3 ms"
    """
    if picked.terms is None:
        return "its speed is unknown"
    text = f"predicted {format_ns(picked.predicted_ns)} ({picked.source})"
    if picked.off:
        text += f", power error {picked.off:.1e}"
    others = [c for c in rank_candidates(candidates) if c is not picked]
    unblocked = [c for c in others if not c.blocker]
    if unblocked:
        next_best = unblocked[0]
        name, took = candidate_name(next_best), format_ns(next_best.predicted_ns)
        return f"{text}; next best: {name}, {took}"
    blocked_elsewhere = [c for c in others if c.engine != picked.engine]
    if blocked_elsewhere:
        text += (
            f"; not on {blocked_elsewhere[0].engine}: {blocked_elsewhere[0].blocker}"
        )
    return text


# --- Decision


@dataclass(frozen=True, slots=True, repr=False)
class Decision:
    """Choice, its reason and the numbers behind it.

    candidates  every way there was, best first, where a cost model chose
    attempts    where it was tried, in order, where it was not done at the first try
    """

    what: str
    why: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    candidates: tuple[Candidate, ...] = ()
    attempts: tuple[Attempt, ...] = ()

    def __repr__(self) -> str:
        count = len(self.candidates)
        among = f", {count} candidate{'s' * (count != 1)}" if count else ""
        return f"Decision({self.what!r}: {self.why}{among})"

    def __str__(self) -> str:
        facts = ", ".join(f"{k}={v}" for k, v in self.numbers.items())
        return f"{self.what}: {self.why}" + (f" ({facts})" if facts else "")

    def as_json(self) -> dict[str, Any]:
        """Return the decision as plain data; empty candidates and attempts are left
        out.
        """
        document: dict[str, Any] = {
            "what": self.what,
            "why": self.why,
            "numbers": dict(self.numbers),
        }
        if self.candidates:
            document["candidates"] = [c.as_json() for c in self.candidates]
        if self.attempts:
            document["attempts"] = [a.as_json() for a in self.attempts]
        return document

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Decision:
        """Return the decision that `as_json` described."""
        return cls(
            document["what"],
            document["why"],
            document["numbers"],
            tuple(map(Candidate.of_json, document.get("candidates", ()))),
            tuple(map(Attempt.of_json, document.get("attempts", ()))),
        )


# --- Attempt


@dataclass(frozen=True, slots=True)
class Attempt:
    """Device that was tried and the outcome; `error` is "" where it succeeded."""

    device: Device
    error: str
    cause: BaseException | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the cause: a driver's exception need not be picklable."""
        return type(self), (self.device, self.error)

    def __str__(self) -> str:
        return f"{self.device.label}: {self.error or 'succeeded'}"

    def as_json(self) -> dict[str, str]:
        return {"device": self.device.label, "error": self.error}

    @classmethod
    def of_json(cls, document: Mapping[str, str]) -> Attempt:
        """Return the attempt that `as_json` described."""
        return cls(parse_device(document["device"]), document["error"])


# --- Decisions as text and JSON

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
    for time_field in TIME_FIELDS:
        ns = getattr(terms, time_field)
        if ns > 0:
            name = time_field.removesuffix("_ns").replace("readback", "read-back")
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
