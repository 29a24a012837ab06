"""Compiled estimates: NumPy's and SciPy's numbers, at any length, width and batch."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.digital import Digital
from rlxweb.errors import DTypeError
from rlxweb.host import compiled_rows
from rlxweb.host.compiled import Kernel, Wanted, loaded, wanted
from rlxweb.host.compiled_rows import Samples, powers, strongest
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import welch_power
from rlxweb.host.strongest import strongest_bins
from rlxweb.host.welch_kernels import welch_kernels
from rlxweb.machine.estimate import Estimate
from rlxweb.machine.library import Code, object_code, processor
from rlxweb.machine.search import registers_for
from rlxweb.machine.sums import RowByRow, SideBySide
from rlxweb.machine.text import SIZE
from tests.oracles import strongest_first
from tests.tiers import thinned
from tests.unit.host.resolved import resolve
from tests.unit.host.test_spectrum import noise, relative

pytestmark = pytest.mark.requires_fast

SINGLE, DOUBLE = 1e-7, 1e-13


def kernel_for(spec: WelchSpec, k: int = 16) -> Kernel:
    """The kernel, made now."""
    about = wanted(spec, k)
    assert isinstance(about, Wanted), about
    welch_kernels.now(about)
    kernel = welch_kernels.ready(about)
    assert kernel is not None, welch_kernels.state(about)
    return kernel


def of_width(nbytes: int, n: int, trend: Any = "none", k: int = 16) -> Kernel:
    """A kernel for vectors of so many bytes, float64 in and out."""
    registers = registers_for(min(k, n // 2 + 1), nbytes // SIZE["double"])
    made = Estimate(n, nbytes, "double", trend, "double", registers)
    return loaded(made, Code(object_code(made.text())))


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
def test_any_estimate_is_numpys(
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
    given_ = Digital(x, 0.5, 3.0) if dtype.startswith("int") else x
    taken = "int24" if dtype.startswith("int") else dtype
    spec = resolve(
        x.shape[1],
        taken,
        nperseg=n,
        noverlap=n - hop,
        nfft=n + pad,
        detrend=detrend,
    )
    k = data.draw(st.integers(1, min(40, (n + pad) // 2 + 1)))
    kernel, samples = kernel_for(spec, k), Samples.of(given_)
    power = powers(kernel, samples, spec)
    physical = given_.physical() if isinstance(given_, Digital) else given_
    want = welch_power(physical, spec)
    assert (power.dtype, power.shape) == (want.dtype, want.shape)
    if rows:
        close = SINGLE if dtype == "float32" else 1e-12
        # A line through two samples leaves rounding alone.
        rounding = 1e-24 * n * float(np.square(physical, dtype=np.float64).sum())
        np.testing.assert_allclose(power, want, close, close * want.max() + rounding)
    bins, top = strongest(kernel, samples, spec, k)
    for got, wanted_ in zip((bins, top), strongest_bins(power, k), strict=True):
        np.testing.assert_array_equal(got, wanted_)


SIZES: tuple[tuple[int, type], ...] = (
    (256, RowByRow),
    (300, RowByRow),
    (1000, RowByRow),
    (1009, RowByRow),
    (2 * 47, RowByRow),
    (2 * 37, SideBySide),
    (105, SideBySide),
    (1001, SideBySide),
    (31, SideBySide),
    (2, SideBySide),
    (1, SideBySide),
)


@pytest.mark.parametrize(
    "case", thinned(product([16, 32, 64], SIZES), 2), ids="{0[0]}-{0[1][0]}".format
)
def test_every_width_and_way(case: tuple[int, tuple[int, type]]) -> None:
    """Vectors of SSE, AVX2 and AVX-512 have the same numbers, odd lanes too."""
    nbytes, (n, way) = case
    if nbytes > processor().nbytes:
        pytest.skip(f"this processor has no vectors of {nbytes} bytes")
    kernel = of_width(nbytes, n, "constant")
    if n % 8 or n < 16:  # shorter vectors cut more rows into lanes
        assert isinstance(kernel.estimate.sums, way) or nbytes < 64
    x = noise(11, 4 * n)
    spec = resolve(4 * n, nperseg=n, noverlap=0)
    np.testing.assert_allclose(
        powers(kernel, Samples.of(x), spec), welch_power(x, spec), 1e-11, 1e-14
    )


@pytest.mark.parametrize("n", [256, 1000, 1009, 3 * 5 * 7 * 11])
def test_scipy_agrees(n: int) -> None:
    """Compiled powers agree with SciPy's in float64, with a linear detrend."""
    x = noise(5, 7 * n)
    spec = resolve(7 * n, nperseg=n, detrend="linear")
    _, want = scipy.signal.welch(x, nperseg=n, detrend="linear")
    assert relative(powers(kernel_for(spec), Samples.of(x), spec), want) < DOUBLE


@pytest.mark.parametrize("segments", [2, 3, 40_000])
def test_long_rows_are_cut_into_stretches(segments: int) -> None:
    """Stretches of long rows have the sums of the whole, by one thread or several."""
    n = 30
    x = noise(3, n + (segments - 1) * 15, dtype="float32")
    spec = resolve(x.shape[1], "float32", nperseg=n)
    power = powers(kernel_for(spec), Samples.of(x), spec)
    assert relative(power, welch_power(x, spec)) < SINGLE


def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cut depends on the shapes alone."""
    x = noise(700, 1024, dtype="float32")
    spec = resolve(1024, "float32", nperseg=256)
    kernel, found = kernel_for(spec), []
    for least in (1, 1 << 60):
        monkeypatch.setattr(compiled_rows, "THREADED_SAMPLES", least)
        found.append(strongest(kernel, Samples.of(x), spec, 9))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


@pytest.mark.parametrize("k", [1, 16, 17, 33, 64, 65, 129])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ties_go_to_the_smaller_bin(k: int, dtype: str) -> None:
    """A row of silence, a pulse (a flat spectrum), a tone: equal powers in order."""
    x = np.zeros((3, 512), dtype)
    x[1, 5] = 1.0
    x[2] = np.cos(2 * np.pi * np.arange(512) / 8)
    spec = resolve(512, dtype, nperseg=256, window="boxcar", detrend=False)
    kernel = kernel_for(spec, k)
    bins, top = strongest(kernel, Samples.of(x), spec, k)
    power = powers(kernel, Samples.of(x), spec)
    np.testing.assert_array_equal(bins, strongest_first(power, k))
    np.testing.assert_array_equal(top, np.take_along_axis(power, bins, 1))


def test_rows_with_nan_are_searched_as_numpy_does() -> None:
    """NaN comes after every number, and other rows do not notice."""
    x = noise(40, 512, dtype="float32")
    x[[0, 7, 39], [0, 300, 511]] = np.nan
    spec = resolve(512, "float32", nperseg=256)
    kernel = kernel_for(spec)
    bins, top = strongest(kernel, Samples.of(x), spec, 16)
    want, right = strongest_bins(welch_power(x, spec), 16)
    np.testing.assert_array_equal(np.isnan(top), np.isnan(right))
    sound = ~np.isnan(right).any(axis=1)
    np.testing.assert_array_equal(bins[sound], want[sound])


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
def test_rows_may_lie_as_they_like(view: Any, dtype: str) -> None:
    """Rows may lie turned, stepped, by columns, in another byte order, unaligned."""
    values = noise(12, 1024) * 20
    x = view(values > 50 if dtype == "bool" else values.astype(dtype))
    spec = resolve(x.shape[1], dtype, nperseg=128)
    power = powers(kernel_for(spec), Samples.of(x), spec)
    assert relative(power, welch_power(np.asarray(x, np.float64), spec)) < SINGLE


def test_samples_of_another_type_are_refused() -> None:
    """Code reads bytes: whoever asks it by mistake is told."""
    spec = resolve(512, "float32", nperseg=256)
    with pytest.raises(DTypeError, match="the samples are float64"):
        powers(kernel_for(spec), Samples.of(noise(2, 512)), spec)


def test_what_is_not_compiled_says_why() -> None:
    """Complex rows, medians, both sides and endless transforms are not compiled."""
    reasons = {
        "complex samples": wanted(resolve(64, complex, nperseg=64), 4),
        "average='median'": wanted(resolve(64, nperseg=64, average="median"), 4),
        "two-sided": wanted(resolve(64, nperseg=64, return_onesided=False), 4),
        "more than 65,536": wanted(resolve(1 << 17, nperseg=1 << 17), 4),
    }
    for word, said in reasons.items():
        assert isinstance(said, str)
        assert word in said
