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
from rlxweb.library_versions import installed_version, version_problem

T = TypeVar("T")


PUBLISHED_AS = {"cupy": ("cupy-cuda12x", "cupy-cuda13x", "cupy-rocm-7-0")}
"""Distributions of a package that has not its own name."""


def library(name: str, doing: str, hint: str) -> Any:
    """The module of that name.

    Errors   AdapterMissing where it cannot be loaded, or is of a version that does not
             serve.
    """
    package = name.partition(".")[0]
    published = PUBLISHED_AS.get(package, (package,))
    try:
        module = tried(
            lambda: import_module(name), doing, f"{name} cannot be loaded", hint
        )
    except AdapterMissing as error:
        installed = next(filter(None, map(installed_version, published)), "")
        _check_version(name, installed, published, doing, hint, error)
        raise
    version = getattr(module, "__version__", "")
    _check_version(name, version, published, doing, hint)
    return module


def _check_version(
    name: str,
    version: object,
    published: Sequence[str],
    doing: str,
    hint: str,
    cause: Exception | None = None,
) -> None:
    why = version_problem(version, *published)
    if why:
        raise AdapterMissing(doing, f"{name} {why}", hint=hint) from cause


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
