"""Memory for results, taken again once nobody holds what lay there.

A new array of some megabytes is as many pages that the system first has to find and to
clear, which takes longer than many an op. So the memory of earlier results is kept, and
given out again when the last array in it is gone. Whoever holds a result, or a part of
it, holds its memory: what is given out is never anybody else's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rlxweb.forked import ForkLock
from rlxweb.ir.shape import Shape

LEAST: Final = 1 << 18
"""Bytes below which the allocator has pages at hand."""
MOST: Final = 1 << 26
"""Bytes of a result, and of all that is kept."""

Holders = Callable[[object], int]


class Pool:
    """Memory of earlier results.

    holders   counts the references to an object; None keeps nothing: where Python has
              no lock, or counts otherwise, nobody knows who holds what
    """

    def __init__(self, holders: Holders | None = None) -> None:
        self._holders = holders
        self._kept: list[NDArray[np.uint8]] = []
        self._lock = ForkLock()
        # What the count is where nobody else holds it, counted as it is below.
        self._alone = 0
        if holders is not None:
            self._kept = [np.empty(1, np.uint8)]
            (self._alone,) = self._counts()
            self._kept = []

    def _counts(self) -> list[int]:
        assert self._holders is not None
        return [self._holders(one) for one in self._kept]

    def empty(self, shape: Shape, dtype: DTypeLike) -> NDArray[Any]:
        """`numpy.empty`, in memory that may have been used before."""
        kind = np.dtype(dtype)
        nbytes = prod(shape) * kind.itemsize
        if self._holders is None or not LEAST <= nbytes <= MOST:
            return np.empty(shape, kind)
        with self._lock:
            memory = self._free(nbytes)
            # Before the lock is gone: from here on it is held.
            return memory[:nbytes].view(kind).reshape(shape)

    def _free(self, nbytes: int) -> NDArray[np.uint8]:
        for at, count in enumerate(self._counts()):
            # What is twice too large is left for what needs it.
            if count == self._alone and nbytes <= self._kept[at].size <= 2 * nbytes:
                self._kept.append(self._kept.pop(at))
                return self._kept[-1]
        memory = np.empty(nbytes, np.uint8)
        self._kept.append(memory)
        while sum(one.size for one in self._kept) > MOST:
            self._kept.pop(0)  # the one that was given out longest ago
        return memory


def _holders() -> Holders | None:
    if sys.implementation.name != "cpython":
        return None
    has_lock: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return sys.getrefcount if has_lock() else None


pool: Final = Pool(_holders())
"""The process's."""
