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
    graph = net.graph_over(rows=rlx.Dim("rows", min=2, max=8))
    with pytest.raises(ShapeError, match="'rows' is 9; it is at most 8"):
        graph.bind(batch=1, rows=9)
    with pytest.raises(UnknownName, match=r"no free dim 'row'.*did you mean 'rows'"):
        net.graph_over(row=2)


def test_dims_of_two_names_may_be_one() -> None:
    """Dims that an exporter named apart may be one, where no single graph is."""
    nodes = [made.node("Concat", ["a", "b"], ["y"], axis=1)]
    inputs = [made.value("a", ["n", 2]), made.value("b", [None, 3])]
    model = made.model(nodes, inputs, [made.value("y", ["n", 5])])
    net = rlx.onnx.load(model.SerializeToString())
    with pytest.raises(ShapeError, match=r"tried with n=\d+, b_0=\d+.*graph_over\(…\)"):
        _ = net.graph
    graph = net.graph_over(n=(n := rlx.Dim("n")), b_0=n)
    assert str(graph.node(graph.outputs[0]).type) == "[n, 5] f32"
    assert net.graph_over({"n": 4, "b_0": 4}).dims == {}


def test_values_that_decide_shapes_are_told() -> None:
    nodes = [made.node("Reshape", ["x", "to"], ["y"])]
    inputs = [made.value("x", ["n", 4]), made.value("to", [2], made.INT64)]
    model = made.model(nodes, inputs, [made.value("y", None)])
    with pytest.raises(Unsupported, match="values of input 'to' decide shapes"):
        _ = rlx.onnx.load(model.SerializeToString()).graph


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("vulkan", marks=pytest.mark.requires_wgpu)]
)
def test_tokens_are_int64_as_exporters_have_them(device: str) -> None:
    """Ids that index, places that a shape tells, a mask that is cast and counted."""
    nodes = [
        made.node("Shape", ["ids"], ["shape"]),
        made.node("Gather", ["shape", "one"], ["length"]),
        made.node("Range", ["zero", "length", "one"], ["at"]),
        made.node("Gather", ["w", "ids"], ["words"]),
        made.node("Gather", ["w", "at"], ["places"]),
        made.node("Add", ["words", "places"], ["x"]),
        made.node("Unsqueeze", ["mask", "minus"], ["wide"]),
        made.node("Cast", ["wide"], ["on"], to=1),
        made.node("Mul", ["x", "on"], ["y"]),
        made.node("ReduceSum", ["mask", "minus"], ["count"], keepdims=0),
        made.node("Add", ["ids", "offset"], ["moved"]),
    ]
    held = made.weights(
        w=W,
        zero=np.array(0),
        one=np.array(1),
        minus=np.array([-1]),
        offset=np.arange(1 << 5).reshape(2, 16)[:, :1],
    )
    ends = [made.value("y", ["batch", "length", 4])]
    ends += [made.value("count", ["batch"], 7), made.value("moved", [2, "length"], 7)]
    inputs = [made.value(name, ["batch", "length"], 7) for name in ("ids", "mask")]
    with rlx.onnx.load(
        made.model(nodes, inputs, ends, held).SerializeToString()
    ) as net:
        for length in (2, 3):
            ids = np.arange(2 * length).reshape(2, length) % 3 - 1
            mask = np.array([[1] * length, [1, *[0] * (length - 1)]])
            got = net.run({"ids": ids, "mask": mask}, device=device)
            want = (W[ids] + W[:length]) * mask[..., None]
            np.testing.assert_allclose(got["y"], want, rtol=1e-6)
            np.testing.assert_array_equal(got["count"], mask.sum(1))
            np.testing.assert_array_equal(got["moved"], ids + np.array([[0], [16]]))
            assert {got["count"].dtype, got["moved"].dtype} == {np.dtype("int64")}
