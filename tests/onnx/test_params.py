"""The params of a model fit its graph: what one declares the other holds."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import rlxweb as rlx
from rlxweb.errors import RlxError
from tests.onnx.cases import cases
from tests.onnx.made import model, node, value, weights
from tests.onnx.test_networks import SIZES, image, network


def f4(rng: np.random.Generator, *shape: int) -> Any:
    return rng.normal(size=shape).astype(np.float32)


def layers(rng: np.random.Generator) -> Any:
    """Weights that are folded, of one number, of integers, unused, and plain ones."""
    held = weights(
        w=f4(rng, 8, 80),
        one=np.array([0.5], np.float32),
        scalar=np.array(2.0, np.float32),
        a=f4(rng, 80),
        b=f4(rng, 80),
        shape=np.array([-1, 4, 20]),
        unused=f4(rng, 3),
        codes=rng.integers(-9, 9, (20, 80)).astype(np.int8),
        wide=f4(rng, 80, 80),
    )
    nodes = [
        node("MatMul", ["x", "w"], ["xw"]),
        node("Add", ["a", "b"], ["ab"]),
        node("Add", ["xw", "ab"], ["h"]),
        node("Mul", ["h", "scalar"], ["s"]),
        node("Add", ["s", "one"], ["o"]),
        node("MatMul", ["o", "wide"], ["v"]),
        node("Reshape", ["v", "shape"], ["r"]),
        node("Cast", ["codes"], ["c"], to=TensorProto.FLOAT),
        node("MatMul", ["r", "c"], ["y"]),
    ]
    return model(nodes, [value("x", (3, 8))], [value("y", (3, 4, 80))], held)


def tokens(rng: np.random.Generator) -> Any:
    """A weight repeated for a batch, whose size is free."""
    held = weights(
        zero=np.array([0]),
        rest=np.array([1, 8]),
        token=f4(rng, 1, 1, 8),
        w=f4(rng, 8, 5),
        bias=f4(rng, 1),
    )
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["batch"]),
        node("Concat", ["batch", "rest"], ["shape"], axis=0),
        node("Expand", ["token", "shape"], ["t"]),
        node("Concat", ["t", "x"], ["all"], axis=1),
        node("MatMul", ["all", "w"], ["m"]),
        node("Add", ["m", "bias"], ["y"]),
    ]
    return model(nodes, [value("x", ("n", 3, 8))], [value("y", None)], held)


def packed(rng: np.random.Generator) -> Any:
    held = weights(
        b=rng.integers(0, 255, (10, 2, 16)).astype(np.uint8), scales=f4(rng, 10, 2)
    )
    how = {"K": 64, "N": 10, "bits": 4, "block_size": 32}
    one = node(
        "MatMulNBits", ["x", "b", "scales"], ["y"], domain="com.microsoft", **how
    )
    opsets = {"": 17, "com.microsoft": 1}
    return model([one], [value("x", (2, 64))], [value("y", None)], held, opsets=opsets)


def picked(rng: np.random.Generator) -> Any:
    """A table of rows, and indices of the model."""
    held = weights(table=f4(rng, 9, 4), at=np.array([1, 5, 2]))
    one = node("Gather", ["table", "at"], ["rows"])
    two = node("Add", ["rows", "x"], ["y"])
    return model([one, two], [value("x", (3, 4))], [value("y", None)], held)


MODELS: dict[str, tuple[Callable[[np.random.Generator], Any], tuple[int, ...]]] = {
    "layers": (layers, (3, 8)),
    "tokens": (tokens, (2, 3, 8)),
    "tokens of one": (tokens, (1, 3, 8)),
    "packed": (packed, (2, 64)),
    "picked": (picked, (3, 4)),
}


def fits(graph: rlx.Graph, params: dict[str, Any]) -> None:
    declared = graph.named("param")
    assert set(declared) == set(params)
    for name, one in declared.items():
        assert tuple(one.type.shape) == params[name].shape
        assert one.type.dtype.numpy == params[name].dtype


@pytest.mark.parametrize("name", MODELS)
def test_a_graph_is_saved_and_set_with_the_params(
    name: str, rng: np.random.Generator
) -> None:
    make, shape = MODELS[name]
    loaded, x = rlx.onnx.load(make(rng).SerializeToString()), f4(rng, *shape)
    want = loaded.run({"x": x}, device="cpu")["y"]
    fits(loaded.graph, loaded.params)
    graph = loaded.graph_for({"x": x})
    fits(graph, loaded.params)

    compiled = rlx.Session("cpu").compile(graph)
    for one, array in loaded.params.items():
        compiled.set_param(one, array)
    np.testing.assert_array_equal(compiled.run({"x": x})[0], want)

    ours, theirs, held = io.BytesIO(), io.BytesIO(), io.BytesIO()
    graph.save(ours, loaded.params)
    compiled.save(held)
    for file in (ours, held):
        file.seek(0)
        again = rlx.load(file).run({"x": x})
        np.testing.assert_array_equal(next(iter(again.values())), want)
    if name != "packed":  # ONNX itself has no such product
        rlx.onnx.save(graph, theirs, loaded.params)
        back = rlx.onnx.load(theirs.getvalue()).run({"x": x}, device="cpu")
        np.testing.assert_allclose(next(iter(back.values())), want, rtol=2e-5)


def test_a_varying_graph_is_saved_with_the_params(rng: np.random.Generator) -> None:
    loaded, file = rlx.onnx.load(tokens(rng).SerializeToString()), io.BytesIO()
    loaded.graph.bind(n=2).save(file, loaded.params)
    compiled = rlx.Session("cpu").compile(loaded.graph)
    for one, array in loaded.params.items():
        compiled.set_param(one, array)
    x = f4(rng, 5, 3, 8)
    want = loaded.run({"x": x}, device="cpu")["y"]
    np.testing.assert_array_equal(compiled.run({"x": x})[0], want)


def test_weights_are_packed_with_the_params(rng: np.random.Generator) -> None:
    loaded, x = rlx.onnx.load(layers(rng).SerializeToString()), f4(rng, 3, 8)
    graph, params = rlx.quantize_weights(loaded.graph, loaded.params, bits=8)
    compiled = rlx.Session("cpu").compile(graph)
    for name, array in params.items():
        compiled.set_param(name, array)
    want = loaded.run({"x": x}, device="cpu")["y"]
    got = compiled.run({"x": x})[0]
    assert np.abs(got - want).max() < 0.02 * np.abs(want).max()


def test_onnx_own_cases() -> None:
    """Params of ONNX's own cases with weights fit the graphs made of them.

    A graph is single, or for the arrays of the case.
    """
    seen = 0
    for case in cases():
        if not case.model.graph.initializer:
            continue
        names = [one.name for one in case.model.graph.input]
        feeds = dict(zip(names, case.sets[0][0], strict=False))
        with rlx.onnx.load(case.model.SerializeToString()) as loaded:
            given = {n: a for n, a in feeds.items() if n in loaded.inputs}
            for made_for in (None, given):
                try:
                    is_single = made_for is None
                    graph = loaded.graph if is_single else loaded.graph_for(made_for)
                except RlxError:  # no single graph, or none at all: not asked here
                    continue
                fits(graph, loaded.params)
                seen += 1
    assert seen > 20


@pytest.mark.parametrize("name", SIZES)
def test_trained_networks(name: str) -> None:
    with rlx.onnx.load(network(name)) as loaded:
        graph = loaded.graph_for({"x": image(SIZES[name])})
        fits(graph, loaded.params)
        graph.save(io.BytesIO(), loaded.params)


def test_every_tensor_of_the_file_is_in_its_record(rng: np.random.Generator) -> None:
    loaded = rlx.onnx.load(layers(rng).SerializeToString())
    assert {"unused", "a", "shape"} <= set(loaded.record.graph.weights)
    assert not {"unused", "a", "shape"} & set(loaded.params)
