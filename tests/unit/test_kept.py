"""What is kept for a next time is bounded by count and by bytes."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.kept import Kept, lru_of_small
from rlxweb.signal import request
from tests.threads import at_once


def test_the_least_recently_used_go_first() -> None:
    """The least recently used go once there are too many, and never the newest."""
    kept: Kept[str, int] = Kept(2, 100)
    for at, name in enumerate("abc"):
        kept.put(name, at, 10)
    assert kept.get("a") == 0
    assert kept.trim() == [1]
    assert (len(kept), kept.nbytes) == (2, 20)
    kept.put("large", 9, 500)
    assert kept.trim() == [2, 0]
    assert (kept.values(), kept.nbytes) == ([9], 500)


def test_what_is_to_be_spared_stays() -> None:
    kept: Kept[int, int] = Kept(1, 100)
    for k in range(4):
        kept.put(k, k, 1)
    assert kept.trim(lambda value: value == 1) == [0, 2]
    assert kept.values() == [1, 3]


def test_a_key_that_is_put_again_weighs_once() -> None:
    kept: Kept[str, int] = Kept(4, 100)
    kept.put("a", 1, 60)
    kept.put("a", 2, 30)
    assert (kept.get("a"), kept.nbytes, len(kept)) == (2, 30, 1)
    kept.clear()
    assert (kept.get("a"), kept.nbytes) == (None, 0)


def test_threads_share_a_table() -> None:
    """Threads share a table whose weight is that of what is in it."""
    kept: Kept[int, int] = Kept(16, 1 << 20)

    def work(k: int) -> None:
        for n in range(500):
            assert kept.made((k * n) % 40, lambda n=n: n, lambda value: 3) is not None

    at_once([partial(work, k) for k in range(1, 5)])
    assert kept.nbytes == 3 * len(kept) <= 3 * 16


def test_large_answers_are_made_each_time() -> None:
    made = []
    twice = lru_of_small(8, lambda n: n < 10)(lambda n: made.append(n) or 2 * n)
    assert [twice(3), twice(3), twice(30), twice(30)] == [6, 6, 60, 60]
    assert made == [3, 30, 30]


def test_windows_of_many_lengths_are_not_kept_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred long ones would be a gigabyte; both entries stay within theirs.

    Bounds and lengths are here a sixty-fourth of what they are, for time.
    """
    tables = request._windows, request._specs
    for kept in tables:
        assert kept.most_bytes <= 64 << 20
        monkeypatch.setattr(kept, "most_bytes", kept.most_bytes // 64)
    x = np.random.default_rng(0).standard_normal((1, 16_000))
    for n in range(15_625, 15_637):
        rlx.welch(x[:, :n], nperseg=n, device="cpu")
        rlx.welch_peaks(x[:, :n], nperseg=n, k=2, device="cpu")
    for kept in tables:
        assert 0 < kept.nbytes <= kept.most_bytes
        assert len(kept) < 12
