"""What an array library raises, as one of our errors.

Each library has kinds of its own for memory that is out, a device that is gone and an
element type that it does not take; they differ between versions, so words are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from rlxweb.advice import Advice
from rlxweb.backends.array_forks import LibraryThreads
from rlxweb.errors import DeviceLost, OutOfMemory, RlxError, Unsupported

Context = Callable[[], AbstractContextManager[Any]]

_MEMORY = re.compile(
    r"out of memory|OutOfMemory|RESOURCE_EXHAUSTED|allocate memory|bad_alloc"
    r"|Unable to allocate|MemoryError|\[malloc",
    re.IGNORECASE,
)
_GONE = re.compile(
    r"CUDA error|CUDARuntimeError|hipError|AcceleratorError|device-side assert"
    r"|illegal memory access|launch failure|Device lost",
    re.IGNORECASE,
)


@contextmanager
def around_library(
    name: str, threads: LibraryThreads, *contexts: Context
) -> Iterator[None]:
    """All of the contexts, and our errors for what the library raises within.

    Errors   OutOfMemory, DeviceLost, Unsupported; ours pass as they are.
    """
    threads.check(f"compute on {name}")
    try:
        with ExitStack() as stack:
            for context in contexts:
                stack.enter_context(context())
            yield
    except RlxError:
        raise
    except Exception as error:
        raise fault_of(name, error) from error


def fault_of(name: str, error: Exception) -> RlxError:
    """What a library's exception means, in its first words."""
    said = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    doing = f"compute on {name}"
    on_cpu = Advice("run with {}", device="cpu")
    if _MEMORY.search(said):
        hint = "split the batch, close what else holds memory, or use another device"
        return OutOfMemory(doing, "its memory is out", said, hint)
    if _GONE.search(said):
        return DeviceLost(doing, "the device failed", said, "start a new process")
    return Unsupported(doing, "the library refused", said, on_cpu)
