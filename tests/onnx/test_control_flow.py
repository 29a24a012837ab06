"""Branches, loops and functions of a model: unrolled, selected and inlined."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

import rlxweb as rlx
from tests.onnx.model_factory import (
    BOOL,
    INT64,
    initializers,
    make_model,
    node,
    value_info,
)


def branch_graph(op: str) -> Any:
    return helper.make_graph([node(op, ["x"], ["o"])], op, [], [value_info("o", (2,))])


def test_an_unknown_condition_computes_both_branches() -> None:
    model_proto = make_model(
        [
            node("ReduceSum", ["x"], ["sum"], keepdims=0),
            node("Constant", [], ["zero"], value_float=0.0),
            node("Greater", ["sum", "zero"], ["c"]),
            node(
                "If",
                ["c"],
                ["y"],
                then_branch=branch_graph("Neg"),
                else_branch=branch_graph("Abs"),
            ),
        ],
        [value_info("x", (2,))],
        [value_info("y", (2,))],
    )
    net = rlx.onnx.load(model_proto.SerializeToString())
    assert "where" in str(net.graph)
    assert net.run({"x": [1.0, 2.0]}, device="cpu")["y"].tolist() == [-1.0, -2.0]
    assert net.run({"x": [-1.0, -2.0]}, device="cpu")["y"].tolist() == [1.0, 2.0]


def test_loop_with_a_computed_condition_stops() -> None:
    """A loop halves while the sum is over 1 and keeps the values once it is not."""
    body = helper.make_graph(
        [
            node("Constant", [], ["half"], value_float=0.5),
            node("Constant", [], ["one"], value_float=1.0),
            node("Mul", ["v", "half"], ["w"]),
            node("ReduceSum", ["w"], ["sum"], keepdims=0),
            node("Greater", ["sum", "one"], ["go"]),
        ],
        "body",
        [value_info("i", (), INT64), value_info("c", (), BOOL), value_info("v", (2,))],
        [value_info("go", (), BOOL), value_info("w", (2,))],
    )
    model_proto = make_model(
        [
            node("Constant", [], ["most"], value_int=10),
            node(
                "Constant", [], ["start"], value=helper.make_tensor("t", BOOL, [], [1])
            ),
            node("Loop", ["most", "start", "x"], ["y"], body=body),
        ],
        [value_info("x", (2,))],
        [value_info("y", (2,))],
    )
    net = rlx.onnx.load(model_proto.SerializeToString())
    for x in ([8.0, 8.0], [0.5, 0.25], [1e6, 0.0]):
        want = np.array(x, np.float32)
        for _ in range(10):
            want = want * np.float32(0.5)
            if want.sum() <= 1:
                break
        np.testing.assert_array_equal(net.run({"x": x}, device="cpu")["y"], want)


def test_loop_body_weight_is_one_param() -> None:
    body = helper.make_graph(
        [node("MatMul", ["v", "w"], ["next"]), node("Identity", ["c"], ["go"])],
        "body",
        [value_info("i", (), INT64), value_info("c", (), BOOL), value_info("v", (2,))],
        [value_info("go", (), BOOL), value_info("next", (2,))],
        initializers(w=np.array([[0, 2], [1, 0]], np.float32)),
    )
    model_proto = make_model(
        [node("Loop", ["turns", "", "x"], ["y"], body=body)],
        [value_info("x", (2,))],
        [value_info("y", (2,))],
        initializers(turns=np.array(4)),
    )
    net = rlx.onnx.load(model_proto.SerializeToString())
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
    model_proto = make_model(
        [node("Leak", ["x"], ["y"], domain="own", alpha=0.25)],
        [value_info("x", (2,))],
        [value_info("y", (2,))],
        opsets={"": 21, "own": 1},
        functions=[function],
    )
    net = rlx.onnx.load(model_proto.SerializeToString())
    assert net.run({"x": [-4.0, 4.0]}, device="cpu")["y"].tolist() == [-1.0, 4.0]


def test_input_condition_keeps_one_branch() -> None:
    """A condition given as an input keeps one branch; the other would not fit."""
    matching = helper.make_graph(
        [node("Reshape", ["x", "two"], ["o"])],
        *("fits", [], [value_info("o", (2, 2))]),
        initializers(two=np.array([2, 2])),
    )
    other = helper.make_graph(
        [node("Reshape", ["x", "three"], ["o"])],
        *("other", [], [value_info("o", (3, 3))]),
        initializers(three=np.array([3, 3])),
    )
    model_proto = make_model(
        [
            node("Equal", ["rate", "first"], ["c"]),
            node("If", ["c"], ["y"], then_branch=matching, else_branch=other),
        ],
        [value_info("x", ("n",)), value_info("rate", (), INT64)],
        [value_info("y", None)],
        initializers(first=np.array(16000)),
    )
    net = rlx.onnx.load(model_proto.SerializeToString())
    for rate, side in ((16000, 2), (8000, 3), (16000, 2)):
        x = np.arange(side**2, dtype=np.float32)
        got = net.run({"x": x, "rate": rate}, device="cpu")["y"]
        np.testing.assert_array_equal(got, x.reshape(side, side))
    assert "where" not in str(net._conversions[-1][1].graph)


def test_attributes_reach_nested_functions(rng: np.random.Generator) -> None:
    """SoftmaxCrossEntropyLoss is defined by a nested function that also takes the
    reduction.
    """
    scores = rng.normal(size=(3, 5)).astype(np.float32)
    labels = np.array([1, 0, 4])
    losses = {}
    for reduction in ("sum", "mean", "none"):
        model_proto = make_model(
            [node("SoftmaxCrossEntropyLoss", ["x", "t"], ["y"], reduction=reduction)],
            [value_info("x", (3, 5)), value_info("t", (3,), INT64)],
            [value_info("y", None)],
        )
        net = rlx.onnx.load(model_proto.SerializeToString())
        losses[reduction] = net.run({"x": scores, "t": labels}, device="cpu")["y"]
    scores_f64 = scores.astype(np.float64)
    row_losses = np.log(np.exp(scores_f64).sum(1)) - scores_f64[np.arange(3), labels]
    np.testing.assert_allclose(losses["none"], row_losses, rtol=1e-5)
    np.testing.assert_allclose(losses["sum"], row_losses.sum(), rtol=1e-5)
    np.testing.assert_allclose(losses["mean"], row_losses.mean(), rtol=1e-5)
