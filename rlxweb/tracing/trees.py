"""Arguments and results of a traced function: arrays within tuples, lists, dicts,
named tuples and dataclasses. What is no array is a static part of the structure.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from rlxweb.errors import UsageError, shown
from rlxweb.given import OnDevice, named
from rlxweb.tracing.traced import Traced

DEEPEST = 50


class Same:
    """A thing that is told apart by identity alone, and held while that counts."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


@dataclass(frozen=True, slots=True)
class Tree:
    """The structure of a value; equal ones are rebuilt alike.

    kind   "array", "static", or how its parts are held
    told   what tells a static value apart; a container's type and its parts' names
    value  the static value, or a dataclass without its parts
    """

    kind: str
    told: Hashable
    parts: tuple[Tree, ...] = ()
    value: Any = None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Tree)
            and (self.kind, self.told) == (other.kind, other.told)
            and self.parts == other.parts
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.told, self.parts))

    @property
    def _held(self) -> tuple[Any, Any]:
        """A container's type, and the names of its parts."""
        told: Any = self.told
        return told[0], told[1]

    def built(self, leaves: Iterator[Any]) -> Any:
        """The value again, with these in place of its arrays."""
        if self.kind == "array":
            return next(leaves)
        if self.kind == "static":
            return self.value
        made = [part.built(leaves) for part in self.parts]
        made_of, names = self._held
        if self.kind == "dict":
            return made_of(zip(names, made, strict=True))
        if self.kind == "dataclass":
            whole = copy.copy(self.value)
            for name, one in zip(names, made, strict=True):
                object.__setattr__(whole, name, one)
            return whole
        return made_of(*made) if self.kind == "named tuple" else made_of(made)


_ARRAY = Tree("array", None)


def is_array(value: Any) -> bool:
    """Is it one, or what gives one: NumPy's, a device's, another library's?"""
    if isinstance(value, np.ndarray | np.generic | OnDevice | Traced):
        return True
    if isinstance(value, type):
        return False
    return hasattr(value, "__array__") or hasattr(value, "__dlpack__")


def flattened(
    value: Any,
    path: str,
    leaves: list[tuple[str, Any]],
    static: Callable[[Any, str], Hashable],
    depth: int = 0,
) -> Tree:
    """The structure of a value; its arrays, each with its place, go into `leaves`.

    static   of a value that is no array and no container, what tells it apart
    Errors   UsageError for one that lies too deep, or has no such thing.
    """
    if is_array(value):
        leaves.append((path, value))
        return _ARRAY
    if depth > DEEPEST:
        raise UsageError(path[:80], f"it lies more than {DEEPEST} containers deep")
    kind, names, parts = _container(value)
    if not kind:
        return Tree("static", static(value, path), value=value)
    every = tuple(
        flattened(part, f"{path}{name}", leaves, static, depth + 1)
        for name, part in parts
    )
    return Tree(kind, (type(value), names), every, value=_like(kind, value))


def _container(value: Any) -> tuple[str, Hashable, list[tuple[str, Any]]]:
    """How it holds its parts ("" for no container), their names, the parts."""
    if type(value) in (dict, OrderedDict):
        keys = tuple(value)
        return "dict", keys, [(f"[{key!r}]", value[key]) for key in keys]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        names = tuple(value._fields)
        each = [(f".{n}", part) for n, part in zip(names, value, strict=True)]
        return "named tuple", names, each
    if type(value) in (tuple, list):
        return "list", len(value), [(f"[{n}]", p) for n, p in enumerate(value)]
    if is_dataclass(value) and not isinstance(value, type):
        names = tuple(f.name for f in fields(value) if hasattr(value, f.name))
        return "dataclass", names, [(f".{n}", getattr(value, n)) for n in names]
    return "", None, []


def _like(kind: str, value: Any) -> Any:
    """Of a dataclass what it is rebuilt from; its arrays are not held by it."""
    if kind != "dataclass":
        return None
    whole = copy.copy(value)
    for one in fields(value):
        if hasattr(value, one.name):
            object.__setattr__(whole, one.name, None)
    return whole


def by_value(value: Any, path: str) -> Hashable:
    """What tells a static argument apart: its value, or itself.

    Errors   UsageError for one that can change and is compared by value.
    """
    if isinstance(value, float | complex):
        return type(value), repr(value)  # NaN is itself, and -0.0 is not 0.0
    try:
        hash(value)
    except TypeError:
        raise UsageError(
            path,
            f"{named(value)} is no array and cannot be hashed: {shown(value)}",
            "what is no array is part of a call's signature",
            "pass it as a tuple or a frozen dataclass, or close over it",
        ) from None
    return type(value), value


def by_content(value: Any, path: str) -> Hashable:
    """What tells an argument of static_argnames apart, arrays and lists by content."""
    if isinstance(value, np.ndarray):
        return np.ndarray, value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, list | tuple):
        return type(value), tuple(by_content(one, path) for one in value)
    if isinstance(value, dict):
        each = ((key, by_content(one, path)) for key, one in value.items())
        return dict, tuple(each)
    if isinstance(value, set):
        return set, frozenset(value)
    return by_value(value, path)
