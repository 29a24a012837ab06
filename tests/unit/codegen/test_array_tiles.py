"""Tiles of an array: each element is in exactly one, and none is too large."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.codegen.array_tiles import parallel_for, split_into_tiles


@given(out=st.lists(st.integers(1, 9), max_size=4), most=st.integers(1, 40))
def test_every_element_is_in_one_tile(out: list[int], most: int) -> None:
    counts = np.zeros(out, int)
    for tile in split_into_tiles(tuple(out), most):
        assert prod(counts[tile].shape) <= most
        counts[tile] += 1
    assert (counts == 1).all()


@pytest.mark.parametrize("threaded", [False, True])
def test_parallel_for_runs_each_item_without_numpy_errors(threaded: bool) -> None:
    """Every item runs with NumPy's errors ignored, on the caller's thread and on
    others.
    """
    results = np.zeros(300)

    def body(i: int) -> None:
        results[i] = np.float32(i) / np.float32(0)

    with np.errstate(all="raise"):
        parallel_for(300, body, threaded=threaded)
    assert np.isnan(results[0])
    assert np.isinf(results[1:]).all()
