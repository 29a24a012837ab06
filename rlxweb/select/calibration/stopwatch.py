"""Stopwatch: median and spread of short pieces of work, alone or interleaved with
others.

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

MAX_UNTIMED_CALLS = 1024
"""Repetitions after which work that takes no time on the clock is given up."""


@dataclass(frozen=True, slots=True)
class RunTiming:
    """Time per call in ns: median of `samples`, spread = interquartile range / median.

    first_ns is the very first call, compiling and all; a sample is of `calls` calls;
    least_ns is the fastest sample, per call; infinite where nobody looked.
    """

    ns: float
    spread: float
    samples: int
    first_ns: float
    calls: int = 1
    min_ns: float = field(default=math.inf, compare=False)


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Settings of a timing, and the measurement itself.

    sample_ns  shorter calls are repeated until a sample lasts so long; 0: never
    samples    at most; `min_samples` at least, however slow the work is
    budget_ns  no further sample is begun after this much time, but for the least
    slow_ns    work that takes longer gets the least
    """

    sample_ns: float = 2e6
    samples: int = 11
    min_samples: int = 3
    budget_ns: float = 0.12e9
    clock: Clock = time.perf_counter_ns
    slow_ns: float = math.inf

    def time(self, run: Run) -> RunTiming:
        """Time `run`: a first call, a warm one, then the samples."""
        (timing,) = self.time_interleaved([run], warm_each=False)
        return timing

    def time_interleaved(
        self, runs: Sequence[Run], warm_each: bool = True
    ) -> list[RunTiming]:
        """Time each function: a first call and a warm one, then samples in shuffled
        rounds.

        warm_each  one call that is not measured goes before each sample: these are warm
                figures, not what the one before left in the caches
        """
        prepared = [self._warm_up(run) for run in runs]
        samples_ns: list[list[float]] = [[] for _ in runs]
        start_ns = self.clock()
        shuffle = np.random.default_rng(0).permutation
        for round_ in range(self.samples):
            is_over_budget = self.clock() - start_ns > self.budget_ns
            if is_over_budget and round_ >= self.min_samples:
                break
            for index in shuffle(len(runs)):
                first_ns, calls, is_slow = prepared[index]
                if is_slow and round_ >= self.min_samples:
                    continue
                if warm_each:
                    runs[index]()
                call_ns, timed_calls = self._time_visible(runs[index], calls)
                samples_ns[index].append(call_ns)
                if timed_calls > calls:  # the warm call was slow by chance
                    prepared[index] = (
                        first_ns,
                        self._calls_per_sample(call_ns, timed_calls),
                        is_slow,
                    )
        return [
            timing_from_samples(run_samples, first_ns, calls)
            for run_samples, (first_ns, calls, _) in zip(
                samples_ns, prepared, strict=True
            )
        ]

    def _warm_up(self, run: Run) -> tuple[float, int, bool]:
        """Return the first call's time, the calls of one sample, and whether the work
        is slow.
        """
        first_ns = self._time_calls(run, 1)
        if not self.sample_ns:
            return first_ns, 1, False
        warm_ns, calls = self._time_visible(run, 1)
        is_slow = warm_ns > self.slow_ns
        return first_ns, self._calls_per_sample(warm_ns, calls), is_slow

    def _calls_per_sample(self, call_ns: float, calls: int) -> int:
        """Return the calls of `call_ns` ns each that make a sample."""
        return max(1, int(self.sample_ns / call_ns)) if call_ns > 0 else calls

    def _time_visible(self, run: Run, calls: int) -> tuple[float, int]:
        """Return the time of a call and the calls it took: at least `calls`, more until
        the clock moves.

        A browser's ticks in tenths of milliseconds; shorter work takes none.
        """
        call_ns = self._time_calls(run, calls)
        while self.sample_ns and call_ns <= 0 and calls < MAX_UNTIMED_CALLS:
            calls *= 2
            call_ns = self._time_calls(run, calls)
        return call_ns, calls

    def _time_calls(self, run: Run, calls: int) -> float:
        """Return the mean time of `calls` calls."""
        start_ns = self.clock()
        for _ in range(calls):
            run()
        return (self.clock() - start_ns) / calls


def timing_from_samples(
    samples_ns: Sequence[float], first_ns: float, calls: int
) -> RunTiming:
    """Return the timing of samples and a first call in ns, each per call, of `calls`
    calls a sample.
    """
    low, median, high = np.percentile(samples_ns, [25, 50, 75])
    ns = max(float(median), 1.0)
    spread = float(high - low) / ns
    first_ns = max(first_ns, 1.0)
    min_ns = max(min(samples_ns), 1.0)
    return RunTiming(ns, spread, len(samples_ns), first_ns, calls, min_ns)
