"""Conversion of values that RLX's typed calls take and return: bytes and the name of a
dtype.

Bytes are in C order and little-endian, unless a NumPy dtype says big; a bool is one
byte, and any but 0 is true. Values of another dtype than the declared one are converted
to it: rounded into floats, and into integers and bool only where no value changes. The
length must fit the declared shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.core.array_coercion import as_array
from rlxweb.core.errors import DTypeError, RlxError, ShapeError, UsageError
from rlxweb.ir.dtype import DType, DTypeLike, as_dtype, cast_exact
from rlxweb.ir.graph import Node
from rlxweb.ir.shape_arithmetic import format_shape
from rlxweb.ir.sym_int import SymInt

Array = npt.NDArray[Any]
RawBytes = bytes | bytearray | memoryview
_BYTE_FORMATS = ("B", "b", "c")
"""Memory formats that are bytes; others are arrays of numbers."""
TypedBytes = tuple[bytes, str]
"""Bytes of an array and its dtype's label."""


def decode_typed(
    context: str, node: Node, value: Any, dtype: DTypeLike | None
) -> Array:
    """Return raw bytes of `dtype`, or array-like values read as it, as an array of the
    declared dtype.

    Errors   DTypeError for an unknown dtype, or values that the declared dtype or
    `dtype` cannot hold; ShapeError for bytes of the wrong length.
    """
    context = f"{context}, {node.op} '{node.name}'"
    declared = node.type.dtype
    try:
        source = declared if dtype is None else as_dtype(dtype)
        if isinstance(value, RawBytes) and memoryview(value).format in _BYTE_FORMATS:
            array = _decode_bytes(node, memoryview(value), source, _byte_order(dtype))
        else:
            array = cast_exact(as_array(value, allow_bfloat16=True), source)
        return array if source is declared else cast_exact(array, declared)
    except RlxError as error:
        error.doing = context
        raise


def _decode_bytes(node: Node, value: memoryview, dtype: DType, order: str) -> Array:
    """Return bytes of a dtype as an array of the declared shape."""
    declared = node.type
    if any(isinstance(size, SymInt) for size in declared.shape):
        raise UsageError(
            "",
            f"got bytes for {declared}",
            "bytes do not specify the dynamic sizes",
            "pass an array, or bind the sizes first: compiled.bind(…).run_typed(…)",
        )
    nbytes = declared.numel * dtype.nbytes
    if value.nbytes != nbytes:
        raise ShapeError(
            "",
            f"got {value.nbytes} bytes",
            f"{format_shape(declared.shape)} {dtype} takes {nbytes} bytes",
        )
    flat = np.frombuffer(value.tobytes(), _storage_dtype(dtype, order))
    flat = flat.astype(flat.dtype.newbyteorder("="), copy=False)
    return (flat != 0 if dtype is DType.BOOL else flat).reshape(declared.shape)


def _byte_order(dtype: DTypeLike | None) -> str:
    """Return "<" for little-endian, or ">" for a big-endian NumPy dtype."""
    return ">" if isinstance(dtype, np.dtype) and dtype.str[0] == ">" else "<"


def _storage_dtype(dtype: DType, order: str = "<") -> np.dtype[Any]:
    """Return the NumPy dtype of an element in the bytes; a bool takes one byte."""
    if dtype is DType.BOOL:
        return np.dtype(np.uint8)
    return dtype.numpy.newbyteorder(order)  # type: ignore[arg-type]


def decode_feeds(context: str, inputs: Mapping[str, Node], pairs: Any) -> Any:
    """Return arrays by name from (value, dtype) pairs by name.

    What a run refuses in any case, unknown names and what has none, is left as given.
    Errors   those of `decode_typed`; DTypeError for what is no such pair.
    """
    if not isinstance(pairs, Mapping):
        return pairs
    feeds: dict[str, Any] = {}
    for name, pair in pairs.items():
        match pair:
            case _ if name not in inputs:
                feeds[name] = pair
            # from 2.5 on NumPy's arrays match a sequence too
            case [value, dtype] if isinstance(pair, tuple | list):
                feeds[name] = decode_typed(context, inputs[name], value, dtype)
            case _:
                raise DTypeError(
                    f"{context}, input '{name}'",
                    f"expected a pair (bytes, dtype), got {type(pair).__name__}",
                    hint="pass {'x': (array.tobytes(), 'f32')}",
                )
    return feeds


def encode_typed(array: Array) -> TypedBytes:
    """Return the bytes of an array and its dtype's label."""
    dtype = as_dtype(array.dtype)
    return array.astype(_storage_dtype(dtype), copy=False).tobytes(), dtype.label
