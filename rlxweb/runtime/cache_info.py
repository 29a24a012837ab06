"""Statistics of a cache of compiled graphs, as `functools.lru_cache` reports them."""

from __future__ import annotations

from typing import NamedTuple


class CacheInfo(NamedTuple):
    """Cache statistics, as functools.lru_cache reports them; a hit is a run whose sizes
    were compiled already.
    """

    hits: int
    misses: int
    maxsize: int
    currsize: int
