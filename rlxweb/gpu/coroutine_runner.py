"""Runner that drives a coroutine to its end from blocking code, with no event loop and
no thread.

A blocking port completes every awaitable without suspending, so one `send` carries a
coroutine to its end. A port that must suspend (a browser's) cannot be driven this way;
that is an error which says what to do instead. Names no event loop.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from rlxweb.core.errors import DeviceError

T = TypeVar("T")

_is_awaited: ContextVar[bool] = ContextVar("awaits", default=False)


def is_browser() -> bool:
    """Return whether this is Python in a browser (Pyodide)."""
    return sys.platform == "emscripten"


@contextmanager
def assume_awaited() -> Iterator[None]:
    """Assume in the block that runs will be awaited, not blocked on."""
    token = _is_awaited.set(True)
    try:
        yield
    finally:
        _is_awaited.reset(token)


def can_block() -> bool:
    """Return whether blocking code can wait for a device; False in a browser without
    stack switching.
    """
    if not is_browser():
        return True
    from rlxweb.gpu import browser_port

    return browser_port.can_block()


def can_wait() -> bool:
    """Return whether code here can wait for a device, by blocking or because it will be
    awaited.
    """
    if not is_browser():
        return True
    from rlxweb.gpu import browser_port

    return browser_port.is_blocking() is not False and (
        _is_awaited.get() or can_block()
    )


def run_blocking(coroutine: Coroutine[Any, None, T]) -> T:
    """Return the result of a coroutine that never suspends, or waits by switching
    stacks.

    Errors   whatever the coroutine raises; DeviceError if it suspends on a desktop,
    MustAwait where a browser cannot switch stacks.
    """
    if is_browser():
        from rlxweb.gpu.browser_port import block_on

        browser_result: T = block_on(coroutine)
        return browser_result
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise DeviceError(
        "run",
        "this device responds only while its event loop runs",
        "`run` blocks the event loop",
        "use `await run_async(...)` instead of `run(...)`",
    )
