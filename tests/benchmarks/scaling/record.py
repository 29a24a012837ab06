"""The record of a run: what was measured, and what the simulation makes of it."""

from __future__ import annotations

from typing import Any

from rlxweb.dask.packing import MOST_TOGETHER, TASK_BYTES
from tests.benchmarks import machine
from tests.benchmarks.scaling.simulation import Costs, Storage, Work, simulate

SCHEMA = "rlxweb.bench.scaling/1"
WORKERS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
HERE = Storage("this machine's memory")
# Assumed, not measured: what is usual for one reader, and for all of them together.
STORAGES = (
    Storage("object store", one=60e6, home=1.2e9),
    Storage("file server", one=500e6, together=1.2e9, home=1.2e9),
)
OVER = 0.05
"""What work may take longer on a worker than without a cluster."""


def document(found: dict[str, Any], rounds: int, device: str) -> dict[str, Any]:
    """What was measured, and the simulation that rests on it."""
    costs = Costs(**found["costs"])
    cells = [with_simulated(cell, costs) for cell in found["cells"]]
    chosen = (cells[0], cells[-1])
    return {
        "schema": SCHEMA,
        "machine": machine.facts(("rlxweb", "numpy", "dask", "distributed")),
        "settings": {
            "rounds": rounds,
            "device": device,
            "task_nbytes": TASK_BYTES,
            "most_together": MOST_TOGETHER,
        },
        "costs": found["costs"],
        "cells": cells,
        "array": found["array"],
        "simulated": [
            simulated(cell, costs, storage) for storage in STORAGES for cell in chosen
        ],
    }


def work_of(cell: dict[str, Any]) -> Work:
    """A recording as the simulation takes it."""
    together = min(MOST_TOGETHER, max(1, TASK_BYTES // cell["nbytes"]))
    return Work(
        cell["here_ms"] / 1e3,
        cell["nbytes"],
        cell["back_nbytes"],
        cell["spread"],
        together,
    )


def with_simulated(cell: dict[str, Any], costs: Costs) -> dict[str, Any]:
    """The cell with what the simulation says of the same two runs."""
    runs = {
        name: simulate(n, work_of(cell), costs, HERE, n_recordings=cell["count"])
        for name, n in (("one", 1), ("two", 2))
    }
    more = {f"simulated_{k}_ms": 1e3 / run.per_second for k, run in runs.items()}
    return {**cell, **more}


def simulated(cell: dict[str, Any], costs: Costs, storage: Storage) -> dict[str, Any]:
    """The rate at every number of workers, and what limits it there."""
    points = []
    for n in WORKERS:
        work = work_of(cell)
        n_recordings = 12 * max(40, n) * work.together
        run = simulate(n, work, costs, storage, n_recordings=n_recordings)
        busy = {name: round(share, 4) for name, share in run.busy.items()}
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
        "says": storage.says(),
        "nbytes": cell["nbytes"],
        "points": points,
    }


def overhead(made: dict[str, Any]) -> float:
    """How much longer one worker takes than no cluster, at the worst."""
    return max(float(cell["one_more"]) for cell in [*made["cells"], made["array"]])
