"""What a forked child may take over: locks that nobody holds, and word of the fork.

A fork copies memory and one thread. A lock that another thread held stays shut in the
child for ever, and a driver's threads are gone without its noticing. Whatever holds
either asks to be watched here and is told in the child before any other code runs. A
module that another thread is loading has such a lock, Python's own: the fork waits.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from importlib import _bootstrap
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

T = TypeVar("T")

LOADING_S = 3.0
"""How long a fork waits for other threads to load their modules.

Some never end: a server that runs while it is imported. Those are waited for once.
"""
_endless: WeakSet[Any] = WeakSet()

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


def _loading_elsewhere() -> list[Any]:
    """The locks of modules that other threads load: Python has no public word of it."""
    mine = (None, threading.get_ident())
    locks = [ref() for ref in list(getattr(_bootstrap, "_module_locks", {}).values())]
    held = [one for one in locks if getattr(one, "owner", None) not in mine]
    return [one for one in held if one not in _endless]


def _before() -> None:
    end = time.monotonic() + LOADING_S
    while locks := _loading_elsewhere():
        if time.monotonic() >= end:
            _endless.update(locks)
            return
        time.sleep(0.001)


def _in_child() -> None:
    for heir, told in list(_watched.items()):
        told(heir)


if hasattr(os, "register_at_fork"):  # Windows and a browser tab have no fork
    os.register_at_fork(before=_before, after_in_child=_in_child)
