"""Fork safety: locks that are free in a forked child, and callbacks that run in it.

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
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

if TYPE_CHECKING:

    class _ReentrantLock:
        def __enter__(self) -> object: ...
        def __exit__(self, *_: object) -> None: ...
        def _at_fork_reinit(self) -> None: ...

else:
    _ReentrantLock = type(threading.RLock())  # which `threading` does not name

T = TypeVar("T")

MODULE_LOAD_TIMEOUT_S = 3.0
"""Seconds for which a fork waits until other threads have loaded their modules.

Some never end: a server that runs while it is imported. Those are waited for once.
"""
_ignored_module_locks: WeakSet[Any] = WeakSet()

_child_callbacks: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def register_child_callback(owner: T, callback: Callable[[T], None]) -> None:
    """Call `callback(owner)` in every forked child; holds only a weak reference to the
    owner.

    The child has one thread then, and locks may be shut: it must take none.
    """
    _child_callbacks[owner] = callback


class ForkSafeLock(_ReentrantLock):
    """Re-entrant lock that is free in a forked child, whichever thread held it before.

    What has one can be copied and pickled: the copy gets an open lock of its own. Taken
    at each step of a small run, so entering it is Python's own compiled code.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        register_child_callback(self, ForkSafeLock._reset_in_child)

    def __reduce__(self) -> tuple[type[ForkSafeLock], tuple[()]]:
        return ForkSafeLock, ()

    def _reset_in_child(self) -> None:
        """Open the lock in a forked child."""
        self._at_fork_reinit()


class LibraryForkLock:
    """Lock of a native library that is held during every fork, so that no call is half
    done in the child.

    get_lock  returns the lock, None while the library is not loaded, or raises
             AttributeError where the library does not show it
    timeout_s  how long a fork waits for a call that another thread is in
    broken_by_pid  the process that forked this one in the middle of a call, which must
                   not use the library; 0 where nobody did
    """

    def __init__(self, get_lock: Callable[[], Any], timeout_s: float) -> None:
        self._get_lock, self.timeout_s = get_lock, timeout_s
        self.broken_by_pid = 0
        self._fork_state = threading.local()  # threads may fork at the same time
        _library_fork_locks.append(self)

    def acquire_for_fork(self) -> None:
        """Wait for the library call in progress, if any, and block further ones."""
        lock, is_broken = None, bool(self.broken_by_pid)
        if not is_broken:
            try:
                lock = self._get_lock()
                is_broken = lock is not None and not lock.acquire(
                    timeout=self.timeout_s
                )
            except AttributeError:
                is_broken = True
        self._fork_state.buffer = None if is_broken else lock
        self._fork_state.is_torn = is_broken

    def release_after_fork(self) -> None:
        """Allow library calls again."""
        # A gate that came while the process forked was not closed.
        lock = getattr(self._fork_state, "buffer", None)
        if lock is not None:
            lock.release()

    def _after_fork_in_child(self) -> None:
        """Mark the library as unusable in a child that was forked during a call."""
        if getattr(self._fork_state, "is_torn", False):
            self.broken_by_pid = self.broken_by_pid or os.getppid()
        self.release_after_fork()


_library_fork_locks: list[LibraryForkLock] = []


class cached_property(functools.cached_property[T]):  # noqa: N801  # as Python's own
    """functools.cached_property without the lock that it has before Python 3.12.

    All objects of a class share that lock, it is held while a value is computed, and it
    stays shut in a child that is forked then. Two threads may both compute the value.
    """

    def __init__(self, func: Callable[[Any], T]) -> None:
        super().__init__(func)
        self.lock = nullcontext()


def _module_locks_held_elsewhere() -> list[Any]:
    """Return the import locks of modules that other threads load; uses a private table
    of Python.
    """
    ignored_owners = (None, threading.get_ident())
    locks = [ref() for ref in list(getattr(_bootstrap, "_module_locks", {}).values())]
    held_locks = [
        lock for lock in locks if getattr(lock, "owner", None) not in ignored_owners
    ]
    return [lock for lock in held_locks if lock not in _ignored_module_locks]


def _before_fork() -> None:
    """Acquire the library locks at a moment when no other thread loads a module."""
    while True:
        _wait_for_module_loads()
        for library_lock in _library_fork_locks:
            library_lock.acquire_for_fork()
        if not _module_locks_held_elsewhere():
            return
        _after_fork_in_parent()  # a module may need the library to load


def _wait_for_module_loads() -> None:
    """Wait until other threads have loaded their modules, or until the timeout."""
    deadline = time.monotonic() + MODULE_LOAD_TIMEOUT_S
    while locks := _module_locks_held_elsewhere():
        if time.monotonic() >= deadline:
            _ignored_module_locks.update(locks)
            return
        time.sleep(0.001)


def _after_fork_in_parent() -> None:
    """Release the library locks in the parent."""
    for library_lock in _library_fork_locks:
        library_lock.release_after_fork()


def _after_fork_in_child() -> None:
    """Release the library locks in the child and run the registered callbacks."""
    for library_lock in _library_fork_locks:
        library_lock._after_fork_in_child()
    for owner, callback in list(_child_callbacks.items()):
        callback(owner)


if hasattr(os, "register_at_fork"):  # Windows and a browser tab have no fork
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
