"""Lossless conversion of a graph's attributes and numbers to JSON and back.

Every number is whole: a float is the text of its exact value in hexadecimal, which
has infinities and NaN as well. What comes back is what was there, to the last bit.
"""

from __future__ import annotations

import re
from typing import Any

from rlxweb.core.errors import shown
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attr
from rlxweb.runtime.graph_files.strict_json import FormatViolation

MAX_NUMBERS = 65_536
MAX_TEXT_LENGTH = 1024
_FLOAT_PATTERN = re.compile(r"-?(0x[01]\.[0-9a-f]{1,13}p[+-]\d{1,4}|inf)|nan")
_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1
DTYPE_BY_LABEL = {dtype.label: dtype for dtype in DType}
_KIND_DESCRIPTIONS = {
    "int": "a 64-bit integer",
    "ints": "a list of 64-bit integers",
    "bool": "true or false",
    "str": f"a string of at most {MAX_TEXT_LENGTH:,} characters",
    "dtype": f"one of {', '.join(DTYPE_BY_LABEL)}",
    "any": "null",
}


def attribute_to_json(attr: Attr, value: Any) -> Any:
    """Return an attribute's value as JSON; raises FormatViolation for what no file can
    hold.
    """
    if value is None:
        return None
    if attr.kind == "any":
        rule = "a file can store only numbers, strings and dtypes"
        raise FormatViolation(f"attribute {attr.name} has no fixed type", rule)
    encoded = value
    if attr.kind == "float":
        encoded = float(value).hex()
    elif attr.kind == "dtype":
        encoded = value.label
    elif attr.kind == "ints":
        encoded = list(value)
    attribute_from_json(attr, encoded)  # what could not be read is not written
    return encoded


def attribute_from_json(attr: Attr, value: Any) -> Any:
    """Return an attribute's value as `Graph.apply` takes it; raises FormatViolation."""
    if value is None and attr.is_nullable:
        return None
    if attr.kind == "int" and _is_number(value):
        return value
    if attr.kind == "bool" and isinstance(value, bool):
        return value
    if attr.kind == "str" and isinstance(value, str) and len(value) <= MAX_TEXT_LENGTH:
        return value
    if attr.kind == "ints" and isinstance(value, list) and all(map(_is_number, value)):
        if len(value) > MAX_NUMBERS:
            problem = f"attribute {attr.name} has {len(value):,} numbers"
            raise FormatViolation(problem, f"at most {MAX_NUMBERS:,} are allowed")
        return tuple(value)
    if attr.kind == "dtype" and isinstance(value, str) and value in DTYPE_BY_LABEL:
        return DTYPE_BY_LABEL[value]
    if attr.kind == "float":
        return float_from_json(value, f"attribute {attr.name}")
    raise FormatViolation(
        f"attribute {attr.name} is {shown(value)}",
        f"expected {_KIND_DESCRIPTIONS[attr.kind]}",
    )


def float_from_json(value: Any, subject: str) -> float:
    """Return the float of its hexadecimal text; raises FormatViolation."""
    if not isinstance(value, str) or not _FLOAT_PATTERN.fullmatch(value):
        raise FormatViolation(
            f"{subject} is {shown(value)}", "expected a float as hexadecimal text"
        )
    try:
        return float.fromhex(value)
    except OverflowError:
        raise FormatViolation(
            f"{subject} is {shown(value)}", "a number must fit into a 64-bit float"
        ) from None


def _is_number(value: object) -> bool:
    """Return whether a value is an integer of 64 bits."""
    return type(value) is int and _MIN_INT <= value <= _MAX_INT
