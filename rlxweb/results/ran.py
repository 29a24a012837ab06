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
