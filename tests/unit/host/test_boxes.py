"""Arrays cut into boxes: every element in one, none too large."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.host.boxes import boxes_of, for_each


@given(out=st.lists(st.integers(1, 9), max_size=4), most=st.integers(1, 40))
def test_every_element_is_in_one_box(out: list[int], most: int) -> None:
    seen = np.zeros(out, int)
    for box in boxes_of(tuple(out), most):
        assert prod(seen[box].shape) <= most
        seen[box] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize("threaded", [False, True])
def test_each_is_done_and_numpy_is_silent(threaded: bool) -> None:
    """Every item is done in silence, on the caller's thread and on others."""
    found = np.zeros(300)

    def body(at: int) -> None:
        found[at] = np.float32(at) / np.float32(0)

    with np.errstate(all="raise"):
        for_each(300, body, threaded=threaded)
    assert np.isnan(found[0])
    assert np.isinf(found[1:]).all()
