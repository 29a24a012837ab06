"""Cooperative FFT and Welch kernels: correct results, no data races, few bank
conflicts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.core.limits import Limits
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import KernelPlan
from rlxweb.ir.op import TensorType
from rlxweb.ops.fft.wgsl.cooperative import (
    SWIZZLE_SHIFTS,
    CooperativeFftLayout,
    cooperative_radices,
    fit_cooperative_fft,
)
from rlxweb.ops.fft.wgsl.cooperative_plans import cooperative_row_transform
from rlxweb.ops.fft.wgsl.plan import plan_complex_fft
from rlxweb.ops.welch.wgsl.cooperative import cooperative_welch_planner
from tests.lanes.fft_bank_conflict_search import count_workgroup
from tests.lanes.kernel_plan_interpreter import run_plan

Array = Any
FFT_SIZES = (8, 12, 16, 27, 32, 48, 64, 96, 100, 128, 243, 256, 384, 512)
LONG_FFT_SIZES = (768, 1000, 1024, 2048, 4096, 6144, 8192)


def limits_with_memory(kib: float, lanes: int = 1024) -> Limits:
    """Return limits with this much workgroup memory and this many lanes."""
    return Limits(
        max_compute_workgroup_storage_size=int(kib * 1024),
        max_compute_invocations_per_workgroup=lanes,
        max_compute_workgroup_size_x=lanes,
    )


def fft_layout(n: int, kib: float = 32, extra: int = 0) -> CooperativeFftLayout:
    """Return the cooperative layout of a transform; fail if it does not fit."""
    layout = fit_cooperative_fft(n, limits_with_memory(kib), extra)
    assert layout is not None, f"no team for {n} in {kib} KiB"
    return layout


def run_fft(layout: CooperativeFftLayout, x: Array) -> Array:
    """Run the layout's kernel on complex rows and return the transforms."""
    rows, n = x.shape
    block = np.concatenate([x.real, x.imag], axis=1).astype(np.float32)
    plan = plan_complex_fft(
        rows, n, False, "backward", cooperative_row_transform(lambda n: layout)
    )
    got = run_plan(plan, [block], block.size, limits_with_memory(1024))[0].reshape(
        rows, 2 * n
    )
    return got[:, :n] + 1j * got[:, n:]


def random_complex_rows(rows: int, n: int, seed: int = 0) -> Array:
    """Return random complex rows whose parts are float32 numbers."""
    rng = np.random.default_rng(seed)
    parts = rng.standard_normal((2, rows, n)).astype(np.float32).astype(float)
    return parts[0] + 1j * parts[1]


@pytest.mark.parametrize(
    "n",
    [*FFT_SIZES, *(pytest.param(n, marks=pytest.mark.slow) for n in LONG_FFT_SIZES)],
)
def test_fft_matches_numpy_without_races(n: int) -> None:
    """Full and partial workgroups compute NumPy's transform, synchronised by barriers
    alone.
    """
    layout = fft_layout(n)
    x = random_complex_rows(layout.rows_per_workgroup + 1, n)
    want = np.fft.fft(x)
    error = np.abs(run_fft(layout, x) - want).max() / np.abs(want).max()
    assert error < 4e-7


@settings(max_examples=30)
@given(
    st.sampled_from(FFT_SIZES),
    st.integers(1, 9),
    st.booleans(),
    st.booleans(),
    st.integers(1, 5),
)
def test_any_layout_is_correct(
    n: int, rows: int, split: bool, swizzled: bool, seed: int
) -> None:
    """Layouts that exchange parts in turn, hold more rows or have no swizzle are
    correct.
    """
    layout = replace(fft_layout(n), rows_per_workgroup=1 + seed % 3, is_split=split)
    layout = layout if swizzled else replace(layout, shifts=())
    x = random_complex_rows(rows, n, seed)
    want = np.fft.fft(x)
    assert np.abs(run_fft(layout, x) - want).max() < 4e-7 * np.abs(want).max()


# --- bank conflicts -----------------------------------------------------------------


@pytest.mark.parametrize("radices", SWIZZLE_SHIFTS, ids=str)
def test_swizzle_is_a_bijection(radices: tuple[int, ...]) -> None:
    """No two cells of the workgroup's rows meet, and none leaves its array."""
    n = int(np.prod(radices))
    layout = CooperativeFftLayout(n, radices, 3, False, SWIZZLE_SHIFTS[radices])
    cells = {layout.swizzle_cell(cell) for cell in range(layout.cell_count)}
    assert cells == set(range(layout.cell_count))


@pytest.mark.parametrize("n", [16, 32, 64, 128, 256, 512, 1024, 4096])
def test_powers_of_two_have_no_bank_conflicts(n: int) -> None:
    """Powers of two have no bank conflicts; without the swizzle they have four-way ones
    or worse.
    """
    counts = count_workgroup(fft_layout(n))
    assert counts.wavefronts == counts.requests
    plain = count_workgroup(replace(fft_layout(n), shifts=()))
    assert plain.wavefronts >= 4 * plain.requests
    assert (plain.requests, plain.barriers) == (counts.requests, counts.barriers)


@pytest.mark.parametrize("n", [2048, 8192, 48, 96, 192, 384, 640, 768])
def test_other_sizes_have_few_bank_conflicts(n: int) -> None:
    """Other lengths have few bank conflicts; without the swizzle they have many
    more.
    """
    counts = count_workgroup(fft_layout(n))
    plain = count_workgroup(replace(fft_layout(n), shifts=()))
    assert counts.wavefronts <= 1.6 * counts.requests
    assert plain.wavefronts >= 2.5 * counts.wavefronts


@pytest.mark.parametrize("n", [64, 256, 1024, 4096])
def test_storage_access_is_coalesced(n: int) -> None:
    """Samples, roots and results are moved in whole sectors: nothing is wasted."""
    counts = count_workgroup(fft_layout(n))
    assert counts.sectors == counts.ideal


# --- what fits ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kib", "n", "extra", "exchange"),
    [
        (16, 2048, 0, "both"),
        (16, 4096, 0, "in turn"),
        (16, 4096, 4, None),
        (32, 4096, 0, "both"),
        (32, 4096, 4, "in turn"),
        (32, 8192, 0, "in turn"),
        (32, 8192, 4, None),
        (48, 8192, 4, "in turn"),
        (64, 8192, 0, "both"),
    ],
)
def test_layout_by_memory_and_length(
    kib: int, n: int, extra: int, exchange: str | None
) -> None:
    """The manual's table: both parts of a row at once, in turn, or no layout at all."""
    layout = fit_cooperative_fft(n, limits_with_memory(kib), extra)
    assert (layout and ("in turn" if layout.is_split else "both")) == exchange
    if layout:
        assert layout.shared_bytes + extra <= kib * 1024


def test_layout_needs_lanes_and_small_factors() -> None:
    """A device with 256 lanes cannot run 512; 67 is no product of small factors."""
    assert fit_cooperative_fft(8192, limits_with_memory(64, 256)) is None
    assert fit_cooperative_fft(4096, limits_with_memory(64, 256)) is not None
    assert fit_cooperative_fft(67, limits_with_memory(64)) is None
    assert fit_cooperative_fft(2 * 67, limits_with_memory(64)) is None
    assert cooperative_radices(4096) == (16, 16, 16)
    assert cooperative_radices(1024, 8) == (8, 8, 4, 4)


# --- Welch --------------------------------------------------------------------------


def welch_plan_and_data(
    rows: int,
    n: int,
    segments: int,
    k: int,
    attr_overrides: dict[str, Any],
    kib: float = 32,
) -> tuple[KernelPlan | None, Array, Array]:
    """Return the Welch plan with samples and a window."""
    hop = attr_overrides.pop("hop", n // 2)
    rng = np.random.default_rng(n + segments + k)
    x = rng.standard_normal((rows, hop * (segments - 1) + n + 3)).astype(np.float32)
    x += np.linspace(2, 9, x.shape[1], dtype=np.float32)
    attrs: dict[str, Any] = {
        "hop": hop,
        "segments": segments,
        "nfft": 0,
        "detrend": "none",
        "doubling": True,
        "scale": 0.5,
        **attr_overrides,
    }
    if k:
        attrs["k"] = k
    types = (TensorType(x.shape, DType.F32), TensorType((n,), DType.F32))
    window = np.hanning(n + 2)[1:-1].astype(np.float32)
    plan = cooperative_welch_planner()(types, types[0], attrs, limits_with_memory(kib))
    return plan, x, window


def reference_welch(
    x: Array, window: Array, segments: int, hop: int, nfft: int, detrend: str
) -> Array:
    """Return Welch's estimate in float64."""
    n = len(window)
    segment_samples = np.stack(
        [x[:, i * hop : i * hop + n] for i in range(segments)], 1
    )
    segment_samples = segment_samples.astype(float)
    if detrend != "none":
        segment_samples = scipy.signal.detrend(segment_samples, type=detrend)
    power = (np.abs(np.fft.rfft(segment_samples * window, n=nfft)) ** 2).mean(1) * 0.5
    power[:, 1 : (nfft + 1) // 2] *= 2
    return power


@pytest.mark.timeout(360)  # it computes for ten seconds and more, on a core of its own
@settings(max_examples=30)
@given(
    n=st.sampled_from((8, 12, 32, 48, 64, 100, 128, 256)),
    rows=st.integers(1, 20),
    segments=st.integers(1, 5),
    k=st.integers(0, 40),
    hop=st.integers(1, 70),
    pad=st.sampled_from((1, 1, 2)),
    detrend=st.sampled_from(("none", "constant", "linear")),
    kib=st.sampled_from((0.25, 1, 4, 32)),
)
def test_welch_matches_numpy_without_races(
    n: int,
    rows: int,
    segments: int,
    k: int,
    hop: int,
    pad: int,
    detrend: str,
    kib: float,
) -> None:
    """Powers and peaks of any request match NumPy's for every memory size."""
    bins = n * pad // 2 + 1
    k = min(k, bins)
    attr_overrides = {"hop": hop, "nfft": n * pad, "detrend": detrend}
    plan, x, window = welch_plan_and_data(rows, n, segments, k, attr_overrides, kib)
    if plan is None:
        assert fit_cooperative_fft(n * pad, limits_with_memory(kib)) is None
        return
    want = reference_welch(x, window, segments, hop, n * pad, detrend)
    got = run_plan(plan, [x, window], rows * (2 * k or bins), limits_with_memory(kib))[
        0
    ]
    if not k:
        assert np.abs(got.reshape(rows, bins) - want).max() < 2e-6 * want.max()
        return
    got = got.reshape(rows, k, 2)
    peak_bins = got[..., 0].astype(int)
    assert all(len(set(row)) == k for row in peak_bins.tolist())
    power_at_peaks = np.take_along_axis(want, peak_bins, 1)
    best = -np.sort(-want, axis=1)[:, :k]
    # Neighbours nearer to each other than rounding may stand either way.
    tolerance = 1e-5 * want.max()
    assert np.abs(power_at_peaks - best).max() < tolerance
    assert np.abs(got[..., 1] - power_at_peaks).max() < tolerance


@pytest.mark.parametrize(
    ("kib", "n", "k", "dispatch_count"),
    [(16, 2048, 16, 1), (16, 4096, 16, 3), (32, 4096, 16, 1), (16, 2048, 300, 9)],
)
def test_peaks_are_ranked_in_workgroup_if_they_fit(
    kib: int, n: int, k: int, dispatch_count: int
) -> None:
    """Peaks that do not fit are written, ranked or merge sorted, and paired by further
    dispatches.
    """
    plan, _, _ = welch_plan_and_data(2, n, 2, k, {}, kib)
    assert plan is not None
    assert len(plan.dispatches) == dispatch_count
    assert all(dispatch.shared_bytes <= kib * 1024 for dispatch in plan.dispatches)


@pytest.mark.parametrize("n", [64, 256, 1024])
def test_ties_go_to_smaller_bin_and_nan_has_no_peak(n: int) -> None:
    """A silent row ranks its bins in order; a row with NaN has no peaks."""
    plan, x, window = welch_plan_and_data(3, n, 2, 5, {})
    x[0], x[1, 3] = 0, np.nan
    assert plan is not None
    got = run_plan(plan, [x, window], 30, limits_with_memory(32))[0].reshape(3, 5, 2)
    assert got[0, :, 0].tolist() == [0, 1, 2, 3, 4]
    assert not got[0, :, 1].any()
    assert np.isnan(got[1, :, 1]).all()
    assert np.isfinite(got[2]).all()


def test_missing_barrier_is_detected() -> None:
    """The race check fails whenever any one of the kernel's barriers is removed."""
    plan, x, window = welch_plan_and_data(4, 256, 4, 5, {"detrend": "linear"})
    assert plan is not None
    source = plan.dispatches[0].source
    assert source is not None
    parts = source.split("workgroupBarrier();")
    detected_count = 0
    for removed_barrier in range(1, len(parts)):
        text = "workgroupBarrier();".join(parts[:removed_barrier]) + "".join(
            parts[removed_barrier : removed_barrier + 1]
        )
        text = "workgroupBarrier();".join([text, *parts[removed_barrier + 1 :]])
        broken = replace(plan, dispatches=(replace(plan.dispatches[0], source=text),))
        with pytest.raises(AssertionError):
            run_plan(broken, [x, window], 40, limits_with_memory(32))
        detected_count += 1
    assert detected_count == len(parts) - 1 >= 8
