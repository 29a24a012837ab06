"""Safetensors layout: a strict reader of the header, which trusts nothing that a file
says.

Eight bytes, the length of a header; the header, JSON: for each tensor its element type,
shape and the bytes it lies at; then the tensors, one after the other to the last byte.
Owns the rules of that layout and what a tensor's bytes are in NumPy. What the texts of
`__metadata__` mean is not its business.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.core.errors import GraphFileError, shown
from rlxweb.ir.shape_arithmetic import MAX_RANK, format_shape
from rlxweb.runtime.graph_files.memory_mapped_bytes import ByteArray
from rlxweb.runtime.graph_files.strict_json import (
    FormatViolation,
    JsonCursor,
    check_depth,
)

METADATA_KEY = "__metadata__"
MAX_TENSORS = 100_000
MAX_NAME_LENGTH = 1024
MAX_DIM = 2**31 - 1
MAX_ELEMENTS = 2**40
MAX_FOREIGN_HEADER = 100_000_000
"""Bytes of the largest header that the safetensors package reads."""

# What the format calls its types; NumPy has none for BF16, whose bits are given.
NUMPY_DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "U8": np.dtype("u1"),
    "I8": np.dtype("i1"),
    "I16": np.dtype("<i2"),
    "U16": np.dtype("<u2"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "I32": np.dtype("<i4"),
    "U32": np.dtype("<u4"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "I64": np.dtype("<i8"),
    "U64": np.dtype("<u8"),
}
_ENTRY_KEYS = {"dtype", "shape", "data_offsets"}
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|\\u[0-9a-fA-F]{4}|\\."
)


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Tensor of a file: its type in the format's words and its bytes.

    position  the character of the header that speaks of it
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int
    position: int


@dataclass(frozen=True, slots=True)
class SafetensorsLayout:
    """Validated content of a file: tensors by name and the metadata texts.

    text_positions  for each text of the metadata the character of the header it begins
                    at
    """

    data: ByteArray
    header: str
    data_start: int
    entries: Mapping[str, TensorEntry]
    metadata: Mapping[str, str]
    text_positions: Mapping[str, int]
    context: str

    def array(self, entry: TensorEntry) -> npt.NDArray[Any]:
        """Return a read-only view of a tensor; of BF16 its bits."""
        flat = self.data[self.data_start + entry.begin : self.data_start + entry.end]
        return flat.view(NUMPY_DTYPES[entry.dtype]).reshape(entry.shape)

    def error_at(
        self, problem: str, rule: str = "", position: int = 0, hint: str = ""
    ) -> GraphFileError:
        """Return the error of a problem at a character of the header."""
        offset = 8 + len(self.header[:position].encode())
        return GraphFileError(self.context, problem, rule, hint, offset)

    def header_position(self, key: str, text_position: int) -> int:
        """Return the header's character that holds character `text_position` of a
        metadata text.
        """
        position = self.text_positions[key] + 1 + text_position
        for escape in _ESCAPE.finditer(self.header, self.text_positions[key] + 1):
            if escape.start() >= position:
                break
            position += len(escape[0]) - 1
        return position


def read_layout(
    data: ByteArray, context: str, max_header: int = MAX_FOREIGN_HEADER
) -> SafetensorsLayout:
    """Read and validate the layout of a file's bytes.

    Errors   GraphFileError with the rule that the file breaks, and where.
    """
    header = _read_header(data, context, max_header)
    data_start = 8 + len(header.encode())
    entries: dict[str, TensorEntry] = {}
    metadata: dict[str, str] = {}
    text_positions: dict[str, int] = {}
    layout = SafetensorsLayout(
        data, header, data_start, entries, metadata, text_positions, context
    )
    try:
        check_depth(header)
        cursor = JsonCursor(header)
        for key, position in cursor.iter_members():
            if key == METADATA_KEY:
                _read_metadata(cursor, metadata, text_positions)
                continue
            if len(entries) == MAX_TENSORS:
                raise FormatViolation(
                    f"the file has more than {MAX_TENSORS:,} tensors",
                    f"at most {MAX_TENSORS:,} are allowed",
                    position,
                )
            entries[key] = _parse_entry(key, cursor.read_value(), position)
        cursor.expect_end()
        _check_contiguous(entries, len(data) - data_start)
    except FormatViolation as error:
        raise layout.error_at(error.problem, error.rule, error.position) from None
    return layout


def _read_header(data: ByteArray, context: str, max_bytes: int) -> str:
    """Return the text of the header, its length checked against the bytes that are
    there.
    """
    if len(data) < 8:
        problem = f"the file has {len(data)} bytes"
        rule = "the first 8 bytes must contain the header length"
        hint = "check that the file is complete"
        raise GraphFileError(context, problem, rule, hint, 0)
    nbytes = int.from_bytes(data[:8].tobytes(), "little")
    available = len(data) - 8
    if not 2 <= nbytes <= min(available, max_bytes):
        raise GraphFileError(
            context,
            f"the file declares a header of {nbytes:,} bytes",
            f"the header must have 2 to {max_bytes:,} bytes, and the file has "
            f"{available:,} bytes after the header length",
            "check that the file is complete and in safetensors format",
            0,
        )
    raw = data[8 : 8 + nbytes].tobytes()
    if raw[:1] != b"{":
        problem = f"the header begins with {raw[:1]!r}"
        raise GraphFileError(context, problem, "it must begin with '{'", offset=8)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        problem, rule = "the header is not valid text", "it must be UTF-8"
        raise GraphFileError(context, problem, rule, offset=8 + error.start) from None


def _read_metadata(
    cursor: JsonCursor, metadata: dict[str, str], text_positions: dict[str, int]
) -> None:
    """Read the metadata texts and their positions."""
    for key, _ in cursor.iter_members():
        text_positions[key] = position = cursor.position
        value = cursor.read_value()
        if not isinstance(value, str):
            raise FormatViolation(
                f"{METADATA_KEY} contains {shown(value)}",
                "metadata values must be strings",
                position,
            )
        metadata[key] = value


def check_name(name: object, subject: str, position: int) -> str:
    """Return the name of something in a file; raises FormatViolation."""
    if not isinstance(name, str):
        raise FormatViolation(
            f"{subject} is {shown(name)}", "expected a string", position
        )
    if len(name) > MAX_NAME_LENGTH:
        rule = f"names may have at most {MAX_NAME_LENGTH:,} characters"
        raise FormatViolation(f"{subject} has {len(name):,} characters", rule, position)
    if not name.isprintable():
        raise FormatViolation(
            f"{subject} is {shown(name)}",
            "names must contain only printable characters",
            position,
        )
    return name


def check_shape(sizes: object, subject: str, position: int) -> tuple[int, ...]:
    """Return a shape that a file states; raises FormatViolation."""
    dims: list[Any] = (
        sizes if isinstance(sizes, list) and len(sizes) <= MAX_RANK else [None]
    )
    if any(type(dim) is not int for dim in dims):
        rule = f"expected a list of at most {MAX_RANK} integers"
        raise FormatViolation(f"{subject} has the shape {shown(sizes)}", rule, position)
    shape: tuple[int, ...] = tuple(dims)
    if any(not 0 <= dim <= MAX_DIM for dim in shape):
        rule = f"dimensions must be 0 to {MAX_DIM:,}"
        raise FormatViolation(
            f"{subject} has the shape {format_shape(shape)}", rule, position
        )
    if math.prod(shape) > MAX_ELEMENTS:
        rule = "at most 2^40 elements are allowed"
        raise FormatViolation(
            f"{subject} has the shape {format_shape(shape)}", rule, position
        )
    return shape


def _parse_entry(name: str, fields: Any, position: int) -> TensorEntry:
    """Return the validated entry of a tensor."""
    check_name(name, "the name of a tensor", position)
    subject = f"tensor {shown(name)}"
    if not isinstance(fields, dict) or fields.keys() != _ENTRY_KEYS:
        raise FormatViolation(
            f"{subject} is {shown(fields)}",
            "expected an object with the keys dtype, shape and data_offsets",
            position,
        )
    dtype = fields["dtype"]
    if not isinstance(dtype, str) or dtype not in NUMPY_DTYPES:
        raise FormatViolation(
            f"{subject} has the dtype {shown(dtype)}",
            f"expected one of {', '.join(NUMPY_DTYPES)}",
            position,
        )
    shape = check_shape(fields["shape"], subject, position)
    offsets = fields["data_offsets"]
    is_pair = isinstance(offsets, list) and len(offsets) == 2
    if not is_pair or any(type(offset) is not int for offset in offsets):
        raise FormatViolation(
            f"{subject} has the data_offsets {shown(offsets)}",
            "expected [begin, end] in bytes",
            position,
        )
    begin, end = offsets
    nbytes = math.prod(shape) * NUMPY_DTYPES[dtype].itemsize
    if end - begin != nbytes:
        raise FormatViolation(
            f"{subject} spans bytes {begin:,} to {end:,}",
            f"{format_shape(shape)} {dtype} takes {nbytes:,} bytes",
            position,
        )
    return TensorEntry(name, dtype, shape, begin, end, position)


def _check_contiguous(entries: Mapping[str, TensorEntry], nbytes: int) -> None:
    """Check that the tensors lie one after the other, from the first byte to the
    last.
    """
    previous_end = 0
    for entry in sorted(entries.values(), key=lambda e: (e.begin, e.end)):
        if entry.begin != previous_end:
            raise FormatViolation(
                f"tensor {shown(entry.name)} begins at byte {entry.begin:,} of the "
                "data",
                "it must begin where the previous tensor ends, at byte "
                f"{previous_end:,}",
                entry.position,
            )
        previous_end = entry.end
    if previous_end != nbytes:
        raise FormatViolation(
            f"the tensors end at byte {previous_end:,} of the data",
            f"the data has {nbytes:,} bytes",
        )
