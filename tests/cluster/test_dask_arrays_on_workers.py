"""Check Dask arrays on the processes of a cluster: the same answers wherever a chunk
ran.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.base import key_split
from distributed import Client, wait
from numpy.typing import NDArray

import rlxweb as rlx
import rlxweb.dask as rd
from rlxweb.batch.cluster.resource_annotations import check_worker_resources
from rlxweb.core.errors import ClusterError, NotFinite, OutOfMemory
from tests.cluster.conftest import START_S, ClusterProcesses
from tests.wait_with_deadline import wait_until

X = np.random.default_rng(3).standard_normal((12, 512)).astype(np.float32)
LAZY = da.from_array(X, chunks=(2, -1))
OPTIONS: dict[str, Any] = {"nperseg": 64, "k": 2, "device": "cpu"}


def test_results_decisions_and_task_names(client: Client) -> None:
    """Workers give this machine's bits, by tasks whose names dashboards can show."""
    peaks = rd.welch_peaks(LAZY, 256, **OPTIONS).persist()
    wait(peaks)
    result, decisions = dask.compute(peaks, peaks.decisions)
    want = rlx.welch_peaks(X, 256, **OPTIONS)
    for name in ("bins", "hz", "power", "count"):
        np.testing.assert_array_equal(getattr(result, name), getattr(want, name))
    workers = set(client.scheduler_info(n_workers=-1)["workers"])
    (share,) = decisions
    assert set(share.workers) <= workers
    assert (share.rows, share.tasks) == (12, 6)
    assert result.decisions == decisions
    assert {key_split(f.key) for f in client.futures_of(peaks)} == {
        f"rlxweb-welch-peaks-{n}-of-piece"
        for n in ("bins", "hz", "power", "count", "ran")
    }


def test_errors_are_raised_unchanged_by_the_client(client: Client) -> None:
    bad = X.copy()
    bad[9, 3] = np.inf
    lazy = da.from_array(bad, chunks=(2, -1))
    with pytest.raises(NotFinite, match="channel 9 is inf at sample 3"):
        rd.welch(lazy, 256.0)[1].compute()
    with pytest.raises(rlx.RlxError, match="cuda"):
        rd.welch_peaks(LAZY, 256, 64, 2, device="cuda").compute()


def test_a_graph_on_workers(client: Client) -> None:
    """Params are sent once; each worker compiles the graph once and tests it there."""
    g = rlx.Graph("weighted")
    x, w = g.input("x", (2, 512)), g.param("w", (512, 4))
    g.set_outputs([g.relu(x @ w)])
    weights = X.T[:, :4].copy()
    (out,) = rd.run(g, {"x": LAZY}, params={"w": weights}, device="cpu")
    compiled = rlx.Session("cpu").compile(g)
    compiled.set_param("w", weights)
    chunks = [compiled.run({"x": X[start : start + 2]})[0] for start in range(0, 12, 2)]
    want = np.concatenate(chunks)
    np.testing.assert_array_equal(out.compute(), want)
    assert max(client.run(_compiled_count).values()) == 1


def _compiled_count() -> int:
    from rlxweb.batch.cluster.graph_tasks import _compiled_graphs as kept

    return len(kept)


def test_annotations_and_resources_select_workers(
    cluster_processes: ClusterProcesses,
) -> None:
    """`dask.annotate` says where chunks run, and goes through to the tasks."""
    scheduler = cluster_processes.scheduler()
    cluster_processes.worker(scheduler.address, "--name", "plain")
    cluster_processes.worker(scheduler.address, "--name", "gpu", "--resources", "GPU=1")
    with Client(scheduler.address, timeout=START_S) as client:
        client.wait_for_workers(2, timeout=START_S)
        info = client.scheduler_info(n_workers=-1)["workers"]
        (gpu,) = [
            address
            for address, worker_info in info.items()
            if worker_info["name"] == "gpu"
        ]
        with dask.annotate(resources={"GPU": 1}):
            peaks = rd.welch_peaks(LAZY, 256, **OPTIONS)
        assert peaks.compute().decisions[0].workers == (gpu,)
        # Dask fuses an array that is annotated too with what reads it.
        with dask.annotate(workers=gpu):
            one_row_peaks = rd.welch_peaks(
                da.from_array(X, chunks=(1, -1)), 256, **OPTIONS
            )
        assert one_row_peaks.compute().decisions[0].workers == (gpu,)
        assert client.compute(one_row_peaks).result(START_S).decisions[0].workers == (
            gpu,
        )
        # An array alone is Dask's, which loses annotations when it fuses tasks: a task
        # that comes elsewhere refuses.
        (plain,) = [address for address in info if address != gpu]
        misplaced = client.submit(
            check_worker_resources, {"GPU": 1}, "welch", workers=[plain]
        )
        with pytest.raises(
            ClusterError,
            match=r"0 of resource GPU; .* requires 1 of resource GPU; Dask",
        ):
            misplaced.result(timeout=START_S)
        assert peaks.power.compute(optimize_graph=False).shape == (12, 2)


def test_chunks_too_large_for_workers_are_refused(client: Client) -> None:
    """A chunk no worker can hold is refused with both numbers and chunks that fit."""
    long = da.zeros((1200, 2, 500_000), chunks=(600, 2, -1), dtype="f4")
    with pytest.raises(OutOfMemory) as error_info:
        rd.welch_peaks(long, 256, 64, 2)
    message = str(error_info.value)
    assert "a chunk of x is too large: 2.4 GB; a worker may use 2.15 GB" in message
    assert "x.rechunk({0: 53})" in message
    rd.welch_peaks(long.rechunk({0: 53}), 256, 64, 2)
    g = rlx.Graph("wide")
    g.set_outputs([g.relu(g.input("x", (1, 2, 500_000)))])
    with pytest.raises(OutOfMemory, match=r"x\.rechunk\(\{0: 53\}\)"):
        rd.run(g, {"x": long})


def delay_block(block: NDArray[Any], folder: str) -> NDArray[Any]:
    """Note that the block is started, then wait."""
    if block.size:
        Path(folder, f"{time.monotonic_ns()}.begun").touch()
        threading.Event().wait(0.2)
    return block


def test_results_are_identical_after_a_worker_is_killed(
    cluster_processes: ClusterProcesses,
) -> None:
    """Another worker repeats the work of a killed one, to the same bits."""
    scheduler = cluster_processes.scheduler()
    workers = [
        cluster_processes.worker(scheduler.address, "--no-nanny") for _ in range(2)
    ]
    with Client(scheduler.address, timeout=START_S) as client:
        client.wait_for_workers(2, timeout=START_S)
        lazy = LAZY.map_blocks(
            delay_block, str(cluster_processes.scratch), dtype=X.dtype, meta=X[:0]
        )
        peaks = rd.welch_peaks(lazy, 256, **OPTIONS)
        future = client.compute(peaks)
        list_started = cluster_processes.scratch.glob
        wait_until(lambda: len(list(list_started("*.begun"))) >= 3, "chunks were begun")
        workers[0].kill()
        result = future.result(timeout=START_S)
    want = rlx.welch_peaks(X, 256, **OPTIONS)
    for name in ("bins", "hz", "power", "count"):
        np.testing.assert_array_equal(getattr(result, name), getattr(want, name))
    assert result.decisions[0].rows == 12
