"""Result memory is reused, but never while a reference to it exists."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import numpy as np
import pytest

from rlxweb.codegen.result_buffer_pool import (
    MAX_POOLED_BYTES,
    MIN_POOLED_BYTES,
    ResultBufferPool,
    _reference_counter,
)

N = MIN_POOLED_BYTES // 4


@pytest.fixture
def pool() -> ResultBufferPool:
    count_references = _reference_counter()
    if count_references is None:
        pytest.skip("only a Python with the GIL counts who holds an array")
    return ResultBufferPool(count_references)


def data_address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_is_reused_once_released(pool: ResultBufferPool) -> None:
    array = pool.empty((N,), np.float32)
    address = data_address(array)
    del array
    reused = pool.empty((N // 2, 2), np.float32)
    assert data_address(reused) == address
    assert reused.shape == (N // 2, 2)
    assert reused.flags.writeable


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
def test_a_view_keeps_its_memory_from_reuse(pool: ResultBufferPool, hold: Any) -> None:
    holder = hold(pool.empty((N,), np.float32))
    others = [pool.empty((N,), np.float32) for _ in range(3)]
    base = np.asarray(holder[0] if isinstance(holder, list) else holder)
    for array in others:
        array.fill(1.0)
        assert not np.shares_memory(base, array)
    assert len({data_address(array) for array in others}) == 3


def test_an_array_in_a_cycle_stays_until_collected(pool: ResultBufferPool) -> None:
    cycle: Any = [pool.empty((N,), np.float32)]
    address = data_address(cycle[0])
    cycle.append(cycle)
    del cycle
    assert data_address(pool.empty((N,), np.float32)) != address
    gc.collect()
    assert data_address(pool.empty((N,), np.float32)) == address


def test_threads_never_share(pool: ResultBufferPool) -> None:
    """Threads fill their own arrays and find them as they were."""
    wrong: list[int] = []

    def work(thread_id: int) -> None:
        for _ in range(200):
            array = pool.empty((N,), np.float32)
            array[:64] = thread_id
            if (array[:64] != thread_id).any():
                wrong.append(thread_id)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_small_and_huge_arrays_are_not_pooled(pool: ResultBufferPool) -> None:
    assert pool.empty((3,), np.float32).base is None
    assert pool.empty((0, 5), np.float32).shape == (0, 5)
    assert pool.empty((MAX_POOLED_BYTES // 4 + 1,), np.float32).base is None
    arrays = [pool.empty((MAX_POOLED_BYTES // 16,), np.float32) for _ in range(9)]
    assert sum(array.size for array in pool._buffers) <= MAX_POOLED_BYTES
    assert len({data_address(array) for array in arrays}) == 9


def test_nothing_is_pooled_without_reference_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ResultBufferPool().empty((N,), np.float32).base is None
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert _reference_counter() is None
