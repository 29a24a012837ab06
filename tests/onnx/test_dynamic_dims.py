"""Test models with free dims: one graph for all their sizes, with shared weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import ShapeError, UnknownName, Unsupported
from tests.onnx import model_factory

W = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def flatten_model() -> bytes:
    """Return a model that reshapes to a shape it computes itself."""
    nodes = [
        model_factory.node("MatMul", ["x", "w"], ["h"]),
        model_factory.node("Shape", ["h"], ["all"]),
        model_factory.node("Gather", ["all", "zero"], ["n"]),
        model_factory.node("Concat", ["n", "minus"], ["to"], axis=0),
        model_factory.node("Reshape", ["h", "to"], ["y"]),
        model_factory.node("Add", ["y", "b"], ["z"]),
    ]
    initializers = model_factory.initializers(
        w=W, zero=np.array([0]), minus=np.array([-1]), b=np.float32(2)
    )
    outputs = [model_factory.value_info("z", ["batch", None])]
    inputs = [model_factory.value_info("x", ["batch", "rows", 3])]
    message: bytes = model_factory.make_model(
        nodes, inputs, outputs, initializers
    ).SerializeToString()
    return message


def expected_output(x: Any) -> Any:
    return (x @ W).reshape(len(x), -1) + 2


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("vulkan", marks=pytest.mark.requires_wgpu)]
)
def test_one_graph_serves_all_sizes(device: str) -> None:
    net = rlx.onnx.load(flatten_model())
    graph = net.graph
    assert list(graph.dims) == ["batch", "rows"]
    assert list(graph.named("param")) == ["w"]
    assert str(graph.node(graph.outputs[0]).type) == "[batch, 4*rows] f32"
    compiled = rlx.Session(device).compile(graph)
    compiled.set_param("w", net.params["w"])
    for n, rows in ((2, 3), (1, 1), (4, 5)):
        x = np.random.default_rng(n).normal(size=(n, rows, 3)).astype(np.float32)
        want = expected_output(x)
        np.testing.assert_allclose(compiled(x), want, rtol=1e-5, atol=1e-5)
        got = net.run({"x": x}, device=device)["z"]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    programs = [
        compiled_graph._placement.prepared.program
        for compiled_graph in net._compiled_graphs()
    ]
    assert len(programs) == 3
    assert len({id(compiled_graph.params) for compiled_graph in programs}) == 1
    net.close()
    compiled.close()


def test_dims_may_be_bounded() -> None:
    net = rlx.onnx.load(flatten_model())
    graph = net.graph_over(rows=rlx.Dim("rows", min=2, max=8))
    with pytest.raises(ShapeError, match="'rows' is 9; it must be at most 8"):
        graph.bind(batch=1, rows=9)
    with pytest.raises(UnknownName, match=r"no free dim 'row'.*did you mean 'rows'"):
        net.graph_over(row=2)


def test_two_named_dims_may_be_equal() -> None:
    """Two dims that an exporter named differently may be one dim where no graph has
    both.
    """
    nodes = [model_factory.node("Concat", ["a", "b"], ["y"], axis=1)]
    inputs = [
        model_factory.value_info("a", ["n", 2]),
        model_factory.value_info("b", [None, 3]),
    ]
    model = model_factory.make_model(
        nodes, inputs, [model_factory.value_info("y", ["n", 5])]
    )
    net = rlx.onnx.load(model.SerializeToString())
    with pytest.raises(ShapeError, match=r"tried with n=\d+, b_0=\d+.*graph_over\(…\)"):
        _ = net.graph
    graph = net.graph_over(n=(n := rlx.Dim("n")), b_0=n)
    assert str(graph.node(graph.outputs[0]).type) == "[n, 5] f32"
    assert net.graph_over({"n": 4, "b_0": 4}).dims == {}


def test_inputs_that_determine_shapes_are_named() -> None:
    nodes = [model_factory.node("Reshape", ["x", "to"], ["y"])]
    inputs = [
        model_factory.value_info("x", ["n", 4]),
        model_factory.value_info("to", [2], model_factory.INT64),
    ]
    model = model_factory.make_model(
        nodes, inputs, [model_factory.value_info("y", None)]
    )
    with pytest.raises(Unsupported, match="values of input 'to' determine shapes"):
        _ = rlx.onnx.load(model.SerializeToString()).graph


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("vulkan", marks=pytest.mark.requires_wgpu)]
)
def test_int64_tokens_run_on_every_device(device: str) -> None:
    """Token ids, positions from a shape, and a mask that is cast and counted keep
    int64.
    """
    nodes = [
        model_factory.node("Shape", ["ids"], ["shape"]),
        model_factory.node("Gather", ["shape", "one"], ["length"]),
        model_factory.node("Range", ["zero", "length", "one"], ["at"]),
        model_factory.node("Gather", ["w", "ids"], ["words"]),
        model_factory.node("Gather", ["w", "at"], ["places"]),
        model_factory.node("Add", ["words", "places"], ["x"]),
        model_factory.node("Unsqueeze", ["mask", "minus"], ["wide"]),
        model_factory.node("Cast", ["wide"], ["on"], to=1),
        model_factory.node("Mul", ["x", "on"], ["y"]),
        model_factory.node("ReduceSum", ["mask", "minus"], ["count"], keepdims=0),
        model_factory.node("Add", ["ids", "offset"], ["moved"]),
    ]
    initializers = model_factory.initializers(
        w=W,
        zero=np.array(0),
        one=np.array(1),
        minus=np.array([-1]),
        offset=np.arange(1 << 5).reshape(2, 16)[:, :1],
    )
    outputs = [model_factory.value_info("y", ["batch", "length", 4])]
    outputs += [
        model_factory.value_info("count", ["batch"], 7),
        model_factory.value_info("moved", [2, "length"], 7),
    ]
    inputs = [
        model_factory.value_info(name, ["batch", "length"], 7)
        for name in ("ids", "mask")
    ]
    with rlx.onnx.load(
        model_factory.make_model(
            nodes, inputs, outputs, initializers
        ).SerializeToString()
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
