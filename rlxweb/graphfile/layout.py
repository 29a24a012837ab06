"""Safetensors: the layout of a file of tensors, read strictly and never believed.

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

from rlxweb.errors import GraphFileError, shown
from rlxweb.graphfile.opened import Bytes
from rlxweb.graphfile.strict_json import Cursor, Refused, check_depth
from rlxweb.ir.shape import MAX_RANK, show

METADATA = "__metadata__"
MOST_TENSORS = 100_000
MOST_NAME = 1024
MOST_DIM = 2**31 - 1
MOST_ELEMENTS = 2**40
FOREIGN_HEADER = 100_000_000
"""What the safetensors package takes."""

# What the format calls its types; NumPy has none for BF16, whose bits are given.
NUMPY: dict[str, np.dtype[Any]] = {
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
_KEYS = {"dtype", "shape", "data_offsets"}
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|\\u[0-9a-fA-F]{4}|\\."
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a file: its type in the format's words and where it lies.

    at  the character of the header that speaks of it
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int
    at: int


@dataclass(frozen=True, slots=True)
class Layout:
    """What a file holds, checked: tensors by name and the texts beside them.

    text_at  for each text of the metadata the character of the header it begins at
    """

    data: Bytes
    header: str
    data_at: int
    entries: Mapping[str, Entry]
    metadata: Mapping[str, str]
    text_at: Mapping[str, int]
    doing: str

    def array(self, entry: Entry) -> npt.NDArray[Any]:
        """A tensor where it lies, read-only; of BF16 its bits."""
        flat = self.data[self.data_at + entry.begin : self.data_at + entry.end]
        return flat.view(NUMPY[entry.dtype]).reshape(entry.shape)

    def refused(
        self, problem: str, rule: str = "", at: int = 0, hint: str = ""
    ) -> GraphFileError:
        """What is wrong at a character of the header."""
        offset = 8 + len(self.header[:at].encode())
        return GraphFileError(self.doing, problem, rule, hint, offset)

    def place_in(self, key: str, inner: int) -> int:
        """The character of the header that is character `inner` of a text within."""
        outer = self.text_at[key] + 1 + inner
        for found in _ESCAPE.finditer(self.header, self.text_at[key] + 1):
            if found.start() >= outer:
                break
            outer += len(found[0]) - 1
        return outer


def read_layout(data: Bytes, doing: str, most_header: int = FOREIGN_HEADER) -> Layout:
    """The layout of a file's bytes.

    Errors   GraphFileError with the rule that the file breaks, and where.
    """
    header = _header(data, doing, most_header)
    data_at = 8 + len(header.encode())
    entries: dict[str, Entry] = {}
    metadata: dict[str, str] = {}
    text_at: dict[str, int] = {}
    made = Layout(data, header, data_at, entries, metadata, text_at, doing)
    try:
        check_depth(header)
        cursor = Cursor(header)
        for key, at in cursor.members():
            if key == METADATA:
                _read_metadata(cursor, metadata, text_at)
                continue
            if len(entries) == MOST_TENSORS:
                raise Refused("more tensors", f"at most {MOST_TENSORS:,}", at)
            entries[key] = _entry(key, cursor.value(), at)
        cursor.end()
        _check_places(entries, len(data) - data_at)
    except Refused as error:
        raise made.refused(error.problem, error.rule, error.at) from None
    return made


def _header(data: Bytes, doing: str, most: int) -> str:
    """The text of the header, its length held against the bytes that are there."""
    if len(data) < 8:
        problem = f"it has {len(data)} bytes"
        rule = "the length of the header alone takes 8"
        raise GraphFileError(doing, problem, rule, "it is cut short", 0)
    nbytes = int.from_bytes(data[:8].tobytes(), "little")
    there = len(data) - 8
    if not 2 <= nbytes <= min(there, most):
        raise GraphFileError(
            doing,
            f"its header is said to have {nbytes:,} bytes",
            f"2 to {most:,} are allowed, and {there:,} are there",
            "it is cut short, or no safetensors file",
            0,
        )
    raw = data[8 : 8 + nbytes].tobytes()
    if raw[:1] != b"{":
        problem = f"its header begins with {raw[:1]!r}"
        raise GraphFileError(doing, problem, "it begins with '{'", offset=8)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        problem, rule = "its header is no text", "UTF-8"
        raise GraphFileError(doing, problem, rule, offset=8 + error.start) from None


def _read_metadata(
    cursor: Cursor, metadata: dict[str, str], text_at: dict[str, int]
) -> None:
    for key, _ in cursor.members():
        text_at[key] = at = cursor.at
        value = cursor.value()
        if not isinstance(value, str):
            raise Refused(f"{METADATA} has {shown(value)}", "texts alone", at)
        metadata[key] = value


def check_name(name: object, what: str, at: int) -> str:
    """The name of something in a file. Errors  Refused."""
    if not isinstance(name, str):
        raise Refused(f"{what} is {shown(name)}", "a text is wanted", at)
    if len(name) > MOST_NAME:
        rule = f"names have at most {MOST_NAME:,}"
        raise Refused(f"{what} has {len(name):,} characters", rule, at)
    if not name.isprintable():
        raise Refused(f"{what} is {shown(name)}", "names can be printed", at)
    return name


def check_shape(given: object, what: str, at: int) -> tuple[int, ...]:
    """A shape that a file states. Errors  Refused."""
    dims: list[Any] = (
        given if isinstance(given, list) and len(given) <= MAX_RANK else [None]
    )
    if any(type(d) is not int for d in dims):
        rule = f"a list of at most {MAX_RANK} whole numbers"
        raise Refused(f"{what} has the shape {shown(given)}", rule, at)
    shape: tuple[int, ...] = tuple(dims)
    if any(not 0 <= d <= MOST_DIM for d in shape):
        rule = f"dimensions are 0 to {MOST_DIM:,}"
        raise Refused(f"{what} has the shape {show(shape)}", rule, at)
    if math.prod(shape) > MOST_ELEMENTS:
        rule = "at most 2^40 elements"
        raise Refused(f"{what} has the shape {show(shape)}", rule, at)
    return shape


def _entry(name: str, given: Any, at: int) -> Entry:
    check_name(name, "the name of a tensor", at)
    what = f"tensor {shown(name)}"
    if not isinstance(given, dict) or given.keys() != _KEYS:
        raise Refused(f"{what} is {shown(given)}", "dtype, shape, data_offsets", at)
    dtype = given["dtype"]
    if not isinstance(dtype, str) or dtype not in NUMPY:
        raise Refused(f"{what} is of type {shown(dtype)}", ", ".join(NUMPY), at)
    shape = check_shape(given["shape"], what, at)
    places = given["data_offsets"]
    is_pair = isinstance(places, list) and len(places) == 2
    if not is_pair or any(type(p) is not int for p in places):
        raise Refused(f"{what} lies at {shown(places)}", "[from, to] in bytes", at)
    begin, end = places
    nbytes = math.prod(shape) * NUMPY[dtype].itemsize
    if end - begin != nbytes:
        raise Refused(
            f"{what} lies at bytes {begin:,} to {end:,}",
            f"{show(shape)} {dtype} takes {nbytes:,}",
            at,
        )
    return Entry(name, dtype, shape, begin, end, at)


def _check_places(entries: Mapping[str, Entry], nbytes: int) -> None:
    """One after the other, from the first byte to the last."""
    last = 0
    for entry in sorted(entries.values(), key=lambda e: (e.begin, e.end)):
        if entry.begin != last:
            raise Refused(
                f"tensor {shown(entry.name)} begins at {entry.begin:,} in the data",
                f"the one before it ends at {last:,}: no gap, no overlap",
                entry.at,
            )
        last = entry.end
    if last != nbytes:
        raise Refused(
            f"its tensors end at byte {last:,} of the data",
            f"there are {nbytes:,}",
        )
