"""What a profiled run says of itself: its outputs, and where the time went."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rlxweb.backends.protocol import Array

Way = Literal["device clock", "one step at a time", "whole run"]


@dataclass(frozen=True, slots=True)
class Timed:
    """A run of which the parts were timed.

    how          "device clock": the device stamped the time around every step, all in
                 one submission; "one step at a time": each was waited for, and the wait
                 is in it; "whole run": the engine does not tell its steps apart
    step_ns      of each step of the plan, 0 for views; empty for a whole run
    upload_ns    inputs to the device
    work_ns      the steps as they are run otherwise, without uploads and read-back
    readback_ns  outputs back to the host
    """

    outputs: list[Array]
    how: Way
    step_ns: tuple[float, ...]
    upload_ns: float
    work_ns: float
    readback_ns: float


class Laps:
    """Nanoseconds since it was last asked, first since its making."""

    def __init__(self) -> None:
        self._last = perf_counter_ns()

    def ns(self) -> float:
        before, self._last = self._last, perf_counter_ns()
        return float(self._last - before)
