"""Declared attributes of ops: allowed values and canonical form.

Strict, so that what a caller wrote by mistake is told where it was written. Which op
has which attributes is said in its record.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from operator import ge, gt, le
from typing import Any, Literal

import numpy as np

from rlxweb.core.errors import DTypeError, GraphError
from rlxweb.ir.dtype import as_dtype
from rlxweb.ir.shape_arithmetic import as_tuple, bad_attribute, short_repr


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED = _Required()

AttrKind = Literal["int", "float", "bool", "str", "ints", "dtype", "any"]


@dataclass(frozen=True, slots=True)
class Attr:
    """One declared attribute of an op.

    allowed  the values of a closed set
    above, at_least, at_most  limits of a number, of which the first is not allowed
                              itself; NaN is outside of any
    is_added_later  the op had a release without it: in files of that time the default
                    is meant
    """

    name: str
    kind: AttrKind
    default: Any = REQUIRED
    allowed: tuple[Any, ...] = ()
    above: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    is_nullable: bool = False
    is_added_later: bool = False

    def check(self, value: Any) -> Any:
        """Return the value in its canonical type. Errors  AttributeRefused,
        DTypeError.
        """
        if value is None and self.is_nullable:
            return None
        try:
            value = _CANONICALIZERS[self.kind](value)
        except DTypeError as error:
            error.doing = ""
            error.problem = f"attribute {self.name}={value!r}: {error.problem}"
            raise
        except (TypeError, ValueError, OverflowError, GraphError):
            raise bad_attribute(
                f"attribute {self.name}={short_repr(value)} is invalid",
                f"expected {_KIND_DESCRIPTIONS[self.kind]}",
            ) from None
        if self.allowed and value not in self.allowed:
            raise bad_attribute(
                f"attribute {self.name}={value!r} is invalid",
                "allowed: " + ", ".join(str(a) for a in self.allowed),
            )
        limits = (
            (self.above, gt, ">"),
            (self.at_least, ge, ">="),
            (self.at_most, le, "<="),
        )
        for limit, holds, _ in limits:
            if limit is not None and not holds(value, limit):
                rules = [
                    f"{sign} {n:,}" if isinstance(n, int) else f"{sign} {n:g}"
                    for n, _, sign in limits
                    if n is not None
                ]
                raise bad_attribute(
                    f"attribute {self.name}={value!r} is out of range",
                    f"{self.name} must be {' and '.join(rules)}",
                )
        if self.kind == "float" and self.above is not None:
            _check_above_in_float32(self.name, value, self.above)
        return value


def _check_above_in_float32(name: str, value: float, limit: float) -> None:
    """Check that rounding to float32, in which kernels compute, leaves a number above
    its limit. Errors  AttributeRefused.
    """
    with np.errstate(over="ignore", under="ignore"):
        rounded = float(np.float32(value))
    if not rounded > limit:
        raise bad_attribute(
            f"attribute {name}={value!r} is {rounded:g} in float32",
            f"{name} must be > {limit:g} there too",
        )


def _canonical_int(value: Any) -> int:
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise TypeError
    return int(value.__index__())


def _canonical_float(value: Any) -> float:
    # Text would do for float(), and so would True.
    if isinstance(
        value, str | bytes | bool | np.bool_ | np.ndarray | np.complexfloating
    ):
        raise TypeError
    return float(value)


def _canonical_bool(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError
    return bool(value)


def _canonical_str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _canonical_ints(value: Any) -> tuple[int, ...]:
    elements = as_tuple(value)
    if elements is None:
        raise TypeError
    return tuple(_canonical_int(v) for v in elements)


def _frozen_copy(value: Any) -> Any:
    """Return a copy of a mutable value, arrays made read-only; other values
    unchanged.
    """
    if isinstance(value, np.ndarray | list | dict | set | bytearray):
        value = deepcopy(value)
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
    return value


_CANONICALIZERS: dict[str, Callable[[Any], Any]] = {
    "int": _canonical_int,
    "float": _canonical_float,
    "bool": _canonical_bool,
    "str": _canonical_str,
    "ints": _canonical_ints,
    "dtype": as_dtype,
    "any": _frozen_copy,
}

_KIND_DESCRIPTIONS: dict[str, str] = {
    "int": "an integer",
    "float": "a number",
    "bool": "True or False",
    "str": "a string",
    "ints": "an integer or a sequence of integers",
    "dtype": "a dtype such as 'f32'",
    "any": "any value",
}
