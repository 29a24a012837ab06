"""Names that are loaded when they are used: public ones, and answers from above.

A package that publishes names costs nothing until one is asked for. What a low room
offers and only a higher one can answer (`rlxweb.cost.fastest_device_for`) is handed
down: the package's top file, which knows every room, says where the answer is, so that
no room imports upward. Keywords may have a second name. Knows no name itself.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=type)

_published: dict[str, dict[str, str]] = {}
_answers: dict[str, str] = {}


def publish(module: str, homes: Mapping[str, str]) -> None:
    """Names of a module: modules and, for each, the names it defines, by spaces."""
    _published[module] = {n: home for home, all_ in homes.items() for n in all_.split()}


def published(module: str) -> list[str]:
    """The names published for a module, in alphabetical order."""
    return sorted(_published.get(module, ()))


def found(module: str, name: str) -> Any:
    """A published name's object, loaded now; for a module's own `__getattr__`.

    Errors   AttributeError for a name that was not published there.
    """
    home = _published.get(module, {}).get(name)
    if home is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    import_module("rlxweb.forked")  # a fork that comes meanwhile waits for what follows
    value = getattr(import_module(home), name)
    setattr(sys.modules[module], name, value)  # the next look-up finds it at once
    return value


def hand_down(answers: Mapping[str, str]) -> None:
    """Names that lower rooms ask for and, for each, the module that answers."""
    _answers.update(answers)


def from_above(name: str) -> Any:
    """The object of a name that was handed down, loaded now."""
    return getattr(import_module(_answers[name]), name)


def formerly(**now: str) -> Callable[[F], F]:
    """Keywords a function was called with once, each with its name of now.

    The old name works and is warned about (DeprecationWarning).
    """

    def named_anew(function: F) -> F:
        def warn(old: str) -> None:
            said = f"{function.__name__}: {old}= is called {now[old]}= here"
            warnings.warn(said, DeprecationWarning, stacklevel=4)

        return _renaming(function, now, warn)

    return named_anew


def also(**here: str) -> Callable[[F], F]:
    """Keywords that a function takes under a second name: RLX's, where ours differs."""
    return lambda function: _renaming(function, here)


def also_made_with(**here: str) -> Callable[[T], T]:
    """The same for the constructor of a class."""

    def named_twice(kind: T) -> T:
        kind.__init__ = _renaming(kind.__init__, here)  # type: ignore[misc]
        return kind

    return named_twice


def _renaming(
    function: F, names: Mapping[str, str], note: Callable[[str], None] | None = None
) -> F:
    """The function, called with other keywords than its own."""

    @wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        for other in names.keys() & keywords.keys():
            if note is not None:
                note(other)
            if names[other] in keywords:
                said = f"{other}= and {names[other]}= are one argument"
                raise TypeError(f"{function.__name__}: {said}, and both were given")
            keywords[names[other]] = keywords.pop(other)
        return function(*args, **keywords)

    return cast(F, call)
