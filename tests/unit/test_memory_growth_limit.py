"""`limit_memory_growth` counts what is allocated in its block, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from tests.memory_growth_limit import limit_memory_growth

NBYTES = 64 << 20


def allocate(nbytes: int) -> None:
    """Allocate this much memory, write to all of it, and free it."""
    np.zeros(nbytes, np.uint8).fill(1)


def test_memory_freed_before_is_not_counted() -> None:
    allocate(2 * NBYTES)
    with (
        pytest.raises(AssertionError, match="it took"),
        limit_memory_growth(NBYTES // 2),
    ):
        allocate(NBYTES)


def test_allocations_below_the_limit_pass() -> None:
    with limit_memory_growth(NBYTES):
        allocate(NBYTES // 2)
