"""Compiled phase split of padded arrays gives NumPy's copies, number by number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.codegen.llvm_compiler import LoadedCode, compile_object
from rlxweb.ops.conv.cpu import native_phase_split
from rlxweb.ops.conv.cpu.llvm_phase_split import VECTOR_STRIDES, phase_split_llvm_ir
from rlxweb.ops.conv.cpu.native_phase_split import (
    PhaseSplitCall,
    exported_kernel,
    phase_kernels,
)
from rlxweb.ops.conv.cpu.phase_split import phase_lengths, split_phases
from rlxweb.ops.conv.windows import SlidingWindows

pytestmark = [
    pytest.mark.requires_fast,
    pytest.mark.usefixtures("wait_for_compilation"),
]
ThreeInts = tuple[int, int, int]


@pytest.mark.parametrize("nbytes", [16, 32, 64])
@pytest.mark.parametrize("stride", [*VECTOR_STRIDES, 0])
def test_phase_split_compiles_for_every_vector_width(stride: int, nbytes: int) -> None:
    assert exported_kernel(
        LoadedCode(compile_object(phase_split_llvm_ir(stride, nbytes)))
    ).address


def three_integers(min_value: int, max_value: int) -> st.SearchStrategy[ThreeInts]:
    """Return a strategy of three integers within bounds."""
    integer = st.integers(min_value, max_value)
    return st.tuples(integer, integer, integer)


@given(
    channels=st.integers(1, 5),
    size=st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 50)),
    kernel=three_integers(1, 5),
    strides=three_integers(1, 4),
    dilations=three_integers(1, 3),
    pads=st.tuples(three_integers(0, 4), three_integers(0, 4)),
)
@settings(max_examples=200, deadline=None)
def test_any_window_geometry(
    channels: int,
    size: ThreeInts,
    kernel: ThreeInts,
    strides: ThreeInts,
    dilations: ThreeInts,
    pads: tuple[ThreeInts, ThreeInts],
) -> None:
    pads_before, pads_after = pads
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    padded_size = [
        sum(lengths) for lengths in zip(pads_before, size, pads_after, strict=True)
    ]
    out = tuple(
        max(0, n - r) // s + 1
        for n, r, s in zip(padded_size, extents, strides, strict=True)
    )
    windows = SlidingWindows(size, kernel, strides, dilations, pads_before, out)
    x = np.random.default_rng(7).standard_normal((2, channels, *size), np.float32)
    split = PhaseSplitCall(2, channels, windows)
    got, want = split(x), split_phases(x, windows)
    assert got.shape[5:] == phase_lengths(windows)
    np.testing.assert_array_equal(got, want)
    if not split.is_identity:
        assert not phase_kernels.missing_reason(split.kernel_stride)


def test_threads_share_the_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_phase_split, "_MIN_THREADED_ELEMENTS", 0)
    windows = SlidingWindows(
        (1, 9, 33), (1, 3, 3), (1, 2, 2), (1, 1, 1), (0, 1, 1), (1, 5, 17)
    )
    x = np.random.default_rng(7).standard_normal((3, 41, 1, 9, 33), np.float32)
    for _ in range(20):
        got = PhaseSplitCall(3, 41, windows)(x)
        np.testing.assert_array_equal(got, split_phases(x, windows))
