"""Closures, globals and attributes that a traced function reads outside its arguments,
and checks that they are unchanged.

A tracing builds in what closures, globals and the attributes of objects held. So that a
later call does not compute with what they hold no more, each of these places is looked
at again. Within bounds: what lies deeper than `MAX_DEPTH`, or in installed packages,
counts as constant.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from types import (
    CellType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np

MAX_DEPTH, MAX_LOCATIONS = 4, 1000
_IMMUTABLE_TYPES = (int, float, complex, str, bytes, bool, type(None), np.generic)
_LIBRARY_PACKAGES = frozenset(sys.stdlib_module_names) | {"numpy", "rlxweb", "scipy"}
_MISSING = object()


class ReadLocation:
    """Location a traced function may read (closure cell, global, attribute or item),
    with the value seen there.
    """

    __slots__ = ("holder", "key", "seen_value")

    def __init__(self, holder: Any, key: Any, seen_value: Any) -> None:
        self.holder, self.key, self.seen_value = holder, key, seen_value

    @property
    def is_same(self) -> bool:
        current = _read_location(self.holder, self.key)
        if current is self.seen_value:
            return True
        is_comparable = type(current) is type(self.seen_value) and isinstance(
            current, _IMMUTABLE_TYPES
        )
        return is_comparable and repr(current) == repr(self.seen_value)


def _read_location(holder: Any, key: Any) -> Any:
    try:
        if isinstance(holder, CellType):
            return holder.cell_contents
        if key is len:
            return len(holder)
        if isinstance(holder, dict | list | tuple):
            return holder[key]
        return getattr(holder, key)
    except (ValueError, KeyError, IndexError, AttributeError):
        return _MISSING


def find_read_locations(
    function: Callable[..., Any], objects: list[Any]
) -> list[ReadLocation]:
    """List the locations that a function, and the objects passed to it, can read."""
    locations: list[ReadLocation] = []
    visited_ids: set[int] = set()
    stack = [(function, 0), *((static_object, 0) for static_object in objects)]
    while stack and len(locations) < MAX_LOCATIONS:
        value, depth = stack.pop()
        if id(value) in visited_ids or depth > MAX_DEPTH:
            continue
        visited_ids.add(id(value))
        for holder, key in _referenced_locations(value):
            inner_value = _read_location(holder, key)
            if inner_value is _MISSING:
                continue
            locations.append(ReadLocation(holder, key, inner_value))
            if not isinstance(inner_value, (*_IMMUTABLE_TYPES, np.ndarray)):
                stack.append((inner_value, depth + 1))
    return locations


def _referenced_locations(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (holder, key) for every location that a value refers to."""
    if isinstance(value, MethodType):
        yield from _referenced_locations(value.__func__)
        yield from _referenced_locations(value.__self__)
    elif isinstance(value, FunctionType):
        yield from _function_locations(value)
    elif isinstance(value, partial):
        yield from _referenced_locations(value.func)
        yield from _referenced_locations(value.args)
        yield from _referenced_locations(value.keywords)
    elif isinstance(value, dict | list | tuple):
        yield value, len
        keys = value if isinstance(value, dict) else range(len(value))
        yield from ((value, key) for key in islice(keys, MAX_LOCATIONS))
    elif isinstance(value, type):
        yield from _class_locations(value)
    elif hasattr(value, "__wrapped__"):  # a function that is traced, or decorated
        yield from _referenced_locations(value.__wrapped__)
    elif not isinstance(value, ModuleType) and not _is_library_code(type(value)):
        if isinstance(getattr(value, "__dict__", None), dict):
            yield from ((value.__dict__, name) for name in value.__dict__)
        yield from _class_locations(type(value), value)


def _class_locations(cls: type, instance: Any = None) -> Iterator[tuple[Any, Any]]:
    """Yield the own values and methods of a class; for an instance, its slots too."""
    for base in cls.__mro__:
        if _is_library_code(base):
            continue
        for name, attribute in vars(base).items():
            if isinstance(attribute, MemberDescriptorType) and instance is not None:
                yield instance, name
            elif isinstance(attribute, FunctionType) or not (
                name.startswith("__") or hasattr(attribute, "__get__")
            ):
                yield base, name


def _function_locations(function: FunctionType) -> Iterator[tuple[Any, Any]]:
    if _is_library_code(function):
        return
    for cell in function.__closure__ or ():
        yield cell, None
    function_globals = function.__globals__
    for name in _names_read_by(function.__code__):
        if name in function_globals:
            value = function_globals[name]
            if isinstance(value, ModuleType) and not _is_library_code(value):
                module_globals = vars(value)
                names = _names_read_by(function.__code__)
                yield from ((module_globals, n) for n in names if n in module_globals)
            yield function_globals, name


def _names_read_by(code: CodeType) -> set[str]:
    """Return the names that a function's code reads, nested functions included."""
    names = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            names |= _names_read_by(const)
    return names


def _is_library_code(value: Any) -> bool:
    """Return whether a value comes from a library, whose state counts as constant."""
    module_name = getattr(value, "__module__", None) or getattr(value, "__name__", "")
    return str(module_name).partition(".")[0] in _LIBRARY_PACKAGES
