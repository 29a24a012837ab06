"""The sweep of `./dev bench sweep picker`, on a made-up machine with its own clock."""

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

from rlxweb.decision.candidate import Candidate
from rlxweb.device import Device
from rlxweb.devices.place import CPU
from rlxweb.errors import DeviceLost, OutOfMemory
from tests.benchmarks import picker_sweep
from tests.benchmarks.made_picker import MS, Cost, Machine, S, measured, row, way
from tests.benchmarks.picker_sweep import (
    Cell,
    Measured,
    Sweep,
    as_json,
    cells_of,
    run_candidate,
    summary_of,
)
from tests.oracles import estimate, strongest_first

CELL = Cell(64, 3, 4, 2)
Ways = Callable[..., None]


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    """Lets the picker find these candidates and no others."""

    def offered(*candidates: Candidate) -> None:
        monkeypatch.setattr(
            picker_sweep, "welch_candidates", lambda *a, **k: candidates
        )

    return offered


def sweep_on(machine: Machine, **more: Any) -> Sweep:
    return Sweep([CPU], runner=machine, clock=machine.clock, **more)


def times(found: Measured) -> dict[str, float]:
    """Milliseconds by strategy."""
    return {r.candidate.strategy: r.measured_ns / MS for r in found.rows}


def test_regret_is_the_picks_time_over_the_best() -> None:
    """The pick is the fastest prediction, whatever was measured."""
    a = row(way("a", 1, Device.CPU), 30)
    b = row(way("b", 2, Device.VULKAN), 40)
    c = row(way("c", 3, Device.OPENGL), 20)
    found = measured(c, a, b)
    assert found.pick is a
    assert found.best is c
    assert found.overall_regret == 1.5
    assert found.device_regret == 2.0
    assert measured(a).overall_regret == 1.0
    assert math.isnan(measured(a).device_regret)


def test_ways_that_failed_take_no_part() -> None:
    """A way that failed is neither the pick nor the best, though predicted first."""
    found = measured(
        row(way("b", 2), 30), row(way("c", 3), 20), failed=[way("a", 1), way("d", 4)]
    )
    assert found.pick.candidate.strategy == "b"
    assert found.overall_regret == 1.5
    assert math.isnan(measured(failed=[way("a", 1)]).overall_regret)


@given(
    st.lists(
        st.tuples(st.integers(1, 10**6), st.integers(1, 10**6), st.booleans()),
        min_size=1,
        max_size=8,
    )
)
def test_regret_is_never_below_one(rows: list[tuple[int, int, bool]]) -> None:
    """Regret is at least one, and is one just where no way was faster than the pick."""
    kinds = {True: Device.VULKAN, False: Device.CPU}
    found = measured(
        *(row(way(str(n), p, kinds[d]), m) for n, (p, m, d) in enumerate(rows))
    )
    assert found.overall_regret >= 1.0
    fastest = min(m for _, m, _ in rows)
    assert (found.overall_regret == 1.0) == (found.pick.measured_ns == fastest * MS)
    devices = [m for _, m, on_device in rows if on_device]
    assert math.isnan(found.device_regret) == (not devices)
    assert not found.device_regret < 1.0


def test_a_summary_by_hand() -> None:
    """Regrets 1, 1.1 and 2; predictions off by 2, by 2 and by nothing."""

    def cell(batch: int, pick: float, best: float) -> Measured:
        return measured(
            row(way("a", 10, Device.VULKAN, how="fused_op"), pick),
            row(way("b", 20, Device.CPU), best),
            cell=Cell(64, batch, 4, 2),
        )

    found = [cell(1, 10, 10), cell(2, 22, 20), cell(3, 20, 10), cell(4, 5, 20)]
    failed = measured(failed=[way("a", 1)])
    summary = summary_of([*found, failed])
    assert summary.cells == 4
    regrets = [1.0, 1.1, 2.0, 1.0]
    assert summary.regret.median == pytest.approx(1.05)
    assert summary.regret.p90 == pytest.approx(np.percentile(regrets, 90))
    assert summary.regret.worst == 2.0
    assert summary.device_regret.median == summary.device_regret.worst == 1.0
    assert [m.cell.batch for m in summary.losing] == [3, 2]
    # Logs of 1, 2.2, 2 and 2, and of 2, 1, 2 and 1: the middle of each.
    assert summary.model_error == {
        "vulkan engine fused_op": pytest.approx(1.0),
        "cpu engine": pytest.approx(math.sqrt(2) - 1),
    }


def test_a_cell_a_little_behind_is_not_listed_as_losing() -> None:
    """Five percent is allowed, more is not."""
    for pick, listed in ((105, 0), (106, 1)):
        one = measured(row(way("a", 1), pick), row(way("b", 2), 100))
        assert len(summary_of([one]).losing) == listed


@pytest.mark.parametrize("found", [[], [measured(failed=[way("a", 1)])]])
def test_a_summary_of_nothing_is_still_json(found: list[Measured]) -> None:
    """JSON has no NaN: what was not measured is null."""
    document = json.loads(
        json.dumps(as_json(found, summary_of(found)), allow_nan=False)
    )
    assert document["summary"]["cells"] == 0
    assert set(document["summary"]["regret"].values()) == {None}
    assert document["summary"]["losing"] == []


def visits(machine: Machine, names: str, rounds: int) -> list[tuple[str, ...]]:
    """The order of each round; every visit is a warm call and a timed one."""
    begun = 2 * len(names)
    rest = machine.log[begun:]
    assert len(rest) == 2 * rounds * len(names)
    assert rest[0::2] == rest[1::2]
    many = len(names)
    return [tuple(rest[at : at + 2 * many : 2]) for at in range(0, len(rest), 2 * many)]


def test_rounds_are_shuffled_and_fair(ways: Ways) -> None:
    """Every way runs once a round, in orders that change and can be repeated."""
    names = "abcd"
    ways(*(way(name, 1 + at) for at, name in enumerate(names)))
    machine = Machine(dict.fromkeys(names, 3 * MS))
    found = sweep_on(machine, rounds=12).measure(CELL)
    orders = visits(machine, names, 12)
    assert all(sorted(order) == list(names) for order in orders)
    assert len(set(orders)) > 6
    assert len({order[0] for order in orders}) > 2
    assert {r.samples for r in found.rows} == {12}
    again = Machine(dict.fromkeys(names, 3 * MS))
    sweep_on(again, rounds=12).measure(CELL)
    assert again.log == machine.log


def test_quick_ways_are_repeated_until_the_clock_can_tell(ways: Ways) -> None:
    """A sample of 0.1 ms calls is 20 of them, and its time is that of one."""
    ways(way("a", 1), way("b", 2))
    machine = Machine({"a": MS // 10, "b": 5 * MS})
    found = sweep_on(machine, rounds=4).measure(CELL)
    assert times(found) == {"a": 0.1, "b": 5.0}
    assert machine.log.count("a") == 2 + 4 * (1 + 20)
    assert machine.log.count("b") == 2 + 4 * (1 + 1)


def test_the_first_call_is_not_counted(ways: Ways) -> None:
    """The first call, which compiles, is told apart as first_ns."""
    ways(way("a", 1))
    machine = Machine({"a": lambda _, nth: 900 * MS if nth == 0 else 3 * MS})
    (one,) = sweep_on(machine).measure(CELL).rows
    assert (one.first_ns, one.measured_ns) == (900 * MS, 3 * MS)


def test_the_call_after_another_way_is_not_counted(ways: Ways) -> None:
    """What the way before left in the caches is not this one's fault."""

    def after(name: str) -> Cost:
        return lambda machine, _: (3 if machine.log[-1:] == [name] else 9) * MS

    ways(way("a", 1), way("b", 2))
    machine = Machine({name: after(name) for name in "ab"})
    assert times(sweep_on(machine).measure(CELL)) == {"a": 3.0, "b": 3.0}


def test_median_and_spread_are_of_the_samples(ways: Ways) -> None:
    """Half of the range between the quarters, over the median."""
    samples = [10, 50, 20, 40, 30]

    def cost(_: Machine, nth: int) -> int:
        # Calls 0 and 1 begin; then each round is a warm call and the sample.
        return samples[(nth - 3) // 2] * MS if nth >= 3 and nth % 2 else 2 * MS

    ways(way("a", 1))
    (one,) = sweep_on(Machine({"a": cost}), rounds=5).measure(CELL).rows
    assert one.measured_ns == 30 * MS
    assert one.spread == pytest.approx((40 - 20) / 30)
    assert one.samples == 5


@pytest.mark.parametrize(("warm", "samples"), [(S, 7), (S + 1, 3)])
def test_slow_ways_get_fewer_rounds(ways: Ways, warm: int, samples: int) -> None:
    """A way of over a second a call gets 3 rounds; the count is in its row."""
    ways(way("slow", 1), way("quick", 2))
    machine = Machine({"slow": warm, "quick": 3 * MS})
    slow, quick = sweep_on(machine, budget_s=1e3).measure(CELL).rows
    assert (slow.samples, quick.samples) == (samples, 7)


@pytest.mark.parametrize(
    ("budget_s", "samples"), [(1e-3, 3), (1.0, 3), (2.0, 6), (100.0, 50)]
)
def test_the_budget_stops_a_cell(ways: Ways, budget_s: float, samples: int) -> None:
    """A round of two ways takes 0.4 s here; 3 rounds are run whatever they take."""
    ways(way("a", 1), way("b", 2))
    machine = Machine({"a": S // 10, "b": S // 10})
    found = sweep_on(machine, rounds=50, budget_s=budget_s).measure(CELL)
    assert {r.samples for r in found.rows} == {samples}


def test_the_budget_is_of_one_cell(ways: Ways) -> None:
    """A long cell takes nothing from the budget of the next."""
    ways(way("a", 1))
    machine = Machine({"a": S // 10})
    cells = [CELL, Cell(64, 4, 4, 2)]
    found = list(sweep_on(machine, rounds=50, budget_s=1.0).run(cells))
    assert len({m.rows[0].samples for m in found}) == 1
    assert 3 < found[0].rows[0].samples < 50


def test_what_earlier_runs_taught_is_left_out(ways: Ways) -> None:
    """Order and predictions are the model's alone, whatever earlier runs taught."""
    ways(way("b", 2, correction=0.1), way("a", 1, correction=9.0))
    found = sweep_on(Machine({"a": MS, "b": MS})).measure(CELL)
    assert [r.candidate.strategy for r in found.rows] == ["a", "b"]
    assert [r.candidate.predicted_ns for r in found.rows] == [MS, 2 * MS]


def test_blocked_ways_and_those_without_a_prediction_are_not_run(ways: Ways) -> None:
    unknown = Candidate(Device.GPU, "gpu engine", "unknown")
    ways(way("a", 1), way("no", 1, blocker="no driver"), unknown)
    machine = Machine({"a": MS})
    assert set(times(sweep_on(machine).measure(CELL))) == {"a"}
    assert set(machine.log) == {"a"}


def test_all_ways_of_a_cell_get_the_same_rows(ways: Ways) -> None:
    """Float32, of the cell's shape, and not all alike."""
    ways(way("a", 1), way("b", 2))
    machine = Machine({"a": MS, "b": MS})
    sweep_on(machine, rounds=3, min_segments=1).measure(Cell(64, 3, 4, 8))
    jobs, rows = zip(*machine.seen, strict=True)
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
@pytest.mark.parametrize("at", [0, 1, 2, 3, 8])
def test_a_way_that_fails_keeps_its_error(
    ways: Ways, error: BaseException, text: str, at: int
) -> None:
    """A way that fails, at once or later, keeps its error; the others go on."""

    def cost(_: Machine, nth: int) -> Any:
        return error if nth >= at else 3 * MS

    ways(way("bad", 1), way("good", 2))
    machine = Machine({"bad": cost, "good": 3 * MS})
    bad, good = sweep_on(machine).measure(CELL).rows
    assert (bad.error, bad.measured_ns, bad.samples) == (text, 0.0, 0)
    assert (good.error, good.measured_ns, good.samples) == ("", 3 * MS, 7)
    assert machine.log.count("bad") == at + 1


def test_other_errors_are_bugs_and_are_not_hidden(ways: Ways) -> None:
    ways(way("a", 1))
    with pytest.raises(ZeroDivisionError):
        sweep_on(Machine({"a": ZeroDivisionError()})).measure(CELL)


def test_cells_that_do_not_fit_are_left_out_by_name(ways: Ways) -> None:
    """A cell too large is left out with both numbers; one that just fits is run."""
    ways(way("a", 1))
    cells = [Cell(4096, 8192, 4, 8), Cell(64, 2, 4, 2), Cell(4096, 10**9, 4, 2)]
    machine = Machine({"a": MS})
    sweep = sweep_on(machine, max_gib=cells[1].gib)
    assert [m.cell for m in sweep.run(cells)] == [cells[1]]
    first, second = sweep.left_out
    assert first.startswith("n 4096 batch 8192 k 4 segments 8: it takes 0.56 GiB")
    assert first.endswith(f"--max-gib allows {cells[1].gib:g}")
    assert second.startswith("n 4096 batch 1000000000 ")


def test_a_cell_without_memory_does_not_end_the_sweep(
    ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways(way("a", 1))
    sweep = sweep_on(Machine({"a": MS}))
    measure = Sweep.measure

    def short(self: Sweep, cell: Cell) -> Measured:
        if cell.batch == 1:
            raise MemoryError
        return measure(self, cell)

    monkeypatch.setattr(Sweep, "measure", short)
    cells = cells_of([64], [1, 2], [4], [2])
    assert [m.cell.batch for m in sweep.run(cells)] == [2]
    assert sweep.left_out == ["n 64 batch 1 k 4 segments 2: out of memory"]


@given(n_fft=st.integers(1, 5000), batch=st.integers(1, 9), segments=st.integers(1, 50))
def test_a_cells_rows_give_just_its_segments(
    n_fft: int, batch: int, segments: int
) -> None:
    cell = Cell(n_fft, batch, 1, segments)
    job = cell.job(None)
    assert job.spec.segments_of(cell.n_samples) == segments
    with pytest.raises(ValueError, match="samples"):
        Cell(n_fft, batch, 1, segments).job(None).spec.segments_of(cell.n_samples - 1)
    assert cell.gib * 2**30 == pytest.approx(4 * batch * cell.n_samples)


def test_every_combination_is_a_cell_and_quick_ones_come_first() -> None:
    axes = (64, 4096), (1, 32, 8192), (16, 4), (8, 2)
    cells = cells_of(*axes)
    assert {(c.n_fft, c.batch, c.k, c.segments) for c in cells} == set(product(*axes))
    assert len(cells) == 24
    work = [c.n_fft * c.batch * c.segments for c in cells]
    assert work == sorted(work)


@pytest.mark.parametrize("strategy", ["fast", "ultra"])
def test_a_candidate_is_run_as_what_it_is(strategy: str) -> None:
    """NumPy's own answer; "ultra" looks at the first segment alone."""
    job = Cell(64, 3, 4, 8).job(1)
    x = np.random.default_rng(0).standard_normal((3, job.n_samples), np.float32)
    part = x[:, :64] if strategy == "ultra" else x
    bins, _ = run_candidate(Candidate(Device.CPU, "NumPy", strategy), job, x)
    np.testing.assert_array_equal(bins, strongest_first(estimate(part, 64), 4))
