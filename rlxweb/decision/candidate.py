"""One way to run a job, with what it would cost: the rows that `explain` prints.

Whoever chooses (a graph's device, a Welch strategy) fills these in and picks the first
of `ranked`; nothing here measures or opens a device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from rlxweb.decision.terms import Terms, human_ns
from rlxweb.device import Device, parse_device


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device and a way to run a job on it.

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
        """Terms times correction; infinite when blocked."""
        if self.terms is None or self.blocker:
            return math.inf
        return self.terms.total_ns * self.correction

    def as_json(self) -> dict[str, Any]:
        """Plain data; a blocked candidate's prediction is null, not infinite."""
        blocked = self.terms is None or bool(self.blocker)
        return {field.name: getattr(self, field.name) for field in fields(self)} | {
            "device": self.device.label,
            "predicted_ns": None if blocked else self.predicted_ns,
            "terms": None if self.terms is None else self.terms.as_json(),
        }

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> Candidate:
        """What `as_json` told."""
        names = (field.name for field in fields(cls))
        own = {name: told[name] for name in names if name in told}
        own["device"] = parse_device(told["device"])
        if told["terms"] is not None:
            own["terms"] = Terms.of_json(told["terms"])
        return cls(**own)


def ranked(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Fastest first, earlier ones first among equals, blocked ones last."""
    return tuple(sorted(candidates, key=lambda c: c.predicted_ns))


def candidate_name(candidate: Candidate, with_how: bool = True) -> str:
    """How and where: "fused (block_fft_host) on llvmpipe (vulkan)"."""
    if candidate.strategy == "graph":
        return candidate.engine
    said = with_how and candidate.how not in ("", "host")
    how = f" ({candidate.how})" if said else ""
    return f"{candidate.strategy}{how} on {candidate.engine}"


def comparison(picked: Candidate, candidates: Iterable[Candidate]) -> str:
    """Why a candidate was taken: its time, the next best one's, else what blocks them.

    "predicted 1.2 ms (calibrated); next, fused on llvmpipe (vulkan), 3 ms"
    """
    if picked.terms is None:
        return "nothing is known of its speed"
    said = f"predicted {human_ns(picked.predicted_ns)} ({picked.source})"
    if picked.off:
        said += f", the power off by {picked.off:.1e}"
    others = [c for c in ranked(candidates) if c is not picked]
    rivals = [c for c in others if not c.blocker]
    if rivals:
        rival = rivals[0]
        name, took = candidate_name(rival), human_ns(rival.predicted_ns)
        return f"{said}; next, {name}, {took}"
    elsewhere = [c for c in others if c.engine != picked.engine and c.blocker]
    if elsewhere:
        said += f"; not on {elsewhere[0].engine}: {elsewhere[0].blocker}"
    return said
