"""Pool of memory buffers for result arrays, reused once no array refers to them any
more.

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

from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.ir.shape_arithmetic import Shape

MIN_POOLED_BYTES: Final = 1 << 18
"""Results below this size come from the allocator, which has such pages at hand."""
MAX_POOLED_BYTES: Final = 1 << 26
"""Maximum size of a pooled result, and of all pooled memory together."""

ReferenceCounter = Callable[[object], int]


class ResultBufferPool:
    """Pool of the memory of earlier results.

    count_references  counts the references to an object; None keeps nothing: where
                      Python has no lock, or counts otherwise, nobody knows who holds
                      what
    """

    def __init__(self, count_references: ReferenceCounter | None = None) -> None:
        self._count_references = count_references
        self._buffers: list[NDArray[np.uint8]] = []
        self._lock = ForkSafeLock()
        # What the count is where nobody else holds it, counted as it is below.
        self._idle_count = 0
        if count_references is not None:
            self._buffers = [np.empty(1, np.uint8)]
            (self._idle_count,) = self._reference_counts()
            self._buffers = []

    def _reference_counts(self) -> list[int]:
        """Return the reference count of each pooled buffer."""
        assert self._count_references is not None
        return [self._count_references(buffer) for buffer in self._buffers]

    def empty(self, shape: Shape, dtype: DTypeLike) -> NDArray[Any]:
        """Return an uninitialised array like `numpy.empty`, in memory that may have
        been used before.
        """
        element_type = np.dtype(dtype)
        nbytes = prod(shape) * element_type.itemsize
        if (
            self._count_references is None
            or not MIN_POOLED_BYTES <= nbytes <= MAX_POOLED_BYTES
        ):
            return np.empty(shape, element_type)
        with self._lock:
            buffer = self._take_buffer(nbytes)
            # Before the lock is gone: from here on it is held.
            return buffer[:nbytes].view(element_type).reshape(shape)

    def _take_buffer(self, nbytes: int) -> NDArray[np.uint8]:
        """Return an unused buffer of at least `nbytes`, or a new one; evict the oldest
        beyond the limit.
        """
        for index, count in enumerate(self._reference_counts()):
            # What is twice too large is left for what needs it.
            if (
                count == self._idle_count
                and nbytes <= self._buffers[index].size <= 2 * nbytes
            ):
                self._buffers.append(self._buffers.pop(index))
                return self._buffers[-1]
        new_buffer = np.empty(nbytes, np.uint8)
        self._buffers.append(new_buffer)
        while sum(buffer.size for buffer in self._buffers) > MAX_POOLED_BYTES:
            self._buffers.pop(0)  # the one that was given out longest ago
        return new_buffer


def _reference_counter() -> ReferenceCounter | None:
    """Return the function that counts references, or None where counts are
    unreliable.
    """
    if sys.implementation.name != "cpython":
        return None
    has_lock: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return sys.getrefcount if has_lock() else None


result_pool: Final = ResultBufferPool(_reference_counter())
"""Result pool of this process."""
