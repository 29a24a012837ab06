"""Attributes and sizes of a graph as JSON, each kind in one way, and back.

Every number is whole: a float is the text of its exact value in hexadecimal, which
has infinities and NaN as well. What comes back is what was there, to the last bit.
"""

from __future__ import annotations

import re
from typing import Any

from rlxweb.errors import shown
from rlxweb.graphfile.strict_json import Refused
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attr

MOST_NUMBERS = 65_536
MOST_TEXT = 1024
_FLOAT = re.compile(r"-?(0x[01]\.[0-9a-f]{1,13}p[+-]\d{1,4}|inf)|nan")
_LEAST, _MOST = -(2**63), 2**63 - 1
DTYPES = {dtype.label: dtype for dtype in DType}


def attribute_out(attr: Attr, value: Any) -> Any:
    """As JSON. Errors  Refused for what no file can hold."""
    if value is None:
        return None
    if attr.kind == "any":
        rule = "numbers, texts and types alone"
        raise Refused(f"attribute {attr.name} may hold anything", rule)
    made = value
    if attr.kind == "float":
        made = float(value).hex()
    elif attr.kind == "dtype":
        made = value.label
    elif attr.kind == "ints":
        made = list(value)
    attribute_in(attr, made)  # what could not be read is not written
    return made


def attribute_in(attr: Attr, given: Any) -> Any:
    """What `Graph.apply` takes. Errors  Refused."""
    if given is None and attr.optional:
        return None
    if attr.kind == "int" and _is_number(given):
        return given
    if attr.kind == "bool" and isinstance(given, bool):
        return given
    if attr.kind == "str" and isinstance(given, str) and len(given) <= MOST_TEXT:
        return given
    if attr.kind == "ints" and isinstance(given, list) and all(map(_is_number, given)):
        if len(given) > MOST_NUMBERS:
            problem = f"attribute {attr.name} has {len(given):,} numbers"
            raise Refused(problem, f"at most {MOST_NUMBERS:,}")
        return tuple(given)
    if attr.kind == "dtype" and isinstance(given, str) and given in DTYPES:
        return DTYPES[given]
    if attr.kind == "float":
        return float_in(given, f"attribute {attr.name}")
    raise Refused(f"attribute {attr.name} is {shown(given)}", f"it is of {attr.kind}")


def float_in(given: Any, what: str) -> float:
    """A float of its text in hexadecimal. Errors  Refused."""
    if not isinstance(given, str) or not _FLOAT.fullmatch(given):
        raise Refused(f"{what} is {shown(given)}", "it is of float")
    try:
        return float.fromhex(given)
    except OverflowError:
        raise Refused(f"{what} is {shown(given)}", "a float of 64 bits") from None


def _is_number(given: object) -> bool:
    return type(given) is int and _LEAST <= given <= _MOST
