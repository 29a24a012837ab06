"""Blocking work beside the caller's event loop: the only file that names a loop.

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

from rlxweb.gpu.drive import drive, in_a_tab
from rlxweb.stopping import may_stop

T = TypeVar("T")

MOST = 8
"""Jobs at work at once; more wait their turn. A device takes one at a time anyway."""


@lru_cache(maxsize=1)
def _threads(pid: int) -> ThreadPoolExecutor:
    # Of our own: jobs that wait for a device must not fill up the loop's executor,
    # which looks up names for everybody. A forked child has none of its threads.
    return ThreadPoolExecutor(MOST, thread_name_prefix=f"rlxweb-beside-{pid}")


async def beside(work: Callable[[], T]) -> T:
    """The answer of blocking work, while the event loop goes on.

    A task that is cancelled ends at once; the work it waited for ends at its next step.
    """
    from asyncio import CancelledError, get_running_loop, wrap_future

    try:
        get_running_loop()
    except RuntimeError:
        return work()
    given_up = threading.Event()

    def begun() -> T:
        with may_stop(given_up.is_set):
            return work()

    future = _threads(os.getpid()).submit(copy_context().run, begun)
    try:
        return await wrap_future(future)
    except CancelledError:
        given_up.set()
        raise


async def awaited_here(core: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """A coroutine of the core: awaited in a tab, driven beside the loop elsewhere."""
    if in_a_tab():
        return await core()
    return await beside(lambda: drive(core()))
