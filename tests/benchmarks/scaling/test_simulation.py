"""Tests of the scaling simulation: its invariants and its result document."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.scaling import result_document
from tests.benchmarks.scaling.result_document import document, worst_overhead
from tests.benchmarks.scaling.simulation import (
    RecordingWork,
    StorageRates,
    TaskCosts,
    simulate,
)

NO_COSTS = TaskCosts(0.0, 0.0, 0.0)
UNLIMITED_STORAGE = StorageRates("free")


def max_rates(
    n: int, work: RecordingWork, costs: TaskCosts, storage: StorageRates
) -> dict[str, float]:
    """Return the recordings per second that each resource can serve at most."""
    worker_s = work.compute_s + costs.worker_s + work.read_nbytes / storage.per_worker
    inverse = {
        "workers": worker_s / n,
        "client": costs.client_s,
        "scheduler": costs.scheduler_s,
        "storage": work.read_nbytes / storage.total,
        "network": work.result_nbytes / storage.results,
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
    run = simulate(
        n_workers,
        RecordingWork(0.5, 0, 0),
        NO_COSTS,
        UNLIMITED_STORAGE,
        n_recordings=n_recordings,
    )
    assert run.seconds == pytest.approx(seconds)


def test_recordings_of_one_task_share_its_cost() -> None:
    """A scheduler serves about ten times as many recordings where a task has ten."""
    costs, alone = TaskCosts(0.0, 1e-2, 0.0), RecordingWork(1e-2, 0, 0)
    single = simulate(50, alone, costs, UNLIMITED_STORAGE, n_recordings=20_000)
    batched = simulate(
        50,
        replace(alone, max_per_task=10),
        costs,
        UNLIMITED_STORAGE,
        n_recordings=20_000,
    )
    assert single.limit == "scheduler"
    assert single.per_second == pytest.approx(100, rel=0.01)
    assert batched.per_second == pytest.approx(1000, rel=0.3)


@pytest.mark.parametrize(
    ("costs", "storage", "limit"),
    [
        (TaskCosts(1e-3, 1e-4, 0.0), UNLIMITED_STORAGE, "client"),
        (TaskCosts(1e-4, 1e-3, 0.0), UNLIMITED_STORAGE, "scheduler"),
        (NO_COSTS, StorageRates("disk", total=1e9), "storage"),
        (NO_COSTS, StorageRates("wire", results=1e6), "network"),
    ],
)
def test_the_slowest_resource_is_the_limit(
    costs: TaskCosts, storage: StorageRates, limit: str
) -> None:
    """A thousand workers are limited by the slowest resource, a few by themselves."""
    work = RecordingWork(0.05, 1e6, 1e3)
    run = simulate(1000, work, costs, storage, n_recordings=5000)
    assert run.limit == limit
    assert run.per_second == pytest.approx(1000, rel=0.03)
    assert simulate(3, work, costs, storage, n_recordings=60).limit == "workers"


@given(
    n=st.integers(1, 40),
    work=st.builds(
        RecordingWork,
        st.floats(1e-3, 1.0),
        st.floats(0, 1e8),
        st.floats(0, 1e6),
        st.just(0.0) | st.floats(0.01, 0.5),
    ),
    costs=st.builds(TaskCosts, *[st.floats(0, 1e-2)] * 3),
)
def test_no_run_is_faster_than_its_resources(
    n: int, work: RecordingWork, costs: TaskCosts
) -> None:
    """A run is no faster than its slowest resource, and at least half as fast.

    That holds where each worker has enough to do ahead.
    """
    storage = StorageRates("disk", per_worker=1e8, total=1e9, results=1e8)
    run = simulate(n, work, costs, storage, n_recordings=40 * n, tasks_per_worker=2)
    limits = max_rates(n, work, costs, storage)
    limits["workers"] *= 1 + 3 * work.spread  # of so few tasks the mean is not exact
    assert run.per_second <= min(limits.values()) * (1 + 1e-9)
    assert all(share <= 1 + 1e-9 for share in run.busy_shares.values())
    assert run.per_second >= 0.5 * min(max_rates(n, work, costs, storage).values())


def test_document_includes_cells_over_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cell whose worker takes longer than allowed is there with its number."""
    monkeypatch.setattr(result_document, "WORKERS", (1, 4, 16))
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
    measurements = {
        "cells": [cell, cell],
        "array": {**cell, "one_more": 0.3},
        "costs": costs,
    }
    result = document(measurements, 7, "cpu")
    assert worst_overhead(result) == pytest.approx(0.3)
    assert result["cells"][0]["simulated_one_ms"] > 10.0
    assert len(result["simulated"]) == 4
    assert [p["workers"] for p in result["simulated"][0]["points"]] == [1, 4, 16]
