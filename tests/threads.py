"""Work done at once, by threads that are not waited for for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

WAIT_S = 60


def submitting_threads() -> set[threading.Thread]:
    """Return the threads that wait for a GPU; other tests may have left others."""
    return {t for t in threading.enumerate() if t.name == "rlxweb-submit"}


def begin(works: Sequence[Callable[[], object]]) -> list[threading.Thread]:
    """A thread for each; one that hangs does not keep the process alive."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    return threads


def at_once(works: Sequence[Callable[[], object]]) -> None:
    """Run each in a thread of its own, begun together; raise the first error of any."""
    raised: list[BaseException] = []
    ready = threading.Barrier(len(works))

    def guarded(work: Callable[[], object]) -> None:
        try:
            ready.wait(WAIT_S)
            work()
        except BaseException as error:
            raised.append(error)

    threads = begin([partial(guarded, work) for work in works])
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive(), f"a thread hangs: over {WAIT_S} s"
    if raised:
        raise raised[0]


def in_a_loop(work: Coroutine[Any, Any, T]) -> T:
    """The work's answer, from an event loop on a thread of its own.

    On the test's thread a loop may be running: Playwright leaves one there.
    """
    answers: list[T] = []
    at_once([lambda: answers.append(asyncio.run(work))])
    return answers[0]
