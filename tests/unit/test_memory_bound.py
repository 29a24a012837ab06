"""The bound on memory holds what is taken in its block, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from tests.memory import takes_less_than

NBYTES = 64 << 20


def take(nbytes: int) -> None:
    """Take so much memory, write to all of it, and free it."""
    np.zeros(nbytes, np.uint8).fill(1)


def test_what_was_freed_before_hides_nothing() -> None:
    take(2 * NBYTES)
    with pytest.raises(AssertionError, match="it took"), takes_less_than(NBYTES // 2):
        take(NBYTES)


def test_less_may_be_taken() -> None:
    with takes_less_than(NBYTES):
        take(NBYTES // 2)
