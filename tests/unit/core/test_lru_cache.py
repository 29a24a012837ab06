"""The LRU cache is bounded by count and by bytes."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.lru_cache import LruCache, lru_cache_if_small
from rlxweb.signal import welch_request
from tests.run_in_threads import run_concurrently


def test_the_least_recently_used_are_evicted_first() -> None:
    """Too many entries evict the least recently used ones, never the newest."""
    cache: LruCache[str, int] = LruCache(2, 100)
    for index, name in enumerate("abc"):
        cache.put(name, index, 10)
    assert cache.get("a") == 0
    assert cache.evict() == [1]
    assert (len(cache), cache.nbytes) == (2, 20)
    cache.put("large", 9, 500)
    assert cache.evict() == [2, 0]
    assert (cache.values(), cache.nbytes) == ([9], 500)


def test_spared_entries_are_not_evicted() -> None:
    cache: LruCache[int, int] = LruCache(1, 100)
    for k in range(4):
        cache.put(k, k, 1)
    assert cache.evict(lambda value: value == 1) == [0, 2]
    assert cache.values() == [1, 3]


def test_a_replaced_entry_is_counted_once() -> None:
    cache: LruCache[str, int] = LruCache(4, 100)
    cache.put("a", 1, 60)
    cache.put("a", 2, 30)
    assert (cache.get("a"), cache.nbytes, len(cache)) == (2, 30, 1)
    cache.clear()
    assert (cache.get("a"), cache.nbytes) == (None, 0)


def test_threads_share_a_cache() -> None:
    """Threads share a cache whose size is that of the entries in it."""
    cache: LruCache[int, int] = LruCache(16, 1 << 20)

    def work(k: int) -> None:
        for n in range(500):
            assert (
                cache.get_or_create((k * n) % 40, lambda n=n: n, lambda value: 3)
                is not None
            )

    run_concurrently([partial(work, k) for k in range(1, 5)])
    assert cache.nbytes == 3 * len(cache) <= 3 * 16


def test_large_results_are_computed_each_time() -> None:
    computed = []
    double = lru_cache_if_small(8, lambda n: n < 10)(
        lambda n: computed.append(n) or 2 * n
    )
    assert [double(3), double(3), double(30), double(30)] == [6, 6, 60, 60]
    assert computed == [3, 30, 30]


def test_caches_of_windows_and_specs_stay_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both caches stay within their bounds: a hundred long windows would take a
    gigabyte.

    Bounds and lengths are here a sixty-fourth of what they are, for time.
    """
    caches = welch_request._window_cache, welch_request._spec_cache
    for cache in caches:
        assert cache.max_bytes <= 64 << 20
        monkeypatch.setattr(cache, "max_bytes", cache.max_bytes // 64)
    x = np.random.default_rng(0).standard_normal((1, 16_000))
    for n in range(15_625, 15_637):
        rlx.welch(x[:, :n], nperseg=n, device="cpu")
        rlx.welch_peaks(x[:, :n], nperseg=n, k=2, device="cpu")
    for cache in caches:
        assert 0 < cache.nbytes <= cache.max_bytes
        assert len(cache) < 12
