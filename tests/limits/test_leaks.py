"""Leaks: a second run makes nothing, and hundreds of runs leave nothing.

Counted by the port itself: driver objects made so far (`created`) and handles not yet
destroyed (`live`), on every adapter and through the public Session.
"""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb
from rlxweb import Graph
from rlxweb.backends.pool import pool
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.gpu.drive import drive
from rlxweb.gpu.native import NativePort
from rlxweb.gpu.port import Want
from tests.agreement import Array
from tests.ports import native, prepared
from tests.threads import at_once

pytestmark = pytest.mark.requires_wgpu

RUNS = 300
# frames kept of an allocation: from where the port calls wgpu down to cffi
DEEP = 12


def network(rows: int = 16) -> Graph:
    """One of each: region, kernel, copy, join, gather with its fault flag, table."""
    graph = Graph("network")
    x, w = graph.input("x", (rows, 8)), graph.param("w", (8, 8))
    at = graph.input("at", (5,), "i32")
    y = graph.gelu(x @ w + 1.0)
    turned = graph.cumsum(graph.transpose(y, (1, 0)))
    both = graph.concat([turned, graph.exp(turned * 0.01)], axis=0)
    spectrum, _ = graph.rfft(both)
    graph.set_outputs([graph.gather(both, at), graph.topk(y, 3), spectrum])
    return graph


def feeds(rows: int = 16, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.uniform(-1, 1, (rows, 8)).astype(np.float32),
        "at": rng.integers(0, 16, 5).astype(np.int32),
    }


@pytest.fixture
def port(adapter: Want) -> Iterator[NativePort]:
    """A port of this test's own, so that its counters count nothing else."""
    with native(adapter) as made:
        yield made


@pytest.fixture
def backend(port: NativePort) -> WebGpuBackend:
    return WebGpuBackend(port)


def network_on(backend: WebGpuBackend, rows: int = 16) -> Any:
    program = prepared(backend, network(rows))
    drive(backend.set_param(program, "w", np.eye(8, dtype=np.float32)))
    return program


def test_a_second_run_compiles_and_allocates_nothing(
    backend: WebGpuBackend, port: NativePort
) -> None:
    """A second run makes no buffer, pipeline or bind group."""
    program = network_on(backend)
    first = drive(backend.run(program, feeds()))
    made, live = dict(port.created), set(port.live)
    for seed in range(5):
        drive(backend.run(program, feeds(seed=seed)))
    again = drive(backend.run(program, feeds()))
    assert port.created == made
    assert port.live == live
    for one, same in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, same)
    drive(backend.release(program))


def test_handles_return_to_the_baseline(
    backend: WebGpuBackend, port: NativePort
) -> None:
    """Hundreds of runs over ten programs: only pipelines stay, and no new ones."""
    drive(backend.release(network_on(backend)))
    baseline, pipelines = set(port.live), port.created["pipelines"]
    for _ in range(10):
        program = network_on(backend)
        for seed in range(RUNS // 10):
            drive(backend.run(program, feeds(seed=seed)))
        drive(backend.release(program))
    assert port.live == baseline == set(backend.pipelines.values())
    assert port.created["pipelines"] == pipelines


def rows_of(rows: int) -> Graph:
    """Work along fixed axes, for a batch of any size."""
    graph = Graph("rows")
    x = graph.input("x", (rows, 12))
    y = graph.layer_norm(graph.exp(x) * 0.5, graph.constant([1.0] * 12), x[0])
    graph.set_outputs([graph.sum(graph.softmax(y), 1), graph.rfft_block(y)])
    return graph


def test_other_batches_reuse_the_shaders(
    backend: WebGpuBackend, port: NativePort
) -> None:
    """Sizes are uniforms: thirty batch sizes need the pipelines of the first few."""

    def prepare(rows: int) -> None:
        drive(backend.release(prepared(backend, rows_of(rows))))

    for rows in range(1, 9):
        prepare(rows)
    pipelines = port.created["pipelines"]
    for rows in range(9, 39):
        prepare(rows)
    assert port.created["pipelines"] <= pipelines + 3


@pytest.mark.full("opengl", "swiftshader")
def test_distinct_shaders_stay_within_their_bound(
    backend: WebGpuBackend, port: NativePort
) -> None:
    """Every constant is another shader; the oldest unused ones are destroyed."""
    kept = Graph("kept")
    kept.set_outputs([kept.input("x", (4,)) + 0.5])
    program = prepared(backend, kept)
    capacity = backend.pipelines.capacity
    for step in range(capacity + 20):
        graph = Graph("scaled")
        graph.set_outputs([graph.input("x", (4,)) * (1.0 + step)])
        drive(backend.release(prepared(backend, graph)))
    assert len(backend.pipelines) <= capacity + 1
    (out,) = drive(backend.run(program, {"x": np.zeros(4, np.float32)}))
    np.testing.assert_array_equal(out, np.full(4, 0.5))
    drive(backend.release(program))
    assert port.live == set(backend.pipelines.values())


@pytest.mark.full("opengl", "swiftshader")
def test_distinct_lengths_share_shaders_and_stay_within_their_bounds(
    adapter: Want,
) -> None:
    """Handles and bytes stop growing; the fused kernel is the same for any length."""
    (label,) = adapter.backends
    engine = pool.backend(label, adapter.name)
    assert isinstance(engine, WebGpuBackend)
    x = np.random.default_rng(0).standard_normal((2, 3000)).astype(np.float32)

    def live(first: int) -> tuple[int, int]:
        """Handles and bytes that live after 40 lengths nobody asked for before."""
        for n in range(first, first + 40):
            rlxweb.welch_peaks(x[:, :n], k=3, device=label, adapter=adapter.name)
        return len(engine.port.live), engine.kept.nbytes

    live(1000)
    pipelines = engine.port.created["pipelines"]
    handles, nbytes = live(1040)
    assert engine.port.created["pipelines"] <= pipelines + 2
    more, larger = live(1080)
    assert more <= handles + 8
    assert larger <= nbytes * 1.1
    assert len(engine.kept) <= engine.kept.count


def test_distinct_numbers_of_peaks_share_shaders(adapter: Want) -> None:
    """Twenty numbers of peaks need a shader for each power of two, or a single one.

    Nobody writes beyond the number asked for: each gives the first of the most.
    """
    (label,) = adapter.backends
    engine = pool.backend(label, adapter.name)
    assert isinstance(engine, WebGpuBackend)
    x = np.random.default_rng(6).standard_normal((2, 900)).astype(np.float32)
    pipelines = engine.port.created["pipelines"]
    found = [
        rlxweb.welch_peaks(x, k=k, nperseg=72, device=label, adapter=adapter.name).bins
        for k in range(1, 21)
    ]
    assert engine.port.created["pipelines"] - pipelines <= 6
    for bins in found:
        np.testing.assert_array_equal(bins, found[-1][:, : bins.shape[1]])


@pytest.mark.full("opengl", "swiftshader")
def test_dropped_programs_leave_nothing(
    backend: WebGpuBackend, port: NativePort
) -> None:
    """A program that was never released is freed when it is gone."""
    for _ in range(3):
        network_on(backend)
        gc.collect()
    drive(backend.release(network_on(backend)))
    assert port.live == set(backend.pipelines.values())


@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_graphs_that_are_run_and_dropped_are_gone(device: str) -> None:
    """No cache holds a graph, a param or a result of graphs that were dropped."""
    session, made = rlxweb.Session(device), []
    for k in range(20):
        graph = Graph("one")
        x, w = graph.input("x", (4, 8 + k)), graph.param("w", (8 + k, 8))
        graph.set_outputs([graph.gelu(x @ w + 1.0), graph.sum(x, (1,))])
        compiled, value = session.compile(graph), np.ones((8 + k, 8), np.float32)
        compiled.set_param("w", value)
        found = compiled.run({"x": np.ones((4, 8 + k), np.float32)})
        made += [weakref.ref(one) for one in (graph, compiled, value, *found)]
    del graph, x, w, compiled, value, found
    gc.collect()
    assert [one for one in made if one() is not None] == []


OURS = [
    tracemalloc.Filter(True, files, all_frames=True)
    for files in (f"{Path(rlxweb.__file__).parent}/*", "*/site-packages/wgpu/*")
]


def grown(work: Callable[[], object]) -> list[tracemalloc.StatisticDiff]:
    """What `work`, done in a thread of its own, left in Python, the largest first.

    A browser of other tests leaves an event loop running in this thread, with which
    wgpu queues something for every promise until the loop turns again; and threads
    that other tests left (Dask's profiler) allocate meanwhile: only what was asked for
    below a line of rlxweb or of wgpu counts.
    """

    def taken() -> tracemalloc.Snapshot:
        gc.collect()
        return tracemalloc.take_snapshot().filter_traces(OURS)

    found: list[tracemalloc.StatisticDiff] = []

    def measure() -> None:
        tracemalloc.start(DEEP)
        try:
            before = taken()
            work()
            found.extend(taken().compare_to(before, "traceback"))
        finally:
            tracemalloc.stop()

    at_once([measure])
    return found


@pytest.mark.full("opengl", "swiftshader")
def test_python_memory_does_not_grow(backend: WebGpuBackend) -> None:
    """A hundred runs after warming up keep less than 16 KiB of Python's memory.

    What leaks does so every time; what is kept once may be kept once.
    """
    program = network_on(backend)
    given = feeds()

    def run(times: int) -> None:
        for _ in range(times):
            drive(backend.run(program, given))

    run(50)
    left = min(
        (grown(lambda: run(100)) for _ in range(2)),
        key=lambda lines: sum(line.size_diff for line in lines),
    )
    assert sum(line.size_diff for line in left) < 16 << 10, "\n".join(
        "\n".join([str(line), *line.traceback.format()]) for line in left[:5]
    )
    drive(backend.release(program))


def test_close_leaves_no_handle(backend: WebGpuBackend, port: NativePort) -> None:
    """`close` leaves no handle of programs that are still prepared."""
    program = network_on(backend)
    drive(backend.run(program, feeds()))
    network_on(backend, 17)
    drive(backend.close())
    assert not port.live
    drive(backend.release(program))
