"""Lazily loaded public names, late-bound providers, and keyword aliases.

A package that publishes names costs nothing until one is asked for. What a low package
offers and only a higher one can answer (`rlxweb.cost.fastest_device_for`) comes from a
provider: the package's top file, which knows every package, says where the answer is,
so that no package imports upward. Keywords may have a second name. Knows no name
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
T = TypeVar("T", bound=type)

_published_names: dict[str, dict[str, str]] = {}
_providers: dict[str, str] = {}


def publish_names(module: str, modules: Mapping[str, str]) -> None:
    """Publish names of a module: source modules mapped to the names they define,
    separated by spaces.
    """
    _published_names[module] = {
        public_name: source_module
        for source_module, names in modules.items()
        for public_name in names.split()
    }


def published_names(module: str) -> list[str]:
    """Return the names published for a module, in alphabetical order."""
    return sorted(_published_names.get(module, ()))


def load_published(module: str, name: str) -> Any:
    """Load and return a published object, for use in a module's `__getattr__`.

    Errors   AttributeError for a name that was not published there.
    """
    source_module = _published_names.get(module, {}).get(name)
    if source_module is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    import_module(
        "rlxweb.core.fork_safety"
    )  # a fork that comes meanwhile waits for what follows
    value = getattr(import_module(source_module), name)
    setattr(sys.modules[module], name, value)  # the next look-up finds it at once
    return value


def register_providers(providers: Mapping[str, str]) -> None:
    """Register the modules that define names which lower-level packages look up."""
    _providers.update(providers)


def load_provider(name: str) -> Any:
    """Load and return the object registered under a name."""
    return getattr(import_module(_providers[name]), name)


def accept_deprecated_keywords(**new_names: str) -> Callable[[F], F]:
    """Accept former keyword names of a function, each mapped to its present name.

    The old name works and is warned about (DeprecationWarning).
    """

    def decorate(function: F) -> F:
        def warn(old_name: str) -> None:
            message = (
                f"{function.__name__}: {old_name}= is deprecated, use "
                f"{new_names[old_name]}="
            )
            warnings.warn(message, DeprecationWarning, stacklevel=4)

        return _map_keywords(function, new_names, warn)

    return decorate


def alias_keywords(**own_names: str) -> Callable[[F], F]:
    """Accept a second name for keywords: RLX's, where rlxweb's differs."""
    return lambda function: _map_keywords(function, own_names)


def alias_init_keywords(**own_names: str) -> Callable[[T], T]:
    """Accept a second name for keywords of a class's constructor."""

    def decorate(class_: T) -> T:
        class_.__init__ = _map_keywords(class_.__init__, own_names)  # type: ignore[misc]
        return class_

    return decorate


def _map_keywords(
    function: F, names: Mapping[str, str], on_alias: Callable[[str], None] | None = None
) -> F:
    """Wrap a function so that aliases of its keywords are accepted."""

    @wraps(function)
    def wrapper(*args: Any, **keywords: Any) -> Any:
        for alias in names.keys() & keywords.keys():
            if on_alias is not None:
                on_alias(alias)
            if names[alias] in keywords:
                message = f"{alias}= is an alias of {names[alias]}="
                raise TypeError(
                    f"{function.__name__}: {message}; pass only one of them"
                )
            keywords[names[alias]] = keywords.pop(alias)
        return function(*args, **keywords)

    return cast(F, wrapper)
