"""Models with free dims: one graph for all their sizes, and weights that are shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.errors import ShapeError, UnknownName, Unsupported
from tests.onnx import made

W = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def flat() -> bytes:
    """The mean of rows, of a shape that the model itself works out."""
    nodes = [
        made.node("MatMul", ["x", "w"], ["h"]),
        made.node("Shape", ["h"], ["all"]),
        made.node("Gather", ["all", "zero"], ["n"]),
        made.node("Concat", ["n", "minus"], ["to"], axis=0),
        made.node("Reshape", ["h", "to"], ["y"]),
        made.node("Add", ["y", "b"], ["z"]),
    ]
    held = made.weights(w=W, zero=np.array([0]), minus=np.array([-1]), b=np.float32(2))
    ends = [made.value("z", ["batch", None])]
    inputs = [made.value("x", ["batch", "rows", 3])]
    message: bytes = made.model(nodes, inputs, ends, held).SerializeToString()
    return message


def right(x: Any) -> Any:
    return (x @ W).reshape(len(x), -1) + 2


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("vulkan", marks=pytest.mark.requires_wgpu)]
)
def test_a_model_is_one_graph_for_all_its_sizes(device: str) -> None:
    net = rlx.onnx.load(flat())
    graph = net.graph
    assert list(graph.dims) == ["batch", "rows"]
    assert list(graph.named("param")) == ["w"]
    assert str(graph.node(graph.outputs[0]).type) == "[batch, 4*rows] f32"
    compiled = rlx.Session(device).compile(graph)
    compiled.set_param("w", net.params["w"])
    for n, rows in ((2, 3), (1, 1), (4, 5)):
        x = np.random.default_rng(n).normal(size=(n, rows, 3)).astype(np.float32)
        want = right(x)
        np.testing.assert_allclose(compiled(x), want, rtol=1e-5, atol=1e-5)
        got = net.run({"x": x}, device=device)["z"]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    programs = [one._placed.ready.program for one in net._compiled()]
    assert len(programs) == 3
    assert len({id(one.params) for one in programs}) == 1
    net.close()
    compiled.close()


def test_dims_may_be_told_of() -> None:
    net = rlx.onnx.load(flat())
    graph = net.graph_over(rlx.Dim("rows", min=2, max=8))
    with pytest.raises(ShapeError, match="'rows' is 9; it is at most 8"):
        graph.bind(batch=1, rows=9)
    with pytest.raises(UnknownName, match=r"no free dim 'row'.*did you mean 'rows'"):
        net.graph_over(rlx.Dim("row"))


def test_values_that_decide_shapes_are_told() -> None:
    nodes = [made.node("Reshape", ["x", "to"], ["y"])]
    inputs = [made.value("x", ["n", 4]), made.value("to", [2], made.INT64)]
    model = made.model(nodes, inputs, [made.value("y", None)])
    with pytest.raises(Unsupported, match="values of input 'to' decide shapes"):
        _ = rlx.onnx.load(model.SerializeToString()).graph
