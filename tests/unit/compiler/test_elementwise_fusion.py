"""Elementwise regions: which nodes fuse, which do not, and that device limits hold."""

from __future__ import annotations

from functools import reduce
from operator import add

from rlxweb.compiler.schedule import MAX_REGION_NODES, elementwise_regions
from rlxweb.compiler.target import Target
from rlxweb.engines.cpu import CpuEngine
from rlxweb.ir.graph import Graph
from tests.unit.compiler.graph_factory import build_graph


def target(operands: int = 8) -> Target:
    return Target(
        "test", CpuEngine.target.dtypes, lambda *a: True, max_operands=operands
    )


def region_nodes(graph: Graph, operands: int = 8, fuse: bool = True) -> list[list[int]]:
    return [
        r.nodes for r in elementwise_regions(graph, target(operands), fuse).values()
    ]


def test_a_chain_becomes_one_region() -> None:
    """Elementwise nodes in a row cost one pass over memory."""
    graph = build_graph(lambda g, x: g.exp(g.neg(g.abs(x))), (4,))
    assert region_nodes(graph) == [[1, 2, 3]]
    assert region_nodes(graph, fuse=False) == [[1], [2], [3]]


def test_a_value_used_twice_is_computed_once() -> None:
    """A producer stays a region of its own when another needs its value."""
    graph = build_graph(lambda g, x: [g.neg(y := g.exp(x)), g.abs(y)], (4,))
    assert region_nodes(graph) == [[1], [2], [3]]


def test_value_fuses_if_all_its_readers_are_in_one_region() -> None:
    """A bias fuses with the function of its sum and their product; not if there is
    another reader.
    """
    graph = build_graph(lambda g, x, b: (y := x + b) * (g.tanh(y) + 1.0), (4,), (4,))
    (region,) = elementwise_regions(graph, target(), True).values()
    assert region.nodes == [n.id for n in graph.nodes() if n.type.rank and n.inputs]
    assert region.reads == [0, 1]
    graph_with_another_reader = build_graph(
        lambda g, x, b: [(y := x + b) * (g.tanh(y) + 1.0), g.sum(y)], (4,), (4,)
    )
    assert sorted(map(len, region_nodes(graph_with_another_reader))) == [1, 3]


def test_outputs_are_never_fused_away() -> None:
    graph = build_graph(lambda g, x: [y := g.exp(x), g.neg(y)], (4,))
    assert region_nodes(graph) == [[1], [2]]


def test_both_operands_may_be_the_same_producer() -> None:
    """`y * y` takes y into its region once."""
    graph = build_graph(lambda g, x: (y := g.exp(x)) * y, (4,))
    (region,) = elementwise_regions(graph, target(), True).values()
    assert region.nodes == [1, 2]
    assert region.reads == [0]


def test_other_shapes_are_not_fused() -> None:
    """Computing a small operand once per row would repeat work."""
    graph = build_graph(lambda g, row, x: g.exp(row) + x, (1, 4), (3, 4))
    assert region_nodes(graph) == [[2], [3]]


def test_reads_stay_within_the_binding_limit() -> None:
    """Inputs and the output together stay within the device's number of bindings."""
    graph = build_graph(lambda g, *xs: reduce(add, xs), *[(4,)] * 12)
    for operands in (3, 4, 8, 16):
        fused_regions = elementwise_regions(graph, target(operands), True).values()
        assert all(len(r.reads) + 1 <= operands for r in fused_regions)
        assert sorted(n for r in fused_regions for n in r.nodes) == [
            n.id for n in graph.nodes() if n.op == "add"
        ]


def test_region_size_is_bounded() -> None:
    """A very long chain is split into shaders that a driver compiles quickly."""
    graph = Graph()
    x = graph.input("x", (4,))
    for _ in range(2 * MAX_REGION_NODES):
        x = graph.neg(x)
    graph.set_outputs([x])
    sizes = [len(nodes) for nodes in region_nodes(graph)]
    assert max(sizes) <= MAX_REGION_NODES
    assert sum(sizes) == 2 * MAX_REGION_NODES


def test_only_finite_scalars_are_literals() -> None:
    """Infinity and NaN have no literal; longer constants are data."""
    graph = Graph()
    constants = [
        graph.constant(value, dtype)
        for value, dtype in (
            (1.5, "f32"),
            ([[2.0]], "f32"),
            (-(2**31), "i32"),
            (True, "bool"),
            (float("inf"), "f32"),
            (float("nan"), "f32"),
            ([1.0, 2.0], "f32"),
        )
    ]
    assert [graph.node(t.id).is_literal for t in constants] == [True] * 4 + [False] * 3
