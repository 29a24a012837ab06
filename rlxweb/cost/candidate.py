"""Candidate: one way to run a job with its predicted cost; the rows that `explain`
prints.

Whoever chooses (a graph's device, a Welch strategy) fills these in and picks the first
of `rank_candidates`; nothing here measures or opens a device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from rlxweb.core.device import Device, parse_device
from rlxweb.cost.cost_terms import Terms, format_ns


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
    blocked_elsewhere = [c for c in others if c.engine != picked.engine and c.blocker]
    if blocked_elsewhere:
        text += (
            f"; not on {blocked_elsewhere[0].engine}: {blocked_elsewhere[0].blocker}"
        )
    return text
