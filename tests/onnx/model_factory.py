"""Factory of small ONNX models for tests, written with the `onnx` package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL

node = helper.make_node


def value_info(name: str, dims: Sequence[Any] | None, dtype: int = FLOAT) -> Any:
    """Declare an input or output."""
    return helper.make_tensor_value_info(name, dtype, dims)


def initializers(**arrays: Any) -> list[Any]:
    """Return initializers by name."""
    return [numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items()]


def make_model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    weights_of_graph: Sequence[Any] = (),
    *,
    opsets: Mapping[str, int] | None = None,
    functions: Sequence[Any] = (),
) -> Any:
    """Return a model's message."""
    graph = helper.make_graph(
        list(nodes), "made", inputs, outputs, list(weights_of_graph)
    )
    imports = [
        helper.make_opsetid(domain, version)
        for domain, version in (opsets or {"": 21}).items()
    ]
    model_proto = helper.make_model(
        graph, opset_imports=imports, functions=list(functions), ir_version=10
    )
    return model_proto


def single_op_model(
    op: str, *shapes: Sequence[Any], out: Any = None, **attrs: Any
) -> Any:
    """Return a model of one op over float inputs a, b, … that gives y."""
    names = [chr(ord("a") + index) for index in range(len(shapes))]
    return make_model(
        [node(op, names, ["y"], **attrs)],
        [value_info(n, s) for n, s in zip(names, shapes, strict=True)],
        [value_info("y", out)],
    )
