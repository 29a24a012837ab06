"""Runs the async core from blocking code, with no event loop and no thread.

A blocking port completes every awaitable without suspending, so one `send` carries a
coroutine to its end. A port that must suspend (a browser's) cannot be driven this way;
that is an error which says what to do instead. Names no event loop.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from rlxweb.errors import DeviceError

T = TypeVar("T")


def drive(coro: Coroutine[Any, None, T]) -> T:
    """The result of a coroutine that never suspends.

    Errors   whatever the coroutine raises; DeviceError if it suspends.
    """
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
