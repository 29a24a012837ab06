"""Compiled Welch estimates equal NumPy's and SciPy's for any length, vector width and
batch.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.codegen.llvm_builder import TYPE_NBYTES
from rlxweb.codegen.llvm_compiler import LoadedCode, compile_object, host_cpu
from rlxweb.core.adc_samples import Digital
from rlxweb.core.errors import DTypeError
from rlxweb.ops.welch.cpu import rows as compiled_welch_rows
from rlxweb.ops.welch.cpu.kernel import (
    CompiledWelchKernel,
    WelchKernelKey,
    load_welch_kernel,
    welch_kernel_key,
)
from rlxweb.ops.welch.cpu.kernel_cache import welch_kernels
from rlxweb.ops.welch.cpu.llvm_kernel import WelchKernel
from rlxweb.ops.welch.cpu.llvm_power_sums import LanePowerSums, RowPowerSums
from rlxweb.ops.welch.cpu.llvm_top_k_search import register_count
from rlxweb.ops.welch.cpu.rows import (
    KernelSamples,
    compiled_power,
    compiled_strongest_bins,
)
from rlxweb.ops.welch.cpu.spectrum import welch_power
from rlxweb.ops.welch.cpu.strongest_bins import strongest_bins
from rlxweb.ops.welch.spec import WelchSpec
from tests.numpy_welch_peaks_reference import rank_bins
from tests.suite_tiers import thin_out_cases
from tests.unit.ops.test_welch_spectrum import noise, relative_error
from tests.unit.ops.welch_spec_factory import resolve_spec

pytestmark = pytest.mark.requires_fast

SINGLE_TOLERANCE, DOUBLE_TOLERANCE = 1e-7, 1e-13


def kernel_for(spec: WelchSpec, k: int = 16) -> CompiledWelchKernel:
    """Compile and return the kernel."""
    key = welch_kernel_key(spec, k)
    assert isinstance(key, WelchKernelKey), key
    welch_kernels.compile_now(key)
    kernel = welch_kernels.get_kernel(key)
    assert kernel is not None, welch_kernels.missing_reason(key)
    return kernel


def kernel_with_width(
    nbytes: int, n: int, trend: Any = "none", k: int = 16
) -> CompiledWelchKernel:
    """Return a kernel for vectors of this many bytes, float64 in and out."""
    registers = register_count(min(k, n // 2 + 1), nbytes // TYPE_NBYTES["double"])
    estimate = WelchKernel(n, nbytes, "double", trend, "double", registers)
    return load_welch_kernel(estimate, LoadedCode(compile_object(estimate.llvm_ir())))


@pytest.fixture(autouse=True)
def _mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_FAST", "background")


@given(
    n=st.integers(1, 300),
    rows=st.integers(0, 20),
    segments=st.integers(1, 9),
    overlap=st.floats(0, 0.99),
    dtype=st.sampled_from(["float32", "float64", "int16", "int32"]),
    detrend=st.sampled_from([False, "constant", "linear"]),
    pad=st.sampled_from([0, 0, 7]),
    data=st.data(),
)
@settings(max_examples=60)
def test_any_estimate_agrees_with_numpy(
    n: int,
    rows: int,
    segments: int,
    overlap: float,
    dtype: str,
    detrend: Any,
    pad: int,
    data: st.DataObject,
) -> None:
    """Estimates are NumPy's, with power and strongest bins of any length and batch."""
    hop = max(1, n - int(overlap * n))
    x = (noise(rows, n + (segments - 1) * hop) * 50).astype(dtype)
    rows_or_digital = Digital(x, 0.5, 3.0) if dtype.startswith("int") else x
    spec_dtype = "int24" if dtype.startswith("int") else dtype
    spec = resolve_spec(
        x.shape[1],
        spec_dtype,
        nperseg=n,
        noverlap=n - hop,
        nfft=n + pad,
        detrend=detrend,
    )
    k = data.draw(st.integers(1, min(40, (n + pad) // 2 + 1)))
    kernel, samples = kernel_for(spec, k), KernelSamples.from_samples(rows_or_digital)
    power = compiled_power(kernel, samples, spec)
    physical = (
        rows_or_digital.physical()
        if isinstance(rows_or_digital, Digital)
        else rows_or_digital
    )
    want = welch_power(physical, spec)
    assert (power.dtype, power.shape) == (want.dtype, want.shape)
    if rows:
        rtol = SINGLE_TOLERANCE if dtype == "float32" else 1e-12
        # A line through two samples leaves rounding alone.
        rounding = 1e-24 * n * float(np.square(physical, dtype=np.float64).sum())
        np.testing.assert_allclose(power, want, rtol, rtol * want.max() + rounding)
    bins, top = compiled_strongest_bins(kernel, samples, spec, k)
    for got, expected in zip((bins, top), strongest_bins(power, k), strict=True):
        np.testing.assert_array_equal(got, expected)


LENGTHS_AND_SUMS: tuple[tuple[int, type], ...] = (
    (256, RowPowerSums),
    (300, RowPowerSums),
    (1000, RowPowerSums),
    (1009, RowPowerSums),
    (2 * 47, RowPowerSums),
    (2 * 37, LanePowerSums),
    (105, LanePowerSums),
    (1001, LanePowerSums),
    (31, LanePowerSums),
    (2, LanePowerSums),
    (1, LanePowerSums),
)


@pytest.mark.parametrize(
    "case",
    thin_out_cases(product([16, 32, 64], LENGTHS_AND_SUMS), 2),
    ids="{0[0]}-{0[1][0]}".format,
)
def test_every_vector_width_and_sum_order(case: tuple[int, tuple[int, type]]) -> None:
    """Vectors of SSE, AVX2 and AVX-512 have the same numbers, odd lanes too."""
    nbytes, (n, sums_type) = case
    if nbytes > host_cpu().vector_nbytes:
        pytest.skip(f"this processor has no vectors of {nbytes} bytes")
    kernel = kernel_with_width(nbytes, n, "constant")
    if n % 8 or n < 16:  # shorter vectors cut more rows into lanes
        assert isinstance(kernel.generator.power_sums, sums_type) or nbytes < 64
    x = noise(11, 4 * n)
    spec = resolve_spec(4 * n, nperseg=n, noverlap=0)
    np.testing.assert_allclose(
        compiled_power(kernel, KernelSamples.from_samples(x), spec),
        welch_power(x, spec),
        1e-11,
        1e-14,
    )


@pytest.mark.parametrize("n", [256, 1000, 1009, 3 * 5 * 7 * 11])
def test_scipy_agrees(n: int) -> None:
    """Compiled powers agree with SciPy's in float64, with a linear detrend."""
    x = noise(5, 7 * n)
    spec = resolve_spec(7 * n, nperseg=n, detrend="linear")
    _, want = scipy.signal.welch(x, nperseg=n, detrend="linear")
    assert (
        relative_error(
            compiled_power(kernel_for(spec), KernelSamples.from_samples(x), spec), want
        )
        < DOUBLE_TOLERANCE
    )


@pytest.mark.parametrize("segments", [2, 3, 40_000])
def test_long_rows_are_split_into_chunks(segments: int) -> None:
    """Chunks of long rows add up to the whole rows' sums, on one thread or several."""
    n = 30
    x = noise(3, n + (segments - 1) * 15, dtype="float32")
    spec = resolve_spec(x.shape[1], "float32", nperseg=n)
    power = compiled_power(kernel_for(spec), KernelSamples.from_samples(x), spec)
    assert relative_error(power, welch_power(x, spec)) < SINGLE_TOLERANCE


def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The split depends on the shapes alone."""
    x = noise(700, 1024, dtype="float32")
    spec = resolve_spec(1024, "float32", nperseg=256)
    kernel, results = kernel_for(spec), []
    for threshold in (1, 1 << 60):
        monkeypatch.setattr(compiled_welch_rows, "THREADED_SAMPLES", threshold)
        results.append(
            compiled_strongest_bins(kernel, KernelSamples.from_samples(x), spec, 9)
        )
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])


@pytest.mark.parametrize("k", [1, 16, 17, 33, 64, 65, 129])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ties_go_to_the_smaller_bin(k: int, dtype: str) -> None:
    """A row of silence, a pulse (a flat spectrum), a tone: equal powers in order."""
    x = np.zeros((3, 512), dtype)
    x[1, 5] = 1.0
    x[2] = np.cos(2 * np.pi * np.arange(512) / 8)
    spec = resolve_spec(512, dtype, nperseg=256, window="boxcar", detrend=False)
    kernel = kernel_for(spec, k)
    bins, top = compiled_strongest_bins(kernel, KernelSamples.from_samples(x), spec, k)
    power = compiled_power(kernel, KernelSamples.from_samples(x), spec)
    np.testing.assert_array_equal(bins, rank_bins(power, k))
    np.testing.assert_array_equal(top, np.take_along_axis(power, bins, 1))


def test_rows_with_nan_are_searched_as_numpy_does() -> None:
    """NaN comes after every number, and other rows do not notice."""
    x = noise(40, 512, dtype="float32")
    x[[0, 7, 39], [0, 300, 511]] = np.nan
    spec = resolve_spec(512, "float32", nperseg=256)
    kernel = kernel_for(spec)
    bins, top = compiled_strongest_bins(kernel, KernelSamples.from_samples(x), spec, 16)
    want, expected = strongest_bins(welch_power(x, spec), 16)
    np.testing.assert_array_equal(np.isnan(top), np.isnan(expected))
    is_finite = ~np.isnan(expected).any(axis=1)
    np.testing.assert_array_equal(bins[is_finite], want[is_finite])


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[::-1],
        lambda x: x[:, ::-1],
        lambda x: x[::3, ::2],
        lambda x: np.asfortranarray(x),
        lambda x: x.astype(x.dtype.newbyteorder()),
        lambda x: np.broadcast_to(x[0], x.shape),
        lambda x: (
            np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:]
            .view(x.dtype)
            .reshape(x.shape)
        ),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "uint8", "bool"])
def test_rows_may_have_any_memory_layout(view: Any, dtype: str) -> None:
    """Rows may be reversed, strided, in column order, byte-swapped or unaligned."""
    values = noise(12, 1024) * 20
    x = view(values > 50 if dtype == "bool" else values.astype(dtype))
    spec = resolve_spec(x.shape[1], dtype, nperseg=128)
    power = compiled_power(kernel_for(spec), KernelSamples.from_samples(x), spec)
    assert (
        relative_error(power, welch_power(np.asarray(x, np.float64), spec))
        < SINGLE_TOLERANCE
    )


def test_samples_of_another_type_are_refused() -> None:
    """Refuse samples of another dtype, since the code reads raw bytes."""
    spec = resolve_spec(512, "float32", nperseg=256)
    with pytest.raises(DTypeError, match="the samples are float64"):
        compiled_power(
            kernel_for(spec), KernelSamples.from_samples(noise(2, 512)), spec
        )


def test_unsupported_estimates_give_a_reason() -> None:
    """Complex rows, medians, two-sided spectra and very long transforms are not
    compiled.
    """
    reasons = {
        "complex samples": welch_kernel_key(resolve_spec(64, complex, nperseg=64), 4),
        "average='median'": welch_kernel_key(
            resolve_spec(64, nperseg=64, average="median"), 4
        ),
        "two-sided": welch_kernel_key(
            resolve_spec(64, nperseg=64, return_onesided=False), 4
        ),
        "more than 65,536": welch_kernel_key(resolve_spec(1 << 17, nperseg=1 << 17), 4),
    }
    for word, reason in reasons.items():
        assert isinstance(reason, str)
        assert word in reason
