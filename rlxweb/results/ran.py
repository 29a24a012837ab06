"""Where a result was computed, why there, and how long that took."""

from __future__ import annotations

from typing import NamedTuple

from rlxweb.decision.decision import Decision


class Ran(NamedTuple):
    """Of one call.

    engine    that computed it: "NumPy 2.4", "llvmpipe (vulkan)"
    decision  why it was that one; None where no other can compute it
    wall_s    of the whole call, in seconds
    """

    engine: str = ""
    decision: Decision | None = None
    wall_s: float = 0.0

    def explain(self) -> str:
        """Where it was computed, and why there; "" where that is not known."""
        if not self.engine:
            return ""
        why = self.decision.why if self.decision else "only NumPy computes it"
        return f"ran on {self.engine}: {why}"


UNTOLD = Ran()
"""Of what came as an array."""
