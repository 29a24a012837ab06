"""Kernels made in the background, once it is clear that they are worth their making.

Who could use a kernel asks `ready` and computes by other means while there is none,
telling `spent` what that took. When as much time went into one kernel's work as a part
of its making would take, it is made: on one thread of its own, read from disk or
compiled, tried on a small case, and from then on `ready`. Nothing waits for it unless
it was asked to (RLX_FAST=wait). What cannot be made is refused with the reason, once.

The thread ends with the work that there is, so an interpreter that ends waits for one
kernel at most. A forked child has no such thread and makes its own; one that was forked
off during a compilation finds LLVM's locks shut and leaves kernels alone.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, Literal, TypeVar

from rlxweb.errors import AdapterMissing, KernelWarning, RlxError
from rlxweb.forked import ForkLock, watch
from rlxweb.machine import library

K = TypeVar("K")
Mode = Literal["background", "wait", "off"]

WORTH_S: Final = 0.02
"""A fifth of what it takes to make one."""
NOT_YET: Final = "its kernel is not compiled yet"
COMPILING: Final = "its kernel is being compiled"


class Workshop(Generic[K]):
    """The kernels of a process, by what they are compiled for.

    make     what a kernel is for → the kernel, tried; raises where it cannot be
    mode     how it may be made
    changes  how many were made or refused: what rests on their being there is out of
             date
    """

    def __init__(self, make: Callable[[Hashable], K], mode: Callable[[], Mode]) -> None:
        self._make, self._mode = make, mode
        self.changes = 0
        self._made: dict[Hashable, K] = {}
        self._refused: dict[Hashable, str] = {}
        self._spent: dict[Hashable, float] = {}
        self._asked: deque[Hashable] = deque()
        self._known: set[Hashable] = set()
        self._thread: threading.Thread | None = None
        self._busy = False
        self._waits = False
        self._lost = ""
        self._said = False
        self._lock = ForkLock()
        watch(self, Workshop._in_child)

    @property
    def _has_tools(self) -> bool:
        """Is there something to make kernels with?"""
        return library.is_installed()

    @property
    def why_not(self) -> str:
        """Why no kernel is made at all; "" where they are."""
        if not self._has_tools:
            return "llvmlite is not installed (the extra `fast`)"
        if self._mode() == "off":
            return "RLX_FAST=off"
        return self._lost

    @property
    def _is_awaited(self) -> bool:
        mode = self._mode()
        return mode == "wait" or (self._waits and mode != "off")

    @property
    def is_open(self) -> bool:
        """Is it there, and wanted? What went wrong since is said by `state`."""
        return self._has_tools and self._mode() != "off"

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """In here every kernel is waited for, unless there are to be none."""
        before, self._waits = self._waits, True
        try:
            yield
        finally:
            self._waits = before

    def ready(self, about: Hashable) -> K | None:
        """The kernel, if it was made. Made now where that is to be waited for."""
        found = self._made.get(about)
        if found is None and about not in self._refused and self._is_awaited:
            self.now(about)
            self._say_once()
            found = self._made.get(about)
        return found

    def state(self, about: Hashable) -> str:
        """Why there is no kernel; "" where there is one."""
        if about in self._made:
            return ""
        if about in self._refused:
            return self._refused[about]
        return self.why_not or (COMPILING if about in self._known else NOT_YET)

    def spent(self, about: Hashable, seconds: float) -> None:
        """So long its work took without it."""
        if about in self._known or self.why_not:
            self._say_once()
            return
        total = self._spent[about] = self._spent.get(about, 0.0) + seconds
        if total >= WORTH_S:
            self._ask(about)

    def now(self, about: Hashable) -> None:
        """Make it before going on; what cannot be made is refused."""
        with self._lock:
            if self.why_not or about in self._made or about in self._refused:
                return
            self._known.add(about)
            self._one(about)

    def finish(self, seconds: float | None = None) -> None:
        """Wait until all that was asked for is made or refused."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def _say_once(self) -> None:
        """Why there will be no kernel at all, where that was not to be expected."""
        if self._lost and not self._said:
            self._said = True
            said = "nothing is compiled for the CPU, NumPy computes"
            warnings.warn(KernelWarning(said, self._lost), stacklevel=4)

    def _ask(self, about: Hashable) -> None:
        with self._lock:
            if about in self._known:
                return
            self._known.add(about)
            self._spent.pop(about, None)
            self._asked.append(about)
            if self._thread is not None and self._thread.is_alive():
                return
            # Not a daemon: an interpreter must not tear LLVM down while it compiles.
            thread = threading.Thread(target=self._work, name="rlxweb-kernels")
            try:
                thread.start()
            except RuntimeError:  # the interpreter is ending, or has no thread left
                self._asked.clear()
                self._known.discard(about)
                return
            self._thread = thread

    def _work(self) -> None:
        while threading.main_thread().is_alive():
            with self._lock:
                if not self._asked:
                    self._thread = None
                    return
                about = self._asked.popleft()
            self._one(about)

    def _one(self, about: Hashable) -> None:
        self._busy = True
        try:
            self._made[about] = self._make(about)
        except Exception as error:
            self._refused[about] = _in_a_line(error)
            if isinstance(error, AdapterMissing):  # nor can any other be
                self._lost = self._refused[about]
        finally:
            self._busy = False
            self.changes += 1

    def _in_child(self) -> None:
        self._thread = None
        self._known -= set(self._asked)
        self._asked.clear()
        if self._busy:
            self._busy = False
            self._lost = f"process {os.getppid()} forked this one while it compiled"
            self.changes += 1


class WasmWorkshop(Workshop[K]):
    """In a browser's Python: nothing to install, no thread; what is worth it is made
    on the spot, some milliseconds.
    """

    @property
    def _has_tools(self) -> bool:
        return True

    def _ask(self, about: Hashable) -> None:
        self.now(about)


def _in_a_line(error: Exception) -> str:
    said = str(error) if isinstance(error, RlxError) else repr(error)
    return " ".join(said.split())[:400]
