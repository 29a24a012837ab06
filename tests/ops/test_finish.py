"""What follows a product or a sum is done where its result is stored, to the same bits.

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
from rlxweb.compile.pipeline import compile_graph
from rlxweb.gpu.port import Want
from rlxweb.ir.op import registry
from rlxweb.ir.sample import Drawn
from rlxweb.ir.shape import Shape
from rlxweb.limits import shrunk
from rlxweb.recipes.variants import variants_of
from tests.agreement import Engine, engine
from tests.ops.test_gpu_shapes import LAVAPIPE
from tests.ops.test_gpu_variants import by_rows
from tests.tiers import Sampler, thinned

pytestmark = pytest.mark.requires_wgpu
Build = Callable[[Graph, Any, Any, Any], Any]


def layer(g: Graph, x: Any, w: Any, b: Any) -> Any:
    """A dense layer."""
    return g.gelu(x @ w + b)


def gated(g: Graph, x: Any, w: Any, b: Any) -> Any:
    """A product followed by constants, a choice, and an operand that is used twice."""
    made = x @ w
    return g.where(made > 0.25, made * b, g.relu(made) * 0.5 - b)


def images(g: Graph, x: Any, w: Any, b: Any) -> Any:
    """A convolution with a number for each channel."""
    return g.tanh(g.conv(x, w) + b)


def turned(g: Graph, x: Any) -> Any:
    """The last two axes exchanged: a view, of which nobody makes a copy."""
    rank = len(x.shape)
    return g.transpose(x, (*range(rank - 2), rank - 1, rank - 2))


CASES: dict[str, tuple[Build, Shape, Shape, Shape]] = {
    "a bias": (layer, (64, 96), (96, 80), (80,)),
    "odd sizes": (layer, (5, 7), (7, 6), (6,)),
    "one row": (layer, (1, 70), (70, 33), (33,)),
    "one number": (layer, (17, 7), (7, 19), (1,)),
    "a column": (layer, (33, 70), (70, 68), (33, 1)),
    "a residual": (gated, (65, 70), (70, 132), (65, 132)),
    "batches": (layer, (3, 4, 35, 20), (4, 20, 36), (36,)),
    "a column of batches": (layer, (3, 4, 35, 20), (4, 20, 36), (3, 4, 35, 1)),
    "five batch axes": (layer, (2, 1, 3, 1, 5, 4), (5, 1, 7, 4, 3), (3,)),
    "their column": (layer, (2, 1, 3, 1, 5, 4), (5, 1, 7, 4, 3), (2, 5, 3, 7, 5, 1)),
    "a sum in parts": (layer, (40, 700), (700, 68), (68,)),
    "turned": (
        lambda g, x, w, b: layer(g, x, turned(g, w), b),
        (40, 70),
        (33, 70),
        (33,),
    ),
    "turned batches": (
        lambda g, x, w, b: layer(g, turned(g, x), turned(g, w), b),
        (3, 40, 35),
        (3, 68, 40),
        (3, 35, 1),
    ),
    "turned, one right matrix": (
        lambda g, x, w, b: layer(g, turned(g, x), w, b),
        (3, 40, 35),
        (40, 68),
        (68,),
    ),
    "in fours": (gated, (44, 20), (20, 36), (44, 36)),
    "in fours, turned": (
        lambda g, x, w, b: layer(g, turned(g, x), turned(g, w), b),
        (3, 20, 44),
        (3, 36, 20),
        (36,),
    ),
    "channels": (images, (2, 3, 9, 11), (18, 3, 3, 3), (18, 1, 1)),
    "few channels": (images, (2, 3, 9, 11), (3, 3, 3, 3), (3, 1, 1)),
    "channels, one tap": (images, (2, 16, 6, 6), (20, 16, 1, 1), (20, 1, 1)),
    "channels of lines": (images, (1, 3, 40), (5, 3, 4), (5, 1)),
    "sums": (lambda g, x, w, b: g.sum(x, (1,)) * 0.5 + b, (70, 90), (1, 1), (70,)),
    "columns": (lambda g, x, w, b: g.exp(g.max(x, (0,)) + b), (70, 90), (1, 1), (90,)),
}


def made(
    case: tuple[Build, Shape, Shape, Shape], dtype: str = "f32"
) -> tuple[Graph, dict[str, Any]]:
    """The graph of a case and what it is fed."""
    build, *shapes = case
    graph = Graph("finished")
    names = dict(zip("xwb", shapes, strict=True))
    tensors = [graph.input(name, shape, dtype) for name, shape in names.items()]
    graph.set_outputs([build(graph, *tensors)])
    rng = np.random.default_rng(5)
    top = 1e9 if dtype == "i32" else 2
    return graph, {n: Drawn(s, dtype, -top, top).draw(rng) for n, s in names.items()}


def differs(one: Engine, graph: Graph, feeds: dict[str, Any], steps: int = 1) -> str:
    """What is wrong with a graph whose nodes fit into so many steps."""
    plan = compile_graph(graph, one.backend.target)
    if len(plan.steps) != steps:
        return f"{one.name}: {plan}"
    (got,), (want,) = (
        replace(one, optimise=flag).run(graph, feeds) for flag in (True, False)
    )
    same = np.array_equal(got, want, equal_nan=got.dtype.kind == "f")
    return "" if same else f"{one.name}: {np.abs(got - want).max()} off"


@pytest.mark.parametrize("name", thinned(CASES, 4))
def test_the_same_bits_in_one_step(name: str, adapter: Want) -> None:
    """The kernels an adapter likes best finish to the same bits in one step."""
    assert differs(engine(adapter), *made(CASES[name])) == ""


@pytest.mark.parametrize(
    "dtype", ["i32", pytest.param("f16", marks=pytest.mark.feature("f16"))]
)
def test_other_types(dtype: str, adapter: Want) -> None:
    """Integers wrap; halves are rounded where the store would have rounded them."""
    case = (lambda g, x, w, b: (x @ w + b) * b, (20, 24), (24, 36), (36,))
    assert differs(engine(adapter), *made(case, dtype)) == ""


# A few rows and columns are pieces enough.
CUT = {**CASES, "a sum in parts": (layer, (5, 700), (700, 36), (36,))}


@pytest.mark.full("opengl", "swiftshader")
@pytest.mark.parametrize("name", CUT)
def test_a_device_that_cuts_everything(name: str, adapter: Want) -> None:
    """Pieces begin anywhere in the output; the other operands lie whole.

    Where a sum must be cut too, nothing is finished in the kernel.
    """
    small = replace(shrunk(), max_storage_buffers_per_shader_stage=6)
    one = engine(adapter, limits=small)
    graph, feeds = made(CUT[name])
    steps = len(compile_graph(graph, one.backend.target).steps)
    assert steps <= 2
    assert differs(one, graph, feeds, steps) == ""


@pytest.mark.parametrize(
    "row",
    [row for op in ("matmul", "sum", "conv") for row in variants_of(op)],
    ids=lambda row: row.name,
)
def test_each_kernel_finishes(row: Any, adapter: Want, sampled: Sampler) -> None:
    """Each kernel finishes alone, and the op's own where it does not suit the sizes."""
    one = by_rows(adapter, [row])
    graphs = {name: made(case) for name, case in CASES.items()}
    its = {k: it for k, it in graphs.items() if row.op in ops_of(it[0])}
    suited = [name for name in its if row.name in taken_by(one, its[name][0])]
    others = [name for name in its if name not in suited]
    assert its
    # The op's own kernel is the same whatever row is left in the table.
    for name in [*sampled(suited, 3, quick=2), *sampled(others, 1, quick=1)]:
        assert differs(one, *its[name]) == "", name


def ops_of(graph: Graph) -> set[str]:
    return {node.op for node in graph.nodes()}


def taken_by(one: Engine, graph: Graph) -> set[str]:
    """The rows that run a graph's nodes."""
    chosen = (
        one.backend.recipes.choose(
            registry.get(node.op),
            tuple(graph.node(i).type for i in node.inputs),
            node.type,
            node.attrs,
        )
        for node in graph.nodes()
        if not registry.get(node.op).has("leaf")
    )
    return {each.variant for each in chosen if each is not None}


@hypothesis.settings(max_examples=15)
@hypothesis.given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from(["row", "column", "one", "same"]),
)
def test_products_of_any_size(m: int, k: int, n: int, kind: str) -> None:
    """Products whose tiles end anywhere are finished right."""
    side = {"row": (n,), "column": (m, 1), "one": (), "same": (m, n)}[kind]
    assert differs(engine(LAVAPIPE), *made((gated, (m, k), (k, n), side))) == ""


def test_what_somebody_else_reads_is_stored(adapter: Want) -> None:
    """A result that is an output, or read elsewhere, is not lost in a kernel."""
    one = engine(adapter)

    def two(g: Graph, x: Any, w: Any, b: Any) -> Any:
        y = x @ w
        return g.relu(y + b) + g.sum(y, (0,))

    assert differs(one, *made((two, (9, 8), (8, 12), (12,))), steps=3) == ""
    graph = Graph("both")
    x = graph.input("x", (8, 8))
    y = x @ x
    graph.set_outputs([y, graph.relu(y)])
    feeds = {"x": np.random.default_rng(1).normal(size=(8, 8)).astype(np.float32)}
    plain, bent = one.run(graph, feeds)
    np.testing.assert_array_equal(bent, np.maximum(plain, 0))


def test_operands_that_lie_otherwise_are_read_by_a_pass(adapter: Want) -> None:
    """A turned operand, or one that starts between two bindings, keeps its own step."""
    one = engine(adapter)

    def turned(g: Graph, x: Any, w: Any, b: Any) -> Any:
        return x @ w + g.transpose(b, (1, 0))

    assert differs(one, *made((turned, (9, 8), (8, 12), (12, 9))), steps=2) == ""

    def cut(g: Graph, x: Any, w: Any, b: Any) -> Any:
        return x @ w + g.narrow(b, 0, 3, 12)

    assert differs(one, *made((cut, (9, 8), (8, 12), (20,))), steps=2) == ""
