"""The clock of a profiled run over arrays: each call is waited for and timed.

NumPy has done its work when a call returns. Other libraries start it and return, so a
number of each result is brought back before the next call: the wait is in its time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rlxweb.backends.timed import Laps, Timed

T = TypeVar("T")


class StepClock:
    """Runs from its making on.

    steps    of the plan
    to_host  array of the library → NumPy array
    """

    def __init__(self, steps: int, to_host: Callable[[Any], Any]) -> None:
        self._to_host = to_host
        self._step_ns = [0.0] * steps
        self._upload_ns = 0.0
        self._lap = Laps()

    def waited(self, array: T) -> T:
        """The array, once it has been computed."""
        some: Any = array
        if 0 not in some.shape:
            self._to_host(some[(slice(0, 1),) * len(some.shape)])
        return array

    def uploaded(self) -> None:
        """Everything is on the device."""
        self._upload_ns = self._lap.ns()

    def did(self, step: int, made: object) -> None:
        """One call of a step has given this."""
        self.waited(made)
        self._step_ns[step] += self._lap.ns()

    def worked(self) -> None:
        """Every call is done."""
        self._lap.ns()

    def timed(self, outputs: list[Any]) -> Timed:
        """The run, once its outputs are the host's."""
        back, steps = self._lap.ns(), tuple(self._step_ns)
        up, work = self._upload_ns, sum(steps)
        return Timed(outputs, "one step at a time", steps, up, work, back)
