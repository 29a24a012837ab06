"""Offloading of blocking work to threads, so that the caller's asyncio loop keeps
running.

The core is `async def` and names none; on a desktop it blocks where a device is waited
for. So that `await` does not stop everything else, it is driven on a thread, and the
loop only learns of its end. asyncio is the loop that is known here; under another one
(trio) the work is done on the spot, as it would be by the blocking call.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import lru_cache
from typing import Any, TypeVar

from rlxweb.core.cancellation import cancellation_scope
from rlxweb.gpu.coroutine_runner import is_browser, run_blocking

T = TypeVar("T")

MAX_THREADS = 8
"""Maximum number of concurrent jobs; more are queued."""


@lru_cache(maxsize=1)
def _thread_pool(pid: int) -> ThreadPoolExecutor:
    """Return the thread pool of a process."""
    # Of our own: jobs that wait for a device must not fill up the loop's executor,
    # which looks up names for everybody. A forked child has none of its threads.
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix=f"rlxweb-beside-{pid}")


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
