"""What a cache says of itself."""

from __future__ import annotations

from typing import NamedTuple


class CacheInfo(NamedTuple):
    """How often a run found its sizes prepared, as functools.lru_cache tells it."""

    hits: int
    misses: int
    maxsize: int
    currsize: int
