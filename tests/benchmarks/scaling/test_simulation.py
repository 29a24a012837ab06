"""The simulation against what must hold of it, and its record against its page."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.scaling import record
from tests.benchmarks.scaling.record import document, overhead
from tests.benchmarks.scaling.simulation import Costs, Storage, Work, simulate

NOTHING = Costs(0.0, 0.0, 0.0)
FREE = Storage("free")


def bounds(n: int, work: Work, costs: Costs, storage: Storage) -> dict[str, float]:
    """Works per second that each line can serve at most."""
    own = work.compute_s + costs.worker_s + work.read_nbytes / storage.one
    inverse = {
        "workers": own / n,
        "client": costs.client_s,
        "scheduler": costs.scheduler_s,
        "storage": work.read_nbytes / storage.together,
        "network": work.back_nbytes / storage.home,
    }
    return {name: 1 / s if s else float("inf") for name, s in inverse.items()}


@pytest.mark.parametrize(
    ("n_workers", "n_recordings", "seconds"),
    # 11 for 5 workers take three turns.
    [(1, 10, 5.0), (5, 10, 1.0), (5, 11, 1.5)],
)
def test_workers_alone_share_the_work_evenly(
    n_workers: int, n_recordings: int, seconds: float
) -> None:
    run = simulate(n_workers, Work(0.5, 0, 0), NOTHING, FREE, n_recordings=n_recordings)
    assert run.seconds == pytest.approx(seconds)


def test_what_shares_a_task_shares_its_cost() -> None:
    """A scheduler serves about ten times as many recordings where a task has ten."""
    costs, alone = Costs(0.0, 1e-2, 0.0), Work(1e-2, 0, 0)
    one = simulate(50, alone, costs, FREE, n_recordings=20_000)
    ten = simulate(50, replace(alone, together=10), costs, FREE, n_recordings=20_000)
    assert one.limit == "scheduler"
    assert one.per_second == pytest.approx(100, rel=0.01)
    assert ten.per_second == pytest.approx(1000, rel=0.3)


@pytest.mark.parametrize(
    ("costs", "storage", "limit"),
    [
        (Costs(1e-3, 1e-4, 0.0), FREE, "client"),
        (Costs(1e-4, 1e-3, 0.0), FREE, "scheduler"),
        (NOTHING, Storage("disk", together=1e9), "storage"),
        (NOTHING, Storage("wire", home=1e6), "network"),
    ],
)
def test_the_narrowest_line_is_the_limit(
    costs: Costs, storage: Storage, limit: str
) -> None:
    """A thousand workers are held up by the narrowest line, a few by themselves."""
    work = Work(0.05, 1e6, 1e3)
    many = simulate(1000, work, costs, storage, n_recordings=5000)
    assert many.limit == limit
    assert many.per_second == pytest.approx(1000, rel=0.03)
    assert simulate(3, work, costs, storage, n_recordings=60).limit == "workers"


@given(
    n=st.integers(1, 40),
    work=st.builds(
        Work,
        st.floats(1e-3, 1.0),
        st.floats(0, 1e8),
        st.floats(0, 1e6),
        st.just(0.0) | st.floats(0.01, 0.5),
    ),
    costs=st.builds(Costs, *[st.floats(0, 1e-2)] * 3),
)
def test_no_run_is_faster_than_its_lines(n: int, work: Work, costs: Costs) -> None:
    """A run is no faster than its narrowest line, and at least half as fast.

    That holds where each worker has enough to do ahead.
    """
    storage = Storage("disk", one=1e8, together=1e9, home=1e8)
    run = simulate(n, work, costs, storage, n_recordings=40 * n, ahead=2)
    most = bounds(n, work, costs, storage)
    most["workers"] *= 1 + 3 * work.spread  # of so few tasks the mean is not exact
    assert run.per_second <= min(most.values()) * (1 + 1e-9)
    assert all(share <= 1 + 1e-9 for share in run.busy.values())
    assert run.per_second >= 0.5 * min(bounds(n, work, costs, storage).values())


def test_the_record_says_what_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell whose worker takes longer than allowed is there with its number."""
    monkeypatch.setattr(record, "WORKERS", (1, 4, 16))
    cell = {
        "nbytes": 2_000_000,
        "count": 24,
        "back_nbytes": 9_000,
        "spread": 0.02,
        "here_ms": 10.0,
        "one_ms": 12.0,
        "two_ms": 6.5,
        "pair_ms": 6.0,
        "one_more": 0.2,
    }
    costs = {"client_s": 1e-3, "scheduler_s": 1e-3, "worker_s": 1e-3}
    found = {"cells": [cell, cell], "array": {**cell, "one_more": 0.3}, "costs": costs}
    made = document(found, 7, "cpu")
    assert overhead(made) == pytest.approx(0.3)
    assert made["cells"][0]["simulated_one_ms"] > 10.0
    assert len(made["simulated"]) == 4
    assert [p["workers"] for p in made["simulated"][0]["points"]] == [1, 4, 16]
