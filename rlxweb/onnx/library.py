"""The `onnx` package: the format itself, its checker, its shape inference, its ops.

The one file that imports it, and only when a model is read or written. What it raises
becomes ours here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.bfloat16 import is_bfloat16
from rlxweb.errors import ModelError, Unsupported, not_installed
from rlxweb.ir.dtype import DType

_BFLOAT16_NUMBER = 16
"""ONNX's number of bfloat16 among its element types."""

EXTERNAL = 1
"""ONNX's number for numbers in a file beside the model."""
_IR_VERSION = 10
"""Of the files that are written: what programs of 2024 and later read."""
_CHECKED_BYTES = 1 << 16
_PROTO_LIMIT = 2**31 - 1
"""Bytes of one message of protobuf."""


@lru_cache(maxsize=64)  # `doing` may name a file
def package(doing: str = "read a model of ONNX") -> Any:
    """The package with its parts loaded. Errors  Unsupported where it is missing."""
    try:
        import onnx
        from onnx import checker, defs, helper, numpy_helper
    except ImportError as error:
        raise not_installed(doing, "onnx", "pip install 'rlxweb[onnx]'") from error
    return SimpleNamespace(
        top=onnx,
        checker=checker,
        defs=defs,
        helper=helper,
        numpy_helper=numpy_helper,
    )


OF_RUNTIME = frozenset({"SimplifiedLayerNormalization"})
"""Ops that ONNX Runtime adds to ONNX's own domain."""


def newest_opset() -> int:
    """The newest version of ONNX's own ops that the package knows."""
    return int(package().defs.onnx_opset_version())


def parsed(data: bytes, doing: str) -> Any:
    """The model's message. Errors  ModelError for bytes that are none."""
    onnx = package(doing).top
    if len(data) > _PROTO_LIMIT:
        raise ModelError(
            doing,
            f"it has {len(data):,} bytes",
            f"a model's own file has at most {_PROTO_LIMIT:,}",
            "save it with its weights as external data",
        )
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf's own, of several names
        why = " ".join(str(error).split())
        raise ModelError(
            doing, "it is no model of ONNX, or is cut short or damaged", why
        ) from None
    if not model.HasField("graph") or not model.ir_version:
        raise ModelError(
            doing,
            "it is no model of ONNX",
            "a model has a version and a graph, and this has "
            + ("no graph" if model.ir_version else "no version"),
        )
    return model


def check(model: Any, doing: str) -> None:
    """ONNX's own checker over a model that was read. Errors  ModelError.

    The message is not what it was afterwards: of its larger weights, which were held
    against their bytes already, only the types are left, for the checker has a copy
    made of all that it is given. What many a file leaves out, the shape of an output,
    is no reason to refuse it.
    """
    tools = package(doing)
    graph = model.graph
    declared = {v.name for v in graph.input}
    for at in reversed(range(len(graph.initializer))):
        tensor = graph.initializer[at]
        if tensor.data_location == EXTERNAL or len(tensor.raw_data) > _CHECKED_BYTES:
            if tensor.name not in declared:
                graph.input.append(
                    tools.helper.make_tensor_value_info(
                        tensor.name, tensor.data_type, list(tensor.dims)
                    )
                )
            del graph.initializer[at]
    _as_their_own(model)
    for value in (*graph.input, *graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    try:
        tools.checker.check_model(model)
    except Exception as error:  # several kinds, none of which share a root
        raise ModelError(doing, "ONNX's checker refuses it", _said(error)) from None


def _as_their_own(model: Any) -> None:
    """Ops that ONNX Runtime writes as ONNX's own, which has them not, put into a domain
    that the checker does not look at.
    """
    todo, found = [model.graph], False
    while todo:
        for node in todo.pop().node:
            if node.op_type in OF_RUNTIME and not node.domain:
                node.domain, found = "com.microsoft", True
            todo += [a.g for a in node.attribute if a.HasField("g")]
    if found and "com.microsoft" not in {one.domain for one in model.opset_import}:
        model.opset_import.append(package().helper.make_opsetid("com.microsoft", 1))


def _said(error: Exception) -> str:
    """The first words of a message of the package, on one line."""
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:300]}…"


@cache
def dtype_of(number: int) -> np.dtype[Any]:
    """NumPy's type of an element type of ONNX; object for text. Errors  ModelError."""
    try:
        found: np.dtype[Any] = np.dtype(
            package().helper.tensor_dtype_to_np_dtype(number)
        )
        return found
    except (KeyError, TypeError, ValueError):
        problem = f"element type {number}"
        raise ModelError("", problem, "ONNX has no type of that number") from None


def numpy_of(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype that the package has for a type of ours."""
    return _bfloat16() if dtype is DType.BF16 else dtype.numpy


def numbers(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array as one that NumPy computes with: bfloat16 in the package's own dtype."""
    return array.view(_bfloat16()) if is_bfloat16(array.dtype) else array


def _bfloat16() -> np.dtype[Any]:
    return dtype_of(_BFLOAT16_NUMBER)


def number_of(dtype: np.dtype[Any]) -> int:
    """The element type of ONNX that is NumPy's `dtype`. Errors  ModelError."""
    if is_bfloat16(dtype):
        return _BFLOAT16_NUMBER
    try:
        return int(package().helper.np_dtype_to_tensor_dtype(dtype))
    except (KeyError, ValueError):
        raise ModelError("", f"ONNX has no element type for {dtype}") from None


def array_of_message(tensor: Any) -> npt.NDArray[Any]:
    """The array of a tensor whose numbers are in the message."""
    return np.asarray(package().numpy_helper.to_array(tensor))


def cast_small(
    array: npt.NDArray[Any], dtype: np.dtype[Any], saturate: bool, round_mode: str
) -> npt.NDArray[Any]:
    """A known array in one of the small types that the package knows, by its rules."""
    tools = package().numpy_helper
    with np.errstate(all="ignore"):
        if dtype.name == "float8_e8m0fnu":
            wide = array.astype(np.float32)
            return np.asarray(tools.to_float8e8m0(wide, saturate, round_mode))
        if saturate and dtype.name.startswith("float8"):
            return np.asarray(tools.saturate_cast(array, dtype))
        return array.astype(dtype)


def has_op(op: str, domain: str, version: int) -> bool:
    """Is it an op of ONNX at all, at that version?"""
    return _schema(op, domain, version) is not None


def is_function(op: str, domain: str, version: int) -> bool:
    """Does ONNX say by other ops what this one does?"""
    schema = _schema(op, domain, version)
    return schema is not None and (
        schema.has_function or schema.has_context_dependent_function
    )


@lru_cache(maxsize=4096)  # names come from files
def _schema(op: str, domain: str, version: int) -> Any:
    defs = package().defs
    try:
        return defs.get_schema(op, version, domain)
    except defs.SchemaError:
        return None


def body_of(node: Any, version: int, types: Sequence[Any]) -> Any:
    """The function that ONNX defines a node by; None where none fits.

    types  of the node's inputs, as messages
    """
    schema = _schema(node.op_type, node.domain, version)
    found = package().top.FunctionProto()
    try:
        if schema.has_function:
            at = _newest(schema.function_opset_versions, version)
            data = schema.get_function_with_opset_version(at)
        else:
            at = _newest(schema.context_dependent_function_opset_versions, version)
            data = schema.get_context_dependent_function_with_opset_version(
                at, node.SerializeToString(), [t.SerializeToString() for t in types]
            )
    except Exception:  # a body that was never written for these types
        return None
    if not data:
        return None
    found.ParseFromString(data)
    for attr in schema.attributes.values():  # the body itself has no defaults
        if attr.default_value.type:
            found.attribute_proto.append(attr.default_value)
    return found


def with_attributes(node: Any, attrs: Mapping[str, Any]) -> Any:
    """The message of a node of a function, with what its call gives for its attributes.

    attrs  by name; one that is not among them is left out
    """
    if not any(a.ref_attr_name for a in node.attribute):
        return node
    tools, made = package(), package().top.NodeProto()
    made.CopyFrom(node)
    del made.attribute[:]
    for attr in node.attribute:
        if not attr.ref_attr_name:
            made.attribute.append(attr)
        elif attr.name in attrs:
            value = getattr(attrs[attr.name], "array", attrs[attr.name])
            if isinstance(value, np.ndarray):
                value = tools.numpy_helper.from_array(value)
            made.attribute.append(tools.helper.make_attribute(attr.name, value))
    return made


def _newest(versions: Sequence[int], most: int) -> int:
    return max([v for v in versions if v <= most], default=min(versions))


def tensor_type(dtype: np.dtype[Any], shape: Sequence[int]) -> Any:
    """The message of a tensor's type."""
    helper = package().helper
    return helper.make_tensor_type_proto(number_of(dtype), list(shape))


def made_node(
    op: str, inputs: Sequence[str], outputs: Sequence[str], attrs: Mapping[str, Any]
) -> Any:
    """The message of a node."""
    return package().helper.make_node(op, list(inputs), list(outputs), **attrs)


Kind = tuple[str, np.dtype[Any], Sequence[int]]
"""A value's name, NumPy's type and shape."""


def made_model(
    name: str,
    nodes: Sequence[Any],
    ends: tuple[Sequence[Kind], Sequence[Kind]],
    weights: Mapping[str, npt.NDArray[Any]],
    opset: int,
    doing: str,
) -> bytes:
    """A model's bytes, once ONNX's checker and its shape inference took it.

    ends     its inputs and its outputs
    Errors   Unsupported for more than a message may hold, and for types that ONNX's
             op has not
    """
    tools = package(doing)
    size = sum(array.nbytes for array in weights.values())
    if size > _PROTO_LIMIT - (1 << 20):
        raise Unsupported(
            doing,
            f"its weights have {size:,} bytes",
            f"a file of ONNX holds {_PROTO_LIMIT:,}",
            "save it with graph.save",
        )
    make, of_array = tools.helper, tools.numpy_helper.from_array

    def declared(kinds: Sequence[Kind]) -> list[Any]:
        return [
            make.make_tensor_value_info(n, number_of(dtype), list(shape))
            for n, dtype, shape in kinds
        ]

    graph = make.make_graph(
        list(nodes),
        name,
        *map(declared, ends),
        [of_array(numbers(array), held) for held, array in weights.items()],
    )
    model = make.make_model(
        graph,
        producer_name="rlxweb",
        opset_imports=[make.make_opsetid("", opset)],
        ir_version=_IR_VERSION,
    )
    try:
        tools.checker.check_model(model, full_check=True)
    except Exception as error:
        raise Unsupported(doing, "ONNX has no form for it", _said(error)) from None
    return bytes(model.SerializeToString())


def sequence_type(element: Any) -> Any:
    """The message of a sequence's type."""
    return package().helper.make_sequence_type_proto(element)


def no_type() -> Any:
    """The message of the type of an input that is left out."""
    return package().top.TypeProto()
