"""Test epilogues: ops after a product or sum run where its result is stored, to the
same bits.

Each graph is run as the compiler makes it and node by node: what a kernel finishes is
what a pass over the stored result would have made of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from rlxweb import Graph
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.limits import tiny_limits
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.graph import node_signature
from rlxweb.ir.op import registry
from rlxweb.ir.sample import Drawn
from rlxweb.ir.shape_arithmetic import Shape
from tests.conftest import ADAPTERS
from tests.engines_under_test import EngineUnderTest, engine
from tests.kernel_tables import WGSL_TABLE, engine_with_variants
from tests.suite_tiers import Sampler, thin_out_cases

pytestmark = pytest.mark.requires_wgpu
Build = Callable[[Graph, Any, Any, Any], Any]


def dense_layer(g: Graph, x: Any, w: Any, b: Any) -> Any:
    """Build a dense layer."""
    return g.gelu(x @ w + b)


def gated_product(g: Graph, x: Any, w: Any, b: Any) -> Any:
    """Build a product followed by constants, a choice, and an operand that is used
    twice.
    """
    product = x @ w
    return g.where(product > 0.25, product * b, g.relu(product) * 0.5 - b)


def conv_layer(g: Graph, x: Any, w: Any, b: Any) -> Any:
    """Build a convolution with one bias per channel."""
    return g.tanh(g.conv(x, w) + b)


def swap_last_axes(g: Graph, x: Any) -> Any:
    """Exchange the last two axes: a view that is not copied."""
    rank = len(x.shape)
    return g.transpose(x, (*range(rank - 2), rank - 1, rank - 2))


CASES: dict[str, tuple[Build, Shape, Shape, Shape]] = {
    "a bias": (dense_layer, (64, 96), (96, 80), (80,)),
    "odd sizes": (dense_layer, (5, 7), (7, 6), (6,)),
    "one row": (dense_layer, (1, 70), (70, 33), (33,)),
    "one number": (dense_layer, (17, 7), (7, 19), (1,)),
    "a column": (dense_layer, (33, 70), (70, 68), (33, 1)),
    "a residual": (gated_product, (65, 70), (70, 132), (65, 132)),
    "batches": (dense_layer, (3, 4, 35, 20), (4, 20, 36), (36,)),
    "a column of batches": (dense_layer, (3, 4, 35, 20), (4, 20, 36), (3, 4, 35, 1)),
    "five batch axes": (dense_layer, (2, 1, 3, 1, 5, 4), (5, 1, 7, 4, 3), (3,)),
    "their column": (
        dense_layer,
        (2, 1, 3, 1, 5, 4),
        (5, 1, 7, 4, 3),
        (2, 5, 3, 7, 5, 1),
    ),
    "a sum in parts": (dense_layer, (40, 700), (700, 68), (68,)),
    "turned": (
        lambda g, x, w, b: dense_layer(g, x, swap_last_axes(g, w), b),
        (40, 70),
        (33, 70),
        (33,),
    ),
    "turned batches": (
        lambda g, x, w, b: dense_layer(
            g, swap_last_axes(g, x), swap_last_axes(g, w), b
        ),
        (3, 40, 35),
        (3, 68, 40),
        (3, 35, 1),
    ),
    "turned, one right matrix": (
        lambda g, x, w, b: dense_layer(g, swap_last_axes(g, x), w, b),
        (3, 40, 35),
        (40, 68),
        (68,),
    ),
    "in fours": (gated_product, (44, 20), (20, 36), (44, 36)),
    "in fours, turned": (
        lambda g, x, w, b: dense_layer(
            g, swap_last_axes(g, x), swap_last_axes(g, w), b
        ),
        (3, 20, 44),
        (3, 36, 20),
        (36,),
    ),
    "channels": (conv_layer, (2, 3, 9, 11), (18, 3, 3, 3), (18, 1, 1)),
    "few channels": (conv_layer, (2, 3, 9, 11), (3, 3, 3, 3), (3, 1, 1)),
    "channels, one tap": (conv_layer, (2, 16, 6, 6), (20, 16, 1, 1), (20, 1, 1)),
    "channels of lines": (conv_layer, (1, 3, 40), (5, 3, 4), (5, 1)),
    "sums": (lambda g, x, w, b: g.sum(x, (1,)) * 0.5 + b, (70, 90), (1, 1), (70,)),
    "columns": (lambda g, x, w, b: g.exp(g.max(x, (0,)) + b), (70, 90), (1, 1), (90,)),
}


def build_case(
    case: tuple[Build, Shape, Shape, Shape], dtype: str = "f32"
) -> tuple[Graph, dict[str, Any]]:
    """Return the graph of a case and its feeds."""
    build, *shapes = case
    graph = Graph("finished")
    names = dict(zip("xwb", shapes, strict=True))
    tensors = [graph.input(name, shape, dtype) for name, shape in names.items()]
    graph.set_outputs([build(graph, *tensors)])
    rng = np.random.default_rng(5)
    max_value = 1e9 if dtype == "i32" else 2
    return graph, {
        n: Drawn(s, dtype, -max_value, max_value).draw(rng) for n, s in names.items()
    }


def epilogue_mismatch(
    runner: EngineUnderTest, graph: Graph, feeds: dict[str, Any], steps: int = 1
) -> str:
    """Describe what is wrong with a graph that must compile to `steps` steps, or return
    "".
    """
    plan = compile_graph(graph, runner.engine.target)
    if len(plan.steps) != steps:
        return f"{runner.name}: {plan}"
    (got,), (want,) = (
        replace(runner, optimise=flag).run(graph, feeds) for flag in (True, False)
    )
    is_equal = np.array_equal(got, want, equal_nan=got.dtype.kind == "f")
    return "" if is_equal else f"{runner.name}: {np.abs(got - want).max()} off"


@pytest.mark.parametrize("name", thin_out_cases(CASES, 4))
def test_epilogue_gives_the_same_bits_in_one_step(
    name: str, adapter: AdapterRequest
) -> None:
    """The kernels an adapter prefers run the epilogue in one step, to the same bits."""
    assert epilogue_mismatch(engine(adapter), *build_case(CASES[name])) == ""


@pytest.mark.parametrize(
    "dtype", ["i32", pytest.param("f16", marks=pytest.mark.feature("f16"))]
)
def test_other_types(dtype: str, adapter: AdapterRequest) -> None:
    """Integers wrap; halves are rounded where a store would have rounded them."""
    case = (lambda g, x, w, b: (x @ w + b) * b, (20, 24), (24, 36), (36,))
    assert epilogue_mismatch(engine(adapter), *build_case(case, dtype)) == ""


# A few rows and columns are pieces enough.
SPLIT_CASES = {**CASES, "a sum in parts": (dense_layer, (5, 700), (700, 36), (36,))}


@pytest.mark.full("opengl", "swiftshader")
@pytest.mark.parametrize("name", SPLIT_CASES)
def test_epilogue_of_split_dispatches(name: str, adapter: AdapterRequest) -> None:
    """Tiles begin anywhere in the output; the other operands are whole.

    Where a sum must be cut too, nothing is finished in the kernel.
    """
    small_limits = replace(tiny_limits(), max_storage_buffers_per_shader_stage=6)
    runner = engine(adapter, limits=small_limits)
    graph, feeds = build_case(SPLIT_CASES[name])
    steps = len(compile_graph(graph, runner.engine.target).steps)
    assert steps <= 2
    assert epilogue_mismatch(runner, graph, feeds, steps) == ""


@pytest.mark.parametrize(
    "row",
    [row for op in ("matmul", "sum", "conv") for row in WGSL_TABLE.for_op(op)],
    ids=lambda row: row.name,
)
def test_each_kernel_variant_has_epilogues(
    row: Any, adapter: AdapterRequest, sampled: Sampler
) -> None:
    """Each variant runs epilogues alone, and the base kernel where it does not suit the
    sizes.
    """
    runner = engine_with_variants(adapter, [row])
    graphs = {name: build_case(case) for name, case in CASES.items()}
    op_graphs = {
        k: built_case
        for k, built_case in graphs.items()
        if row.op in graph_ops(built_case[0])
    }
    suitable = [
        name
        for name in op_graphs
        if row.name in selected_variants(runner, op_graphs[name][0])
    ]
    others = [name for name in op_graphs if name not in suitable]
    assert op_graphs
    # The op's own kernel is the same whatever row is left in the table.
    for name in [*sampled(suitable, 3, quick=2), *sampled(others, 1, quick=1)]:
        assert epilogue_mismatch(runner, *op_graphs[name]) == "", name


def graph_ops(graph: Graph) -> set[str]:
    return {node.op for node in graph.nodes()}


def selected_variants(runner: EngineUnderTest, graph: Graph) -> set[str]:
    """Return the kernel variants that run a graph's nodes."""
    selected_kernels = (
        runner.engine.kernel_selector.select_kernel(*node_signature(graph, node))
        for node in graph.nodes()
        if not registry.get(node.op).has_trait("leaf")
    )
    return {kernel.variant for kernel in selected_kernels if kernel is not None}


@hypothesis.settings(max_examples=15)
@hypothesis.given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from(["row", "column", "one", "same"]),
)
def test_products_of_any_size(m: int, k: int, n: int, kind: str) -> None:
    """Products whose tiles end anywhere have correct epilogues."""
    bias_shape = {"row": (n,), "column": (m, 1), "one": (), "same": (m, n)}[kind]
    assert (
        epilogue_mismatch(
            engine(ADAPTERS["lavapipe"]),
            *build_case((gated_product, (m, k), (k, n), bias_shape)),
        )
        == ""
    )


def test_shared_intermediate_result_is_stored(adapter: AdapterRequest) -> None:
    """A result that is an output, or read elsewhere, is not lost in a kernel."""
    runner = engine(adapter)

    def two_consumers(g: Graph, x: Any, w: Any, b: Any) -> Any:
        y = x @ w
        return g.relu(y + b) + g.sum(y, (0,))

    assert (
        epilogue_mismatch(
            runner, *build_case((two_consumers, (9, 8), (8, 12), (12,))), steps=3
        )
        == ""
    )
    graph = Graph("both")
    x = graph.input("x", (8, 8))
    y = x @ x
    graph.set_outputs([y, graph.relu(y)])
    feeds = {"x": np.random.default_rng(1).normal(size=(8, 8)).astype(np.float32)}
    plain, activated = runner.run(graph, feeds)
    np.testing.assert_array_equal(activated, np.maximum(plain, 0))


def test_unsupported_operand_layouts_keep_their_step(adapter: AdapterRequest) -> None:
    """A transposed operand, or one that starts between two bindings, keeps its own
    step.
    """
    runner = engine(adapter)

    def with_transposed_operand(g: Graph, x: Any, w: Any, b: Any) -> Any:
        return x @ w + g.transpose(b, (1, 0))

    assert (
        epilogue_mismatch(
            runner,
            *build_case((with_transposed_operand, (9, 8), (8, 12), (12, 9))),
            steps=2,
        )
        == ""
    )

    def with_narrowed_operand(g: Graph, x: Any, w: Any, b: Any) -> Any:
        return x @ w + g.narrow(b, 0, 3, 12)

    assert (
        epilogue_mismatch(
            runner,
            *build_case((with_narrowed_operand, (9, 8), (8, 12), (20,))),
            steps=2,
        )
        == ""
    )
