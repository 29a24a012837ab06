"""Coroutines without an event loop: run to the end, on a thread, or one at a time."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from rlxweb.core.errors import DeviceError
from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.core.thread_tasks import cancellation_scope

if TYPE_CHECKING:
    from rlxweb.gpu.browser_port import PromiseGate

# --- Runner that drives a coroutine to its end from blocking code, with no event loop
# and no thread
#
# A blocking port completes every awaitable without suspending, so one `send` carries
# a coroutine to its end. A port that must suspend (a browser's) cannot be driven this
# way; that is an error which says what to do instead. Names no event loop.

T = TypeVar("T")

_is_awaited: ContextVar[bool] = ContextVar("is_awaited", default=False)


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


# --- Offloading of blocking work to threads, so that the caller's asyncio loop keeps
# running
#
# The core is `async def` and names none; on a desktop it blocks where a device is
# waited for. So that `await` does not stop everything else, it is driven on a thread,
# and the loop only learns of its end. asyncio is the loop that is known here; under
# another one (trio) the work is done on the spot, as it would be by the blocking
# call.


MAX_THREADS = 8
"""Maximum number of concurrent jobs; more are queued."""


@lru_cache(maxsize=1)
def _thread_pool(pid: int) -> ThreadPoolExecutor:
    """Return the thread pool of a process."""
    # Of our own: jobs that wait for a device must not fill up the loop's executor,
    # which looks up names for everybody. A forked child has none of its threads.
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix=f"rlxweb-offload-{pid}")


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run blocking work in a thread and return its result, while the event loop
    continues.

    A task that is cancelled ends at once; the work it waited for ends at its next step.
    """
    from asyncio import CancelledError, get_running_loop, wrap_future

    try:
        get_running_loop()
    except RuntimeError:
        return work()
    cancelled = threading.Event()

    def run_cancellable() -> T:
        """Run the work so that it ends early when the task was cancelled."""
        with cancellation_scope(cancelled.is_set):
            return work()

    future = _thread_pool(os.getpid()).submit(copy_context().run, run_cancellable)
    try:
        return await wrap_future(future)
    except CancelledError:
        cancelled.set()
        raise


async def await_or_offload(create_coroutine: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Await a coroutine directly in a browser, or run it to its end in a thread
    elsewhere.
    """
    if is_browser():
        return await create_coroutine()
    return await run_in_thread(lambda: run_blocking(create_coroutine()))


# --- Lock for threads, and for the tasks of a browser tab, that share a program or an
# engine
#
# Threads wait on a lock. The tasks of a browser tab share one thread and switch where
# they await, so there they wait for a promise. Names no event loop.


class AsyncLock:
    """Lock for `async with`; outside a browser it never suspends.

    The thread that holds it may take it again; a task of a tab may not.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._gate: PromiseGate | None = None

    async def __aenter__(self) -> None:
        if not is_browser():
            self._lock.__enter__()
            return
        from rlxweb.gpu.browser_port import PromiseGate

        while self._gate is not None:
            await self._gate.wait_until_open()
        self._gate = PromiseGate()

    async def __aexit__(self, *_: object) -> None:
        gate, self._gate = self._gate, None
        if gate is None:
            self._lock.__exit__()
        else:
            gate.open()
