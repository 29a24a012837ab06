"""Translation of an array library's exceptions into rlxweb's errors.

Each library has kinds of its own for memory that is out, a device that is gone and an
element type that it does not take; they differ between versions, so words are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from rlxweb.core.argument_hints import Advice
from rlxweb.core.errors import DeviceLost, OutOfMemory, RlxError, Unsupported
from rlxweb.engines.array_fork_safety import LibraryForkGuard

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
