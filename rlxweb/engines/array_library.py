"""Array libraries: their import, their errors as ours, and their loss after a fork."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from typing import Any, TypeVar

from rlxweb.core.errors import (
    AdapterMissing,
    DeviceLost,
    OutOfMemory,
    RlxError,
    Unsupported,
)
from rlxweb.core.message_text import Advice
from rlxweb.core.required_library_versions import installed_version, version_problem

# --- Fork safety of array libraries: a library works only in the process that first
# used it
#
# Their threads stay behind, so that a forked child that computes waits for ever
# (tried on PyTorch, JAX and MLX, each on the CPU).

_SPAWN_HINT = (
    'start processes with "spawn" (multiprocessing.set_start_method), or use device '
    "'cpu'"
)


class LibraryForkGuard:
    """Record of the process that uses a library; 0 while none does."""

    def __init__(self, library: str) -> None:
        self.library, self.owner_pid = library, 0

    def claim(self, context: str) -> None:
        """Claim the library for this process. Errors  AdapterMissing in a fork."""
        self.owner_pid = self.owner_pid or os.getpid()
        if self.fork_problem:
            raise AdapterMissing(context, self.fork_problem, hint=_SPAWN_HINT)

    def check_process(self, context: str) -> None:
        """Raise DeviceLost in a fork of the process that uses the library."""
        if self.fork_problem:
            raise DeviceLost(context, self.fork_problem, hint=_SPAWN_HINT)

    @property
    def fork_problem(self) -> str:
        """Reason why the library fails in this process; "" if it is not a fork."""
        if self.owner_pid in (0, os.getpid()):
            return ""
        return (
            f"process {self.owner_pid} used {self.library} before it forked this "
            f"process; the threads of {self.library} do not exist in a forked process"
        )


# --- Translation of an array library's exceptions into rlxweb's errors
#
# Libraries have exceptions of their own for exhausted memory, a lost device and an
# element type that they do not take, and these differ between versions, so the text is
# matched.

ContextFactory = Callable[[], AbstractContextManager[Any]]

_OUT_OF_MEMORY_PATTERN = re.compile(
    r"out of memory|OutOfMemory|RESOURCE_EXHAUSTED|allocate memory|bad_alloc"
    r"|Unable to allocate|MemoryError|\[malloc",
    re.IGNORECASE,
)
_DEVICE_LOST_PATTERN = re.compile(
    r"CUDA error|CUDARuntimeError|hipError|AcceleratorError|device-side assert"
    r"|illegal memory access|launch failure|Device lost",
    re.IGNORECASE,
)


@contextmanager
def library_context(
    name: str, fork_guard: LibraryForkGuard, *context_factories: ContextFactory
) -> Iterator[None]:
    """Enter all of the contexts and translate the library's exceptions into rlxweb's
    errors.

    Errors   OutOfMemory, DeviceLost, Unsupported; ours pass as they are.
    """
    fork_guard.check_process(f"compute on {name}")
    try:
        with ExitStack() as stack:
            for context_factory in context_factories:
                stack.enter_context(context_factory())
            yield
    except RlxError:
        raise
    except Exception as error:
        raise translate_error(name, error) from error


def translate_error(name: str, error: Exception) -> RlxError:
    """Return the rlxweb error that corresponds to a library's exception, judged by its
    text.
    """
    message = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    context = f"compute on {name}"
    on_cpu = Advice("run with {}", device="cpu")
    if _OUT_OF_MEMORY_PATTERN.search(message):
        hint = (
            "split the batch, close other programs that use the device, or use "
            "another device"
        )
        return OutOfMemory(context, "the device is out of memory", message, hint)
    if _DEVICE_LOST_PATTERN.search(message):
        return DeviceLost(context, "the device failed", message, "start a new process")
    return Unsupported(context, "the library raised an error", message, on_cpu)


# --- Import of array libraries on first use; every failure becomes AdapterMissing
#
# What is there but broken (a wheel without its driver, a driver of another version)
# is the same to a caller as what is missing: AdapterMissing, with the reason.

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
