"""Names that are loaded when they are used: public ones, and answers from above.

A package that publishes names costs nothing until one is asked for. What a low room
offers and only a higher one can answer (`rlxweb.cost.fastest_device_for`) is handed
down: the package's top file, which knows every room, says where the answer is, so that
no room imports upward. A name that was changed is understood for a while. Knows no name
itself.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

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
    """Keywords a function is called with by older names, each with its name of now.

    The old name works and is warned about (DeprecationWarning).
    """

    def renaming(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **keywords: Any) -> Any:
            for old in now.keys() & keywords.keys():
                said = f"{function.__name__}: {old}= is called {now[old]}= here"
                warnings.warn(said, DeprecationWarning, stacklevel=2)
                if now[old] in keywords:
                    raise TypeError(f"{said}, and both were given")
                keywords[now[old]] = keywords.pop(old)
            return function(*args, **keywords)

        return cast(F, call)

    return renaming
