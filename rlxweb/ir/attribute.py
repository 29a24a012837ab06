"""The attributes of an op: what each may be, and its canonical form.

Strict, so that what a caller wrote by mistake is told where it was written. Which op
has which attributes is said in its record.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rlxweb.errors import DTypeError, GraphError
from rlxweb.ir.dtype import as_dtype
from rlxweb.ir.shape import bad_attribute, many, short


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED = _Required()

AttrKind = Literal["int", "float", "bool", "str", "ints", "dtype", "any"]


@dataclass(frozen=True, slots=True)
class Attr:
    """One declared attribute.

    allowed  the values of a closed set
    later    the op had a release without it: in files of that time the default is meant
    """

    name: str
    kind: AttrKind
    default: Any = REQUIRED
    allowed: tuple[Any, ...] = ()
    optional: bool = False
    later: bool = False

    def check(self, value: Any) -> Any:
        """The value in its canonical type. Errors  AttributeRefused, DTypeError."""
        if value is None and self.optional:
            return None
        try:
            value = _CANONICAL[self.kind](value)
        except DTypeError as error:
            error.doing = ""
            error.problem = f"attribute {self.name}={value!r}: {error.problem}"
            raise
        except (TypeError, ValueError, OverflowError, GraphError):
            raise bad_attribute(
                f"attribute {self.name}={short(value)} is not of kind {self.kind}",
                f"{_KINDS[self.kind]} wanted",
            ) from None
        if self.allowed and value not in self.allowed:
            raise bad_attribute(
                f"attribute {self.name}={value!r}",
                "allowed: " + ", ".join(str(a) for a in self.allowed),
            )
        return value


def _integer(value: Any) -> int:
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise TypeError
    return int(value.__index__())


def _number(value: Any) -> float:
    # Text would do for float(), and so would True.
    if isinstance(
        value, str | bytes | bool | np.bool_ | np.ndarray | np.complexfloating
    ):
        raise TypeError
    return float(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError
    return bool(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _integers(value: Any) -> tuple[int, ...]:
    every = many(value)
    if every is None:
        raise TypeError
    return tuple(_integer(v) for v in every)


def _as_it_is_now(value: Any) -> Any:
    """A copy of what its owner may change later; nobody writes into arrays."""
    if isinstance(value, np.ndarray | list | dict | set | bytearray):
        value = deepcopy(value)
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
    return value


_CANONICAL: dict[str, Callable[[Any], Any]] = {
    "int": _integer,
    "float": _number,
    "bool": _boolean,
    "str": _text,
    "ints": _integers,
    "dtype": as_dtype,
    "any": _as_it_is_now,
}

_KINDS: dict[str, str] = {
    "int": "an integer is",
    "float": "a number is",
    "bool": "True or False is",
    "str": "text is",
    "ints": "an integer or a sequence of integers is",
    "dtype": "an element type such as 'f32' is",
    "any": "anything is",
}
