"""Regions: what joins, what stays apart, and that no device limit is broken."""

from __future__ import annotations

from functools import reduce
from operator import add

from rlxweb.backends.cpu import CpuBackend
from rlxweb.compile.schedule import MAX_NODES, regions
from rlxweb.compile.target import Target
from rlxweb.ir.graph import Graph
from tests.unit.compile.made import made


def target(operands: int = 8) -> Target:
    return Target(
        "test", CpuBackend.target.dtypes, lambda *a: True, max_operands=operands
    )


def nodes_of(graph: Graph, operands: int = 8, fuse: bool = True) -> list[list[int]]:
    return [r.nodes for r in regions(graph, target(operands), fuse).values()]


def test_a_chain_becomes_one_region() -> None:
    """Elementwise nodes in a row cost one pass over memory."""
    graph = made(lambda g, x: g.exp(g.neg(g.abs(x))), (4,))
    assert nodes_of(graph) == [[1, 2, 3]]
    assert nodes_of(graph, fuse=False) == [[1], [2], [3]]


def test_a_value_used_twice_is_computed_once() -> None:
    """A producer stays a region of its own when another needs its value."""
    graph = made(lambda g, x: [g.neg(y := g.exp(x)), g.abs(y)], (4,))
    assert nodes_of(graph) == [[1], [2], [3]]


def test_a_value_all_of_whose_readers_are_together_joins_them() -> None:
    """A bias joins the function of its sum and their product; not for a reader more."""
    graph = made(lambda g, x, b: (y := x + b) * (g.tanh(y) + 1.0), (4,), (4,))
    (region,) = regions(graph, target(), True).values()
    assert region.nodes == [n.id for n in graph.nodes() if n.type.rank and n.inputs]
    assert region.reads == [0, 1]
    more = made(
        lambda g, x, b: [(y := x + b) * (g.tanh(y) + 1.0), g.sum(y)], (4,), (4,)
    )
    assert sorted(map(len, nodes_of(more))) == [1, 3]


def test_an_output_is_never_swallowed() -> None:
    graph = made(lambda g, x: [y := g.exp(x), g.neg(y)], (4,))
    assert nodes_of(graph) == [[1], [2]]


def test_both_operands_may_be_the_same_producer() -> None:
    """`y * y` takes y into its region once."""
    graph = made(lambda g, x: (y := g.exp(x)) * y, (4,))
    (region,) = regions(graph, target(), True).values()
    assert region.nodes == [1, 2]
    assert region.reads == [0]


def test_another_shape_does_not_join() -> None:
    """Computing a small operand once per row would repeat work."""
    graph = made(lambda g, row, x: g.exp(row) + x, (1, 4), (3, 4))
    assert nodes_of(graph) == [[2], [3]]


def test_reads_never_pass_the_bindings() -> None:
    """Inputs and the output together stay within what the device binds."""
    graph = made(lambda g, *xs: reduce(add, xs), *[(4,)] * 12)
    for operands in (3, 4, 8, 16):
        found = regions(graph, target(operands), True).values()
        assert all(len(r.reads) + 1 <= operands for r in found)
        assert sorted(n for r in found for n in r.nodes) == [
            n.id for n in graph.nodes() if n.op == "add"
        ]


def test_a_region_does_not_grow_without_end() -> None:
    """A very long chain is cut into shaders a driver compiles in good time."""
    graph = Graph()
    x = graph.input("x", (4,))
    for _ in range(2 * MAX_NODES):
        x = graph.neg(x)
    graph.set_outputs([x])
    sizes = [len(nodes) for nodes in nodes_of(graph)]
    assert max(sizes) <= MAX_NODES
    assert sum(sizes) == 2 * MAX_NODES


def test_only_single_finite_constants_are_printed() -> None:
    """Infinity and NaN have no literal; longer constants are data."""
    graph = Graph()
    made = [
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
    assert [graph.node(t.id).is_literal for t in made] == [True] * 4 + [False] * 3
