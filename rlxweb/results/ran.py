"""Record of where a result was computed, why there, and how long it took."""

from __future__ import annotations

from typing import NamedTuple

from rlxweb.cost.decision import Decision


class Stage(NamedTuple):
    """Stage of a call or a file's processing, and how long it took.

    kind   of a call: "choose" (arguments, ways), "compute" (the answer); of a file
           also "open", "read", "check", "epochs", "welch", "average", "peaks", "write"
    s      in seconds: what was waited for, so what is read ahead beside other work
           counts as far as that had to wait for it
    """

    kind: str
    s: float


class Ran(NamedTuple):
    """Run record of one call.

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
        """Return where and why there the result was computed; "" if that is unknown."""
        if not self.engine:
            return ""
        reason = self.decision.why if self.decision else "only NumPy supports this call"
        return f"ran on {self.engine}: {reason}"


UNKNOWN_RUN = Ran()
"""Run record of a result that came as an array."""
