"""Import of array libraries on first use; every failure becomes AdapterMissing.

What is there but broken (a wheel without its driver, a driver of another version) is
the same to a caller as what is missing: AdapterMissing, with the reason. Whether it
computes right is asked of every engine alike, by `row.safely`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, TypeVar

from rlxweb.core.errors import AdapterMissing, RlxError
from rlxweb.core.required_library_versions import installed_version, version_problem

T = TypeVar("T")


DISTRIBUTIONS = {"cupy": ("cupy-cuda12x", "cupy-cuda13x", "cupy-rocm-7-0")}
"""Distributions of a package that is not published under its own name."""


def import_library(name: str, context: str, hint: str) -> Any:
    """Import a library's module and check its version.

    Errors   AdapterMissing where it cannot be loaded, or is of a version that does not
             serve.
    """
    package = name.partition(".")[0]
    distributions = DISTRIBUTIONS.get(package, (package,))
    try:
        module = call_library(
            lambda: import_module(name), context, f"{name} cannot be loaded", hint
        )
    except AdapterMissing as error:
        installed = next(filter(None, map(installed_version, distributions)), "")
        _check_version(name, installed, distributions, context, hint, error)
        raise
    version = getattr(module, "__version__", "")
    _check_version(name, version, distributions, context, hint)
    return module


def _check_version(
    name: str,
    version: object,
    distributions: Sequence[str],
    context: str,
    hint: str,
    cause: Exception | None = None,
) -> None:
    problem = version_problem(version, *distributions)
    if problem:
        raise AdapterMissing(context, f"{name} {problem}", hint=hint) from cause


def find_device_index(context: str, names: Sequence[str], adapter: str) -> int:
    """Return the index of the first name that contains `adapter`. Errors
    AdapterMissing.
    """
    for index, name in enumerate(names):
        if adapter.lower() in name.lower():
            return index
    raise AdapterMissing(
        context, f"no device name contains {adapter!r}", f"available: {names}"
    )


def call_library(function: Callable[[], T], context: str, problem: str, hint: str) -> T:
    """Call a function and raise AdapterMissing for whatever the library raises."""
    try:
        return function()
    except RlxError:
        raise
    except Exception as error:  # a library without its native half raises its own kinds
        message = " ".join(str(error).split())[:300] or "no error message"
        raise AdapterMissing(
            context, problem, f"{type(error).__name__}: {message}", hint
        ) from error
