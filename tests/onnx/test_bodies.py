"""Branches, loops and functions of a model: laid out, chosen and inlined."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

import rlxweb as rlx
from tests.onnx.made import BOOL, INT64, model, node, value, weights


def branch(op: str) -> Any:
    return helper.make_graph([node(op, ["x"], ["o"])], op, [], [value("o", (2,))])


def test_an_unknown_condition_computes_both_branches() -> None:
    made = model(
        [
            node("ReduceSum", ["x"], ["sum"], keepdims=0),
            node("Constant", [], ["zero"], value_float=0.0),
            node("Greater", ["sum", "zero"], ["c"]),
            node(
                "If", ["c"], ["y"], then_branch=branch("Neg"), else_branch=branch("Abs")
            ),
        ],
        [value("x", (2,))],
        [value("y", (2,))],
    )
    net = rlx.onnx.load(made.SerializeToString())
    assert "where" in str(net.graph)
    assert net.run({"x": [1.0, 2.0]}, device="cpu")["y"].tolist() == [-1.0, -2.0]
    assert net.run({"x": [-1.0, -2.0]}, device="cpu")["y"].tolist() == [1.0, 2.0]


def test_a_loop_stops_where_only_the_device_knows() -> None:
    """Halve while the sum is over 1: the values are kept once it is not."""
    body = helper.make_graph(
        [
            node("Constant", [], ["half"], value_float=0.5),
            node("Constant", [], ["one"], value_float=1.0),
            node("Mul", ["v", "half"], ["w"]),
            node("ReduceSum", ["w"], ["sum"], keepdims=0),
            node("Greater", ["sum", "one"], ["go"]),
        ],
        "body",
        [value("i", (), INT64), value("c", (), BOOL), value("v", (2,))],
        [value("go", (), BOOL), value("w", (2,))],
    )
    made = model(
        [
            node("Constant", [], ["most"], value_int=10),
            node(
                "Constant", [], ["start"], value=helper.make_tensor("t", BOOL, [], [1])
            ),
            node("Loop", ["most", "start", "x"], ["y"], body=body),
        ],
        [value("x", (2,))],
        [value("y", (2,))],
    )
    net = rlx.onnx.load(made.SerializeToString())
    for x in ([8.0, 8.0], [0.5, 0.25], [1e6, 0.0]):
        want = np.array(x, np.float32)
        for _ in range(10):
            want = want * np.float32(0.5)
            if want.sum() <= 1:
                break
        np.testing.assert_array_equal(net.run({"x": x}, device="cpu")["y"], want)


def test_a_weight_of_a_body_is_one_param_however_often_it_turns() -> None:
    body = helper.make_graph(
        [node("MatMul", ["v", "w"], ["next"]), node("Identity", ["c"], ["go"])],
        "body",
        [value("i", (), INT64), value("c", (), BOOL), value("v", (2,))],
        [value("go", (), BOOL), value("next", (2,))],
        weights(w=np.array([[0, 2], [1, 0]], np.float32)),
    )
    made = model(
        [node("Loop", ["turns", "", "x"], ["y"], body=body)],
        [value("x", (2,))],
        [value("y", (2,))],
        weights(turns=np.array(4)),
    )
    net = rlx.onnx.load(made.SerializeToString())
    assert list(net.graph.named("param")) == ["w"]
    assert net.run({"x": [1.0, 3.0]}, device="cpu")["y"].tolist() == [4.0, 12.0]


def test_functions_of_a_model_are_inlined() -> None:
    opset = helper.make_opsetid("", 21)
    function = helper.make_function(
        "own",
        "Leak",
        ["x"],
        ["y"],
        [
            node("Constant", [], ["a"]),
            node("Mul", ["x", "a"], ["xa"]),
            node("Max", ["x", "xa"], ["y"]),
        ],
        [opset],
        ["alpha"],
    )
    attr = function.node[0].attribute.add()
    attr.name, attr.ref_attr_name, attr.type = "value_float", "alpha", 1
    made = model(
        [node("Leak", ["x"], ["y"], domain="own", alpha=0.25)],
        [value("x", (2,))],
        [value("y", (2,))],
        opsets={"": 21, "own": 1},
        functions=[function],
    )
    net = rlx.onnx.load(made.SerializeToString())
    assert net.run({"x": [-4.0, 4.0]}, device="cpu")["y"].tolist() == [-1.0, 4.0]


def test_a_switch_given_at_a_run_leaves_one_branch() -> None:
    """A switch given at a run leaves one branch; the other would not fit."""
    fits = helper.make_graph(
        [node("Reshape", ["x", "two"], ["o"])],
        *("fits", [], [value("o", (2, 2))]),
        weights(two=np.array([2, 2])),
    )
    other = helper.make_graph(
        [node("Reshape", ["x", "three"], ["o"])],
        *("other", [], [value("o", (3, 3))]),
        weights(three=np.array([3, 3])),
    )
    made = model(
        [
            node("Equal", ["rate", "first"], ["c"]),
            node("If", ["c"], ["y"], then_branch=fits, else_branch=other),
        ],
        [value("x", ("n",)), value("rate", (), INT64)],
        [value("y", None)],
        weights(first=np.array(16000)),
    )
    net = rlx.onnx.load(made.SerializeToString())
    for rate, side in ((16000, 2), (8000, 3), (16000, 2)):
        x = np.arange(side**2, dtype=np.float32)
        got = net.run({"x": x, "rate": rate}, device="cpu")["y"]
        np.testing.assert_array_equal(got, x.reshape(side, side))
    assert "where" not in str(net._made[-1][1].graph)


def test_attributes_reach_functions_within_functions(rng: np.random.Generator) -> None:
    """Softmax cross entropy is defined by a loss that has the reduction too."""
    scores = rng.normal(size=(3, 5)).astype(np.float32)
    labels = np.array([1, 0, 4])
    found = {}
    for reduction in ("sum", "mean", "none"):
        made = model(
            [node("SoftmaxCrossEntropyLoss", ["x", "t"], ["y"], reduction=reduction)],
            [value("x", (3, 5)), value("t", (3,), INT64)],
            [value("y", None)],
        )
        net = rlx.onnx.load(made.SerializeToString())
        found[reduction] = net.run({"x": scores, "t": labels}, device="cpu")["y"]
    wide = scores.astype(np.float64)
    each = np.log(np.exp(wide).sum(1)) - wide[np.arange(3), labels]
    np.testing.assert_allclose(found["none"], each, rtol=1e-5)
    np.testing.assert_allclose(found["sum"], each.sum(), rtol=1e-5)
    np.testing.assert_allclose(found["mean"], each.mean(), rtol=1e-5)
