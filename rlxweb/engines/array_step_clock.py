"""Clock of a profiled run over arrays: each call is waited for and timed.

NumPy has done its work when a call returns. Other libraries start it and return, so a
number of each result is brought back before the next call: the wait is in its time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rlxweb.engines.timed_run_result import LapTimer, TimedRun

T = TypeVar("T")


class StepClock:
    """Timer of one profiled run, started when it is created.

    steps    of the plan
    to_host  array of the library → NumPy array
    """

    def __init__(self, steps: int, to_host: Callable[[Any], Any]) -> None:
        self._to_host = to_host
        self._step_ns = [0.0] * steps
        self._upload_ns = 0.0
        self._stopwatch = LapTimer()

    def wait_for(self, array: T) -> T:
        """Wait until the array has been computed and return it."""
        library_array: Any = array
        if 0 not in library_array.shape:
            self._to_host(library_array[(slice(0, 1),) * len(library_array.shape)])
        return array

    def end_upload(self) -> None:
        """Record the upload time: all inputs are on the device."""
        self._upload_ns = self._stopwatch.lap_ns()

    def end_call(self, step: int, result: object) -> None:
        """Wait for the result of a call and add its time to its step."""
        self.wait_for(result)
        self._step_ns[step] += self._stopwatch.lap_ns()

    def end_work(self) -> None:
        """Start timing the read-back: every call is done."""
        self._stopwatch.lap_ns()

    def timed_run(
        self, outputs: list[Any], kernel_variants: Mapping[int, str]
    ) -> TimedRun:
        """Return the timed run, once its outputs are on the host.

        kernel_variants  of the calls, by the number of their node
        """
        readback_ns, steps = self._stopwatch.lap_ns(), tuple(self._step_ns)
        upload_ns, work_ns = self._upload_ns, sum(steps)
        return TimedRun(
            outputs,
            "one step at a time",
            steps,
            upload_ns,
            work_ns,
            readback_ns,
            kernel_variants,
        )
