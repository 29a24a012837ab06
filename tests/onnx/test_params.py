"""The params of a loaded model match those that its graph declares."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import rlxweb as rlx
from rlxweb.core.errors import RlxError
from tests.float32_products import random_floats
from tests.onnx.model_factory import initializers, make_model, node, value_info
from tests.onnx.onnx_backend_cases import load_cases
from tests.onnx.test_trained_networks import INPUT_SHAPES, network_path, synthetic_image


def layers_model(rng: np.random.Generator) -> Any:
    """Return a model with weights that are folded, scalar, integer, unused and
    plain.
    """
    weights_of_graph = initializers(
        w=random_floats(rng, 8, 80),
        one=np.array([0.5], np.float32),
        scalar=np.array(2.0, np.float32),
        a=random_floats(rng, 80),
        b=random_floats(rng, 80),
        shape=np.array([-1, 4, 20]),
        unused=random_floats(rng, 3),
        codes=rng.integers(-9, 9, (20, 80)).astype(np.int8),
        wide=random_floats(rng, 80, 80),
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
    return make_model(
        nodes,
        [value_info("x", (3, 8))],
        [value_info("y", (3, 4, 80))],
        weights_of_graph,
    )


def tokens_model(rng: np.random.Generator) -> Any:
    """Return a model with a weight that is repeated for a batch of free size."""
    weights_of_graph = initializers(
        zero=np.array([0]),
        rest=np.array([1, 8]),
        token=random_floats(rng, 1, 1, 8),
        w=random_floats(rng, 8, 5),
        bias=random_floats(rng, 1),
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
    return make_model(
        nodes, [value_info("x", ("n", 3, 8))], [value_info("y", None)], weights_of_graph
    )


def matmul_nbits_model(rng: np.random.Generator) -> Any:
    weights_of_graph = initializers(
        b=rng.integers(0, 255, (10, 2, 16)).astype(np.uint8),
        scales=random_floats(rng, 10, 2),
    )
    attributes = {"K": 64, "N": 10, "bits": 4, "block_size": 32}
    op_node = node(
        "MatMulNBits", ["x", "b", "scales"], ["y"], domain="com.microsoft", **attributes
    )
    opsets = {"": 17, "com.microsoft": 1}
    return make_model(
        [op_node],
        [value_info("x", (2, 64))],
        [value_info("y", None)],
        weights_of_graph,
        opsets=opsets,
    )


def gather_model(rng: np.random.Generator) -> Any:
    """Return a model with a table of rows and constant indices."""
    weights_of_graph = initializers(
        table=random_floats(rng, 9, 4), at=np.array([1, 5, 2])
    )
    gather_node = node("Gather", ["table", "at"], ["rows"])
    add_node = node("Add", ["rows", "x"], ["y"])
    return make_model(
        [gather_node, add_node],
        [value_info("x", (3, 4))],
        [value_info("y", None)],
        weights_of_graph,
    )


MODELS: dict[str, tuple[Callable[[np.random.Generator], Any], tuple[int, ...]]] = {
    "layers": (layers_model, (3, 8)),
    "tokens": (tokens_model, (2, 3, 8)),
    "tokens of one": (tokens_model, (1, 3, 8)),
    "packed": (matmul_nbits_model, (2, 64)),
    "picked": (gather_model, (3, 4)),
}


def check_params(graph: rlx.Graph, params: dict[str, Any]) -> None:
    declared = graph.named("param")
    assert set(declared) == set(params)
    for name, param in declared.items():
        assert tuple(param.type.shape) == params[name].shape
        assert param.type.dtype.numpy == params[name].dtype


@pytest.mark.parametrize("name", MODELS)
def test_params_save_and_set_with_the_graph(
    name: str, rng: np.random.Generator
) -> None:
    make, shape = MODELS[name]
    loaded, x = rlx.onnx.load(make(rng).SerializeToString()), random_floats(rng, *shape)
    want = loaded.run({"x": x}, device="cpu")["y"]
    check_params(loaded.graph, loaded.params)
    graph = loaded.graph_for({"x": x})
    check_params(graph, loaded.params)

    compiled = rlx.Session("cpu").compile(graph)
    for name_of_param, array in loaded.params.items():
        compiled.set_param(name_of_param, array)
    np.testing.assert_array_equal(compiled.run({"x": x})[0], want)

    graph_file, onnx_file, compiled_file = io.BytesIO(), io.BytesIO(), io.BytesIO()
    graph.save(graph_file, loaded.params)
    compiled.save(compiled_file)
    for file in (graph_file, compiled_file):
        file.seek(0)
        outputs = rlx.load(file).run({"x": x})
        np.testing.assert_array_equal(next(iter(outputs.values())), want)
    if name != "packed":  # ONNX itself has no such product
        rlx.onnx.save(graph, onnx_file, loaded.params)
        onnx_outputs = rlx.onnx.load(onnx_file.getvalue()).run({"x": x}, device="cpu")
        np.testing.assert_allclose(next(iter(onnx_outputs.values())), want, rtol=2e-5)


def test_params_save_with_a_dynamic_graph(rng: np.random.Generator) -> None:
    loaded, file = rlx.onnx.load(tokens_model(rng).SerializeToString()), io.BytesIO()
    loaded.graph.bind(n=2).save(file, loaded.params)
    compiled = rlx.Session("cpu").compile(loaded.graph)
    for name, array in loaded.params.items():
        compiled.set_param(name, array)
    x = random_floats(rng, 5, 3, 8)
    want = loaded.run({"x": x}, device="cpu")["y"]
    np.testing.assert_array_equal(compiled.run({"x": x})[0], want)


def test_weights_are_packed_with_the_params(rng: np.random.Generator) -> None:
    loaded = rlx.onnx.load(layers_model(rng).SerializeToString())
    x = random_floats(rng, 3, 8)
    graph, params = rlx.quantize_weights(loaded.graph, loaded.params, bits=8)
    compiled = rlx.Session("cpu").compile(graph)
    for name, array in params.items():
        compiled.set_param(name, array)
    want = loaded.run({"x": x}, device="cpu")["y"]
    got = compiled.run({"x": x})[0]
    assert np.abs(got - want).max() < 0.02 * np.abs(want).max()


def test_params_of_onnx_cases_match_their_graphs() -> None:
    """Params of ONNX's own cases with weights match the graphs built from them.

    A graph is single, or for the arrays of the case.
    """
    graph_count = 0
    for case in load_cases():
        if not case.model.graph.initializer:
            continue
        names = [declared_input.name for declared_input in case.model.graph.input]
        feeds = dict(zip(names, case.data_sets[0][0], strict=False))
        with rlx.onnx.load(case.model.SerializeToString()) as loaded:
            feeds_of_model = {n: a for n, a in feeds.items() if n in loaded.inputs}
            for example in (None, feeds_of_model):
                try:
                    is_single = example is None
                    graph = loaded.graph if is_single else loaded.graph_for(example)
                except RlxError:  # no single graph, or none at all: not asked here
                    continue
                check_params(graph, loaded.params)
                graph_count += 1
    assert graph_count > 20


@pytest.mark.parametrize("name", INPUT_SHAPES)
def test_params_of_trained_networks_match_their_graphs(name: str) -> None:
    with rlx.onnx.load(network_path(name)) as loaded:
        graph = loaded.graph_for({"x": synthetic_image(INPUT_SHAPES[name])})
        check_params(graph, loaded.params)
        graph.save(io.BytesIO(), loaded.params)


def test_every_tensor_of_the_file_is_in_its_record(rng: np.random.Generator) -> None:
    loaded = rlx.onnx.load(layers_model(rng).SerializeToString())
    assert {"unused", "a", "shape"} <= set(loaded.record.graph.weights)
    assert not {"unused", "a", "shape"} & set(loaded.params)
