"""Native programs, chains of small steps fused into one native call, give NumPy's
numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from rlxweb.codegen import jit_cache
from rlxweb.codegen.llvm_compiler import LoadedCode, compile_object
from rlxweb.codegen.llvm_native_program import product_tiles, program_llvm_ir
from rlxweb.codegen.native_elementwise import region_kernels
from rlxweb.codegen.wasm_builder import IN_BROWSER
from rlxweb.engines import cpu_native_program
from rlxweb.engines.cpu_native_program import PlanSegment, native_program_kernels
from rlxweb.engines.evaluate import evaluate
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.graph import Graph
from rlxweb.runtime.profile import profile_program
from rlxweb.select.device_and_adapter import CPU_PLACE
from rlxweb.smoke.random_graph_builder import RandomGraph
from tests.engines_under_test import Array
from tests.float32_products import random_floats
from tests.graphs.random_graph_strategy import graphs
from tests.prepared_cpu_graph import PreparedCpuGraph

pytestmark = [] if IN_BROWSER else [pytest.mark.requires_fast]


@pytest.fixture(autouse=True)
def compile_every_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile a native program for every chain, however short, before the test goes
    on.
    """
    monkeypatch.setenv("RLX_FAST", "wait")
    monkeypatch.setattr(cpu_native_program, "MIN_STEPS", 0)


def plan_segments(prepared: PreparedCpuGraph) -> list[PlanSegment]:
    """Return the segments of the plan that may be native programs."""
    parts = getattr(prepared.program.compute, "args", ())
    return [part for part in parts[-1] if isinstance(part, PlanSegment)]


def is_one_native_program(prepared: PreparedCpuGraph) -> bool:
    """Return whether the whole graph is one native program."""
    parts = prepared.program.compute.args[-1]
    return len(parts) == 1 and parts[0].program is not None


def check_native_program(prepared: PreparedCpuGraph, **feeds: Array) -> None:
    """Check that one native program gives NumPy's numbers."""
    prepared.check_outputs(feeds)
    assert is_one_native_program(prepared)


@pytest.mark.requires_fast
@pytest.mark.parametrize("nbytes", [16, 32, 64])
def test_program_functions_compile_for_every_vector_width(nbytes: int) -> None:
    code = LoadedCode(compile_object(program_llvm_ir(nbytes)))
    for tile in product_tiles(nbytes):
        assert code.get_function(tile.name, None) is not None


def _pad_axis(graph: Graph, x: Any, axis: int, draw: st.DrawFn, mode: str) -> Any:
    widths = [(0, 0)] * x.rank
    widths[axis] = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    return graph.pad(x, widths, mode=mode)


def _narrow_axis(graph: Graph, x: Any, axis: int, draw: st.DrawFn) -> Any:
    start = draw(st.integers(0, x.shape[axis] - 1))
    return graph.narrow(x, axis, start, x.shape[axis] - start)


def _gather_axis(graph: Graph, x: Any, axis: int, draw: st.DrawFn) -> Any:
    n = x.shape[axis]
    indices = draw(st.lists(st.integers(-n, n - 1), min_size=1, max_size=4))
    return graph.gather(x, graph.constant(np.int32(indices)), axis=axis)


DATA_MOVEMENTS: dict[str, Callable[..., Any]] = {
    "reshape": lambda g, x, axis, draw: g.reshape(x, (-1, x.shape[axis])),
    "transpose": lambda g, x, axis, draw: g.transpose(
        x, draw(st.permutations(range(x.rank)))
    ),
    "narrow": _narrow_axis,
    "expand": lambda g, x, axis, draw: g.expand(x, (2, *x.shape)),
    "pad": partial(_pad_axis, mode="constant"),
    "edge": partial(_pad_axis, mode="edge"),
    "flip": lambda g, x, axis, draw: g.flip(x, (axis,)),
    "roll": lambda g, x, axis, draw: g.roll(x, 2, axis),
    "gather": _gather_axis,
    "concat": lambda g, x, axis, draw: g.concat([x, x * 2.0], axis=axis),
}


@st.composite
def data_movement_graphs(draw: st.DrawFn) -> tuple[Graph, tuple[int, ...]]:
    """Draw a chain of data-movement ops, some of them fused, and its input shape."""
    graph = Graph("moves")
    shape = draw(st.tuples(*[st.integers(1, 5)] * 3))
    x = last = graph.input("x", shape)
    for _ in range(draw(st.integers(1, 6))):
        axis = draw(st.integers(0, last.rank - 1))
        last = DATA_MOVEMENTS[draw(st.sampled_from(sorted(DATA_MOVEMENTS)))](
            graph, last, axis, draw
        )
        if prod(last.shape) > 2000:
            last = graph.narrow(last, 0, 0, 1)
    graph.set_outputs([last + 0.5, last, graph.sum(last, (0,)), graph.mean(x)])
    return graph, shape


@given(data_movement_graphs(), st.integers(0, 2**32 - 1))
@settings(max_examples=80, deadline=None)
def test_chains_of_data_movement(
    case: tuple[Graph, tuple[int, ...]], seed: int
) -> None:
    graph, shape = case
    x = random_floats(np.random.default_rng(seed), *shape)
    check_native_program(PreparedCpuGraph(graph), x=x)


def test_any_graph() -> None:
    """Segments are compiled as far as possible; the rest runs step by step."""
    compiled_count = 0

    @seed(14)
    @given(graphs())
    @settings(
        max_examples=60,
        deadline=None,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
    )
    def check(case: RandomGraph) -> None:
        nonlocal compiled_count
        prepared = PreparedCpuGraph(case.graph)
        for _ in range(2):
            mismatches = case.output_errors(prepared.run(**case.feeds))
            assert mismatches == [], f"{mismatches}\n{case}"
        compiled_count += any(
            segment.program is not None for segment in plan_segments(prepared)
        )

    check()
    assert compiled_count > 20


def lstm_step_graph() -> Graph:
    graph = Graph("step")
    x, h = graph.input("x", (1, 24)), graph.input("h", (1, 32))
    w, b = graph.param("w", (56, 128)), graph.param("b", (128,))
    gates = graph.concat([x, h], axis=1) @ w + b
    i, f, o, c = (graph.narrow(gates, 1, 32 * gate, 32) for gate in range(4))
    cell = graph.sigmoid(i) * graph.tanh(c) + graph.sigmoid(f) * h
    graph.set_outputs([graph.sigmoid(o) * graph.tanh(cell), cell, w, h])
    return graph


def test_replaced_params_are_used(rng: np.random.Generator) -> None:
    """A param set between two runs is used, and returned where it is an output."""
    w, b = random_floats(rng, 56, 128), random_floats(rng, 128)
    prepared = PreparedCpuGraph(lstm_step_graph(), {"w": w, "b": b})
    feeds = {"x": random_floats(rng, 1, 24), "h": random_floats(rng, 1, 32)}
    check_native_program(prepared, **feeds)
    for value in (2 * w, w, np.zeros_like(w)):
        prepared.set_param("w", value)
        check_native_program(prepared, **feeds)
    prepared.set_param("b", random_floats(rng, 128))
    check_native_program(prepared, **feeds)


def test_results_belong_to_the_caller(rng: np.random.Generator) -> None:
    """Writing into a result, or into an input after a run, changes no other run."""
    prepared = PreparedCpuGraph(
        lstm_step_graph(),
        {"w": random_floats(rng, 56, 128), "b": random_floats(rng, 128)},
    )
    feeds = {"x": random_floats(rng, 1, 24), "h": random_floats(rng, 1, 32)}
    check_native_program(prepared, **feeds)
    first = prepared.run(**feeds)
    copies = [np.array(array) for array in first]
    for array in first:
        array[...] = 7
    second = prepared.run(**feeds)
    for got, want in zip(second, copies, strict=True):
        np.testing.assert_array_equal(got, want)
    prepared.run(x=random_floats(rng, 1, 24), h=random_floats(rng, 1, 32))
    for got, want in zip(second, copies, strict=True):
        np.testing.assert_array_equal(got, want)


def test_input_arrays_of_any_layout(rng: np.random.Generator) -> None:
    """Inputs may be transposed, views, reversed or read-only."""
    graph = Graph("any")
    graph.set_outputs([graph.exp(graph.input("x", (5, 7))) * 2.0])
    prepared, base = PreparedCpuGraph(graph), random_floats(rng, 7, 10)
    check_native_program(prepared, x=base.T[:5])
    check_native_program(prepared, x=base[:5, ::-1][:, :7])
    read_only = random_floats(rng, 5, 7)
    read_only.flags.writeable = False
    check_native_program(prepared, x=read_only)


def test_each_thread_has_its_own_arena(rng: np.random.Generator) -> None:
    prepared = PreparedCpuGraph(
        lstm_step_graph(),
        {"w": random_floats(rng, 56, 128), "b": random_floats(rng, 128)},
    )
    inputs = [
        {"x": random_floats(rng, 1, 24), "h": random_floats(rng, 1, 32)}
        for _ in range(8)
    ]
    check_native_program(prepared, **inputs[0])
    want = [prepared.run(**feeds)[0] for feeds in inputs]

    def run_often(index: int) -> None:
        for _ in range(200):
            np.testing.assert_array_equal(prepared.run(**inputs[index])[0], want[index])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(run_often, range(8)))


def test_nan_and_infinity_are_preserved(rng: np.random.Generator) -> None:
    """Infinity and NaN pass through data movement, products and sums as in NumPy."""
    graph = Graph("none")
    x, w = graph.input("x", (3, 20)), graph.param("w", (20, 5))
    y = graph.relu(graph.pad(x, [(0, 0), (1, 1)]))
    graph.set_outputs([x @ w, y, graph.sum(x, (1,)), graph.mean(x, (0,))])
    prepared = PreparedCpuGraph(graph, {"w": random_floats(rng, 20, 5)})
    feeds = random_floats(rng, 3, 20)
    feeds[0, 3], feeds[1, 4], feeds[2, 5] = np.nan, np.inf, -np.inf
    expected = evaluate(graph, {"x": feeds, **prepared.params})
    for _ in range(2):
        for got, want in zip(prepared.run(x=feeds), expected, strict=True):
            np.testing.assert_allclose(got, want, 1e-5, 1e-5)
    assert is_one_native_program(prepared)


def test_integers_wrap(rng: np.random.Generator) -> None:
    """32-bit integers wrap, also in arrays shorter than a vector."""
    graph = Graph("whole")
    x = graph.input("x", (40,), "i32")
    u = graph.input("u", (3,), "u32")
    graph.set_outputs([graph.flip(x * x + 5, (0,)), u // graph.roll(u, 1, 0)])
    prepared = PreparedCpuGraph(graph)
    feeds = {
        "x": rng.integers(-(2**31), 2**31, 40).astype(np.int32),
        "u": np.array([5, 2, 3000000000], np.uint32),
    }
    for _ in range(2):
        outputs = prepared.run(**feeds)
        for got, want in zip(outputs, evaluate(graph, feeds), strict=True):
            np.testing.assert_array_equal(got, want)


def test_steps_run_one_by_one_until_code_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
) -> None:
    monkeypatch.setenv("RLX_FAST", "background")
    monkeypatch.setattr(jit_cache, "COMPILE_AFTER_S", 0.0)
    for cache in (native_program_kernels, region_kernels):
        cache._kernels.clear()
    prepared = PreparedCpuGraph(
        lstm_step_graph(),
        {"w": random_floats(rng, 56, 128), "b": random_floats(rng, 128)},
    )
    feeds = {"x": random_floats(rng, 1, 24), "h": random_floats(rng, 1, 32)}
    for _ in range(3):
        prepared.run(**feeds)
    for cache in (native_program_kernels, region_kernels):
        cache.wait_until_idle(60)
    check_native_program(prepared, **feeds)


@pytest.mark.parametrize("case", ["off", "a power", "large", "float64"])
def test_graphs_without_native_program(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Graph(case)
    size = cpu_native_program.MAX_ELEMENTS + 1 if case == "large" else 8
    x = graph.input("x", (size,), "f64" if case == "float64" else "f32")
    y = graph.pow(x, x) if case == "a power" else graph.exp(x)
    graph.set_outputs([y])
    if case == "off":
        monkeypatch.setenv("RLX_FAST", "off")
    prepared = PreparedCpuGraph(graph)
    feeds = np.full(size, 2.0, x.dtype.numpy)
    want = evaluate(graph, {"x": feeds})[0]
    np.testing.assert_allclose(prepared.run(x=feeds)[0], want, 1e-6)
    assert not plan_segments(prepared)


def test_weights_used_unpacked_are_stored_once(rng: np.random.Generator) -> None:
    """The product of a row and a matrix reads the param in place."""
    graph = Graph("row")
    x, w = graph.input("x", (1, 256)), graph.param("w", (256, 256))
    graph.set_outputs([graph.tanh(x @ w)])
    prepared = PreparedCpuGraph(graph, {"w": random_floats(rng, 256, 256)})
    check_native_program(prepared, x=0.1 * random_floats(rng, 1, 256))
    (segment,) = plan_segments(prepared)
    assert segment.program is not None
    retained_nbytes = sum(
        array.nbytes for array in segment.program.builder.retained_arrays
    )
    param_nbytes = prepared.program.params["w"].nbytes
    assert retained_nbytes - param_nbytes < 4096


def test_a_profile_does_not_name_the_native_program(rng: np.random.Generator) -> None:
    """A profile times the steps one by one, without the native program, and names the
    kernels that it timed.
    """
    prepared = PreparedCpuGraph(lstm_step_graph())
    program = prepared.program
    feeds = {
        name: random_floats(rng, *node.type.shape)
        for name, node in prepared.graph.named("input").items()
    }
    for name, node in prepared.graph.named("param").items():
        prepared.set_param(name, random_floats(rng, *node.type.shape))
    assert "by 'native program'" in program.plan.describe(program.kernel_variants)
    profile = run_blocking(
        profile_program(prepared.engine, program, feeds, CPU_PLACE, 1)
    )
    assert len(profile.steps) > 1
    assert "native program" not in str(profile)
