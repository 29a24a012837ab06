"""Where a result was computed, why there, and how long that took."""

from __future__ import annotations

from typing import NamedTuple

from rlxweb.decision.decision import Decision


class Stage(NamedTuple):
    """A part of what was done, and how long it took.

    kind   of a call: "choose" (arguments, ways), "compute" (the answer); of a file
           also "open", "read", "check", "epochs", "welch", "average", "peaks", "write"
    s      in seconds: what was waited for, so what is read ahead beside other work
           counts as far as that had to wait for it
    """

    kind: str
    s: float


class Ran(NamedTuple):
    """Of one call.

    engine    that computed it: "NumPy 2.4", "llvmpipe (vulkan)"
    decision  why it was that one; None where no other can compute it
    wall_s    of the whole call, in seconds
    stages    its parts, together no more than wall_s; `dict(ran.stages)` by their kinds
    """

    engine: str = ""
    decision: Decision | None = None
    wall_s: float = 0.0
    stages: tuple[Stage, ...] = ()

    def explain(self) -> str:
        """Where it was computed, and why there; "" where that is not known."""
        if not self.engine:
            return ""
        why = self.decision.why if self.decision else "only NumPy computes it"
        return f"ran on {self.engine}: {why}"


UNTOLD = Ran()
"""Of what came as an array."""
