"""Pytrees: arrays within tuples, lists, dicts, named tuples and dataclasses. Values
that are no arrays are static parts of the structure.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from rlxweb.core.array_coercion import DeviceResident, describe_type
from rlxweb.core.errors import UsageError, shown
from rlxweb.trace.traced_array import TracedArray

MAX_DEPTH = 50


class IdentityKey:
    """Hashable key that compares an object by identity and keeps it alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


@dataclass(frozen=True, slots=True)
class PyTree:
    """Structure of a value; values of equal structures are rebuilt alike.

    kind   "array", "static", or how its parts are held
    key    what tells a static value apart; a container's type and its parts' names
    value  the static value, or a dataclass without its parts
    """

    kind: str
    key: Hashable
    children: tuple[PyTree, ...] = ()
    value: Any = None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PyTree)
            and (self.kind, self.key) == (other.kind, other.key)
            and self.children == other.children
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.key, self.children))

    @property
    def _container_type_and_names(self) -> tuple[Any, Any]:
        """Container type, and the names of its children."""
        key: Any = self.key
        return key[0], key[1]

    def unflatten(self, leaves: Iterator[Any]) -> Any:
        """Rebuild the value, with `leaves` in place of its arrays."""
        if self.kind == "array":
            return next(leaves)
        if self.kind == "static":
            return self.value
        values = [child.unflatten(leaves) for child in self.children]
        container_type, names = self._container_type_and_names
        if self.kind == "dict":
            return container_type(zip(names, values, strict=True))
        if self.kind == "dataclass":
            rebuilt = copy.copy(self.value)
            for name, value in zip(names, values, strict=True):
                object.__setattr__(rebuilt, name, value)
            return rebuilt
        return (
            container_type(*values)
            if self.kind == "named tuple"
            else container_type(values)
        )


_ARRAY_LEAF = PyTree("array", None)


def is_array(value: Any) -> bool:
    """Return whether a value is an array or converts to one: NumPy's, a device's,
    another library's.
    """
    if isinstance(value, np.ndarray | np.generic | DeviceResident | TracedArray):
        return True
    if isinstance(value, type):
        return False
    return hasattr(value, "__array__") or hasattr(value, "__dlpack__")


def flatten_tree(
    value: Any,
    path: str,
    leaves: list[tuple[str, Any]],
    key_of_static: Callable[[Any, str], Hashable],
    depth: int = 0,
) -> PyTree:
    """Return the structure of a value, and append its arrays, each with its path, to
    `leaves`.

    key_of_static  of a value that is no array and no container, what tells it apart
    Errors   UsageError for one that lies too deep, or has no such thing.
    """
    if is_array(value):
        leaves.append((path, value))
        return _ARRAY_LEAF
    if depth > MAX_DEPTH:
        raise UsageError(
            path[:80], f"the value is nested more than {MAX_DEPTH} levels deep"
        )
    kind, names, named_children = _container_children(value)
    if not kind:
        return PyTree("static", key_of_static(value, path), value=value)
    children = tuple(
        flatten_tree(child, f"{path}{name}", leaves, key_of_static, depth + 1)
        for name, child in named_children
    )
    return PyTree(
        kind, (type(value), names), children, value=_dataclass_template(kind, value)
    )


def _container_children(value: Any) -> tuple[str, Hashable, list[tuple[str, Any]]]:
    """Return the kind of container ("" for none), the names of its children, and the
    children.
    """
    if type(value) in (dict, OrderedDict):
        keys = tuple(value)
        return "dict", keys, [(f"[{key!r}]", value[key]) for key in keys]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        names = tuple(value._fields)
        named_children = [
            (f".{n}", child) for n, child in zip(names, value, strict=True)
        ]
        return "named tuple", names, named_children
    if type(value) in (tuple, list):
        return "list", len(value), [(f"[{n}]", p) for n, p in enumerate(value)]
    if is_dataclass(value) and not isinstance(value, type):
        names = tuple(
            field.name for field in fields(value) if hasattr(value, field.name)
        )
        return "dataclass", names, [(f".{n}", getattr(value, n)) for n in names]
    return "", None, []


def _dataclass_template(kind: str, value: Any) -> Any:
    """Return a copy of a dataclass without its field values, from which it is
    rebuilt.
    """
    if kind != "dataclass":
        return None
    template = copy.copy(value)
    for field in fields(value):
        if hasattr(value, field.name):
            object.__setattr__(template, field.name, None)
    return template


def static_key(value: Any, path: str) -> Hashable:
    """Return the hashable key of a static argument: its type and value.

    Errors   UsageError for one that can change and is compared by value.
    """
    if isinstance(value, float | complex):
        return type(value), repr(value)  # NaN is itself, and -0.0 is not 0.0
    try:
        hash(value)
    except TypeError:
        raise UsageError(
            path,
            f"{shown(value)} is {describe_type(value)}, which is neither an array nor "
            "hashable",
            "arguments that are not arrays are part of the call's signature and must "
            "be hashable",
            "pass a tuple or a frozen dataclass, or capture the value in a closure",
        ) from None
    return type(value), value


def content_key(value: Any, path: str) -> Hashable:
    """Return the hashable key of an argument of static_argnames; arrays and lists
    compare by content.
    """
    if isinstance(value, np.ndarray):
        return np.ndarray, value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, list | tuple):
        return type(value), tuple(content_key(item, path) for item in value)
    if isinstance(value, dict):
        item_keys = ((key, content_key(item, path)) for key, item in value.items())
        return dict, tuple(item_keys)
    if isinstance(value, set):
        return set, frozenset(value)
    return static_key(value, path)
