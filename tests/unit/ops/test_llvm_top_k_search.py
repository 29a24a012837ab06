"""Native (LLVM) top-k search in registers finds what a stable sort finds."""

from __future__ import annotations

from ctypes import c_int64, c_void_p
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rlxweb.codegen.llvm_builder import TYPE_NBYTES, FloatType, VectorType
from rlxweb.codegen.llvm_compiler import LoadedCode, compile_object, host_cpu
from rlxweb.codegen.native_calls import array_address
from rlxweb.ops.welch.cpu.llvm_top_k_search import (
    MAX_REGISTERS,
    TopKSearch,
    register_count,
)
from tests.numpy_welch_peaks_reference import rank_bins

pytestmark = pytest.mark.requires_fast


@cache
def compile_search(real: FloatType, registers: int) -> Any:
    top_k_search = TopKSearch(
        VectorType(real, host_cpu().vector_nbytes // TYPE_NBYTES[real]), registers
    )
    text = top_k_search.llvm_ir().replace("internal ", "")
    argument_types = c_void_p, c_int64, c_int64, c_void_p, c_void_p, c_void_p
    return LoadedCode(compile_object(text)).get_function(
        "search", c_int64, *argument_types
    )


@given(
    data=st.data(),
    real=st.sampled_from(["float", "double"]),
    count=st.integers(1, 200),
    values=st.sampled_from([[0.0, 1.0, 2.0], [np.inf, 5.0, 1.0], [np.nan, 1.0, 3.0]]),
)
@settings(max_examples=150)
def test_the_strongest_values_come_first(
    data: st.DataObject, real: FloatType, count: int, values: list[float]
) -> None:
    """The strongest values come first, ties by index; a row with too few numbers is
    reported.
    """
    dtype = np.dtype(np.float32 if real == "float" else np.float64)
    elements = st.one_of(st.sampled_from(values), st.floats(0, 100, width=32))
    power = data.draw(arrays(dtype, count, elements=elements))
    lanes = host_cpu().vector_nbytes // TYPE_NBYTES[real]
    k = data.draw(st.integers(1, min(count, MAX_REGISTERS * lanes)))
    registers = register_count(k, lanes)
    indices, top = np.full(k, -7, np.int64), np.empty(k, dtype)
    scratch = np.empty(2 * registers * lanes * 8 + 64, np.uint8)
    is_short = compile_search(real, registers)(
        array_address(power),
        count,
        k,
        array_address(indices),
        array_address(top),
        array_address(scratch),
    )
    assert is_short == (np.count_nonzero(~np.isnan(power)) < k)
    if not is_short:
        np.testing.assert_array_equal(indices, rank_bins(power[None], k)[0])
        np.testing.assert_array_equal(top, power[indices])


def test_register_counts_for_each_k() -> None:
    assert [register_count(k, 8) for k in (1, 8, 9, 16, 17, 32, 33)] == [
        1,
        1,
        2,
        2,
        4,
        4,
        0,
    ]
