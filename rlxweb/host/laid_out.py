"""Weights as code reads them best, as long as the weights themselves are there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar
from weakref import finalize

T = TypeVar("T")


class LaidOut(Generic[T]):
    """What is made of arrays that nobody writes into: programs share it."""

    def __init__(self) -> None:
        self._made: dict[Hashable, T] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._made)

    def of(self, root: Any, key: Hashable, make: Callable[[], T]) -> T | None:
        """What was made, or is now; None where nobody tells when the array is gone.

        root  whose memory the array is: itself, or what it is a view of
        key   which array of it, and how it is laid out
        """
        key = id(root), key
        found = self._made.get(key)
        if found is None:
            with self._lock:
                found = self._made.get(key)
                if found is None:
                    try:
                        finalize(root, self._made.pop, key, None)
                    except TypeError:  # bytes, say
                        return None
                    found = self._made[key] = make()
        return found
