"""Rewrites: what they remove, what they must leave alone, and that meaning stays."""

from __future__ import annotations

import numpy as np
import pytest

from rlxweb.backends.cpu import CpuBackend
from rlxweb.backends.evaluate import evaluate
from rlxweb.compile.rewrites import (
    FOLD_ELEMENTS,
    MAX_ROUNDS,
    decompose,
    drop_dead,
    drop_needless,
    fold_constants,
    share_common,
)
from rlxweb.compile.target import Target
from rlxweb.errors import LimitExceeded, Unsupported
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, HostOnly
from rlxweb.ir.op import Attr, Op, registry
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.verify import verify
from tests.made_op import made_op
from tests.unit.compile.made import made


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes()]


def test_dead_nodes_go_and_leaves_stay() -> None:
    """Inputs and params keep their names whatever the outputs need."""
    graph = Graph()
    x = graph.input("x", (4,))
    graph.input("unused", (2,))
    graph.param("idle", (2,))
    graph.exp(graph.neg(x))
    graph.set_outputs([graph.relu(x)])
    after = drop_dead(graph)
    assert ops(after) == ["input", "input", "param", "relu"]
    verify(after)


def test_a_live_graph_is_returned_as_it_is() -> None:
    graph = made(lambda g, x: g.relu(x), (4,))
    assert drop_dead(graph) is graph


def test_a_long_chain_needs_no_recursion() -> None:
    """Depth is bounded by memory, not by Python's stack."""
    graph = Graph()
    x = graph.input("x", ())
    for _ in range(3000):
        x = graph.neg(x)
    graph.set_outputs([x])
    graph.exp(x)
    assert len(drop_dead(graph)) == 3001


def test_what_changes_nothing_goes_and_chains_are_one() -> None:
    """Casts, shapes, orders and parts of what is there; its values are the same."""

    def build(g: Graph, x: Tensor) -> list[Tensor]:
        turned = g.transpose(
            g.transpose(g.transpose(x, (1, 2, 0)), (2, 0, 1)), (2, 1, 0)
        )
        same = g.narrow(g.slice(g.cast(g.exp(x), "f32"), 0, None, 0), 1, 0, 3)
        flat = g.reshape(g.reshape(g.concat([same]), (6, 4)), (-1,))
        wide = g.expand(g.expand(g.reshape(flat, (24, 1)), (24, 5)), (2, 24, 5))
        # Not these: each changes something.
        rest = g.cast(g.cast(g.flip(x, 1), "i32"), "f32")
        return [turned, flat, wide, g.reshape(rest, x.shape), g.reshape(x, x.shape)]

    graph = made(build, (2, 3, 4))
    after = drop_needless(graph)
    assert sorted(ops(after)) == sorted(
        "input transpose exp reshape reshape expand slice cast cast".split()
    )
    assert after.outputs[-1] == 0
    verify(after)
    x = {"x0": np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 7}
    for got, want in zip(evaluate(after, x), evaluate(graph, x), strict=True):
        np.testing.assert_array_equal(got, want)
    assert drop_needless(after) is after


def test_equal_nodes_become_one() -> None:
    """Nodes of the same op, operands and attributes become one, from the inside out."""
    graph = made(lambda g, x: [g.exp(g.sum(x, 0)), g.exp(g.sum(x, 0))], (4, 3))
    after = share_common(graph)
    assert ops(after) == ["input", "sum", "exp"]
    assert after.outputs == (2, 2)


def test_other_attributes_operands_or_inputs_stay_apart() -> None:
    graph = made(
        lambda g, x, y: [g.sum(x, 0), g.sum(x, 1), g.sum(y, 0), x - y, y - x],
        *[(3, 3)] * 2,
    )
    assert len(share_common(graph)) == len(graph)


def test_attributes_of_either_sign_of_zero_stay_apart() -> None:
    """The attributes 0.0 and -0.0 compare equal, but 1 / 0.0 and 1 / -0.0 do not."""
    graph = made(
        lambda g, x, w: [g.rms_norm(x, w, w, eps=eps) for eps in (0.0, -0.0)],
        (2, 3),
        (3,),
    )
    assert len(share_common(graph)) == len(graph)


def test_constants_are_shared_by_content_and_type() -> None:
    """1.0 twice is one constant; 1.0 and integer 1 are two."""
    graph = made(lambda g: [g.constant(one) for one in (1.0, 1.0, 1)])
    assert len(share_common(graph)) == 2


def test_attributes_that_cannot_be_compared_are_left_alone() -> None:
    """A custom op with a list as attribute is simply not shared."""
    picky = "picky_for_test"
    table = Attr("table", "any")
    registry.register(made_op(picky, lower=HostOnly(), attrs=(table,)))
    graph = made(lambda g, x: [g.apply(picky, x, table=[1]) for _ in "ab"], (3,))
    assert ops(share_common(graph)) == ["input", picky, picky]


def test_arithmetic_on_constants_is_done_once() -> None:
    """A chain over constants becomes the constant it computes."""
    graph = made(lambda g, x: x * (g.sqrt(g.constant([4.0, 9.0])) * 2.0), (2,))
    after = drop_dead(fold_constants(graph))
    assert sorted(ops(after)) == ["constant", "input", "mul"]
    (out,) = evaluate(after, {"x0": np.ones(2, np.float32)})
    np.testing.assert_array_equal(out, [4, 6])


def test_large_results_are_not_folded() -> None:
    """A broadcast constant must not become megabytes inside the plan."""
    wide = (FOLD_ELEMENTS + 1,)
    graph = made(lambda g: g.neg(g.expand(g.constant(1.0), wide)))
    assert "expand" in ops(fold_constants(graph))


def test_folding_keeps_dtypes() -> None:
    """An i32 comparison folds to bool, an f32 sum to f32."""
    graph = made(
        lambda g: [
            g.lt(g.constant([1, 5]), g.constant([2, 2])),
            g.sum(g.constant([1.5, 2.0])),
        ]
    )
    after = fold_constants(graph)
    kinds = [str(after.node(i).type) for i in after.outputs]
    assert kinds == ["[2] bool", "[] f32"]
    verify(after)


def target(native: object, refusal: object = None) -> Target:
    more = {"refusal": refusal} if refusal else {}
    return Target("test device", CpuBackend.target.dtypes, native, **more)  # type: ignore[arg-type]


@pytest.fixture
def nested() -> None:
    """Outer → inner → exp, one that is made of itself, and one for the CPU alone."""
    for name, lower in (
        ("inner_for_test", Compose(lambda g, a, x: g.exp(x))),
        ("outer_for_test", Compose(lambda g, a, x: g.apply("inner_for_test", x))),
        ("endless_for_test", Compose(lambda g, a, x: g.apply("endless_for_test", x))),
        ("lonely_for_test", HostOnly()),
    ):
        registry.register(made_op(name, lower=lower))


def only_exp(op: Op, *rest: object) -> bool:
    return op.name in ("exp", "input")


def test_compositions_are_taken_apart_to_the_bottom(nested: None) -> None:
    """Compositions are taken apart until the target runs every node itself."""
    graph = made(lambda g, x: g.apply("outer_for_test", x), (3,))
    after = decompose(graph, target(only_exp))
    assert ops(after) == ["input", "exp"]


def test_what_the_target_runs_is_left_whole(nested: None) -> None:
    """A composition is for those who need it."""
    graph = made(lambda g, x: g.apply("outer_for_test", x), (3,))
    assert decompose(graph, target(lambda *a: True)) is graph


def test_an_endless_composition_is_stopped(nested: None) -> None:
    """An endless composition is stopped with the number of rounds and where to look."""
    graph = made(lambda g, x: g.apply("endless_for_test", x), (3,))
    with pytest.raises(Unsupported, match=rf"{MAX_ROUNDS} rounds; check the comp"):
        decompose(graph, target(only_exp))


def test_an_op_the_device_cannot_run_is_named(nested: None) -> None:
    """A refused op is told with the node, the device, and that the CPU can."""
    graph = made(lambda g, x: g.apply("lonely_for_test", x), (3,))
    with pytest.raises(Unsupported, match=r"lonely_for_test.*test device.*'cpu'"):
        decompose(graph, target(only_exp))


def test_a_limit_that_keeps_an_op_away_is_told(nested: None) -> None:
    """The limit that keeps an op away is told, wanted and granted."""
    refusal = LimitExceeded("kernel 'k'", "needs 9", "this device has 3")
    graph = made(lambda g, x: g.apply("lonely_for_test", x), (3,))
    with pytest.raises(LimitExceeded, match="needs 9; this device has 3") as caught:
        decompose(graph, target(only_exp, lambda *rest: refusal))
    assert "lonely_for_test" in caught.value.doing
