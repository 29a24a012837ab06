"""LRU caches bounded by both the number of entries and their bytes.

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

from rlxweb.core.fork_safety import ForkSafeLock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
P = ParamSpec("P")

SMALL_TABLE_SAMPLES = 1 << 14
"""Largest number of samples of a window or table of which a hundred fit easily in
memory.
"""


def lru_cache_if_small(
    max_count: int, is_small: Callable[..., bool]
) -> Callable[[Callable[P, V]], Callable[P, V]]:
    """Decorate a function with functools.lru_cache, used only for calls with a small
    result.
    """

    def decorate(function: Callable[P, V]) -> Callable[P, V]:
        cached = lru_cache(max_count, typed=True)(function)

        @wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> V:
            if is_small(*args, **kwargs):
                return cached(*args, **kwargs)  # type: ignore[arg-type]
            return function(*args, **kwargs)

        return wrapper

    return decorate


class LruCache(Generic[K, V]):
    """Thread-safe LRU cache bounded by number of entries and by bytes.

    nbytes   what all entries together weigh by now
    """

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self.max_count, self.max_bytes = max_count, max_bytes
        self.nbytes = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = ForkSafeLock()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def values(self) -> list[V]:
        """Return all values, least recently used first."""
        with self._lock:
            return [value for value, _ in self._entries.values()]

    def get(self, key: K) -> V | None:
        """Return the cached value, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V, nbytes: int) -> None:
        """Store a value as the newest entry, which `evict` never removes."""
        with self._lock:
            _, old_nbytes = self._entries.pop(key, (None, 0))
            self._entries[key] = value, nbytes
            self.nbytes += nbytes - old_nbytes

    def evict(self, is_pinned: Callable[[V], bool] = lambda value: False) -> list[V]:
        """Remove and return the values beyond the bounds, except pinned ones."""
        evicted_keys: list[K] = []
        with self._lock:
            if self._fits(0):  # mostly, and then nothing is walked through
                return []
            # No further than needed: each key that is passed is hashed.
            for key, (value, nbytes) in islice(self._entries.items(), len(self) - 1):
                if self._fits(len(evicted_keys)):
                    break
                if not is_pinned(value):
                    self.nbytes -= nbytes
                    evicted_keys.append(key)
            return [self._entries.pop(key)[0] for key in evicted_keys]

    def _fits(self, evicted_count: int) -> bool:
        """Return whether the remaining entries are within the bounds after some
        evictions.
        """
        is_count_within = len(self._entries) - evicted_count <= self.max_count
        return is_count_within and self.nbytes <= self.max_bytes

    def get_or_create(
        self, key: K, create: Callable[[], V], nbytes_of: Callable[[V], int]
    ) -> V:
        """Return the cached value, or create and store it. Two threads may both create
        it.
        """
        value = self.get(key)
        if value is None:
            value = create()
            self.put(key, value, nbytes_of(value))
            self.evict()
        return value

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self._entries.clear()
            self.nbytes = 0
