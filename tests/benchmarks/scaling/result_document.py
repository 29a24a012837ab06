"""Result document of a run: the measurements and the simulation based on them."""

from __future__ import annotations

from typing import Any

from rlxweb.batch.cluster.task_packing import MAX_RECORDINGS_PER_TASK, MAX_TASK_NBYTES
from tests.benchmarks import machine_facts
from tests.benchmarks.scaling.simulation import (
    RecordingWork,
    StorageRates,
    TaskCosts,
    simulate,
)

SCHEMA = "rlxweb.bench.scaling/1"
WORKERS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
LOCAL_MEMORY = StorageRates("this machine's memory")
# Assumed, not measured: what is usual for one reader, and for all of them together.
STORAGES = (
    StorageRates("object store", per_worker=60e6, results=1.2e9),
    StorageRates("file server", per_worker=500e6, total=1.2e9, results=1.2e9),
)
MAX_OVERHEAD = 0.05
"""Largest permitted relative overhead of work on a worker over work without a cluster.
"""


def document(measurements: dict[str, Any], rounds: int, device: str) -> dict[str, Any]:
    """Return the measurements and the simulation based on them."""
    costs = TaskCosts(**measurements["costs"])
    cells = [add_simulated_times(cell, costs) for cell in measurements["cells"]]
    smallest_and_largest = (cells[0], cells[-1])
    return {
        "schema": SCHEMA,
        "machine": machine_facts.collect_facts(
            ("rlxweb", "numpy", "dask", "distributed")
        ),
        "settings": {
            "rounds": rounds,
            "device": device,
            "task_nbytes": MAX_TASK_NBYTES,
            "most_together": MAX_RECORDINGS_PER_TASK,
        },
        "costs": measurements["costs"],
        "cells": cells,
        "array": measurements["array"],
        "simulated": [
            simulate_rates(cell, costs, storage)
            for storage in STORAGES
            for cell in smallest_and_largest
        ],
    }


def recording_work(cell: dict[str, Any]) -> RecordingWork:
    """Convert a measured cell to one recording of the simulation."""
    max_per_task = min(
        MAX_RECORDINGS_PER_TASK, max(1, MAX_TASK_NBYTES // cell["nbytes"])
    )
    return RecordingWork(
        cell["here_ms"] / 1e3,
        cell["nbytes"],
        cell["back_nbytes"],
        cell["spread"],
        max_per_task,
    )


def add_simulated_times(cell: dict[str, Any], costs: TaskCosts) -> dict[str, Any]:
    """Return the cell with the simulated times of the same two runs."""
    runs = {
        name: simulate(
            n, recording_work(cell), costs, LOCAL_MEMORY, n_recordings=cell["count"]
        )
        for name, n in (("one", 1), ("two", 2))
    }
    simulated_times = {
        f"simulated_{k}_ms": 1e3 / run.per_second for k, run in runs.items()
    }
    return {**cell, **simulated_times}


def simulate_rates(
    cell: dict[str, Any], costs: TaskCosts, storage: StorageRates
) -> dict[str, Any]:
    """Simulate the rate and its limit at every number of workers."""
    points = []
    for n in WORKERS:
        work = recording_work(cell)
        n_recordings = 12 * max(40, n) * work.max_per_task
        run = simulate(n, work, costs, storage, n_recordings=n_recordings)
        busy = {name: round(share, 4) for name, share in run.busy_shares.items()}
        points.append(
            {
                "workers": n,
                "per_second": run.per_second,
                "limit": run.limit,
                "busy": busy,
            }
        )
    return {
        "storage": storage.name,
        "says": storage.describe(),
        "nbytes": cell["nbytes"],
        "points": points,
    }


def worst_overhead(result: dict[str, Any]) -> float:
    """Return the largest relative overhead of one worker over no cluster."""
    return max(float(cell["one_more"]) for cell in [*result["cells"], result["array"]])
