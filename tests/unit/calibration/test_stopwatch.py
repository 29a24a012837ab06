"""The stopwatch: medians, spread, repetition and patience, on a clock of our own."""

from __future__ import annotations

import math
from functools import partial
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.calibration.stopwatch import MOST_UNSEEN, Stopwatch, Timing
from rlxweb.errors import OutOfMemory
from tests.unit.calibration.lab import Clock


def test_a_figure_is_the_median_and_its_spread() -> None:
    """The first call stands apart, the warm one does not count, nor an outlier."""
    clock = Clock()
    watch = Stopwatch(sample_ns=1, samples=5, budget_ns=1e9, clock=clock)
    got = watch.time(clock.work(9_000, 700, 30, 10, 500, 20, 40))
    assert got == Timing(30.0, pytest.approx(20 / 30), 5, 9_000.0)
    assert got.least_ns == 10.0


@pytest.mark.parametrize(
    ("one_call", "calls"), [(10, 100), (999, 1), (1_000, 1), (5_000, 1), (333, 3)]
)
def test_short_work_is_repeated(one_call: int, calls: int) -> None:
    """Short work is repeated until a sample lasts 1000 ns; a figure is of one call."""
    clock, runs = Clock(), [0]
    work = clock.work(one_call)

    def run() -> None:
        runs[0] += 1
        work()

    got = Stopwatch(sample_ns=1_000, samples=4, budget_ns=1e9, clock=clock).time(run)
    assert runs[0] == 2 + 4 * calls
    assert (got.ns, got.samples) == (one_call, 4)


@pytest.mark.parametrize(
    ("budget", "samples"), [(0, 3), (250, 3), (350, 4), (450, 5), (1e9, 11)]
)
def test_slow_work_gets_fewer_samples_but_never_too_few(
    budget: float, samples: int
) -> None:
    clock = Clock()
    watch = Stopwatch(sample_ns=1, samples=11, least=3, budget_ns=budget, clock=clock)
    assert watch.time(clock.work(100)).samples == samples
    assert clock.now == 100 * (2 + samples)


def test_a_clock_that_stands_still_gives_no_time_of_nothing() -> None:
    got = Stopwatch(sample_ns=5, samples=3, clock=Clock()).time(lambda: None)
    assert got == Timing(1.0, 0.0, 3, 1.0, calls=MOST_UNSEEN)


@pytest.mark.parametrize("tick", [1_000, 100_000])
def test_a_coarse_clock_sees_short_work_by_repetition(tick: int) -> None:
    """A browser's clock shows 300 ns as nothing; the figure comes right anyway."""
    clock, runs = Clock(), [0]

    def run() -> None:
        runs[0] += 1
        clock.now += 300

    watch = Stopwatch(10.0 * tick, 5, clock=lambda: clock.now // tick * tick)
    assert watch.time(run).ns == pytest.approx(300, rel=0.2)
    assert runs[0] * 300 < 100 * tick


def test_a_warm_call_that_was_slow_by_chance_hides_no_time() -> None:
    """A slow warm call hides no time on a coarse clock: samples are repeated."""
    clock, tick = Clock(), 100_000
    work = clock.work(300, 7_000_000, 300)
    watch = Stopwatch(20.0 * tick, 5, clock=lambda: clock.now // tick * tick)
    assert watch.time(work).ns == pytest.approx(300, rel=0.2)


@given(times=st.lists(st.integers(1, 10**12), min_size=3, max_size=30))
def test_the_median_lies_among_the_samples(times: list[int]) -> None:
    clock = Clock()
    watch = Stopwatch(1, len(times), 1, 1e30, clock)
    got = watch.time(clock.work(1, 1, *times))
    assert min(times) <= got.ns <= max(times)
    assert 0 <= got.spread < math.inf
    assert got.samples == len(times)


def test_work_in_turns_runs_in_every_round_in_changing_order() -> None:
    """Each work has a first and a warm call, then a settling one before a sample."""
    clock, called = Clock(), []

    def run(name: str) -> None:
        called.append(name)
        clock.now += 10 * (1 + "abc".index(name))

    watch = Stopwatch(sample_ns=1, samples=6, budget_ns=1e9, clock=clock)
    timings = watch.interleaved([partial(run, name) for name in "abc"])
    assert "".join(called[:6]) == "aabbcc"
    assert called[6::2] == called[7::2]
    rounds = ["".join(called[at : at + 6 : 2]) for at in range(6, len(called), 6)]
    assert [sorted(r) for r in rounds] == [list("abc")] * 6
    assert len(set(rounds)) > 1
    assert [(t.ns, t.samples, t.first_ns) for t in timings] == [
        (10, 6, 10),
        (20, 6, 20),
        (30, 6, 30),
    ]
    assert watch.interleaved([]) == []


def test_slow_work_in_turns_gets_the_least_samples() -> None:
    clock = Clock()
    watch = Stopwatch(1, samples=5, budget_ns=1e9, clock=clock, slow_ns=100)
    timings = watch.interleaved([clock.work(100), clock.work(101)])
    assert [t.samples for t in timings] == [5, 3]


def test_samples_of_one_call_need_no_warm_one() -> None:
    clock = Clock()
    got = Stopwatch(sample_ns=0, samples=3, clock=clock).time(clock.work(9, 1, 3, 2))
    assert got == Timing(2.0, 0.5, 3, 9.0)


def test_the_stopwatch_hides_no_error() -> None:
    with pytest.raises(OutOfMemory):
        Stopwatch().time(Mock(side_effect=OutOfMemory("buffer", "no memory left")))
