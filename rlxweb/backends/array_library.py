"""An array library is loaded and asked when it is needed, and may fail as it likes.

What is there but broken (a wheel without its driver, a driver of another version) is
the same to a caller as what is missing: AdapterMissing, with the reason. Whether it
computes right is asked of every engine alike, by `row.safely`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, TypeVar

from rlxweb.errors import AdapterMissing, RlxError

T = TypeVar("T")


def library(name: str, doing: str, hint: str) -> Any:
    """The module of that name. Errors  AdapterMissing where it cannot be loaded."""
    return tried(lambda: import_module(name), doing, f"{name} cannot be loaded", hint)


def first_named(doing: str, names: Sequence[str], adapter: str) -> int:
    """Which is the first whose name has `adapter` in it. Errors  AdapterMissing."""
    for at, name in enumerate(names):
        if adapter.lower() in name.lower():
            return at
    raise AdapterMissing(doing, f"no device named {adapter!r}", f"there is {names}")


def tried(make: Callable[[], T], doing: str, what: str, hint: str) -> T:
    """What `make` gives. Errors  AdapterMissing for whatever a library raises."""
    try:
        return make()
    except RlxError:
        raise
    except Exception as error:  # a library without its native half raises its own kinds
        said = " ".join(str(error).split())[:300] or "it does not say why"
        raise AdapterMissing(
            doing, what, f"{type(error).__name__}: {said}", hint
        ) from error
