"""Tests of the stopwatch on a fake clock: medians, spread, repetition and time
limits.
"""

from __future__ import annotations

import math
from functools import partial
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.core.errors import OutOfMemory
from rlxweb.select.calibration.stopwatch import MAX_UNTIMED_CALLS, RunTiming, Stopwatch
from tests.unit.select.calibration.fake_clock_calibration import FakeClock


def test_time_is_median_with_spread() -> None:
    """The first call is reported apart; neither the warm call nor an outlier counts."""
    clock = FakeClock()
    watch = Stopwatch(sample_ns=1, samples=5, budget_ns=1e9, clock=clock)
    got = watch.time(clock.make_work(9_000, 700, 30, 10, 500, 20, 40))
    assert got == RunTiming(30.0, pytest.approx(20 / 30), 5, 9_000.0)
    assert got.min_ns == 10.0


@pytest.mark.parametrize(
    ("call_ns", "calls"), [(10, 100), (999, 1), (1_000, 1), (5_000, 1), (333, 3)]
)
def test_short_work_is_repeated(call_ns: int, calls: int) -> None:
    """Short work is repeated until a sample lasts 1000 ns; the time is that of one
    call.
    """
    clock, runs = FakeClock(), [0]
    work = clock.make_work(call_ns)

    def run() -> None:
        runs[0] += 1
        work()

    got = Stopwatch(sample_ns=1_000, samples=4, budget_ns=1e9, clock=clock).time(run)
    assert runs[0] == 2 + 4 * calls
    assert (got.ns, got.samples) == (call_ns, 4)


@pytest.mark.parametrize(
    ("budget", "samples"), [(0, 3), (250, 3), (350, 4), (450, 5), (1e9, 11)]
)
def test_slow_work_gets_fewer_samples_but_never_too_few(
    budget: float, samples: int
) -> None:
    clock = FakeClock()
    watch = Stopwatch(
        sample_ns=1, samples=11, min_samples=3, budget_ns=budget, clock=clock
    )
    assert watch.time(clock.make_work(100)).samples == samples
    assert clock.now == 100 * (2 + samples)


def test_stopped_clock_gives_no_zero_time() -> None:
    got = Stopwatch(sample_ns=5, samples=3, clock=FakeClock()).time(lambda: None)
    assert got == RunTiming(1.0, 0.0, 3, 1.0, calls=MAX_UNTIMED_CALLS)


@pytest.mark.parametrize("tick", [1_000, 100_000])
def test_a_coarse_clock_sees_short_work_by_repetition(tick: int) -> None:
    """A browser's clock shows 300 ns as zero; the measured time is right all the
    same.
    """
    clock, runs = FakeClock(), [0]

    def run() -> None:
        runs[0] += 1
        clock.now += 300

    watch = Stopwatch(10.0 * tick, 5, clock=lambda: clock.now // tick * tick)
    assert watch.time(run).ns == pytest.approx(300, rel=0.2)
    assert runs[0] * 300 < 100 * tick


def test_slow_warm_call_hides_no_time() -> None:
    """A slow warm call hides no time on a coarse clock: samples are repeated."""
    clock, tick = FakeClock(), 100_000
    work = clock.make_work(300, 7_000_000, 300)
    watch = Stopwatch(20.0 * tick, 5, clock=lambda: clock.now // tick * tick)
    assert watch.time(work).ns == pytest.approx(300, rel=0.2)


@given(times=st.lists(st.integers(1, 10**12), min_size=3, max_size=30))
def test_the_median_lies_among_the_samples(times: list[int]) -> None:
    clock = FakeClock()
    watch = Stopwatch(1, len(times), 1, 1e30, clock)
    got = watch.time(clock.make_work(1, 1, *times))
    assert min(times) <= got.ns <= max(times)
    assert 0 <= got.spread < math.inf
    assert got.samples == len(times)


def test_interleaved_work_runs_every_round_in_changing_order() -> None:
    """Each work function has a first and a warm call, then a settling call before a
    sample.
    """
    clock, call_order = FakeClock(), []

    def run(name: str) -> None:
        call_order.append(name)
        clock.now += 10 * (1 + "abc".index(name))

    watch = Stopwatch(sample_ns=1, samples=6, budget_ns=1e9, clock=clock)
    timings = watch.time_interleaved([partial(run, name) for name in "abc"])
    assert "".join(call_order[:6]) == "aabbcc"
    assert call_order[6::2] == call_order[7::2]
    rounds = [
        "".join(call_order[at : at + 6 : 2]) for at in range(6, len(call_order), 6)
    ]
    assert [sorted(r) for r in rounds] == [list("abc")] * 6
    assert len(set(rounds)) > 1
    assert [(t.ns, t.samples, t.first_ns) for t in timings] == [
        (10, 6, 10),
        (20, 6, 20),
        (30, 6, 30),
    ]
    assert watch.time_interleaved([]) == []


def test_slow_interleaved_work_gets_min_samples() -> None:
    clock = FakeClock()
    watch = Stopwatch(1, samples=5, budget_ns=1e9, clock=clock, slow_ns=100)
    timings = watch.time_interleaved([clock.make_work(100), clock.make_work(101)])
    assert [t.samples for t in timings] == [5, 3]


def test_single_call_samples_need_no_warm_call() -> None:
    clock = FakeClock()
    got = Stopwatch(sample_ns=0, samples=3, clock=clock).time(
        clock.make_work(9, 1, 3, 2)
    )
    assert got == RunTiming(2.0, 0.5, 3, 9.0)


def test_the_stopwatch_hides_no_error() -> None:
    with pytest.raises(OutOfMemory):
        Stopwatch().time(Mock(side_effect=OutOfMemory("buffer", "no memory left")))
