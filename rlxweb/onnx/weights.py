"""The tensors of a model: their sizes checked at once, their numbers read when wanted.

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

from rlxweb.errors import ModelError, shown
from rlxweb.ir.shape import show
from rlxweb.named_files import file_beside, open_regular
from rlxweb.onnx import library
from rlxweb.onnx.records import Weight

Array = npt.NDArray[Any]
_PACKED_BITS = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2, "float4_e2m1fn": 4}
"""Types of which several elements share a byte, by ml_dtypes' names."""


def weight_of(tensor: Any, folder: Path | None, doing: str) -> Weight:
    """A tensor's record.

    folder  where the model lies; None for one that came as bytes
    Errors  ModelError: a size that does not fit its bytes, external data outside the
    folder or too short.
    """
    doing = f"{doing}, tensor {shown(tensor.name)}"
    shape = tuple(int(d) for d in tensor.dims)
    if any(d < 0 for d in shape):
        raise ModelError(doing, f"its shape is {show(shape)}", "no dimension is < 0")
    try:
        dtype = library.dtype_of(tensor.data_type)
    except ModelError as error:
        error.doing = doing
        raise
    nbytes = bytes_in_file(shape, dtype)
    if tensor.data_location == library.EXTERNAL:
        where, read = _external(tensor, folder, (shape, dtype, nbytes), doing)
        return Weight(tensor.name, shape, dtype, read, where)
    return Weight(tensor.name, shape, dtype, _inside(tensor, shape, nbytes, doing))


def bytes_in_file(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """What a tensor takes in a file, where several small elements share a byte."""
    bits = _PACKED_BITS.get(dtype.name, dtype.itemsize * 8)
    return -(-math.prod(shape) * bits // 8)


def _inside(
    tensor: Any, shape: tuple[int, ...], nbytes: int, doing: str
) -> Callable[[], Array]:
    """The reader of a tensor whose numbers are in the model."""
    dtype = library.dtype_of(tensor.data_type)
    plain = dtype.kind in "biufc" and dtype.name not in _PACKED_BITS
    if tensor.HasField("raw_data"):
        raw = tensor.raw_data  # a copy, each time it is asked for
        have = len(raw)
        if have != nbytes:
            raise ModelError(
                doing,
                f"it is {show(shape)} {dtype}, {nbytes:,} bytes",
                f"the model holds {have:,} bytes for it",
            )
        if plain:
            little = dtype.newbyteorder("<")
            return lambda: np.frombuffer(raw, little).reshape(shape)
        return lambda: library.array_of_message(tensor)
    _check_count(tensor, shape, dtype, doing)
    return lambda: library.array_of_message(tensor)


def _check_count(
    tensor: Any, shape: tuple[int, ...], dtype: np.dtype[Any], doing: str
) -> None:
    """The fields for single numbers hold as many as the shape says."""
    fields = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
    have = max(len(getattr(tensor, f)) for f in (*fields, "string_data"))
    have //= 2 if dtype.kind == "c" else 1
    wanted = math.prod(shape)
    bits = _PACKED_BITS.get(dtype.name)
    wanted = -(-wanted * bits // 8) if bits else wanted
    if have != wanted:
        raise ModelError(
            doing,
            f"it is {show(shape)}, {wanted:,} elements",
            f"the model holds {have:,} for it",
        )


def _external(
    tensor: Any,
    folder: Path | None,
    wanted: tuple[tuple[int, ...], np.dtype[Any], int],
    doing: str,
) -> tuple[str, Callable[[], Array]]:
    """(the file's name, the reader) of a tensor in a file beside the model."""
    shape, dtype, nbytes = wanted
    said = {e.key: e.value for e in tensor.external_data}
    name: str | bytes = said.get("location", "")
    if isinstance(name, bytes):  # protobuf's answer to what is not UTF-8
        name = name.decode("utf-8", "backslashreplace")
    path = _beside(name, folder, doing)
    offset = _number(said, "offset", 0, doing)
    length = _number(said, "length", nbytes, doing)
    there = path.stat().st_size
    if length != nbytes:
        raise ModelError(
            doing,
            f"it is {show(shape)} {dtype}, {nbytes:,} bytes",
            f"its external data is said to have {length:,}",
        )
    if offset + length > there:
        raise ModelError(
            doing,
            f"bytes {offset:,} to {offset + length:,} of {shown(name)} are wanted",
            f"the file has {there:,}",
            "fetch the model's data again; it is cut short",
        )
    if dtype.name in _PACKED_BITS or dtype.kind == "O":
        return name, lambda: _unpacked(tensor, path, offset, length)

    def mapped() -> Array:
        if not nbytes:
            return np.zeros(shape, dtype)
        with open_regular(path) as file:
            flat = np.memmap(file, np.uint8, "r", offset, (nbytes,))
        return flat.view(dtype.newbyteorder("<")).reshape(shape)

    return name, mapped


def _unpacked(tensor: Any, path: Path, offset: int, length: int) -> Array:
    """Small types are unpacked by the `onnx` package, from a copy with their bytes."""
    held = type(tensor)()
    held.CopyFrom(tensor)
    del held.external_data[:]
    held.data_location = 0
    with open_regular(path) as file:
        file.seek(offset)
        held.raw_data = file.read(length)
    return library.array_of_message(held)


def _beside(name: str, folder: Path | None, doing: str) -> Path:
    """Return the file of external data: by a relative name, links followed."""
    if folder is None:
        raise ModelError(
            doing,
            f"its numbers lie in the file {shown(name)}",
            "a model that comes as bytes has no folder",
            "load it by its path",
        )
    path = Path(file_beside(str(folder), name, "numbers", doing, ModelError))
    if not os.path.isfile(path):  # and no error for a name longer than names may be
        raise ModelError(
            doing,
            f"its numbers lie in the file {shown(name)}, which is not there",
            hint=f"put it beside the model, into {folder}",
        )
    return path


def _number(said: dict[str, str], key: str, default: int, doing: str) -> int:
    text = said.get(key, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ModelError(doing, f"its {key} in the file is {shown(text)}", "a number")
    return int(text)
