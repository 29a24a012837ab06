"""Access to the `onnx` package: the file format, its checker, its shape inference and
its op definitions.

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

from rlxweb.core.bfloat16 import is_bfloat16
from rlxweb.core.errors import ModelError, Unsupported, not_installed
from rlxweb.ir.dtype import DType

_BFLOAT16_ELEMENT_TYPE = 16
"""ONNX element type of bfloat16."""

EXTERNAL_DATA = 1
"""ONNX's data location of a tensor stored in a separate file."""
_IR_VERSION = 10
"""IR version of the files written, which programs of 2024 and later read."""
_MAX_CHECKED_NBYTES = 1 << 16
_MAX_PROTO_NBYTES = 2**31 - 1
"""Maximum size of one protobuf message, in bytes."""


@lru_cache(maxsize=64)  # `doing` may name a file
def import_onnx(context: str = "read an ONNX model") -> Any:
    """Import the package and its submodules. Raises Unsupported if it is not
    installed.
    """
    try:
        import onnx
        from onnx import checker, defs, helper, numpy_helper
    except ImportError as error:
        raise not_installed(context, "onnx", "pip install 'rlxweb[onnx]'") from error
    return SimpleNamespace(
        top=onnx,
        checker=checker,
        defs=defs,
        helper=helper,
        numpy_helper=numpy_helper,
    )


ONNX_RUNTIME_OPS = frozenset({"SimplifiedLayerNormalization"})
"""Ops that ONNX Runtime adds to ONNX's own domain."""


def newest_opset() -> int:
    """Return the newest opset version of ONNX's own domain that the package knows."""
    return int(import_onnx().defs.onnx_opset_version())


def parse_model(data: bytes, context: str) -> Any:
    """Parse a model's bytes into its protobuf message. Raises ModelError if they are no
    model.
    """
    onnx = import_onnx(context).top
    if len(data) > _MAX_PROTO_NBYTES:
        raise ModelError(
            context,
            f"the model has {len(data):,} bytes",
            f"a model file can have at most {_MAX_PROTO_NBYTES:,} bytes",
            "save the model with its weights as external data",
        )
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf's own, of several names
        reason = " ".join(str(error).split())
        raise ModelError(
            context,
            "the data is not an ONNX model, or it is truncated or damaged",
            reason,
        ) from None
    if not model.HasField("graph") or not model.ir_version:
        raise ModelError(
            context,
            "the data is not an ONNX model",
            "a model must have a version and a graph; this one has "
            + ("no graph" if model.ir_version else "no version"),
        )
    return model


def check_model(model: Any, context: str) -> None:
    """Run ONNX's own checker on a model that was read. Raises ModelError.

    The message is not what it was afterwards: of its larger weights, which were held
    against their bytes already, only the types are left, for the checker has a copy
    made of all that it is given. What many a file leaves out, the shape of an output,
    is no reason to refuse it.
    """
    tools = import_onnx(context)
    graph = model.graph
    declared = {v.name for v in graph.input}
    for index in reversed(range(len(graph.initializer))):
        tensor = graph.initializer[index]
        if (
            tensor.data_location == EXTERNAL_DATA
            or len(tensor.raw_data) > _MAX_CHECKED_NBYTES
        ):
            if tensor.name not in declared:
                graph.input.append(
                    tools.helper.make_tensor_value_info(
                        tensor.name, tensor.data_type, list(tensor.dims)
                    )
                )
            del graph.initializer[index]
    _move_runtime_ops(model)
    for value in (*graph.input, *graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    try:
        tools.checker.check_model(model)
    except Exception as error:  # several kinds, none of which share a root
        raise ModelError(
            context, "the ONNX checker rejects the model", _shorten_error(error)
        ) from None


def _move_runtime_ops(model: Any) -> None:
    """Move ops that ONNX Runtime writes into ONNX's own domain to a domain that the
    checker ignores.
    """
    pending, has_runtime_ops = [model.graph], False
    while pending:
        for node in pending.pop().node:
            if node.op_type in ONNX_RUNTIME_OPS and not node.domain:
                node.domain, has_runtime_ops = "com.microsoft", True
            pending += [a.g for a in node.attribute if a.HasField("g")]
    if has_runtime_ops and "com.microsoft" not in {
        opset.domain for opset in model.opset_import
    }:
        model.opset_import.append(import_onnx().helper.make_opsetid("com.microsoft", 1))


def _shorten_error(error: Exception) -> str:
    """Return the beginning of an error message on one line."""
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:300]}…"


@cache
def dtype_from_onnx(element_type: int) -> np.dtype[Any]:
    """Return the NumPy dtype of an ONNX element type; object for text. Raises
    ModelError.
    """
    try:
        dtype: np.dtype[Any] = np.dtype(
            import_onnx().helper.tensor_dtype_to_np_dtype(element_type)
        )
        return dtype
    except (KeyError, TypeError, ValueError):
        problem = f"element type {element_type} is unknown"
        raise ModelError("", problem, "ONNX defines no type with this number") from None


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy dtype that the package uses for an rlxweb dtype."""
    return _bfloat16_dtype() if dtype is DType.BF16 else dtype.numpy


def as_numeric_array(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array that NumPy can compute with: bfloat16 in the package's own
    dtype.
    """
    return array.view(_bfloat16_dtype()) if is_bfloat16(array.dtype) else array


def _bfloat16_dtype() -> np.dtype[Any]:
    return dtype_from_onnx(_BFLOAT16_ELEMENT_TYPE)


def onnx_element_type(dtype: np.dtype[Any]) -> int:
    """Return the ONNX element type of a NumPy dtype. Raises ModelError."""
    if is_bfloat16(dtype):
        return _BFLOAT16_ELEMENT_TYPE
    try:
        return int(import_onnx().helper.np_dtype_to_tensor_dtype(dtype))
    except (KeyError, ValueError):
        raise ModelError("", f"ONNX has no element type for {dtype}") from None


def tensor_to_array(tensor: Any) -> npt.NDArray[Any]:
    """Return the array of a tensor message that contains its data."""
    return np.asarray(import_onnx().numpy_helper.to_array(tensor))


def cast_by_onnx_rules(
    array: npt.NDArray[Any], dtype: np.dtype[Any], saturate: bool, round_mode: str
) -> npt.NDArray[Any]:
    """Cast a known array by ONNX's rules, also to the small types that only the package
    has.
    """
    tools = import_onnx().numpy_helper
    with np.errstate(all="ignore"):
        if dtype.name == "float8_e8m0fnu":
            array_f32 = array.astype(np.float32)
            return np.asarray(tools.to_float8e8m0(array_f32, saturate, round_mode))
        if saturate and dtype.name.startswith("float8"):
            return np.asarray(tools.saturate_cast(array, dtype))
        return array.astype(dtype)


def has_op(op: str, domain: str, version: int) -> bool:
    """Return whether ONNX defines an op at that version."""
    return _find_schema(op, domain, version) is not None


def is_function_op(op: str, domain: str, version: int) -> bool:
    """Return whether ONNX defines an op in terms of other ops."""
    schema = _find_schema(op, domain, version)
    return schema is not None and (
        schema.has_function or schema.has_context_dependent_function
    )


@lru_cache(maxsize=4096)  # names come from files
def _find_schema(op: str, domain: str, version: int) -> Any:
    defs = import_onnx().defs
    try:
        return defs.get_schema(op, version, domain)
    except defs.SchemaError:
        return None


def function_body(node: Any, version: int, types: Sequence[Any]) -> Any:
    """Return the function by which ONNX defines a node, or None if none fits.

    types  of the node's inputs, as messages
    """
    schema = _find_schema(node.op_type, node.domain, version)
    function = import_onnx().top.FunctionProto()
    try:
        if schema.has_function:
            body_version = _newest_version(schema.function_opset_versions, version)
            serialized = schema.get_function_with_opset_version(body_version)
        else:
            body_version = _newest_version(
                schema.context_dependent_function_opset_versions, version
            )
            serialized = schema.get_context_dependent_function_with_opset_version(
                body_version,
                node.SerializeToString(),
                [t.SerializeToString() for t in types],
            )
    except Exception:  # a body that was never written for these types
        return None
    if not serialized:
        return None
    function.ParseFromString(serialized)
    for attr in schema.attributes.values():  # the body itself has no defaults
        if attr.default_value.type:
            function.attribute_proto.append(attr.default_value)
    return function


def substitute_attributes(node: Any, attrs: Mapping[str, Any]) -> Any:
    """Return the message of a node of a function, with attribute references replaced by
    the caller's values.

    attrs  by name; one that is not among them is left out
    """
    if not any(a.ref_attr_name for a in node.attribute):
        return node
    tools, result = import_onnx(), import_onnx().top.NodeProto()
    result.CopyFrom(node)
    del result.attribute[:]
    for attr in node.attribute:
        if not attr.ref_attr_name:
            result.attribute.append(attr)
        elif attr.name in attrs:
            value = getattr(attrs[attr.name], "array", attrs[attr.name])
            if isinstance(value, np.ndarray):
                value = tools.numpy_helper.from_array(value)
            result.attribute.append(tools.helper.make_attribute(attr.name, value))
    return result


def _newest_version(versions: Sequence[int], max_version: int) -> int:
    return max([v for v in versions if v <= max_version], default=min(versions))


def tensor_type_message(dtype: np.dtype[Any], shape: Sequence[int]) -> Any:
    """Return the message of a tensor type."""
    helper = import_onnx().helper
    return helper.make_tensor_type_proto(onnx_element_type(dtype), list(shape))


def make_node(
    op: str, inputs: Sequence[str], outputs: Sequence[str], attrs: Mapping[str, Any]
) -> Any:
    """Return the message of a node."""
    return import_onnx().helper.make_node(op, list(inputs), list(outputs), **attrs)


TensorSpec = tuple[str, np.dtype[Any], Sequence[int]]
"""Name, NumPy dtype and shape of a value."""


def serialize_model(
    name: str,
    nodes: Sequence[Any],
    inputs_and_outputs: tuple[Sequence[TensorSpec], Sequence[TensorSpec]],
    weights: Mapping[str, npt.NDArray[Any]],
    opset: int,
    context: str,
) -> bytes:
    """Build a model, check it with ONNX's checker and shape inference, and return its
    bytes.

    inputs_and_outputs  its inputs and its outputs
    Errors   Unsupported for more than a message may hold, and for types that ONNX's
             op has not
    """
    tools = import_onnx(context)
    weight_nbytes = sum(array.nbytes for array in weights.values())
    if weight_nbytes > _MAX_PROTO_NBYTES - (1 << 20):
        raise Unsupported(
            context,
            f"the weights have {weight_nbytes:,} bytes",
            f"an ONNX file can have at most {_MAX_PROTO_NBYTES:,} bytes, and "
            f"{1 << 20:,} of them are reserved for the graph",
            "use graph.save",
        )
    helper, array_to_tensor = tools.helper, tools.numpy_helper.from_array

    def value_infos(specs: Sequence[TensorSpec]) -> list[Any]:
        return [
            helper.make_tensor_value_info(n, onnx_element_type(dtype), list(shape))
            for n, dtype, shape in specs
        ]

    graph = helper.make_graph(
        list(nodes),
        name,
        *map(value_infos, inputs_and_outputs),
        [
            array_to_tensor(as_numeric_array(array), weight_name)
            for weight_name, array in weights.items()
        ],
    )
    model = helper.make_model(
        graph,
        producer_name="rlxweb",
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=_IR_VERSION,
    )
    try:
        tools.checker.check_model(model, full_check=True)
    except Exception as error:
        raise Unsupported(
            context, "the graph cannot be expressed in ONNX", _shorten_error(error)
        ) from None
    return bytes(model.SerializeToString())


def sequence_type_message(element: Any) -> Any:
    """Return the message of a sequence type."""
    return import_onnx().helper.make_sequence_type_proto(element)


def empty_type_message() -> Any:
    """Return the type message of an omitted input."""
    return import_onnx().top.TypeProto()
