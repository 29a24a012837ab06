"""WebGPU engine over a fake port: the verbs it calls, and the objects it leaves
behind.

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

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.errors import (
    DeviceLost,
    DTypeError,
    IndexRefused,
    LimitExceeded,
    OutOfMemory,
    SessionClosed,
)
from rlxweb.core.limits import Limits, tiny_limits
from rlxweb.cost.calibration_record import AutotuneResult
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import BufferCopy
from rlxweb.ir.graph import Graph
from rlxweb.ops.welch.graph import welch_graph
from rlxweb.signal.presets import spec_from_preset
from tests.fake_gpu_port import InjectedFailure
from tests.gpu_ports import (
    compute_scaled,
    open_fake_port,
    prepare_graph,
    scaled_graph,
    shader_source,
)
from tests.run_in_threads import WAIT_S, run_concurrently, start_threads

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def fake_port_engine(*fail: InjectedFailure, **options: Any) -> WebGpuEngine:
    kernels = {shader_source(scaled_graph()): compute_scaled}
    return WebGpuEngine(open_fake_port(*fail, kernels=kernels, **options))


def prepare_with_ones(engine: WebGpuEngine) -> Any:
    """Return the program of `scaled` with a param of ones, so that it adds 1."""
    prepared_program = prepare_graph(engine, scaled_graph())
    run_blocking(prepared_program.set_param("w", np.ones((4, 3), np.float32)))
    return prepared_program


def run_program(engine: WebGpuEngine, program: Any, **feeds: Any) -> list[Any]:
    outs: list[Any] = run_blocking(engine.run(program, feeds))
    return outs


@pytest.fixture
def engine() -> WebGpuEngine:
    return fake_port_engine()


@pytest.fixture
def program(engine: WebGpuEngine) -> Any:
    return prepare_with_ones(engine)


def test_a_run_is_one_write_one_submission_one_read(
    engine: WebGpuEngine, program: Any
) -> None:
    """The param was written when it was set, and is not written again."""
    port = engine.port
    before = len(port.calls)
    (out,) = run_program(engine, program, x=X)
    np.testing.assert_array_equal(out, X * 2 + 1)
    assert port.calls[before:] == ["write", "submit", "read"]


def test_second_run_creates_nothing(engine: WebGpuEngine, program: Any) -> None:
    """A second run creates no buffer, pipeline or bind group; its commands are the
    same.
    """
    run_program(engine, program, x=X)
    created, live = dict(engine.port.created_counts), set(engine.port.live_handles)
    np.testing.assert_array_equal(run_program(engine, program, x=-X)[0], -X * 2 + 1)
    assert engine.port.created_counts == created
    assert engine.port.live_handles == live
    first, second = engine.port.submissions
    assert first is second or first == second


def test_pipelines_are_shared_by_programs_of_one_structure(
    engine: WebGpuEngine, program: Any
) -> None:
    """A program of another shape compiles nothing."""
    created = engine.port.created_counts["pipelines"]
    prepare_graph(engine, scaled_graph((2, 8)))
    assert engine.port.created_counts["pipelines"] == created


def test_release_frees_the_buffers_and_keeps_the_pipelines(
    engine: WebGpuEngine, program: Any
) -> None:
    """Releasing, once or twice, frees the buffers; the pipelines stay live."""
    run_blocking(program.close())
    run_blocking(program.close())
    assert engine.port.live_handles == set(engine.pipelines.handles())


def test_a_dropped_program_is_freed_at_the_next_call(engine: WebGpuEngine) -> None:
    """A dropped program is freed without `release`, at the next call."""
    prepare_graph(engine, scaled_graph())
    gc.collect()
    buffers = len(engine.port.live_handles) - len(engine.pipelines)
    assert buffers > 0
    second = prepare_graph(engine, scaled_graph())
    assert len(engine.port.live_handles) - len(engine.pipelines) == buffers
    assert second.owned_handles


def test_close_frees_everything_and_ends_use(
    engine: WebGpuEngine, program: Any
) -> None:
    """A closed engine says so at every call; releasing is harmless."""
    run_blocking(engine.close())
    run_blocking(engine.close())
    assert not engine.port.live_handles
    run_blocking(program.close())
    for call in (
        lambda: run_program(engine, program, x=X),
        lambda: prepare_graph(engine, scaled_graph()),
        lambda: run_blocking(program.set_param("w", X)),
    ):
        with pytest.raises(SessionClosed, match="was closed"):
            call()


@pytest.mark.parametrize("buffer_index", range(1, 8))
def test_a_failed_prepare_leaves_nothing(buffer_index: int) -> None:
    """Out of memory at any buffer is reported and freed, and the next prepare works."""
    engine = fake_port_engine(InjectedFailure(buffer_index + 1, "out-of-memory"))
    plan = compile_graph(scaled_graph(), engine.target)
    try:
        program = run_blocking(engine.prepare(plan))
    except OutOfMemory:
        assert engine.port.live_handles == set(engine.pipelines.handles())
        program = run_blocking(engine.prepare(plan))
    run_blocking(program.set_param("w", np.ones((4, 3), np.float32)))
    np.testing.assert_array_equal(run_program(engine, program, x=X)[0], X * 2 + 1)


def test_runs_of_one_program_are_serialized() -> None:
    """No submission of one run falls between the input and the output of another."""
    n_inside, max_inside = 0, 0

    def counting_kernel(views: Any, constants: Any, grid: Any) -> None:
        nonlocal n_inside, max_inside
        n_inside += 1
        max_inside = max(max_inside, n_inside)
        compute_scaled(views, constants, grid)
        n_inside -= 1

    engine = WebGpuEngine(
        open_fake_port(kernels={shader_source(scaled_graph()): counting_kernel})
    )
    program = prepare_with_ones(engine)

    def work(k: int) -> None:
        for _ in range(30):
            (out,) = run_program(engine, program, x=X + k)
            np.testing.assert_array_equal(out, (X + k) * 2 + 1)

    run_concurrently([partial(work, k) for k in range(6)])
    assert max_inside == 1


def test_a_program_is_released_when_its_run_is_over() -> None:
    """A release lets the program's run end; after that the program is refused."""
    running, go_on = threading.Event(), threading.Event()

    def slow_kernel(views: Any, constants: Any, grid: Any) -> None:
        compute_scaled(views, constants, grid)
        running.set()
        go_on.wait(WAIT_S)

    engine = WebGpuEngine(
        open_fake_port(kernels={shader_source(scaled_graph()): slow_kernel})
    )
    program = prepare_with_ones(engine)
    results: list[Any] = []
    threads = start_threads(
        [
            lambda: results.append(run_program(engine, program, x=X)),
            lambda: running.wait(WAIT_S) and run_blocking(program.close()),
        ]
    )
    assert running.wait(WAIT_S)
    go_on.set()
    for thread in threads:
        thread.join(WAIT_S)
    np.testing.assert_array_equal(results[0][0], X * 2 + 1)
    with pytest.raises(SessionClosed, match="this compiled graph was closed"):
        run_program(engine, program, x=X)


def test_failed_run_releases_the_run_lock() -> None:
    """A failed submission is reported; a run on another thread gets the same error."""
    engine = fake_port_engine(InjectedFailure("read", "map-rejected"))
    program = prepare_with_ones(engine)

    def work() -> None:
        with pytest.raises(DeviceLost, match="lost"):
            run_program(engine, program, x=X)

    work()
    run_concurrently([work])


def test_a_closed_engine_says_that_its_device_was_lost() -> None:
    """A lost engine that is closed gives the loss as the reason, not the closing."""
    engine = fake_port_engine(InjectedFailure("read", "lost"))
    program = prepare_with_ones(engine)
    for _ in range(2):
        with pytest.raises(DeviceLost, match="it was asked to go"):
            run_program(engine, program, x=X)
        run_blocking(engine.close())
    with pytest.raises(DeviceLost, match="it was asked to go"):
        run_blocking(engine.prepare(compile_graph(scaled_graph(), engine.target)))


def test_bad_data_seen_by_a_shader_is_an_error() -> None:
    """The error flag that gather sets comes back with the results and is cleared."""
    graph = Graph("lookup")
    table, indices = graph.input("table", (5,)), graph.input("at", (3,), "i32")
    graph.set_outputs([graph.gather(table, indices)])
    pending_flags = [1]

    def flagging_kernel(views: Any, constants: Any, grid: Any) -> None:
        np.frombuffer(views[-2], np.uint32)[:] += (
            pending_flags.pop() if pending_flags else 0
        )

    engine = WebGpuEngine(
        open_fake_port(kernels={shader_source(graph): flagging_kernel})
    )
    program = prepare_graph(engine, graph)
    feeds = {"table": np.zeros(5, np.float32), "at": np.zeros(3, np.int32)}
    with pytest.raises(
        IndexRefused, match=r"out of range .* expected -rows <= index < rows"
    ):
        run_program(engine, program, **feeds)
    assert run_program(engine, program, **feeds)[0].shape == (3,)


@pytest.mark.parametrize("features", [(), ("shader-f16",)])
def test_half_floats_follow_the_feature(features: tuple[str, ...]) -> None:
    """Half floats run with the feature; without it they are refused by name."""
    engine = fake_port_engine(features=features)
    graph = Graph()
    graph.set_outputs([graph.exp(graph.input("x", (3,), "f16"))])
    if features:
        prepare_graph(engine, graph)
    else:
        with pytest.raises(
            DTypeError, match="no f16 support; it supports bool, f32, i32, u32"
        ):
            prepare_graph(engine, graph)


def test_stricter_limits_are_kept() -> None:
    """A plan keeps to stricter limits although the port would allow more."""
    port = open_fake_port()
    engine = WebGpuEngine(port, limits=tiny_limits())
    assert engine.target.max_operands == 3
    program = prepare_graph(engine, scaled_graph((4000,)))
    run_program(engine, program, x=np.zeros(4000, np.float32))
    dispatches = [
        command
        for command in port.submissions[0]
        if not isinstance(command, BufferCopy)
    ]
    assert len(dispatches) > 1


def test_a_buffer_over_the_limit_is_refused_with_both_numbers() -> None:
    """A buffer over the limit is refused before anything is made."""
    engine = fake_port_engine(limits=Limits(max_buffer_size=1 << 10))
    with pytest.raises(
        LimitExceeded, match=r"4,000 bytes; the device allows at most 1,024"
    ):
        prepare_graph(engine, scaled_graph((1000,)))
    assert not engine.port.live_handles - set(engine.pipelines.handles())


@pytest.mark.parametrize("dtype", ["bool", "i32", "u32", "f32"])
def test_inputs_pass_through_in_every_type(dtype: str) -> None:
    """Bool is stored as words and comes back as bool; all ranks and empty arrays
    work.
    """
    engine = fake_port_engine()
    graph = Graph()
    shapes = [(), (3,), (0, 2), (5, 1)]
    graph.set_outputs(
        [graph.input(f"x{k}", shape, dtype) for k, shape in enumerate(shapes)]
    )
    program = prepare_graph(engine, graph)
    kind = graph.node(0).type.dtype.numpy
    feeds = {f"x{k}": np.ones(s, kind) for k, s in enumerate(shapes)}
    for out, value in zip(
        run_program(engine, program, **feeds), feeds.values(), strict=True
    ):
        assert out.dtype == kind
        np.testing.assert_array_equal(out, value)


def test_a_software_gpu_of_a_browser_gets_no_workgroup_memory() -> None:
    """A browser's software GPU would zero workgroup memory cell by cell, so it gets
    none.
    """
    spec = spec_from_preset("rlx", 384, nperseg=256, dtype=np.float32)
    graph = welch_graph((64, 384), spec, 4)
    assert "var<workgroup>" in shader_source(graph)
    browser_port = open_fake_port()
    browser_port._facts = replace(browser_port.facts, backend="webgpu")
    prepare_graph(WebGpuEngine(browser_port), graph)
    assert browser_port.pipelines
    assert not any(
        "var<workgroup>" in p.source for p in browser_port.pipelines.values()
    )


def test_explain_names_what_was_compiled_not_what_would_be() -> None:
    """Measurements that come later change no program, and no explanation of it."""
    engine = fake_port_engine()
    graph = Graph("dense")
    graph.set_outputs([graph.input("x", (512, 512)) @ graph.param("w", (512, 512))])
    plan = compile_graph(graph, engine.target)
    program = run_blocking(engine.prepare(plan))
    (name,) = program.kernel_variants.values()
    table = engine.kernel_selector.kernels.id
    ways = (("matmul", 1.0), (name, 9.0))
    engine.apply_autotuning((AutotuneResult("matmul", (512, 512), ways, (), table),))
    later = run_blocking(engine.prepare(compile_graph(graph, engine.target)))
    assert not later.kernel_variants
    assert list(program.kernel_variants.values()) == [name]
    assert f" by '{name}'" in plan.describe(program.kernel_variants)
    assert " by '" not in plan.describe(later.kernel_variants)
    run_blocking(engine.close())
