"""Memory that is taken again: never while anybody holds what lies there."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import numpy as np
import pytest

from rlxweb.host.arrays import LEAST, MOST, Pool, _holders

N = LEAST // 4


@pytest.fixture
def pool() -> Pool:
    found = _holders()
    if found is None:
        pytest.skip("only a Python with the GIL counts who holds an array")
    return Pool(found)


def where(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_is_taken_again_once_it_is_let_go(pool: Pool) -> None:
    one = pool.empty((N,), np.float32)
    first = where(one)
    del one
    again = pool.empty((N // 2, 2), np.float32)
    assert where(again) == first
    assert again.shape == (N // 2, 2)
    assert again.flags.writeable


@pytest.mark.parametrize(
    "hold",
    [
        lambda x: x,
        lambda x: x[3:5],
        lambda x: x.reshape(2, -1).T,
        memoryview,
        lambda x: np.frombuffer(x, np.uint8),
        lambda x: [x],
    ],
)
def test_whoever_holds_a_part_holds_its_memory(pool: Pool, hold: Any) -> None:
    held = hold(pool.empty((N,), np.float32))
    others = [pool.empty((N,), np.float32) for _ in range(3)]
    mine = np.asarray(held[0] if isinstance(held, list) else held)
    for one in others:
        one.fill(1.0)
        assert not np.shares_memory(mine, one)
    assert len({where(one) for one in others}) == 3


def test_in_a_cycle_it_stays_until_that_is_collected(pool: Pool) -> None:
    one: Any = [pool.empty((N,), np.float32)]
    first = where(one[0])
    one.append(one)
    del one
    assert where(pool.empty((N,), np.float32)) != first
    gc.collect()
    assert where(pool.empty((N,), np.float32)) == first


def test_threads_never_share(pool: Pool) -> None:
    """Threads fill their own arrays and find them as they were."""
    wrong: list[int] = []

    def work(mine: int) -> None:
        for _ in range(200):
            one = pool.empty((N,), np.float32)
            one[:64] = mine
            if (one[:64] != mine).any():
                wrong.append(mine)

    threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_small_and_huge_ones_are_numpys_and_little_is_kept(pool: Pool) -> None:
    assert pool.empty((3,), np.float32).base is None
    assert pool.empty((0, 5), np.float32).shape == (0, 5)
    assert pool.empty((MOST // 4 + 1,), np.float32).base is None
    held = [pool.empty((MOST // 16,), np.float32) for _ in range(9)]
    assert sum(one.size for one in pool._kept) <= MOST
    assert len({where(one) for one in held}) == 9


def test_without_a_count_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Pool().empty((N,), np.float32).base is None
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert _holders() is None
