"""The search by registers finds what a stable sort finds."""

from __future__ import annotations

from ctypes import c_int64, c_void_p
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rlxweb.host.compiled import address
from rlxweb.machine.library import Code, object_code, processor
from rlxweb.machine.search import MOST_REGISTERS, Search, registers_for
from rlxweb.machine.text import SIZE, Real, Shape
from tests.oracles import strongest_first

pytestmark = pytest.mark.requires_fast


@cache
def search(real: Real, registers: int) -> Any:
    made = Search(Shape(real, processor().nbytes // SIZE[real]), registers)
    text = made.text().replace("internal ", "")
    kinds = c_void_p, c_int64, c_int64, c_void_p, c_void_p, c_void_p
    return Code(object_code(text)).function("search", c_int64, *kinds)


@given(
    data=st.data(),
    real=st.sampled_from(["float", "double"]),
    count=st.integers(1, 200),
    values=st.sampled_from([[0.0, 1.0, 2.0], [np.inf, 5.0, 1.0], [np.nan, 1.0, 3.0]]),
)
@settings(max_examples=150)
def test_the_strongest_come_first(
    data: st.DataObject, real: Real, count: int, values: list[float]
) -> None:
    """The strongest come first, ties by index; a row short of numbers says so."""
    dtype = np.dtype(np.float32 if real == "float" else np.float64)
    some = st.one_of(st.sampled_from(values), st.floats(0, 100, width=32))
    power = data.draw(arrays(dtype, count, elements=some))
    lanes = processor().nbytes // SIZE[real]
    k = data.draw(st.integers(1, min(count, MOST_REGISTERS * lanes)))
    registers = registers_for(k, lanes)
    places, top = np.full(k, -7, np.int64), np.empty(k, dtype)
    spare = np.empty(2 * registers * lanes * 8 + 64, np.uint8)
    short = search(real, registers)(
        address(power), count, k, address(places), address(top), address(spare)
    )
    assert short == (np.count_nonzero(~np.isnan(power)) < k)
    if not short:
        np.testing.assert_array_equal(places, strongest_first(power[None], k)[0])
        np.testing.assert_array_equal(top, power[places])


def test_many_bins_are_left_to_others() -> None:
    assert [registers_for(k, 8) for k in (1, 8, 9, 16, 17, 32, 33)] == [
        1,
        1,
        2,
        2,
        4,
        4,
        0,
    ]
