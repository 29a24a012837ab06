"""Graph rewrites: what they remove, what they must keep, and that results do not
change.
"""

from __future__ import annotations

import numpy as np
import pytest

from rlxweb.compiler.rewrites import (
    MAX_FOLD_ELEMENTS,
    MAX_ROUNDS,
    decompose,
    fold_rule,
    rewrite_graph,
)
from rlxweb.compiler.target import Target
from rlxweb.core.errors import LimitExceeded, Unsupported
from rlxweb.engines.cpu import CpuEngine
from rlxweb.engines.evaluate import evaluate
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, HostOnly
from rlxweb.ir.noop_elimination import simplify_node
from rlxweb.ir.op import Attr, Op, registry
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.verify import verify
from tests.op_factory import make_op
from tests.unit.compiler.graph_factory import build_graph


def op_names(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes()]


def test_dead_nodes_are_removed_and_leaves_stay() -> None:
    """Inputs and params keep their names even if no output needs them."""
    graph = Graph()
    x = graph.input("x", (4,))
    graph.input("unused", (2,))
    graph.param("idle", (2,))
    graph.exp(graph.neg(x))
    graph.set_outputs([graph.relu(x)])
    rewritten = rewrite_graph(graph)
    assert op_names(rewritten) == ["input", "input", "param", "relu"]
    verify(rewritten)


def test_graph_without_dead_nodes_is_returned_unchanged() -> None:
    graph = build_graph(lambda g, x: g.relu(x), (4,))
    assert rewrite_graph(graph) is graph


def test_a_long_chain_needs_no_recursion() -> None:
    """Depth is bounded by memory, not by Python's stack."""
    graph = Graph()
    x = graph.input("x", ())
    for _ in range(3000):
        x = graph.neg(x)
    graph.set_outputs([x])
    graph.exp(x)
    assert len(rewrite_graph(graph)) == 3001


def test_noops_are_removed_and_chains_merged() -> None:
    """No-op casts, reshapes, transposes and slices are removed; results are the
    same.
    """

    def build(g: Graph, x: Tensor) -> list[Tensor]:
        transposed = g.transpose(
            g.transpose(g.transpose(x, (1, 2, 0)), (2, 0, 1)), (2, 1, 0)
        )
        unchanged = g.narrow(g.slice(g.cast(g.exp(x), "f32"), 0, None, 0), 1, 0, 3)
        flat = g.reshape(g.reshape(g.concat([unchanged]), (6, 4)), (-1,))
        expanded = g.expand(g.expand(g.reshape(flat, (24, 1)), (24, 5)), (2, 24, 5))
        # Not these: each changes something.
        flipped = g.cast(g.cast(g.flip(x, 1), "i32"), "f32")
        return [
            transposed,
            flat,
            expanded,
            g.reshape(flipped, x.shape),
            g.reshape(x, x.shape),
        ]

    graph = build_graph(build, (2, 3, 4))
    rewritten = rewrite_graph(graph, simplify_node)
    assert sorted(op_names(rewritten)) == sorted(
        "input transpose exp reshape reshape expand slice cast cast".split()
    )
    assert rewritten.outputs[-1] == 0
    verify(rewritten)
    x = {"x0": np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 7}
    for got, want in zip(evaluate(rewritten, x), evaluate(graph, x), strict=True):
        np.testing.assert_array_equal(got, want)
    assert rewrite_graph(rewritten, simplify_node) is rewritten


def test_equal_nodes_are_merged() -> None:
    """Nodes of the same op, operands and attributes are merged, from the inside out."""
    graph = build_graph(lambda g, x: [g.exp(g.sum(x, 0)), g.exp(g.sum(x, 0))], (4, 3))
    rewritten = rewrite_graph(graph, merges_equal=True)
    assert op_names(rewritten) == ["input", "sum", "exp"]
    assert rewritten.outputs == (2, 2)


def test_different_nodes_are_not_merged() -> None:
    graph = build_graph(
        lambda g, x, y: [g.sum(x, 0), g.sum(x, 1), g.sum(y, 0), x - y, y - x],
        *[(3, 3)] * 2,
    )
    assert len(rewrite_graph(graph, merges_equal=True)) == len(graph)


def test_attributes_of_different_zero_sign_are_not_merged() -> None:
    """The attributes 0.0 and -0.0 compare equal, but 1 / 0.0 and 1 / -0.0 do not."""
    graph = build_graph(
        lambda g, x, w: [g.rms_norm(x, w, w, eps=eps) for eps in (0.0, -0.0)],
        (2, 3),
        (3,),
    )
    assert len(rewrite_graph(graph, merges_equal=True)) == len(graph)


def test_constants_are_shared_by_content_and_type() -> None:
    """1.0 twice is one constant; 1.0 and integer 1 are two."""
    graph = build_graph(lambda g: [g.constant(value) for value in (1.0, 1.0, 1)])
    assert len(rewrite_graph(graph, merges_equal=True)) == 2


def test_nodes_with_incomparable_attributes_are_not_merged() -> None:
    """A custom op with a list as attribute is simply not shared."""
    op_name = "picky_for_test"
    table = Attr("table", "any")
    registry.register(make_op(op_name, lower=HostOnly(), attrs=(table,)))
    graph = build_graph(
        lambda g, x: [g.apply(op_name, x, table=[1]) for _ in "ab"], (3,)
    )
    assert op_names(rewrite_graph(graph, merges_equal=True)) == [
        "input",
        op_name,
        op_name,
    ]


def test_constant_arithmetic_is_folded() -> None:
    """A chain over constants becomes the constant it computes."""
    graph = build_graph(lambda g, x: x * (g.sqrt(g.constant([4.0, 9.0])) * 2.0), (2,))
    rewritten = rewrite_graph(graph, fold_rule())
    assert sorted(op_names(rewritten)) == ["constant", "input", "mul"]
    (out,) = evaluate(rewritten, {"x0": np.ones(2, np.float32)})
    np.testing.assert_array_equal(out, [4, 6])


def test_large_results_are_not_folded() -> None:
    """A broadcast constant must not become megabytes inside the plan."""
    large_shape = (MAX_FOLD_ELEMENTS + 1,)
    graph = build_graph(lambda g: g.neg(g.expand(g.constant(1.0), large_shape)))
    assert "expand" in op_names(rewrite_graph(graph, fold_rule()))


def test_folding_keeps_dtypes() -> None:
    """An i32 comparison folds to bool, an f32 sum to f32."""
    graph = build_graph(
        lambda g: [
            g.lt(g.constant([1, 5]), g.constant([2, 2])),
            g.sum(g.constant([1.5, 2.0])),
        ]
    )
    rewritten = rewrite_graph(graph, fold_rule())
    types = [str(rewritten.node(i).type) for i in rewritten.outputs]
    assert types == ["[2] bool", "[] f32"]
    verify(rewritten)


def target(native: object, refusal: object = None) -> Target:
    options = {"refusal": refusal} if refusal else {}
    return Target("test device", CpuEngine.target.dtypes, native, **options)  # type: ignore[arg-type]


@pytest.fixture
def composed_ops() -> None:
    """Register ops composed as outer → inner → exp, one composed of itself, and one for
    the CPU alone.
    """
    for name, lower in (
        ("inner_for_test", Compose(lambda g, a, x: g.exp(x))),
        ("outer_for_test", Compose(lambda g, a, x: g.apply("inner_for_test", x))),
        ("endless_for_test", Compose(lambda g, a, x: g.apply("endless_for_test", x))),
        ("lonely_for_test", HostOnly()),
    ):
        registry.register(make_op(name, lower=lower))


def runs_only_exp(op: Op, *rest: object) -> bool:
    return op.name in ("exp", "input")


def test_composed_ops_are_decomposed_fully(composed_ops: None) -> None:
    """Composed ops are decomposed until the target runs every node itself."""
    graph = build_graph(lambda g, x: g.apply("outer_for_test", x), (3,))
    rewritten = decompose(graph, target(runs_only_exp))
    assert op_names(rewritten) == ["input", "exp"]


def test_supported_composed_op_is_not_decomposed(composed_ops: None) -> None:
    """A composed op is decomposed only for targets without a kernel."""
    graph = build_graph(lambda g, x: g.apply("outer_for_test", x), (3,))
    assert decompose(graph, target(lambda *a: True)) is graph


def test_endless_decomposition_is_stopped(composed_ops: None) -> None:
    """The error states the number of rounds and where to look."""
    graph = build_graph(lambda g, x: g.apply("endless_for_test", x), (3,))
    with pytest.raises(Unsupported, match=rf"{MAX_ROUNDS} rounds .*; check the decomp"):
        decompose(graph, target(runs_only_exp))


def test_unsupported_op_is_named(composed_ops: None) -> None:
    """The error names the node, the device, and the CPU as the alternative."""
    graph = build_graph(lambda g, x: g.apply("lonely_for_test", x), (3,))
    with pytest.raises(Unsupported, match=r"lonely_for_test.*test device.*'cpu'"):
        decompose(graph, target(runs_only_exp))


def test_exceeded_limit_is_reported(composed_ops: None) -> None:
    """The error states the required and the granted value of the limit."""
    refusal = LimitExceeded("kernel 'k'", "needs 9", "this device has 3")
    graph = build_graph(lambda g, x: g.apply("lonely_for_test", x), (3,))
    with pytest.raises(LimitExceeded, match="needs 9; this device has 3") as caught:
        decompose(graph, target(runs_only_exp, lambda *rest: refusal))
    assert "lonely_for_test" in caught.value.doing
