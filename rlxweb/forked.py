"""What a forked child may take over: locks that nobody holds, and word of the fork.

A fork copies memory and one thread. A lock that another thread held stays shut in the
child for ever, and a driver's threads are gone without its noticing. Whatever holds
either asks to be watched here and is told in the child before any other code runs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_watched: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def watch(heir: T, in_child: Callable[[T], None]) -> None:
    """Call `in_child(heir)` in every forked child; the heir is not kept alive.

    The child has one thread then, and locks may be shut: it must take none.
    """
    _watched[heir] = in_child


class ForkLock:
    """A re-entrant lock that a forked child finds open, whoever held it before.

    What has one can be copied and pickled: the copy gets an open lock of its own.
    """

    def __init__(self) -> None:
        self._inner = threading.RLock()
        watch(self, ForkLock._in_child)

    def __enter__(self) -> None:
        self._inner.acquire()

    def __exit__(self, *_: object) -> None:
        self._inner.release()

    def __reduce__(self) -> tuple[type[ForkLock], tuple[()]]:
        return ForkLock, ()

    def _in_child(self) -> None:
        self._inner = threading.RLock()


def _in_child() -> None:
    for heir, told in list(_watched.items()):
        told(heir)


if hasattr(os, "register_at_fork"):  # Windows and a browser tab have no fork
    os.register_at_fork(after_in_child=_in_child)
