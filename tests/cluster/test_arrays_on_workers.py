"""Dask arrays on the processes of a cluster: same answers, wherever a chunk went."""

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
from rlxweb.dask.annotated import check_resources
from rlxweb.errors import ClusterError, NotFinite, OutOfMemory
from tests.cluster.conftest import START_S, Started
from tests.waiting import until

X = np.random.default_rng(3).standard_normal((12, 512)).astype(np.float32)
LAZY = da.from_array(X, chunks=(2, -1))
HOW: dict[str, Any] = {"nperseg": 64, "k": 2, "device": "cpu"}


def test_answers_decisions_and_names_of_tasks(client: Client) -> None:
    """Workers give this machine's bits, by tasks whose names dashboards can show."""
    peaks = rd.welch_peaks(LAZY, 256, **HOW).persist()
    wait(peaks)
    found, where = dask.compute(peaks, peaks.decisions)
    want = rlx.welch_peaks(X, 256, **HOW)
    for name in ("bins", "hz", "power", "count"):
        np.testing.assert_array_equal(getattr(found, name), getattr(want, name))
    workers = set(client.scheduler_info(n_workers=-1)["workers"])
    (share,) = where
    assert set(share.workers) <= workers
    assert (share.rows, share.tasks) == (12, 6)
    assert found.decisions == where
    assert {key_split(f.key) for f in client.futures_of(peaks)} == {
        f"rlxweb-welch-peaks-{n}-of-piece"
        for n in ("bins", "hz", "power", "count", "ran")
    }


def test_errors_come_home_as_they_are(client: Client) -> None:
    bad = X.copy()
    bad[9, 3] = np.inf
    lazy = da.from_array(bad, chunks=(2, -1))
    with pytest.raises(NotFinite, match="channel 9 is inf at sample 3"):
        rd.welch(lazy, 256.0)[1].compute()
    with pytest.raises(rlx.RlxError, match="cuda"):
        rd.welch_peaks(LAZY, 256, 64, 2, device="cuda").compute()


def test_a_graph_on_workers(client: Client) -> None:
    """Params go along once; each worker compiles once, tested where it is compiled."""
    g = rlx.Graph("weighted")
    x, w = g.input("x", (2, 512)), g.param("w", (512, 4))
    g.set_outputs([g.relu(x @ w)])
    weights = X.T[:, :4].copy()
    (out,) = rd.run(g, {"x": LAZY}, params={"w": weights}, device="cpu")
    once = rlx.Session("cpu").compile(g)
    once.set_param("w", weights)
    parts = [once.run({"x": X[at : at + 2]})[0] for at in range(0, 12, 2)]
    want = np.concatenate(parts)
    np.testing.assert_array_equal(out.compute(), want)
    assert max(client.run(_compiled).values()) == 1


def _compiled() -> int:
    from rlxweb.dask.programs import _compiled as kept

    return len(kept)


def test_annotations_and_resources_keep_to_their_workers(started: Started) -> None:
    """`dask.annotate` says where chunks run, and goes through to the tasks."""
    scheduler = started.scheduler()
    started.worker(scheduler.address, "--name", "plain")
    started.worker(scheduler.address, "--name", "gpu", "--resources", "GPU=1")
    with Client(scheduler.address, timeout=START_S) as client:
        client.wait_for_workers(2, timeout=START_S)
        info = client.scheduler_info(n_workers=-1)["workers"]
        (gpu,) = [address for address, one in info.items() if one["name"] == "gpu"]
        with dask.annotate(resources={"GPU": 1}):
            peaks = rd.welch_peaks(LAZY, 256, **HOW)
        assert peaks.compute().decisions[0].workers == (gpu,)
        # Dask fuses an array that is annotated too with what reads it.
        with dask.annotate(workers=gpu):
            found = rd.welch_peaks(da.from_array(X, chunks=(1, -1)), 256, **HOW)
        assert found.compute().decisions[0].workers == (gpu,)
        assert client.compute(found).result(START_S).decisions[0].workers == (gpu,)
        # An array alone is Dask's, which loses annotations when it fuses tasks: a task
        # that comes elsewhere refuses.
        (plain,) = [address for address in info if address != gpu]
        lost = client.submit(check_resources, {"GPU": 1}, "welch", workers=[plain])
        with pytest.raises(ClusterError, match=r"0 of GPU; .* annotated with GPU 1"):
            lost.result(timeout=START_S)
        assert peaks.power.compute(optimize_graph=False).shape == (12, 2)


def test_chunks_that_no_worker_can_hold_are_refused_at_once(client: Client) -> None:
    """A chunk no worker can hold is refused with both numbers and chunks that fit."""
    long = da.zeros((1200, 2, 500_000), chunks=(600, 2, -1), dtype="f4")
    with pytest.raises(OutOfMemory) as caught:
        rd.welch_peaks(long, 256, 64, 2)
    said = str(caught.value)
    assert "a chunk of x has 2.4 GB; a worker may use 2.15 GB" in said
    assert "x.rechunk({0: 53})" in said
    rd.welch_peaks(long.rechunk({0: 53}), 256, 64, 2)
    g = rlx.Graph("wide")
    g.set_outputs([g.relu(g.input("x", (1, 2, 500_000)))])
    with pytest.raises(OutOfMemory, match=r"x\.rechunk\(\{0: 53\}\)"):
        rd.run(g, {"x": long})


def slowly(block: NDArray[Any], folder: str) -> NDArray[Any]:
    """Says that it is at work, then takes its time."""
    if block.size:
        Path(folder, f"{time.monotonic_ns()}.begun").touch()
        threading.Event().wait(0.2)
    return block


def test_a_worker_that_is_killed_changes_no_bit(started: Started) -> None:
    """What a killed worker had done is computed again by another, to the same bits."""
    scheduler = started.scheduler()
    workers = [started.worker(scheduler.address, "--no-nanny") for _ in range(2)]
    with Client(scheduler.address, timeout=START_S) as client:
        client.wait_for_workers(2, timeout=START_S)
        lazy = LAZY.map_blocks(slowly, str(started.scratch), dtype=X.dtype, meta=X[:0])
        peaks = rd.welch_peaks(lazy, 256, **HOW)
        future = client.compute(peaks)
        begun = started.scratch.glob
        until(lambda: len(list(begun("*.begun"))) >= 3, "chunks were begun")
        workers[0].kill()
        found = future.result(timeout=START_S)
    want = rlx.welch_peaks(X, 256, **HOW)
    for name in ("bins", "hz", "power", "count"):
        np.testing.assert_array_equal(getattr(found, name), getattr(want, name))
    assert found.decisions[0].rows == 12
