"""What a forked child may take over: locks that nobody holds, and word of the fork.

A fork copies memory and one thread. A lock that another thread held stays shut in the
child for ever, and a driver's threads are gone without its noticing. Whatever holds
either asks to be watched here and is told in the child before any other code runs. Two
kinds of lock cannot be replaced in the child, because what they guard may be half done:
that of a module which another thread is loading, Python's own, and that of a library
which is in the middle of a call. The fork waits for these.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
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


class ForkGate:
    """The lock of a library, which every fork holds: no call is half done in the child.

    lock     returns the lock, None while the library is not loaded, or raises
             AttributeError where the library does not show it
    wait_s   how long a fork waits for a call that another thread is in
    torn_by  the process that forked this one in the middle of a call, which must not
             use the library; 0 where nobody did
    """

    def __init__(self, lock: Callable[[], Any], wait_s: float) -> None:
        self._lock, self.wait_s = lock, wait_s
        self.torn_by = 0
        self._over_fork = threading.local()  # threads may fork at the same time
        _gates.append(self)

    def close(self) -> None:
        """Wait for the call that is under way, if any, and let no other begin."""
        held, is_torn = None, bool(self.torn_by)
        if not is_torn:
            try:
                held = self._lock()
                is_torn = held is not None and not held.acquire(timeout=self.wait_s)
            except AttributeError:
                is_torn = True
        self._over_fork.held = None if is_torn else held
        self._over_fork.is_torn = is_torn

    def open(self) -> None:
        """Let calls begin again."""
        # A gate that came while the process forked was not closed.
        held = getattr(self._over_fork, "held", None)
        if held is not None:
            held.release()

    def _in_child(self) -> None:
        if getattr(self._over_fork, "is_torn", False):
            self.torn_by = self.torn_by or os.getppid()
        self.open()


_gates: list[ForkGate] = []


class cached_property(functools.cached_property[T]):  # noqa: N801  # as Python's own
    """functools.cached_property without the lock that it has before Python 3.12.

    All objects of a class share that lock, it is held while a value is computed, and it
    stays shut in a child that is forked then. Two threads may both compute the value.
    """

    def __init__(self, func: Callable[[Any], T]) -> None:
        super().__init__(func)
        self.lock = nullcontext()


def _loading_elsewhere() -> list[Any]:
    """The locks of modules that other threads load: Python has no public word of it."""
    mine = (None, threading.get_ident())
    locks = [ref() for ref in list(getattr(_bootstrap, "_module_locks", {}).values())]
    held = [one for one in locks if getattr(one, "owner", None) not in mine]
    return [one for one in held if one not in _endless]


def _before() -> None:
    while True:
        _wait_for_loading()
        for gate in _gates:
            gate.close()
        if not _loading_elsewhere():
            return
        _in_parent()  # a module may need the library to load


def _wait_for_loading() -> None:
    end = time.monotonic() + LOADING_S
    while locks := _loading_elsewhere():
        if time.monotonic() >= end:
            _endless.update(locks)
            return
        time.sleep(0.001)


def _in_parent() -> None:
    for gate in _gates:
        gate.open()


def _in_child() -> None:
    for gate in _gates:
        gate._in_child()
    for heir, told in list(_watched.items()):
        told(heir)


if hasattr(os, "register_at_fork"):  # Windows and a browser tab have no fork
    os.register_at_fork(
        before=_before, after_in_parent=_in_parent, after_in_child=_in_child
    )
