"""What is made once and kept for the next time, within a count and a number of bytes.

functools.lru_cache counts entries and not what they weigh: a hundred windows of a
million samples are a gigabyte. Here the least recently used go as soon as either bound
is passed. It knows nothing of what it keeps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from itertools import islice
from typing import Generic, ParamSpec, TypeVar

from rlxweb.forked import ForkLock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
P = ParamSpec("P")

SMALL = 1 << 14
"""Samples of a window or a table up to which a hundred of them weigh little."""


def lru_of_small(
    count: int, is_small: Callable[..., bool]
) -> Callable[[Callable[P, V]], Callable[P, V]]:
    """functools.lru_cache, which is quick, for calls whose answer is small."""

    def decorate(function: Callable[P, V]) -> Callable[P, V]:
        remembered = lru_cache(count, typed=True)(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> V:
            if is_small(*args, **kwargs):
                return remembered(*args, **kwargs)  # type: ignore[arg-type]
            return function(*args, **kwargs)

        return call

    return decorate


class Kept(Generic[K, V]):
    """A table that forgets, least recently used first; threads may share it.

    nbytes   what all entries together weigh by now
    """

    def __init__(self, count: int, most_bytes: int) -> None:
        self.count, self.most_bytes = count, most_bytes
        self.nbytes = 0
        self._held: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = ForkLock()

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: K) -> bool:
        return key in self._held

    def values(self) -> list[V]:
        """Least recently used first."""
        with self._lock:
            return [value for value, _ in self._held.values()]

    def get(self, key: K) -> V | None:
        """What was put there, if it is still kept."""
        with self._lock:
            if key not in self._held:
                return None
            self._held.move_to_end(key)
            return self._held[key][0]

    def put(self, key: K, value: V, nbytes: int) -> None:
        """Keep it; the newest is never what `trim` lets go."""
        with self._lock:
            _, before = self._held.pop(key, (None, 0))
            self._held[key] = value, nbytes
            self.nbytes += nbytes - before

    def trim(self, spare: Callable[[V], bool] = lambda value: False) -> list[V]:
        """What has to go, out of the table; what is to be spared stays in it."""
        gone: list[K] = []
        with self._lock:
            if self._fits(0):  # mostly, and then nothing is walked through
                return []
            # No further than needed: each key that is passed is hashed.
            for key, (value, nbytes) in islice(self._held.items(), len(self) - 1):
                if self._fits(len(gone)):
                    break
                if not spare(value):
                    self.nbytes -= nbytes
                    gone.append(key)
            return [self._held.pop(key)[0] for key in gone]

    def _fits(self, gone: int) -> bool:
        """Whether the rest is within the bounds, once so many are gone."""
        is_few = len(self._held) - gone <= self.count
        return is_few and self.nbytes <= self.most_bytes

    def made(self, key: K, make: Callable[[], V], weigh: Callable[[V], int]) -> V:
        """What is kept there; made now if nothing is. Two threads may both make it."""
        found = self.get(key)
        if found is None:
            found = make()
            self.put(key, found, weigh(found))
            self.trim()
        return found

    def clear(self) -> None:
        with self._lock:
            self._held.clear()
            self.nbytes = 0
