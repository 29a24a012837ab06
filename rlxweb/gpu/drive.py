"""Runs the async core from blocking code, with no event loop and no thread.

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

from rlxweb.errors import DeviceError

T = TypeVar("T")

_awaits: ContextVar[bool] = ContextVar("awaits", default=False)


def in_a_tab() -> bool:
    """True under Pyodide."""
    return sys.platform == "emscripten"


@contextmanager
def awaited() -> Iterator[None]:
    """What is decided in here will be awaited, not driven."""
    before = _awaits.set(True)
    try:
        yield
    finally:
        _awaits.reset(before)


def can_block() -> bool:
    """Can blocking code wait for a device? Not in a tab without stack switching."""
    if not in_a_tab():
        return True
    from rlxweb.gpu import browser

    return browser.can_block()


def can_wait() -> bool:
    """Can a device be waited for here, by blocking or because it will be awaited?"""
    if not in_a_tab():
        return True
    from rlxweb.gpu import browser

    return browser.is_blocking() is not False and (_awaits.get() or can_block())


def drive(coro: Coroutine[Any, None, T]) -> T:
    """The result of a coroutine that never suspends, or waits by switching stacks.

    Errors   whatever the coroutine raises; DeviceError if it suspends on a desktop,
    MustAwait where a browser cannot switch stacks.
    """
    if in_a_tab():
        from rlxweb.gpu.browser import block_on

        found: T = block_on(coro)
        return found
    try:
        coro.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coro.close()
    raise DeviceError(
        "run",
        "this device answers only when its event loop runs",
        "a blocking run must not suspend",
        "use `await run_async(...)` instead of `run(...)`",
    )
