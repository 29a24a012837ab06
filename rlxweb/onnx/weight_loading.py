"""Lazy loading of a model's tensors: sizes are checked at once, data is read on
request.

Numbers within the model are looked at where they lie in its message; those in a file
beside it are mapped into memory. Such a file lies in the model's folder or below it (a
symbolic link there is followed), and must be as long as the model says. Nothing is
reserved on the word of a file: what a shape claims is held against the bytes there.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.core.errors import ModelError, shown
from rlxweb.core.safe_file_opening import open_regular_file, referenced_path
from rlxweb.ir.shape_arithmetic import format_shape
from rlxweb.onnx import onnx_library_access
from rlxweb.onnx.model_records import Weight

Array = npt.NDArray[Any]
_PACKED_BITS = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2, "float4_e2m1fn": 4}
"""Bits per element of the dtypes of which several elements share a byte, by ml_dtypes'
names.
"""


def weight_from_message(tensor: Any, folder: Path | None, context: str) -> Weight:
    """Return the lazy record of a tensor's message.

    folder  where the model lies; None for one that came as bytes
    Errors  ModelError: a size that does not fit its bytes, external data outside the
    folder or too short.
    """
    context = f"{context}, tensor {shown(tensor.name)}"
    shape = tuple(int(d) for d in tensor.dims)
    if any(d < 0 for d in shape):
        raise ModelError(
            context, f"the shape is {format_shape(shape)}", "dimensions must be >= 0"
        )
    try:
        dtype = onnx_library_access.dtype_from_onnx(tensor.data_type)
    except ModelError as error:
        error.doing = context
        raise
    nbytes = stored_nbytes(shape, dtype)
    if tensor.data_location == onnx_library_access.EXTERNAL_DATA:
        location, reader = _external_reader(
            tensor, folder, (shape, dtype, nbytes), context
        )
        return Weight(tensor.name, shape, dtype, reader, location)
    return Weight(
        tensor.name, shape, dtype, _embedded_reader(tensor, shape, nbytes, context)
    )


def stored_nbytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return a tensor's size in a file, in bytes; packed dtypes store several elements
    in a byte.
    """
    bits = _PACKED_BITS.get(dtype.name, dtype.itemsize * 8)
    return -(-math.prod(shape) * bits // 8)


def _embedded_reader(
    tensor: Any, shape: tuple[int, ...], nbytes: int, context: str
) -> Callable[[], Array]:
    """Return the reader of a tensor whose data is inside the model's message."""
    dtype = onnx_library_access.dtype_from_onnx(tensor.data_type)
    is_plain = dtype.kind in "biufc" and dtype.name not in _PACKED_BITS
    if tensor.HasField("raw_data"):
        raw = tensor.raw_data  # a copy, each time it is asked for
        actual_nbytes = len(raw)
        if actual_nbytes != nbytes:
            raise ModelError(
                context,
                f"{format_shape(shape)} {dtype} needs {nbytes:,} bytes",
                f"the model contains {actual_nbytes:,} bytes for this tensor",
            )
        if is_plain:
            little_endian = dtype.newbyteorder("<")
            return lambda: np.frombuffer(raw, little_endian).reshape(shape)
        return lambda: onnx_library_access.tensor_to_array(tensor)
    _check_element_count(tensor, shape, dtype, context)
    return lambda: onnx_library_access.tensor_to_array(tensor)


def _check_element_count(
    tensor: Any, shape: tuple[int, ...], dtype: np.dtype[Any], context: str
) -> None:
    """Check that the typed data fields hold as many elements as the shape requires."""
    fields = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
    actual_count = max(len(getattr(tensor, f)) for f in (*fields, "string_data"))
    actual_count //= 2 if dtype.kind == "c" else 1
    expected_count = math.prod(shape)
    bits = _PACKED_BITS.get(dtype.name)
    expected_count = -(-expected_count * bits // 8) if bits else expected_count
    if actual_count != expected_count:
        raise ModelError(
            context,
            f"{format_shape(shape)} {dtype} needs {expected_count:,} stored values",
            f"the model contains {actual_count:,} for this tensor",
        )


def _external_reader(
    tensor: Any,
    folder: Path | None,
    expected: tuple[tuple[int, ...], np.dtype[Any], int],
    context: str,
) -> tuple[str, Callable[[], Array]]:
    """Return (file name, reader) of a tensor stored in a file beside the model."""
    shape, dtype, nbytes = expected
    fields = {e.key: e.value for e in tensor.external_data}
    name: str | bytes = fields.get("location", "")
    if isinstance(name, bytes):  # protobuf's answer to what is not UTF-8
        name = name.decode("utf-8", "backslashreplace")
    path = _external_path(name, folder, context)
    offset = _external_number(fields, "offset", 0, context)
    length = _external_number(fields, "length", nbytes, context)
    file_nbytes = path.stat().st_size
    if length != nbytes:
        raise ModelError(
            context,
            f"{format_shape(shape)} {dtype} needs {nbytes:,} bytes",
            f"the declared length of the external data is {length:,} bytes",
        )
    if offset + length > file_nbytes:
        raise ModelError(
            context,
            f"the tensor needs bytes {offset:,} to {offset + length:,} of "
            f"{shown(name)}",
            f"the file has {file_nbytes:,} bytes",
            "the file is truncated: download it again",
        )
    if dtype.name in _PACKED_BITS or dtype.kind == "O":
        return name, lambda: _unpack_external(tensor, path, offset, length)

    def map_array() -> Array:
        if not nbytes:
            return np.zeros(shape, dtype)
        with open_regular_file(path) as file:
            flat = np.memmap(file, np.uint8, "r", offset, (nbytes,))
        return flat.view(dtype.newbyteorder("<")).reshape(shape)

    return name, map_array


def _unpack_external(tensor: Any, path: Path, offset: int, length: int) -> Array:
    """Read a packed or text tensor through the `onnx` package, from a copy of its
    message that holds the bytes.
    """
    message = type(tensor)()
    message.CopyFrom(tensor)
    del message.external_data[:]
    message.data_location = 0
    with open_regular_file(path) as file:
        file.seek(offset)
        message.raw_data = file.read(length)
    return onnx_library_access.tensor_to_array(message)


def _external_path(name: str, folder: Path | None, context: str) -> Path:
    """Return the path of an external-data file, given by a relative name; links are
    followed.
    """
    if folder is None:
        raise ModelError(
            context,
            f"the data is in the file {shown(name)}",
            "a model loaded from bytes has no folder in which to find the file",
            "load the model from its path",
        )
    path = Path(referenced_path(str(folder), name, "data", context, ModelError))
    if not os.path.isfile(path):  # and no error for a name longer than names may be
        raise ModelError(
            context,
            f"the data file {shown(name)} does not exist",
            hint=f"put this file next to the model, in {folder}",
        )
    return path


def _external_number(
    fields: dict[str, str], key: str, default: int, context: str
) -> int:
    """Return a number from the external-data fields, or a default if it is absent."""
    text = fields.get(key, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ModelError(
            context,
            f"the {key} of the external data is {shown(text)}",
            "must be a nonnegative integer of at most 19 digits",
        )
    return int(text)
