"""Median and spread of short pieces of work, alone or in turns with others.

Owns warm-up, repetition and the statistics. Machines are shared: there is the median of
several samples, each long enough for the clock, with the interquartile range beside it,
and the fastest, to which neighbours added least. What is to be compared is timed in
rounds, in a new order each time, so that what else the machine does falls on all alike.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

Clock = Callable[[], int]
Run = Callable[[], object]

MOST_UNSEEN = 1024
"""Repetitions after which work that takes no time on the clock is left at that."""


@dataclass(frozen=True, slots=True)
class Timing:
    """ns per call: median of `samples`, spread = interquartile range / median.

    first_ns is the very first call, compiling and all; a sample is of `calls` calls;
    least_ns is the fastest sample, per call; infinite where nobody looked.
    """

    ns: float
    spread: float
    samples: int
    first_ns: float
    calls: int = 1
    least_ns: float = field(default=math.inf, compare=False)


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """How carefully to time.

    sample_ns  shorter calls are repeated until a sample lasts so long; 0: never
    samples    at most; `least` at least, however slow the work is
    budget_ns  no further sample is begun after this much time, but for the least
    slow_ns    work that takes longer gets the least
    """

    sample_ns: float = 2e6
    samples: int = 11
    least: int = 3
    budget_ns: float = 0.12e9
    clock: Clock = time.perf_counter_ns
    slow_ns: float = math.inf

    def time(self, run: Run) -> Timing:
        """Time `run`: a first call, a warm one, then the samples."""
        (timing,) = self.interleaved([run], settle=False)
        return timing

    def interleaved(self, runs: Sequence[Run], settle: bool = True) -> list[Timing]:
        """Time each: a first call and a warm one, then samples in shuffled rounds.

        settle  one call that is not measured goes before each sample: these are warm
                figures, not what the one before left in the caches
        """
        ready = [self._begin(run) for run in runs]
        taken: list[list[float]] = [[] for _ in runs]
        begun = self.clock()
        shuffle = np.random.default_rng(0).permutation
        for round_ in range(self.samples):
            late = self.clock() - begun > self.budget_ns
            if late and round_ >= self.least:
                break
            for at in shuffle(len(runs)):
                first, calls, slow = ready[at]
                if slow and round_ >= self.least:
                    continue
                if settle:
                    runs[at]()
                took, seen = self._seen(runs[at], calls)
                taken[at].append(took)
                if seen > calls:  # the warm call was slow by chance
                    ready[at] = first, self._enough(took, seen), slow
        return [
            timing_of(own, first, calls)
            for own, (first, calls, _) in zip(taken, ready, strict=True)
        ]

    def _begin(self, run: Run) -> tuple[float, int, bool]:
        """Its first call, how often to repeat it for one sample, and is it slow?"""
        first = self._call(run, 1)
        if not self.sample_ns:
            return first, 1, False
        warm, calls = self._seen(run, 1)
        slow = warm > self.slow_ns
        return first, self._enough(warm, calls), slow

    def _enough(self, took: float, calls: int) -> int:
        """Calls of so long each that make a sample."""
        return max(1, int(self.sample_ns / took)) if took > 0 else calls

    def _seen(self, run: Run, calls: int) -> tuple[float, int]:
        """The time of a call, of so many or of more: enough for the clock to move.

        A browser's ticks in tenths of milliseconds; shorter work takes none.
        """
        took = self._call(run, calls)
        while self.sample_ns and took <= 0 and calls < MOST_UNSEEN:
            calls *= 2
            took = self._call(run, calls)
        return took, calls

    def _call(self, run: Run, calls: int) -> float:
        begun = self.clock()
        for _ in range(calls):
            run()
        return (self.clock() - begun) / calls


def timing_of(taken: Sequence[float], first: float, calls: int) -> Timing:
    """Of samples and a first call in ns, each per call, of so many calls a sample."""
    low, middle, high = np.percentile(taken, [25, 50, 75])
    ns = max(float(middle), 1.0)
    spread, first, least = float(high - low) / ns, max(first, 1.0), max(min(taken), 1.0)
    return Timing(ns, spread, len(taken), first, calls, least)
