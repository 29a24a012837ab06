"""Median and spread of a short piece of work. Owns warm-up and repetition only.

Machines are shared: a figure is the median of several samples, each long enough for the
clock, with the interquartile range beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Clock = Callable[[], int]

MOST_UNSEEN = 1024
"""Repetitions after which work that takes no time on the clock is left at that."""


@dataclass(frozen=True, slots=True)
class Timing:
    """ns per call: median of `samples`, spread = interquartile range / median.

    first_ns is the very first call, compiling and all.
    """

    ns: float
    spread: float
    samples: int
    first_ns: float


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """How carefully to time.

    sample_ns  shorter calls are repeated until a sample lasts so long
    samples    at most; `least` at least, however slow the work is
    budget_ns  no further sample is begun after this much time, but for the least
    """

    sample_ns: float = 2e6
    samples: int = 11
    least: int = 3
    budget_ns: float = 0.12e9
    clock: Clock = time.perf_counter_ns

    def time(self, run: Callable[[], object]) -> Timing:
        """Time `run`: a first call, a warm one, then the samples."""
        first = self._call(run, 1)
        warm = self._call(run, 1)
        calls = self._calls(run, warm)
        begun = self.clock()
        taken: list[float] = []
        while len(taken) < self.samples:
            taken.append(self._call(run, calls))
            late = self.clock() - begun > self.budget_ns
            if late and len(taken) >= self.least:
                break
        low, middle, high = np.percentile(taken, [25, 50, 75])
        spread = float((high - low) / middle) if middle else 0.0
        return Timing(max(float(middle), 1.0), spread, len(taken), max(first, 1.0))

    def _calls(self, run: Callable[[], object], warm: float) -> int:
        """How often to repeat `run` for one sample."""
        calls = 1
        # A browser's clock ticks in tenths of milliseconds; shorter work takes none.
        while warm <= 0 and calls < MOST_UNSEEN:
            calls *= 2
            warm = self._call(run, calls)
        return max(1, int(self.sample_ns / warm)) if warm > 0 else calls

    def _call(self, run: Callable[[], object], calls: int) -> float:
        begun = self.clock()
        for _ in range(calls):
            run()
        return (self.clock() - begun) / calls
