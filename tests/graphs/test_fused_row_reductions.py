"""Compare fused row reductions with NumPy: random trees of reductions and elementwise
ops.

By a workgroup for a line, and by one invocation, as without workgroup memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.limits import tiny_limits
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.gpu.wgpu_port import WgpuPort
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from tests.engines_under_test import EngineUnderTest, adapter_engine, engine
from tests.suite_tiers import MAX_EXAMPLES

QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)
REDUCTIONS = ("sum", "max", "min", "prod")


def without_workgroup_memory(engine: WebGpuEngine) -> EngineUnderTest:
    """Return the device without workgroup memory, which uses one invocation per row."""
    limits = replace(engine.limits, max_compute_workgroup_storage_size=0)
    return EngineUnderTest(f"{engine.name}, unshared", engine.with_limits(limits))


@dataclass(frozen=True)
class RowReductionTree:
    """Graph over rows, grown one value after another.

    shape   of the elements, the last `axes` of them a line
    ops     what is put on top: (what, which values)
    output_indices  which values are outputs
    """

    shape: tuple[int, ...]
    axes: int
    is_transposed: bool
    ops: tuple[tuple[int, int, int], ...]
    output_indices: tuple[int, ...]

    def graph(self) -> Graph:
        g = Graph("lines")
        first_row_axis = len(self.shape) - self.axes
        row_shape = (*self.shape[:first_row_axis], *(1,) * self.axes)
        matrix = g.input("x", self.shape[::-1] if self.is_transposed else self.shape)
        if self.is_transposed:
            matrix = g.transpose(matrix, tuple(range(len(self.shape)))[::-1])
        values: list[Tensor] = [
            matrix,
            g.input("along", self.shape[first_row_axis:]),
            g.input("beside", row_shape),
        ]
        row_axes = tuple(range(first_row_axis - len(self.shape), 0))
        for op, left, right in self.ops:
            x, y = values[left % len(values)], values[right % len(values)]
            values.append(self._build_value(g, op, x, y, row_axes, row_shape))
        g.set_outputs([values[i % len(values)] for i in self.output_indices])
        return g

    def _build_value(
        self, g: Graph, op: int, x: Tensor, y: Tensor, row_axes: Any, row_shape: Any
    ) -> Tensor:
        """Apply an elementwise op whose result stays small, or a reduction of a value
        of the full shape.
        """
        elementwise: list[Callable[[], Tensor]] = [
            lambda: g.tanh(x + y),
            lambda: g.tanh(x) - y * 0.5,
            lambda: g.minimum(g.abs(x), 2.0),
            lambda: g.maximum(x, y * 0.5),
            lambda: g.exp(g.neg(g.abs(x))) * g.tanh(y),
            lambda: g.sigmoid(x - y),
        ]
        if x.shape == self.shape and op % 2:
            kind = REDUCTIONS[op // 2 % len(REDUCTIONS)]
            if kind == "prod":
                x = 1.0 + g.tanh(x) * (0.5 / self.shape[-1])
            total = g.apply(kind, x, axes=row_axes, keep_dim=bool(op & 16))
            scale = 1.0 / np.sqrt(np.prod(self.shape)) if kind == "sum" else 1.0
            total = total * float(scale)
            return total if op & 16 else g.reshape(g.tanh(total), row_shape)
        return elementwise[op % len(elementwise)]()

    def feeds(self) -> dict[str, Any]:
        rng = np.random.default_rng(len(self.ops))
        shapes = {
            "x": self.shape[::-1] if self.is_transposed else self.shape,
            "along": self.shape[len(self.shape) - self.axes :],
            "beside": (
                *self.shape[: len(self.shape) - self.axes],
                *(1,) * self.axes,
            ),
        }
        return {k: rng.standard_normal(s).astype("f4") for k, s in shapes.items()}


@st.composite
def reduction_trees(draw: st.DrawFn) -> RowReductionTree:
    axes = draw(st.integers(1, 2))
    outer_shape = draw(st.lists(st.integers(1, 7), max_size=2))
    max_length = 700 if axes == 1 else 26
    row_shape = draw(st.lists(st.integers(1, max_length), min_size=axes, max_size=axes))
    number = st.integers(0, 31)
    ops = draw(st.lists(st.tuples(number, number, number), min_size=2, max_size=12))
    output_indices = draw(
        st.lists(st.integers(3, 2 + len(ops)), min_size=1, max_size=2)
    )
    is_transposed = draw(st.booleans())
    return RowReductionTree(
        (*outer_shape, *row_shape),
        axes,
        is_transposed,
        tuple(ops),
        tuple(output_indices),
    )


def relative_error(got: Any, want: Any) -> float:
    """Return the largest error relative to the largest value."""
    want, got = np.asarray(want, np.float64), np.asarray(got)
    assert got.shape == want.shape
    return float(np.abs(got - want).max() / max(1.0, np.abs(want).max()))


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
        reference = engine(None).run(graph, feeds)
        for runner in engines:
            for got, want in zip(runner.run(graph, feeds), reference, strict=True):
                assert relative_error(got, want) < 2e-5, f"on {runner.name}: {case}"

    check()
    assert fused_count > examples // 16


def handwritten_outputs(name: str, g: Graph, x: Tensor, y: Tensor) -> list[Tensor]:
    """Build softmax, norms and other formulas as people write them by hand."""
    if name == "softmax":
        e = g.exp(x - g.max(x, -1, keep_dim=True))
        return [e / g.sum(e, -1, keep_dim=True)]
    if name == "layer norm":
        centered = x - g.mean(x, -1, keep_dim=True)
        return [
            centered / g.sqrt(g.mean(centered * centered, -1, keep_dim=True) + 1e-5) * y
        ]
    if name == "ties":  # every place of the largest value, as its gradient has it
        is_max = g.cast(g.eq(x, g.max(x, -1, keep_dim=True)), "f32")
        return [is_max / g.sum(is_max, -1, keep_dim=True), g.sum(is_max * y, -1)]
    if name == "whole numbers":
        n = g.cast(x * 100.0, "i32")
        centered = n - g.min(n, -1, keep_dim=True)
        return [centered, g.max(centered * 3, -1), g.prod(g.bitwise_or(n, 1), -1)]
    if name == "unsigned":
        n = g.cast(g.abs(x) * 100.0, "u32")
        return [
            n - g.min(n, -1, keep_dim=True),
            g.max(n * n, -1),
        ]
    spread = g.max(x, -1, keep_dim=True) - g.min(x, -1, keep_dim=True)
    return [(x - g.min(x, -1, keep_dim=True)) / spread]


HANDWRITTEN = ("softmax", "layer norm", "ties", "whole numbers", "unsigned", "scaled")


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
    reference = engine(None).run(g, feeds)
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
    reference = engine(None).run(g, feeds)
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
    (reference,) = engine(None).run(g, feeds)
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
    reference = engine(None).run(g, {"x": x})
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
