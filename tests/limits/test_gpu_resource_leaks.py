"""Check for GPU resource leaks: a second run creates nothing, and hundreds of runs
leave nothing behind.

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
from rlxweb.engines.engine_caches import engine_caches
from rlxweb.engines.pool import pool
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.gpu.wgpu_port import WgpuPort
from tests.engines_under_test import Array
from tests.gpu_ports import open_native_port, prepare_graph
from tests.run_in_threads import run_concurrently

pytestmark = pytest.mark.requires_wgpu

RUN_COUNT = 300
# frames kept of an allocation: from where the port calls wgpu down to cffi
TRACE_FRAMES = 12


def network_graph(rows: int = 16) -> Graph:
    """Return a graph with an elementwise region, a kernel, a copy, a concatenation, a
    gather with its fault flag and a table.
    """
    graph = Graph("network")
    x, w = graph.input("x", (rows, 8)), graph.param("w", (8, 8))
    indices = graph.input("at", (5,), "i32")
    y = graph.gelu(x @ w + 1.0)
    cumulative = graph.cumsum(graph.transpose(y, (1, 0)))
    both = graph.concat([cumulative, graph.exp(cumulative * 0.01)], axis=0)
    spectrum, _ = graph.rfft(both)
    graph.set_outputs([graph.gather(both, indices), graph.topk(y, 3), spectrum])
    return graph


def random_feeds(rows: int = 16, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.uniform(-1, 1, (rows, 8)).astype(np.float32),
        "at": rng.integers(0, 16, 5).astype(np.int32),
    }


@pytest.fixture
def port(adapter: AdapterRequest) -> Iterator[WgpuPort]:
    """Port of one test alone, so that its counters count nothing else."""
    with open_native_port(adapter) as port:
        yield port


@pytest.fixture
def engine(port: WgpuPort) -> WebGpuEngine:
    return WebGpuEngine(port)


def prepare_network(engine: WebGpuEngine, rows: int = 16) -> Any:
    program = prepare_graph(engine, network_graph(rows))
    run_blocking(program.set_param("w", np.eye(8, dtype=np.float32)))
    return program


def test_a_second_run_compiles_and_allocates_nothing(
    engine: WebGpuEngine, port: WgpuPort
) -> None:
    """A second run creates no buffer, pipeline or bind group."""
    program = prepare_network(engine)
    first = run_blocking(engine.run(program, random_feeds()))
    created, live = dict(port.created_counts), set(port.live_handles)
    for seed in range(5):
        run_blocking(engine.run(program, random_feeds(seed=seed)))
    last = run_blocking(engine.run(program, random_feeds()))
    assert port.created_counts == created
    assert port.live_handles == live
    for first_output, last_output in zip(first, last, strict=True):
        np.testing.assert_array_equal(first_output, last_output)
    run_blocking(program.close())


def test_handles_return_to_the_baseline(engine: WebGpuEngine, port: WgpuPort) -> None:
    """Hundreds of runs over ten programs: only pipelines stay, and no new ones."""
    run_blocking(prepare_network(engine).close())
    baseline, pipelines = set(port.live_handles), port.created_counts["pipelines"]
    for _ in range(10):
        program = prepare_network(engine)
        for seed in range(RUN_COUNT // 10):
            run_blocking(engine.run(program, random_feeds(seed=seed)))
        run_blocking(program.close())
    assert port.live_handles == baseline == set(engine.pipelines.handles())
    assert port.created_counts["pipelines"] == pipelines


def rows_graph(rows: int) -> Graph:
    """Return a graph that works along fixed axes, for a batch of any size."""
    graph = Graph("rows")
    x = graph.input("x", (rows, 12))
    y = graph.layer_norm(graph.exp(x) * 0.5, graph.constant([1.0] * 12), x[0])
    graph.set_outputs([graph.sum(graph.softmax(y), 1), graph.rfft_block(y)])
    return graph


def test_other_batches_reuse_the_shaders(engine: WebGpuEngine, port: WgpuPort) -> None:
    """Sizes are uniforms: thirty batch sizes need the pipelines of the first few."""

    def prepare(rows: int) -> None:
        run_blocking(prepare_graph(engine, rows_graph(rows)).close())

    for rows in range(1, 9):
        prepare(rows)
    pipelines = port.created_counts["pipelines"]
    for rows in range(9, 39):
        prepare(rows)
    assert port.created_counts["pipelines"] <= pipelines + 3


@pytest.mark.full("opengl", "swiftshader")
def test_distinct_shaders_stay_within_their_bound(
    engine: WebGpuEngine, port: WgpuPort
) -> None:
    """Each constant needs another shader; the oldest unused ones are destroyed."""
    retained_graph = Graph("kept")
    retained_graph.set_outputs([retained_graph.input("x", (4,)) + 0.5])
    program = prepare_graph(engine, retained_graph)
    capacity = engine.pipelines.capacity
    for step in range(capacity + 20):
        graph = Graph("scaled")
        graph.set_outputs([graph.input("x", (4,)) * (1.0 + step)])
        run_blocking(prepare_graph(engine, graph).close())
    assert len(engine.pipelines) <= capacity + 1
    (out,) = run_blocking(engine.run(program, {"x": np.zeros(4, np.float32)}))
    np.testing.assert_array_equal(out, np.full(4, 0.5))
    run_blocking(program.close())
    assert port.live_handles == set(engine.pipelines.handles())


@pytest.mark.full("opengl", "swiftshader")
def test_distinct_lengths_share_shaders_and_stay_within_their_bounds(
    adapter: AdapterRequest,
) -> None:
    """Handles and bytes stop growing; the fused kernel is the same for any length."""
    (label,) = adapter.backends
    engine = pool.engine(label, adapter.name)
    assert isinstance(engine, WebGpuEngine)
    x = np.random.default_rng(0).standard_normal((2, 3000)).astype(np.float32)

    def live(first: int) -> tuple[int, int]:
        """Return the live handles and bytes after 40 lengths that were not requested
        before.
        """
        for n in range(first, first + 40):
            rlxweb.welch_peaks(x[:, :n], k=3, device=label, adapter=adapter.name)
        return len(engine.port.live_handles), engine_caches(engine).programs.nbytes

    live(1000)
    pipelines = engine.port.created_counts["pipelines"]
    handles, nbytes = live(1040)
    assert engine.port.created_counts["pipelines"] <= pipelines + 2
    last_handles, last_nbytes = live(1080)
    assert last_handles <= handles + 8
    assert last_nbytes <= nbytes * 1.1
    programs = engine_caches(engine).programs
    assert len(programs) <= programs.max_count


def test_distinct_numbers_of_peaks_share_shaders(adapter: AdapterRequest) -> None:
    """Twenty numbers of peaks need a shader for each power of two, or a single one.

    Nobody writes beyond the number asked for: each gives the first of the most.
    """
    (label,) = adapter.backends
    engine = pool.engine(label, adapter.name)
    assert isinstance(engine, WebGpuEngine)
    x = np.random.default_rng(6).standard_normal((2, 900)).astype(np.float32)
    pipelines = engine.port.created_counts["pipelines"]
    bins_by_count = [
        rlxweb.welch_peaks(x, k=k, nperseg=72, device=label, adapter=adapter.name).bins
        for k in range(1, 21)
    ]
    assert engine.port.created_counts["pipelines"] - pipelines <= 6
    for bins in bins_by_count:
        np.testing.assert_array_equal(bins, bins_by_count[-1][:, : bins.shape[1]])


@pytest.mark.full("opengl", "swiftshader")
def test_unreleased_programs_are_freed_when_dropped(
    engine: WebGpuEngine, port: WgpuPort
) -> None:
    """A program that was never released is freed when it is gone."""
    for _ in range(3):
        prepare_network(engine)
        gc.collect()
    run_blocking(prepare_network(engine).close())
    assert port.live_handles == set(engine.pipelines.handles())


@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_dropped_graphs_are_garbage_collected(device: str) -> None:
    """No cache holds a graph, a param or a result of graphs that were dropped."""
    session, references = rlxweb.Session(device), []
    for k in range(20):
        graph = Graph("one")
        x, w = graph.input("x", (4, 8 + k)), graph.param("w", (8 + k, 8))
        graph.set_outputs([graph.gelu(x @ w + 1.0), graph.sum(x, (1,))])
        compiled, value = session.compile(graph), np.ones((8 + k, 8), np.float32)
        compiled.set_param("w", value)
        results = compiled.run({"x": np.ones((4, 8 + k), np.float32)})
        references += [
            weakref.ref(reference) for reference in (graph, compiled, value, *results)
        ]
    del graph, x, w, compiled, value, results
    gc.collect()
    assert [reference for reference in references if reference() is not None] == []


PACKAGE_FILTERS = [
    tracemalloc.Filter(True, files, all_frames=True)
    for files in (f"{Path(rlxweb.__file__).parent}/*", "*/site-packages/wgpu/*")
]


def allocation_growth(work: Callable[[], object]) -> list[tracemalloc.StatisticDiff]:
    """Return the Python allocations that `work`, run in its own thread, left behind,
    the largest first.

    A browser of other tests leaves an event loop running in this thread, with which
    wgpu queues something for every promise until the loop turns again; and threads
    that other tests left (Dask's profiler) allocate meanwhile: only what was asked for
    below a line of rlxweb or of wgpu counts.
    """

    def take_snapshot() -> tracemalloc.Snapshot:
        gc.collect()
        return tracemalloc.take_snapshot().filter_traces(PACKAGE_FILTERS)

    differences: list[tracemalloc.StatisticDiff] = []

    def measure() -> None:
        tracemalloc.start(TRACE_FRAMES)
        try:
            before = take_snapshot()
            work()
            differences.extend(take_snapshot().compare_to(before, "traceback"))
        finally:
            tracemalloc.stop()

    run_concurrently([measure])
    return differences


@pytest.mark.full("opengl", "swiftshader")
def test_python_memory_does_not_grow(engine: WebGpuEngine) -> None:
    """A hundred runs after warming up keep less than 16 KiB of Python's memory.

    What leaks does so every time; what is kept once may be kept once.
    """
    program = prepare_network(engine)
    feeds = random_feeds()

    def run(count: int) -> None:
        for _ in range(count):
            run_blocking(engine.run(program, feeds))

    run(50)
    remaining = min(
        (allocation_growth(lambda: run(100)) for _ in range(2)),
        key=lambda lines: sum(line.size_diff for line in lines),
    )
    assert sum(line.size_diff for line in remaining) < 16 << 10, "\n".join(
        "\n".join([str(line), *line.traceback.format()]) for line in remaining[:5]
    )
    run_blocking(program.close())


def test_close_leaves_no_handle(engine: WebGpuEngine, port: WgpuPort) -> None:
    """`close` leaves no handle of programs that are still prepared."""
    program = prepare_network(engine)
    run_blocking(engine.run(program, random_feeds()))
    prepare_network(engine, 17)
    run_blocking(engine.close())
    assert not port.live_handles
    run_blocking(program.close())
