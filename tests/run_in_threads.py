"""Concurrent work in threads, with limits on how long they are waited for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

WAIT_S = 60


def submitting_threads() -> set[threading.Thread]:
    """Return the threads that wait for a GPU; other tests may have left some."""
    return {t for t in threading.enumerate() if t.name == "rlxweb-submit"}


def start_threads(functions: Sequence[Callable[[], object]]) -> list[threading.Thread]:
    """Start a thread for each function; one that hangs does not keep the process
    alive.
    """
    threads = [threading.Thread(target=function, daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    return threads


def run_concurrently(functions: Sequence[Callable[[], object]]) -> None:
    """Run each function in its own thread, started together; raise the first error."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(functions))

    def catch_errors(function: Callable[[], object]) -> None:
        try:
            barrier.wait(WAIT_S)
            function()
        except BaseException as error:
            errors.append(error)

    threads = start_threads([partial(catch_errors, function) for function in functions])
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive(), f"a thread hangs: over {WAIT_S} s"
    if errors:
        raise errors[0]


def run_in_event_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return a coroutine's result, from an event loop in its own thread.

    On the test's thread a loop may be running: Playwright leaves one there.
    """
    results: list[T] = []
    run_concurrently([lambda: results.append(asyncio.run(coroutine))])
    return results[0]
