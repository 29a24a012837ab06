"""Result of a timed run: its outputs, and where the time went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rlxweb.engines.protocol import Array

TimingMethod = Literal["device clock", "one step at a time", "whole run"]


@dataclass(frozen=True, slots=True)
class TimedRun:
    """Outputs and times of a run whose parts were timed.

    method       "device clock": the device stamped the time around every step, all in
                 one submission; "one step at a time": each was waited for, and the wait
                 is in it; "whole run": the engine does not tell its steps apart
    step_ns      of each step of the plan, 0 for views; empty for a whole run
    upload_ns    inputs to the device
    work_ns      the steps as they are run otherwise, without uploads and read-back
    readback_ns  outputs back to the host
    kernel_variants  by the number of a graph node, the kernel variant that ran it in
                     its step; empty for a whole run
    """

    outputs: list[Array]
    method: TimingMethod
    step_ns: tuple[float, ...]
    upload_ns: float
    work_ns: float
    readback_ns: float
    kernel_variants: Mapping[int, str] = field(default_factory=dict)


class LapTimer:
    """Stopwatch: nanoseconds since the last reading, at first since its creation."""

    def __init__(self) -> None:
        self._last = perf_counter_ns()

    def lap_ns(self) -> float:
        """Return the nanoseconds since the last reading and start the next lap."""
        previous, self._last = self._last, perf_counter_ns()
        return float(self._last - previous)
