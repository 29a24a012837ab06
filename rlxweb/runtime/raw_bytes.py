"""Values as RLX's typed calls take and give them: bytes and the name of a dtype.

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

from rlxweb.errors import DTypeError, RlxError, ShapeError, UsageError
from rlxweb.given import array_of
from rlxweb.ir.dtype import DType, DTypeLike, as_dtype, cast_whole
from rlxweb.ir.graph import Node
from rlxweb.ir.shape import show
from rlxweb.ir.size import Size

Array = npt.NDArray[Any]
Raw = bytes | bytearray | memoryview
_BYTES = ("B", "b", "c")
"""Formats of memory that are bytes; others are arrays of numbers."""
Typed = tuple[bytes, str]
"""The bytes of an array and its dtype's label."""


def as_typed(doing: str, node: Node, value: Any, dtype: DTypeLike | None) -> Array:
    """Raw bytes of `dtype`, or array-like values read as it, in the declared dtype.

    Errors   DTypeError for an unknown dtype, or values that the declared dtype or
    `dtype` cannot hold; ShapeError for bytes of the wrong length.
    """
    doing = f"{doing}, {node.op} '{node.name}'"
    declared = node.type.dtype
    try:
        source = declared if dtype is None else as_dtype(dtype)
        if isinstance(value, Raw) and memoryview(value).format in _BYTES:
            array = _from_bytes(node, memoryview(value), source, _order(dtype))
        else:
            array = cast_whole(array_of(value, bfloat16=True), source)
        return array if source is declared else cast_whole(array, declared)
    except RlxError as error:
        error.doing = doing
        raise


def _from_bytes(node: Node, value: memoryview, dtype: DType, order: str) -> Array:
    declared = node.type
    if any(isinstance(size, Size) for size in declared.shape):
        raise UsageError(
            "",
            f"bytes were given for {declared}",
            "bytes do not say which sizes they are of",
            "give an array, or bind the sizes first: compiled.bind(…).run_typed(…)",
        )
    nbytes = declared.numel * dtype.nbytes
    if value.nbytes != nbytes:
        raise ShapeError(
            "",
            f"{value.nbytes} bytes were given",
            f"{show(declared.shape)} {dtype} takes {nbytes}",
        )
    flat = np.frombuffer(value.tobytes(), _stored(dtype, order))
    flat = flat.astype(flat.dtype.newbyteorder("="), copy=False)
    return (flat != 0 if dtype is DType.BOOL else flat).reshape(declared.shape)


def _order(dtype: DTypeLike | None) -> str:
    """Little, unless a NumPy dtype says big."""
    return ">" if isinstance(dtype, np.dtype) and dtype.str[0] == ">" else "<"


def _stored(dtype: DType, order: str = "<") -> np.dtype[Any]:
    if dtype is DType.BOOL:
        return np.dtype(np.uint8)
    return dtype.numpy.newbyteorder(order)  # type: ignore[arg-type]


def as_feeds(doing: str, inputs: Mapping[str, Node], given: Any) -> Any:
    """Arrays by name of (value, dtype) pairs by name.

    What a run refuses in any case, unknown names and what has none, is left as given.
    Errors   those of `as_typed`; DTypeError for what is no such pair.
    """
    if not isinstance(given, Mapping):
        return given
    made: dict[str, Any] = {}
    for name, pair in given.items():
        match pair:
            case _ if name not in inputs:
                made[name] = pair
            # from 2.5 on NumPy's arrays match a sequence too
            case [value, dtype] if isinstance(pair, tuple | list):
                made[name] = as_typed(doing, inputs[name], value, dtype)
            case _:
                raise DTypeError(
                    f"{doing}, input '{name}'",
                    f"a pair of bytes and a dtype is wanted, got {type(pair).__name__}",
                    hint="pass {'x': (array.tobytes(), 'f32')}",
                )
    return made


def as_raw(array: Array) -> Typed:
    """The bytes of an array and its dtype's label."""
    dtype = as_dtype(array.dtype)
    return array.astype(_stored(dtype), copy=False).tobytes(), dtype.label
