"""Weights as code reads them best, as long as the weights themselves are there."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar
from weakref import finalize, ref

from rlxweb.forked import ForkLock

T = TypeVar("T")


class Steady:
    """Tells an array that was an operand in the run before from one that is set anew
    for every run: that one is not worth laying out. It keeps none of them alive.
    """

    def __init__(self) -> None:
        self._before: Callable[[], Any] = _nothing

    def root(self, array: Any) -> Any | None:
        """Whose memory it is, itself or what it is a view of; None where that is not
        what it was in the run before, or nobody tells when it is gone.
        """
        root = array if array.base is None else array.base
        before = self._before()
        if before is not root:
            try:
                self._before = ref(root)
            except TypeError:  # bytes, say
                self._before = _nothing
        return root if before is root else None


def _nothing() -> None:
    """Of what there was before."""


class LaidOut(Generic[T]):
    """What is made of arrays that nobody writes into: programs share it."""

    def __init__(self) -> None:
        self._made: dict[Hashable, T] = {}
        self._lock = ForkLock()

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

    def gone(self, root: Any, key: Hashable) -> T | None:
        """What was made, which is kept no longer."""
        return self._made.pop((id(root), key), None)
