"""The WebGPU backend over a fake port: which verbs it calls, and what it leaves behind.

What the shaders compute is tested on real adapters (tests/ops); here the fake's Python
kernels stand in for one generated shader.
"""

from __future__ import annotations

import gc
import threading
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.compile.pipeline import compile_graph
from rlxweb.errors import (
    DeviceLost,
    DTypeError,
    IndexRefused,
    LimitExceeded,
    OutOfMemory,
    SessionClosed,
)
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Copy
from rlxweb.host.welch_graph import welch_graph
from rlxweb.ir.graph import Graph
from rlxweb.limits import Limits, shrunk
from rlxweb.signal.presets import from_preset
from tests.fake_port import Failure
from tests.ports import compute, fake, prepared, scaled, source_of
from tests.threads import WAIT_S, at_once, begin

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def backend_over(*fail: Failure, **options: Any) -> WebGpuBackend:
    kernels = {source_of(scaled()): compute}
    return WebGpuBackend(fake(*fail, kernels=kernels, **options))


def with_ones(backend: WebGpuBackend) -> Any:
    """The program of `scaled` with a param of ones, so that it adds 1."""
    made = prepared(backend, scaled())
    drive(backend.set_param(made, "w", np.ones((4, 3), np.float32)))
    return made


def run(backend: WebGpuBackend, program: Any, **feeds: Any) -> list[Any]:
    outs: list[Any] = drive(backend.run(program, feeds))
    return outs


@pytest.fixture
def backend() -> WebGpuBackend:
    return backend_over()


@pytest.fixture
def program(backend: WebGpuBackend) -> Any:
    return with_ones(backend)


def test_a_run_is_one_write_one_submission_one_read(
    backend: WebGpuBackend, program: Any
) -> None:
    """The param was written when it was set, and is not written again."""
    port = backend.port
    before = len(port.calls)
    (out,) = run(backend, program, x=X)
    np.testing.assert_array_equal(out, X * 2 + 1)
    assert port.calls[before:] == ["write", "submit", "read"]


def test_a_second_run_makes_nothing(backend: WebGpuBackend, program: Any) -> None:
    """A second run makes no buffer, pipeline or bind group; commands are the same."""
    run(backend, program, x=X)
    made, live = dict(backend.port.created), set(backend.port.live)
    np.testing.assert_array_equal(run(backend, program, x=-X)[0], -X * 2 + 1)
    assert backend.port.created == made
    assert backend.port.live == live
    first, second = backend.port.submissions
    assert first is second or first == second


def test_pipelines_are_shared_by_programs_of_one_structure(
    backend: WebGpuBackend, program: Any
) -> None:
    """Another shape compiles nothing."""
    made = backend.port.created["pipelines"]
    prepared(backend, scaled((2, 8)))
    assert backend.port.created["pipelines"] == made


def test_release_frees_the_buffers_and_keeps_the_pipelines(
    backend: WebGpuBackend, program: Any
) -> None:
    """Releasing, once or twice, frees the buffers; the pipelines stay live."""
    drive(backend.release(program))
    drive(backend.release(program))
    assert backend.port.live == set(backend.pipelines.values())


def test_a_dropped_program_is_freed_at_the_next_call(backend: WebGpuBackend) -> None:
    """A dropped program is freed without `release`, at the next call."""
    prepared(backend, scaled())
    gc.collect()
    buffers = len(backend.port.live) - len(backend.pipelines)
    assert buffers > 0
    again = prepared(backend, scaled())
    assert len(backend.port.live) - len(backend.pipelines) == buffers
    assert again.owned


def test_close_frees_everything_and_ends_use(
    backend: WebGpuBackend, program: Any
) -> None:
    """A closed engine says so at every call; releasing is harmless."""
    drive(backend.close())
    drive(backend.close())
    assert not backend.port.live
    drive(backend.release(program))
    for call in (
        lambda: run(backend, program, x=X),
        lambda: prepared(backend, scaled()),
        lambda: drive(backend.set_param(program, "w", X)),
    ):
        with pytest.raises(SessionClosed, match="was closed"):
            call()


@pytest.mark.parametrize("at", range(1, 8))
def test_a_failed_prepare_leaves_nothing(at: int) -> None:
    """Out of memory at any buffer is freed and told, and the next prepare works."""
    backend = backend_over(Failure(at + 1, "out-of-memory"))
    plan = compile_graph(scaled(), backend.target)
    try:
        program = drive(backend.prepare(plan))
    except OutOfMemory:
        assert backend.port.live == set(backend.pipelines.values())
        program = drive(backend.prepare(plan))
    drive(backend.set_param(program, "w", np.ones((4, 3), np.float32)))
    np.testing.assert_array_equal(run(backend, program, x=X)[0], X * 2 + 1)


def test_runs_of_one_program_take_turns() -> None:
    """No submission of one falls between the input and the answer of another."""
    inside, most = 0, 0

    def watched(views: Any, constants: Any, grid: Any) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        compute(views, constants, grid)
        inside -= 1

    backend = WebGpuBackend(fake(kernels={source_of(scaled()): watched}))
    program = with_ones(backend)

    def work(k: int) -> None:
        for _ in range(30):
            (out,) = run(backend, program, x=X + k)
            np.testing.assert_array_equal(out, (X + k) * 2 + 1)

    at_once([partial(work, k) for k in range(6)])
    assert most == 1


def test_a_program_is_released_when_its_run_is_over() -> None:
    """A release lets the program's run end; after that the program is refused."""
    running, go_on = threading.Event(), threading.Event()

    def slow(views: Any, constants: Any, grid: Any) -> None:
        compute(views, constants, grid)
        running.set()
        go_on.wait(WAIT_S)

    backend = WebGpuBackend(fake(kernels={source_of(scaled()): slow}))
    program = with_ones(backend)
    found: list[Any] = []
    threads = begin(
        [
            lambda: found.append(run(backend, program, x=X)),
            lambda: running.wait(WAIT_S) and drive(backend.release(program)),
        ]
    )
    assert running.wait(WAIT_S)
    go_on.set()
    for thread in threads:
        thread.join(WAIT_S)
    np.testing.assert_array_equal(found[0][0], X * 2 + 1)
    with pytest.raises(SessionClosed, match="this compiled graph was closed"):
        run(backend, program, x=X)


def test_a_failed_run_does_not_keep_its_turn() -> None:
    """A wrong submission is told; a run on another thread is told the same."""
    backend = backend_over(Failure("read", "map-rejected"))
    program = with_ones(backend)

    def work() -> None:
        with pytest.raises(DeviceLost, match="lost"):
            run(backend, program, x=X)

    work()
    at_once([work])


def test_a_closed_engine_says_that_its_device_was_lost() -> None:
    """A lost engine that is closed gives the loss as the reason, not the closing."""
    backend = backend_over(Failure("read", "lost"))
    program = with_ones(backend)
    for _ in range(2):
        with pytest.raises(DeviceLost, match="it was asked to go"):
            run(backend, program, x=X)
        drive(backend.close())
    with pytest.raises(DeviceLost, match="it was asked to go"):
        drive(backend.prepare(compile_graph(scaled(), backend.target)))


def test_bad_data_seen_by_a_shader_is_an_error() -> None:
    """The flag that gather raises comes back with the results and is cleared."""
    graph = Graph("lookup")
    table, at = graph.input("table", (5,)), graph.input("at", (3,), "i32")
    graph.set_outputs([graph.gather(table, at)])
    raised = [1]

    def flagged(views: Any, constants: Any, grid: Any) -> None:
        np.frombuffer(views[-2], np.uint32)[:] += raised.pop() if raised else 0

    backend = WebGpuBackend(fake(kernels={source_of(graph): flagged}))
    program = prepared(backend, graph)
    feeds = {"table": np.zeros(5, np.float32), "at": np.zeros(3, np.int32)}
    with pytest.raises(IndexRefused, match="below the number of rows"):
        run(backend, program, **feeds)
    assert run(backend, program, **feeds)[0].shape == (3,)


@pytest.mark.parametrize("features", [(), ("shader-f16",)])
def test_half_floats_follow_the_feature(features: tuple[str, ...]) -> None:
    """Half floats run with the feature; without it they are refused by name."""
    backend = backend_over(features=features)
    graph = Graph()
    graph.set_outputs([graph.exp(graph.input("x", (3,), "f16"))])
    if features:
        prepared(backend, graph)
    else:
        with pytest.raises(DTypeError, match="no f16; it has bool, f32, i32, u32"):
            prepared(backend, graph)


def test_stricter_limits_may_be_asked_for() -> None:
    """A plan keeps to stricter limits although the port would allow more."""
    port = fake()
    backend = WebGpuBackend(port, limits=shrunk())
    assert backend.target.max_operands == 3
    program = prepared(backend, scaled((4000,)))
    run(backend, program, x=np.zeros(4000, np.float32))
    dispatches = [c for c in port.submissions[0] if not isinstance(c, Copy)]
    assert len(dispatches) > 1


def test_a_buffer_over_the_limit_is_refused_with_both_numbers() -> None:
    """A buffer over the limit is refused before anything is made."""
    backend = backend_over(limits=Limits(max_buffer_size=1 << 10))
    with pytest.raises(LimitExceeded, match=r"4,000 bytes; this device allows 1,024"):
        prepared(backend, scaled((1000,)))
    assert not backend.port.live - set(backend.pipelines.values())


@pytest.mark.parametrize("dtype", ["bool", "i32", "u32", "f32"])
def test_inputs_pass_through_in_every_type(dtype: str) -> None:
    """Bool lies as words and comes back as bool; all ranks, empty ones too."""
    backend = backend_over()
    graph = Graph()
    shapes = [(), (3,), (0, 2), (5, 1)]
    graph.set_outputs(
        [graph.input(f"x{k}", shape, dtype) for k, shape in enumerate(shapes)]
    )
    program = prepared(backend, graph)
    kind = graph.node(0).type.dtype.numpy
    feeds = {f"x{k}": np.ones(s, kind) for k, s in enumerate(shapes)}
    for out, fed in zip(run(backend, program, **feeds), feeds.values(), strict=True):
        assert out.dtype == kind
        np.testing.assert_array_equal(out, fed)


def test_a_software_gpu_of_a_browser_gets_no_workgroup_memory() -> None:
    """A browser's software GPU would zero workgroup memory by cell: it gets none."""
    spec = from_preset("rlx", 384, nperseg=256, dtype=np.float32)
    graph = welch_graph((64, 384), spec, 4)
    assert "var<workgroup>" in source_of(graph)
    tab = fake()
    tab._facts = replace(tab.facts, backend="webgpu")
    prepared(WebGpuBackend(tab), graph)
    assert tab.pipelines
    assert not any("var<workgroup>" in p.source for p in tab.pipelines.values())
