"""Kernels made in the background, once it is clear that they are worth their making.

Who could use a kernel asks `ready` and computes by other means while there is none,
telling `spent` what that took. When as much time went into one kernel's work as a part
of its making would take, it is made: on one thread of its own, read from disk or
compiled, tried on a small case, and from then on `ready`. Nothing waits for it unless
it was asked to (RLX_FAST=wait). What cannot be made is refused with the reason, once.

The thread ends with the work that there is, so an interpreter that ends waits for one
kernel at most. A forked child has no such thread and compiles its own kernels; if its
fork could not wait for LLVM (`library.calls`) it uses those that were there.

Kernels are bounded in number and size, and the least recently used are dropped. Their
code is unloaded when no caller holds them any more. One that is wanted again is read
from disk.
"""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, Literal, TypeVar

from rlxweb.errors import AdapterMissing, KernelWarning, RlxError
from rlxweb.forked import ForkLock, watch
from rlxweb.kept import Kept
from rlxweb.machine import library

K = TypeVar("K")
Mode = Literal["background", "wait", "off"]

WORTH_S: Final = 0.02
"""A fifth of what it takes to make one."""
NOT_YET: Final = "its kernel is not compiled yet"
COMPILING: Final = "its kernel is being compiled"
MOST_KERNELS: Final = 512
"""Kernels of one kind that a process keeps; as many of all kinds are kept on disk."""
MOST_BYTES: Final = 64 << 20
"""Bytes of their code and tables."""
CODE_BYTES: Final = 80_000
"""Memory of a kernel without its tables: 10 to 30 KB of code, and LLVM's records."""
_MOST_NOTES: Final = 4096
"""Kernels of which it is known that they cannot be made, or how much time they cost."""


class Workshop(Generic[K]):
    """The kernels of a process, by what they are compiled for.

    make     what a kernel is for → the kernel, tried; raises where it cannot be
    mode     how it may be made
    weigh    bytes that a kernel takes
    changes  how many were made, refused or dropped: what rests on their being there is
             out of date
    """

    def __init__(
        self,
        make: Callable[[Hashable], K],
        mode: Callable[[], Mode],
        weigh: Callable[[K], int] = lambda kernel: CODE_BYTES,
    ) -> None:
        self._make, self._mode, self._weigh = make, mode, weigh
        self.changes = 0
        self._made: Kept[Hashable, K] = Kept(MOST_KERNELS, MOST_BYTES)
        self._refused: Kept[Hashable, str] = Kept(_MOST_NOTES, MOST_BYTES)
        self._spent: Kept[Hashable, float] = Kept(_MOST_NOTES, MOST_BYTES)
        self._asked: deque[Hashable] = deque()
        self._coming: set[Hashable] = set()
        self._thread: threading.Thread | None = None
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
            found = self.now(about)
            self._say_once()
        return found

    def state(self, about: Hashable) -> str:
        """Why there is no kernel; "" where there is one."""
        if about in self._made:
            return ""
        refused = self._refused.get(about)
        if refused is not None:
            return refused
        return self.why_not or (COMPILING if about in self._coming else NOT_YET)

    def spent(self, about: Hashable, seconds: float) -> None:
        """So long its work took without it."""
        if self._is_settled(about) or self.why_not:
            self._say_once()
            return
        total = (self._spent.get(about) or 0.0) + seconds
        self._spent.put(about, total, 0)
        self._spent.trim()
        if total >= WORTH_S:
            self._ask(about)

    def _is_settled(self, about: Hashable) -> bool:
        """Return whether it is made, refused or asked for."""
        return about in self._coming or about in self._made or about in self._refused

    def now(self, about: Hashable) -> K | None:
        """Return the kernel, made before going on; None where it cannot be made."""
        with self._lock:
            found = self._made.get(about)
            if found is not None or self.why_not or about in self._refused:
                return found
            self._coming.add(about)
            return self._one(about)

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
            if self._is_settled(about):
                return
            self._coming.add(about)
            self._spent.put(about, 0.0, 0)
            self._asked.append(about)
            if self._thread is not None and self._thread.is_alive():
                return
            # Not a daemon: an interpreter must not tear LLVM down while it compiles.
            thread = threading.Thread(target=self._work, name="rlxweb-kernels")
            try:
                thread.start()
            except RuntimeError:  # the interpreter is ending, or has no thread left
                self._asked.clear()
                self._coming.discard(about)
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

    def _one(self, about: Hashable) -> K | None:
        try:
            kernel = self._make(about)
            self._made.put(about, kernel, self._weigh(kernel))
            self._made.trim()
            return kernel
        except Exception as error:
            refused = _in_a_line(error)
            self._refused.put(about, refused, 0)
            self._refused.trim()
            if isinstance(error, AdapterMissing):  # nor can any other be
                self._lost = refused
            return None
        finally:
            self._coming.discard(about)
            self.changes += 1

    def _in_child(self) -> None:
        self._thread = None
        self._asked.clear()
        self._coming.clear()
        self._lost = self._lost or library.lost_by_fork()
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
