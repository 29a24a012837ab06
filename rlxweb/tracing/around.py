"""What a function reads from around itself, and whether it is still the same.

A tracing builds in what closures, globals and the attributes of objects held. So that a
later call does not compute with what they hold no more, each of these places is looked
at again. Within bounds: what lies deeper than `DEEP`, or in installed packages, counts
as constant.
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

DEEP, MOST = 4, 1000
_PLAIN = (int, float, complex, str, bytes, bool, type(None), np.generic)
_NOT_THEIRS = frozenset(sys.stdlib_module_names) | {"numpy", "rlxweb", "scipy"}
_GONE = object()


class Place:
    """A place that a function may read, and what was there."""

    __slots__ = ("at", "holder", "seen")

    def __init__(self, holder: Any, at: Any, seen: Any) -> None:
        self.holder, self.at, self.seen = holder, at, seen

    @property
    def is_same(self) -> bool:
        now = _at(self.holder, self.at)
        if now is self.seen:
            return True
        plain = type(now) is type(self.seen) and isinstance(now, _PLAIN)
        return plain and repr(now) == repr(self.seen)


def _at(holder: Any, at: Any) -> Any:
    try:
        if isinstance(holder, CellType):
            return holder.cell_contents
        if at is len:
            return len(holder)
        if isinstance(holder, dict | list | tuple):
            return holder[at]
        return getattr(holder, at)
    except (ValueError, KeyError, IndexError, AttributeError):
        return _GONE


def places_around(function: Callable[..., Any], given: list[Any]) -> list[Place]:
    """What a function, and the objects that are given to it, can see."""
    found: list[Place] = []
    seen: set[int] = set()
    stack = [(function, 0), *((one, 0) for one in given)]
    while stack and len(found) < MOST:
        value, depth = stack.pop()
        if id(value) in seen or depth > DEEP:
            continue
        seen.add(id(value))
        for holder, at in _held_by(value):
            inner = _at(holder, at)
            if inner is _GONE:
                continue
            found.append(Place(holder, at, inner))
            if not isinstance(inner, (*_PLAIN, np.ndarray)):
                stack.append((inner, depth + 1))
    return found


def _held_by(value: Any) -> Iterator[tuple[Any, Any]]:
    """(holder, place in it) for all that a value refers to."""
    if isinstance(value, MethodType):
        yield from _held_by(value.__func__)
        yield from _held_by(value.__self__)
    elif isinstance(value, FunctionType):
        yield from _read_by(value)
    elif isinstance(value, partial):
        yield from _held_by(value.func)
        yield from _held_by(value.args)
        yield from _held_by(value.keywords)
    elif isinstance(value, dict | list | tuple):
        yield value, len
        places = value if isinstance(value, dict) else range(len(value))
        yield from ((value, at) for at in islice(places, MOST))
    elif isinstance(value, type):
        yield from _of_class(value)
    elif hasattr(value, "__wrapped__"):  # a function that is traced, or decorated
        yield from _held_by(value.__wrapped__)
    elif not isinstance(value, ModuleType) and not _is_foreign(type(value)):
        if isinstance(getattr(value, "__dict__", None), dict):
            yield from ((value.__dict__, name) for name in value.__dict__)
        yield from _of_class(type(value), value)


def _of_class(kind: type, instance: Any = None) -> Iterator[tuple[Any, Any]]:
    """A class's own values and methods; of an instance what it has in slots."""
    for one in kind.__mro__:
        if _is_foreign(one):
            continue
        for name, held in vars(one).items():
            if isinstance(held, MemberDescriptorType) and instance is not None:
                yield instance, name
            elif isinstance(held, FunctionType) or not (
                name.startswith("__") or hasattr(held, "__get__")
            ):
                yield one, name


def _read_by(function: FunctionType) -> Iterator[tuple[Any, Any]]:
    if _is_foreign(function):
        return
    for cell in function.__closure__ or ():
        yield cell, None
    around = function.__globals__
    for name in _names_in(function.__code__):
        if name in around:
            inner = around[name]
            if isinstance(inner, ModuleType) and not _is_foreign(inner):
                inside = vars(inner)
                names = _names_in(function.__code__)
                yield from ((inside, n) for n in names if n in inside)
            yield around, name


def _names_in(code: CodeType) -> set[str]:
    """Names that the code of a function reads, and that of functions within it."""
    names = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            names |= _names_in(const)
    return names


def _is_foreign(value: Any) -> bool:
    """Does it come from a package, whose state is its own business?"""
    home = getattr(value, "__module__", None) or getattr(value, "__name__", "")
    return str(home).partition(".")[0] in _NOT_THEIRS
