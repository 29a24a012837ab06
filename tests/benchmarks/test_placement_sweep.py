"""Tests of the placement sweep (`./dev bench sweep picker`) on a simulated machine with
its own clock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.core.device import Device
from rlxweb.core.errors import DeviceLost, OutOfMemory
from rlxweb.cost.decision import Candidate
from rlxweb.select.device_and_adapter import CPU_PLACE
from tests.benchmarks import placement_sweep
from tests.benchmarks.fake_machine import (
    MS,
    Cost,
    FakeMachine,
    S,
    make_candidate,
    make_cell_result,
    make_row,
)
from tests.benchmarks.placement_sweep import (
    PlacementSweep,
    SweepCellResult,
    WelchCell,
    as_json,
    make_welch_cells,
    run_candidate,
    summarize_sweep,
)
from tests.numpy_welch_peaks_reference import rank_bins, reference_welch

CELL = WelchCell(64, 3, 4, 2)
OfferCandidates = Callable[..., None]


@pytest.fixture
def offer_candidates(monkeypatch: pytest.MonkeyPatch) -> OfferCandidates:
    """Return a function that makes the picker find these candidates and no others."""

    def offer(*candidates: Candidate) -> None:
        monkeypatch.setattr(
            placement_sweep, "welch_candidates", lambda *a, **k: candidates
        )

    return offer


def create_sweep(machine: FakeMachine, **options: Any) -> PlacementSweep:
    return PlacementSweep([CPU_PLACE], runner=machine, clock=machine.clock, **options)


def times_by_strategy(measurement: SweepCellResult) -> dict[str, float]:
    """Return the milliseconds by strategy."""
    return {r.candidate.strategy: r.measured_ns / MS for r in measurement.rows}


def test_regret_is_the_picks_time_over_the_best() -> None:
    """The pick is the fastest prediction, whatever was measured."""
    a = make_row(make_candidate("a", 1, Device.CPU), 30)
    b = make_row(make_candidate("b", 2, Device.VULKAN), 40)
    c = make_row(make_candidate("c", 3, Device.OPENGL), 20)
    measurement = make_cell_result(c, a, b)
    assert measurement.pick is a
    assert measurement.best is c
    assert measurement.overall_regret == 1.5
    assert measurement.device_regret == 2.0
    assert make_cell_result(a).overall_regret == 1.0
    assert math.isnan(make_cell_result(a).device_regret)


def test_failed_candidates_are_ignored() -> None:
    """A failed candidate is neither the pick nor the best, though predicted first."""
    measurement = make_cell_result(
        make_row(make_candidate("b", 2), 30),
        make_row(make_candidate("c", 3), 20),
        failed=[make_candidate("a", 1), make_candidate("d", 4)],
    )
    assert measurement.pick.candidate.strategy == "b"
    assert measurement.overall_regret == 1.5
    assert math.isnan(make_cell_result(failed=[make_candidate("a", 1)]).overall_regret)


@given(
    st.lists(
        st.tuples(st.integers(1, 10**6), st.integers(1, 10**6), st.booleans()),
        min_size=1,
        max_size=8,
    )
)
def test_regret_is_never_below_one(rows: list[tuple[int, int, bool]]) -> None:
    """Regret is at least one, and exactly one only if no candidate was faster than the
    pick.
    """
    kinds = {True: Device.VULKAN, False: Device.CPU}
    measurement = make_cell_result(
        *(
            make_row(make_candidate(str(n), p, kinds[d]), m)
            for n, (p, m, d) in enumerate(rows)
        )
    )
    assert measurement.overall_regret >= 1.0
    fastest = min(m for _, m, _ in rows)
    assert (measurement.overall_regret == 1.0) == (
        measurement.pick.measured_ns == fastest * MS
    )
    devices = [m for _, m, on_device in rows if on_device]
    assert math.isnan(measurement.device_regret) == (not devices)
    assert not measurement.device_regret < 1.0


def test_a_summary_by_hand() -> None:
    """Regrets 1, 1.1 and 2; predictions off by 2, by 2 and by nothing."""

    def cell(batch: int, pick: float, best: float) -> SweepCellResult:
        return make_cell_result(
            make_row(make_candidate("a", 10, Device.VULKAN, how="fused_op"), pick),
            make_row(make_candidate("b", 20, Device.CPU), best),
            cell=WelchCell(64, batch, 4, 2),
        )

    measurements = [cell(1, 10, 10), cell(2, 22, 20), cell(3, 20, 10), cell(4, 5, 20)]
    failed = make_cell_result(failed=[make_candidate("a", 1)])
    summary = summarize_sweep([*measurements, failed])
    assert summary.cells == 4
    regrets = [1.0, 1.1, 2.0, 1.0]
    assert summary.regret.median == pytest.approx(1.05)
    assert summary.regret.p90 == pytest.approx(np.percentile(regrets, 90))
    assert summary.regret.worst == 2.0
    assert summary.device_regret.median == summary.device_regret.worst == 1.0
    assert [m.cell.batch for m in summary.losing_cells] == [3, 2]
    # Logs of 1, 2.2, 2 and 2, and of 2, 1, 2 and 1: the middle of each.
    assert summary.model_error == {
        "vulkan engine fused_op": pytest.approx(1.0),
        "cpu engine": pytest.approx(math.sqrt(2) - 1),
    }


def test_a_cell_a_little_behind_is_not_listed_as_losing() -> None:
    """Five percent is allowed, more is not."""
    for pick, listed in ((105, 0), (106, 1)):
        measurement = make_cell_result(
            make_row(make_candidate("a", 1), pick),
            make_row(make_candidate("b", 2), 100),
        )
        assert len(summarize_sweep([measurement]).losing_cells) == listed


@pytest.mark.parametrize(
    "measurements", [[], [make_cell_result(failed=[make_candidate("a", 1)])]]
)
def test_a_summary_of_nothing_is_still_json(
    measurements: list[SweepCellResult],
) -> None:
    """JSON has no NaN: what was not measured is null."""
    document = json.loads(
        json.dumps(
            as_json(measurements, summarize_sweep(measurements)), allow_nan=False
        )
    )
    assert document["summary"]["cells"] == 0
    assert set(document["summary"]["regret"].values()) == {None}
    assert document["summary"]["losing"] == []


def call_orders(machine: FakeMachine, names: str, rounds: int) -> list[tuple[str, ...]]:
    """Return the order of each round; every visit is a warm-up call and a timed one."""
    n_first_calls = 2 * len(names)
    later_calls = machine.called_strategies[n_first_calls:]
    assert len(later_calls) == 2 * rounds * len(names)
    assert later_calls[0::2] == later_calls[1::2]
    n_names = len(names)
    return [
        tuple(later_calls[start : start + 2 * n_names : 2])
        for start in range(0, len(later_calls), 2 * n_names)
    ]


def test_rounds_are_shuffled_and_fair(offer_candidates: OfferCandidates) -> None:
    """Every candidate runs once a round, in changing, reproducible orders."""
    names = "abcd"
    offer_candidates(
        *(make_candidate(name, 1 + index) for index, name in enumerate(names))
    )
    machine = FakeMachine(dict.fromkeys(names, 3 * MS))
    measurement = create_sweep(machine, rounds=12).measure(CELL)
    orders = call_orders(machine, names, 12)
    assert all(sorted(order) == list(names) for order in orders)
    assert len(set(orders)) > 6
    assert len({order[0] for order in orders}) > 2
    assert {r.samples for r in measurement.rows} == {12}
    second_machine = FakeMachine(dict.fromkeys(names, 3 * MS))
    create_sweep(second_machine, rounds=12).measure(CELL)
    assert second_machine.called_strategies == machine.called_strategies


def test_fast_candidates_are_repeated_within_a_sample(
    offer_candidates: OfferCandidates,
) -> None:
    """A sample of 0.1 ms calls is 20 of them, and its time is that of one."""
    offer_candidates(make_candidate("a", 1), make_candidate("b", 2))
    machine = FakeMachine({"a": MS // 10, "b": 5 * MS})
    measurement = create_sweep(machine, rounds=4).measure(CELL)
    assert times_by_strategy(measurement) == {"a": 0.1, "b": 5.0}
    assert machine.called_strategies.count("a") == 2 + 4 * (1 + 20)
    assert machine.called_strategies.count("b") == 2 + 4 * (1 + 1)


def test_the_first_call_is_not_counted(offer_candidates: OfferCandidates) -> None:
    """The first call, which compiles, is reported separately as first_ns."""
    offer_candidates(make_candidate("a", 1))
    machine = FakeMachine({"a": lambda _, nth: 900 * MS if nth == 0 else 3 * MS})
    (timing,) = create_sweep(machine).measure(CELL).rows
    assert (timing.first_ns, timing.measured_ns) == (900 * MS, 3 * MS)


def test_the_call_after_another_candidate_is_not_counted(
    offer_candidates: OfferCandidates,
) -> None:
    """Cache effects of the previous candidate are not charged to the next one."""

    def after(name: str) -> Cost:
        return lambda machine, _: (
            (3 if machine.called_strategies[-1:] == [name] else 9) * MS
        )

    offer_candidates(make_candidate("a", 1), make_candidate("b", 2))
    machine = FakeMachine({name: after(name) for name in "ab"})
    assert times_by_strategy(create_sweep(machine).measure(CELL)) == {
        "a": 3.0,
        "b": 3.0,
    }


def test_median_and_spread_are_of_the_samples(
    offer_candidates: OfferCandidates,
) -> None:
    """The spread is half the interquartile range over the median."""
    samples = [10, 50, 20, 40, 30]

    def cost(_: FakeMachine, nth: int) -> int:
        # Calls 0 and 1 begin; then each round is a warm call and the sample.
        return samples[(nth - 3) // 2] * MS if nth >= 3 and nth % 2 else 2 * MS

    offer_candidates(make_candidate("a", 1))
    (timing,) = create_sweep(FakeMachine({"a": cost}), rounds=5).measure(CELL).rows
    assert timing.measured_ns == 30 * MS
    assert timing.spread == pytest.approx((40 - 20) / 30)
    assert timing.samples == 5


@pytest.mark.parametrize(("warm", "samples"), [(S, 7), (S + 1, 3)])
def test_slow_candidates_get_fewer_rounds(
    offer_candidates: OfferCandidates, warm: int, samples: int
) -> None:
    """A candidate of over a second a call gets 3 rounds; the count is in its row."""
    offer_candidates(make_candidate("slow", 1), make_candidate("quick", 2))
    machine = FakeMachine({"slow": warm, "quick": 3 * MS})
    slow, quick = create_sweep(machine, budget_s=1e3).measure(CELL).rows
    assert (slow.samples, quick.samples) == (samples, 7)


@pytest.mark.parametrize(
    ("budget_s", "samples"), [(1e-3, 3), (1.0, 3), (2.0, 6), (100.0, 50)]
)
def test_the_budget_stops_a_cell(
    offer_candidates: OfferCandidates, budget_s: float, samples: int
) -> None:
    """A round of two candidates takes 0.4 s here; at least 3 rounds are always run."""
    offer_candidates(make_candidate("a", 1), make_candidate("b", 2))
    machine = FakeMachine({"a": S // 10, "b": S // 10})
    measurement = create_sweep(machine, rounds=50, budget_s=budget_s).measure(CELL)
    assert {r.samples for r in measurement.rows} == {samples}


def test_the_budget_is_per_cell(offer_candidates: OfferCandidates) -> None:
    """A long cell takes nothing from the budget of the next."""
    offer_candidates(make_candidate("a", 1))
    machine = FakeMachine({"a": S // 10})
    cells = [CELL, WelchCell(64, 4, 4, 2)]
    measurements = list(create_sweep(machine, rounds=50, budget_s=1.0).run(cells))
    assert len({m.rows[0].samples for m in measurements}) == 1
    assert 3 < measurements[0].rows[0].samples < 50


def test_corrections_from_earlier_runs_are_ignored(
    offer_candidates: OfferCandidates,
) -> None:
    """Order and predictions come from the model alone, without corrections from earlier
    runs.
    """
    offer_candidates(
        make_candidate("b", 2, correction=0.1), make_candidate("a", 1, correction=9.0)
    )
    measurement = create_sweep(FakeMachine({"a": MS, "b": MS})).measure(CELL)
    assert [r.candidate.strategy for r in measurement.rows] == ["a", "b"]
    assert [r.candidate.predicted_ns for r in measurement.rows] == [MS, 2 * MS]


def test_blocked_candidates_and_those_without_a_prediction_are_not_run(
    offer_candidates: OfferCandidates,
) -> None:
    unknown = Candidate(Device.GPU, "gpu engine", "unknown")
    offer_candidates(
        make_candidate("a", 1), make_candidate("no", 1, blocker="no driver"), unknown
    )
    machine = FakeMachine({"a": MS})
    assert set(times_by_strategy(create_sweep(machine).measure(CELL))) == {"a"}
    assert set(machine.called_strategies) == {"a"}


def test_all_candidates_of_a_cell_get_the_same_rows(
    offer_candidates: OfferCandidates,
) -> None:
    """The rows are float32, of the cell's shape, and not all equal."""
    offer_candidates(make_candidate("a", 1), make_candidate("b", 2))
    machine = FakeMachine({"a": MS, "b": MS})
    create_sweep(machine, rounds=3, min_segments=1).measure(WelchCell(64, 3, 4, 8))
    jobs, rows = zip(*machine.call_arguments, strict=True)
    assert {id(x) for x in rows} == {id(rows[0])}
    assert rows[0].shape == (3, 64 + 7 * 32)
    assert rows[0].dtype == np.float32
    assert np.ptp(rows[0]) > 1
    (job,) = set(jobs)
    assert (job.n_rows, job.n_samples, job.k, job.min_segments) == (3, 288, 4, 1)
    assert (job.spec.nfft, job.spec.n_segments) == (64, 8)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (DeviceLost("run", "it went away"), "run: it went away"),
        (OutOfMemory("run", "no room"), "run: no room"),
        (MemoryError(), "MemoryError"),
    ],
)
@pytest.mark.parametrize("first_failure", [0, 1, 2, 3, 8])
def test_a_failing_candidate_keeps_its_error(
    offer_candidates: OfferCandidates,
    error: BaseException,
    text: str,
    first_failure: int,
) -> None:
    """A failing candidate, at once or later, keeps its error; the others go on."""

    def cost(_: FakeMachine, nth: int) -> Any:
        return error if nth >= first_failure else 3 * MS

    offer_candidates(make_candidate("bad", 1), make_candidate("good", 2))
    machine = FakeMachine({"bad": cost, "good": 3 * MS})
    bad, good = create_sweep(machine).measure(CELL).rows
    assert (bad.error, bad.measured_ns, bad.samples) == (text, 0.0, 0)
    assert (good.error, good.measured_ns, good.samples) == ("", 3 * MS, 7)
    assert machine.called_strategies.count("bad") == first_failure + 1


def test_other_errors_are_bugs_and_are_not_hidden(
    offer_candidates: OfferCandidates,
) -> None:
    offer_candidates(make_candidate("a", 1))
    with pytest.raises(ZeroDivisionError):
        create_sweep(FakeMachine({"a": ZeroDivisionError()})).measure(CELL)


def test_cells_that_do_not_fit_are_skipped_and_named(
    offer_candidates: OfferCandidates,
) -> None:
    """A cell too large is left out with both numbers; one that just fits is run."""
    offer_candidates(make_candidate("a", 1))
    cells = [
        WelchCell(4096, 8192, 4, 8),
        WelchCell(64, 2, 4, 2),
        WelchCell(4096, 10**9, 4, 2),
    ]
    machine = FakeMachine({"a": MS})
    sweep = create_sweep(machine, max_gib=cells[1].gib)
    assert [m.cell for m in sweep.run(cells)] == [cells[1]]
    first, second = sweep.skipped_cells
    assert first.startswith("n 4096 batch 8192 k 4 segments 8: it takes 0.56 GiB")
    assert first.endswith(f"--max-gib allows {cells[1].gib:g}")
    assert second.startswith("n 4096 batch 1000000000 ")


def test_a_cell_without_memory_does_not_end_the_sweep(
    offer_candidates: OfferCandidates, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_candidates(make_candidate("a", 1))
    sweep = create_sweep(FakeMachine({"a": MS}))
    measure = PlacementSweep.measure

    def measure_or_fail(self: PlacementSweep, cell: WelchCell) -> SweepCellResult:
        if cell.batch == 1:
            raise MemoryError
        return measure(self, cell)

    monkeypatch.setattr(PlacementSweep, "measure", measure_or_fail)
    cells = make_welch_cells([64], [1, 2], [4], [2])
    assert [m.cell.batch for m in sweep.run(cells)] == [2]
    assert sweep.skipped_cells == ["n 64 batch 1 k 4 segments 2: out of memory"]


@given(n_fft=st.integers(1, 5000), batch=st.integers(1, 9), segments=st.integers(1, 50))
def test_a_cells_rows_give_just_its_segments(
    n_fft: int, batch: int, segments: int
) -> None:
    cell = WelchCell(n_fft, batch, 1, segments)
    job = cell.make_job(None)
    assert job.spec.segments_per_row(cell.n_samples) == segments
    with pytest.raises(ValueError, match="samples"):
        WelchCell(n_fft, batch, 1, segments).make_job(None).spec.segments_per_row(
            cell.n_samples - 1
        )
    assert cell.gib * 2**30 == pytest.approx(4 * batch * cell.n_samples)


def test_every_combination_is_a_cell_and_quick_ones_come_first() -> None:
    axes = (64, 4096), (1, 32, 8192), (16, 4), (8, 2)
    cells = make_welch_cells(*axes)
    assert {(c.n_fft, c.batch, c.k, c.segments) for c in cells} == set(product(*axes))
    assert len(cells) == 24
    work = [c.n_fft * c.batch * c.segments for c in cells]
    assert work == sorted(work)


@pytest.mark.parametrize("strategy", ["fast", "ultra"])
def test_a_candidate_runs_its_own_strategy(strategy: str) -> None:
    """The result is NumPy's own answer; "ultra" reads the first segment alone."""
    job = WelchCell(64, 3, 4, 8).make_job(1)
    x = np.random.default_rng(0).standard_normal((3, job.n_samples), np.float32)
    part = x[:, :64] if strategy == "ultra" else x
    bins, _ = run_candidate(Candidate(Device.CPU, "NumPy", strategy), job, x)
    np.testing.assert_array_equal(bins, rank_bins(reference_welch(part, 64), 4))
