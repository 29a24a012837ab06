"""Compare fused row reductions with NumPy: random trees of reductions and elementwise
ops.

By a workgroup for a line, and by one invocation, as without workgroup memory.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.limits import tiny_limits
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.gpu.wgpu_port import WgpuPort
from rlxweb.ir.graph import Graph
from tests.engines_under_test import EngineUnderTest, adapter_engine, engine
from tests.graphs.row_reduction_graphs import (
    HANDWRITTEN,
    RowReductionTree,
    handwritten_outputs,
    reduction_trees,
    relative_error,
)
from tests.suite_tiers import MAX_EXAMPLES

QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)


def without_workgroup_memory(engine: WebGpuEngine) -> EngineUnderTest:
    """Return the device without workgroup memory, which uses one invocation per row."""
    limits = replace(engine.limits, max_compute_workgroup_storage_size=0)
    return EngineUnderTest(f"{engine.name}, unshared", engine.with_limits(limits))


def row_pass_count(runner: EngineUnderTest, graph: Graph) -> int:
    """Count the plan's steps that are fused row reductions."""
    plan = compile_graph(graph, runner.engine.target)
    return sum(step.kind == "lines" for step in plan.steps)


@pytest.mark.requires_wgpu
def test_random_row_reductions_agree(
    adapter: AdapterRequest, is_full_tier: bool
) -> None:
    first = adapter.name == "llvmpipe" and "vulkan" in adapter.backends
    engines = [
        engine(adapter),
        without_workgroup_memory(adapter_engine(adapter)),
        engine(adapter, limits=tiny_limits()),
    ]

    max_examples = 120 if is_full_tier else MAX_EXAMPLES["default"]
    examples = max_examples if first else max_examples // 4
    fused_count = 0

    @seed(1)
    @given(reduction_trees())
    @settings(max_examples=examples, suppress_health_check=QUIET)
    def check(case: RowReductionTree) -> None:
        nonlocal fused_count
        graph, feeds = case.graph(), case.feeds()
        fused_count += row_pass_count(engines[0], graph) > 0
        reference = engine(None, variants=False).run(graph, feeds)
        for runner in engines:
            for got, want in zip(runner.run(graph, feeds), reference, strict=True):
                assert relative_error(got, want) < 2e-5, f"on {runner.name}: {case}"

    check()
    assert fused_count > examples // 16


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("name", HANDWRITTEN)
@pytest.mark.parametrize("shape", [(7, 10), (2, 3, 33), (5, 300), (1, 4096), (64, 64)])
def test_each_handwritten_formula_is_one_pass(
    adapter: AdapterRequest, name: str, shape: tuple[int, ...]
) -> None:
    g = Graph(name)
    outs = handwritten_outputs(name, g, g.input("x", shape), g.input("y", shape[-1:]))
    g.set_outputs(outs)
    rng = np.random.default_rng(3)
    x = np.round(rng.standard_normal(shape).astype("f4"), 2)
    feeds = {"x": x, "y": rng.standard_normal(shape[-1:]).astype("f4")}
    reference = engine(None, variants=False).run(g, feeds)
    for runner in (engine(adapter), without_workgroup_memory(adapter_engine(adapter))):
        assert row_pass_count(runner, g) == len(outs)
        for got, want in zip(runner.run(g, feeds), reference, strict=True):
            if want.dtype == np.float32:
                assert relative_error(got, want) < 2e-6
            else:
                np.testing.assert_array_equal(got, want)


@pytest.mark.requires_dawn
@pytest.mark.parametrize("name", HANDWRITTEN)
def test_browser_compiler_accepts_the_kernels(name: str) -> None:
    """Tint, stricter than naga on barriers, accepts kernels per workgroup and per
    invocation.
    """
    g, shape = Graph(name), (5, 300)
    g.set_outputs(
        handwritten_outputs(name, g, g.input("x", shape), g.input("y", shape[-1:]))
    )
    rng = np.random.default_rng(3)
    x = np.round(rng.standard_normal(shape).astype("f4"), 2)
    feeds = {"x": x, "y": rng.standard_normal(shape[-1:]).astype("f4")}
    reference = engine(None, variants=False).run(g, feeds)
    port = WgpuPort(library="wgpudawn")
    run_blocking(port.open(AdapterRequest()))
    dawn_engine = WebGpuEngine(port)
    try:
        for runner in (
            EngineUnderTest("Dawn", dawn_engine),
            without_workgroup_memory(dawn_engine),
        ):
            for got, want in zip(runner.run(g, feeds), reference, strict=True):
                assert relative_error(got, want) < 2e-6
    finally:
        run_blocking(port.close())


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("kind", ["bf16", "i8", "u8", "i16", "u16"])
@pytest.mark.parametrize("length", [64, 45])
def test_packed_elements_are_read_as_scalars(
    adapter: AdapterRequest, kind: str, length: int
) -> None:
    """Packed elements are read one at a time, even beside operands that could be read
    as vec4.
    """
    g = Graph(kind)
    x, y = g.input("x", (6, length), kind), g.input("y", (6, length))
    as_f32 = g.cast(x, "f32")
    g.set_outputs([g.sum(g.tanh(as_f32 * 0.01) + y, -1)])
    integers = np.random.default_rng(5).integers(0, 100, (6, length))
    dtype = g.node(x.id).type.dtype.numpy
    bf16_bits = integers.astype(np.float32).view(np.uint32) >> 16
    packed = bf16_bits.astype(np.uint16).view(dtype) if kind == "bf16" else integers
    feeds = {"x": packed.astype(dtype), "y": integers.astype("f4") / 100}
    (reference,) = engine(None, variants=False).run(g, feeds)
    for runner in (engine(adapter), without_workgroup_memory(adapter_engine(adapter))):
        (got,) = runner.run(g, feeds)
        assert relative_error(got, reference) < 2e-6


@pytest.mark.requires_wgpu
def test_nan_and_infinity_stay_in_their_rows(adapter: AdapterRequest) -> None:
    """A NaN affects its own row and no other; infinities are found as extremes."""
    x = np.random.default_rng(4).standard_normal((6, 45)).astype("f4")
    x[1, 7], x[2, 3], x[3, 4] = np.nan, np.inf, -np.inf
    x[4] = -np.inf
    g = Graph("not finite")
    x_tensor = g.input("x", x.shape)
    twice = x_tensor + x_tensor
    g.set_outputs([g.max(twice, -1), g.min(twice, -1), g.sum(twice, -1)])
    reference = engine(None, variants=False).run(g, {"x": x})
    for runner in (engine(adapter), without_workgroup_memory(adapter_engine(adapter))):
        assert row_pass_count(runner, g) == 3
        for got, want in zip(runner.run(g, {"x": x}), reference, strict=True):
            np.testing.assert_allclose(got, want, 1e-5, 1e-5)


@pytest.mark.requires_wgpu
def test_sums_of_long_rows_keep_their_digits(adapter: AdapterRequest) -> None:
    """A sum of a long row is computed in blocks, which keeps its digits."""
    x = np.random.default_rng(5).random((3, 4096)).astype("f4")
    g = Graph("long")
    x_tensor = g.input("x", x.shape)
    g.set_outputs([g.sum(x_tensor * x_tensor, -1)])
    reference = np.square(x.astype(np.float64)).sum(axis=-1)
    for runner in (engine(adapter), without_workgroup_memory(adapter_engine(adapter))):
        assert row_pass_count(runner, g) == 1
        (got,) = runner.run(g, {"x": x})
        np.testing.assert_allclose(got, reference, 2e-6)
