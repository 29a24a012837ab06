"""Small models of ONNX for tests, written with the `onnx` package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL

node = helper.make_node


def value(name: str, dims: Sequence[Any] | None, dtype: int = FLOAT) -> Any:
    """A declared input or output."""
    return helper.make_tensor_value_info(name, dtype, dims)


def weights(**arrays: Any) -> list[Any]:
    """Initialisers by name."""
    return [numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items()]


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    held: Sequence[Any] = (),
    *,
    opsets: Mapping[str, int] | None = None,
    functions: Sequence[Any] = (),
) -> Any:
    """A model's message."""
    graph = helper.make_graph(list(nodes), "made", inputs, outputs, list(held))
    imports = [
        helper.make_opsetid(domain, version)
        for domain, version in (opsets or {"": 21}).items()
    ]
    made = helper.make_model(
        graph, opset_imports=imports, functions=list(functions), ir_version=10
    )
    return made


def one(op: str, *shapes: Sequence[Any], out: Any = None, **attrs: Any) -> Any:
    """A model of one op over float inputs a, b, … giving y."""
    names = [chr(ord("a") + at) for at in range(len(shapes))]
    return model(
        [node(op, names, ["y"], **attrs)],
        [value(n, s) for n, s in zip(names, shapes, strict=True)],
        [value("y", out)],
    )
