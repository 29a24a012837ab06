"""Row preparation for Welch estimates: finite samples have a finite power, or an error
with the reason, on every engine alike.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.core.errors import NotFinite, UsageError
from rlxweb.core.thread_tasks import Cancelled, cancellation_scope
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.signal import row_preparation
from rlxweb.signal.presets import spec_from_preset
from rlxweb.signal.row_preparation import NanPolicy
from rlxweb.signal.welch_blockwise_average import WelchAverage
from rlxweb.signal.welch_request import WelchRequest

DRAW = np.random.default_rng(11)
X = DRAW.standard_normal((3, 1500))


@settings(max_examples=60, deadline=None)
@given(
    up=st.integers(-900, 900),
    rate=st.integers(-900, 900),
    dtype=st.sampled_from(["float32", "float64", "complex64", "complex128"]),
)
def test_scaling_by_a_power_of_two_is_exact(up: int, rate: int, dtype: str) -> None:
    """Scaling by a power of two squares to the last bit, or is refused where the type
    ends.
    """
    x = (X + 0.5j * X[::-1]).astype(dtype) if dtype[0] == "c" else X.astype(dtype)
    single = dtype in ("float32", "complex64")
    if single:
        up, rate = up // 8, rate // 8
    fs = 2.0**rate
    _, unscaled_power = rlx.welch(x, nperseg=128, device="cpu")
    exact = np.log2(unscaled_power.max(axis=1).astype(float)) + 2 * up - rate
    info = np.finfo(unscaled_power.dtype)
    scaled_x = np.ldexp(x.real, up)
    if dtype[0] == "c":
        scaled_x = scaled_x + 1j * np.ldexp(x.imag, up)
    if (exact < info.maxexp - 1e-6).all() and (exact > info.minexp + 1e-6).all():
        hz, power = rlx.welch(scaled_x, fs, nperseg=128, device="cpu")
        assert np.isfinite(hz).all()
        expected = np.ldexp(unscaled_power.astype(float), 2 * up - rate).astype(
            unscaled_power.dtype
        )
        np.testing.assert_array_equal(power, expected)
    elif (abs(exact - info.maxexp) > 1e-6).all() and (
        abs(exact - info.minexp) > 1e-6
    ).all():
        with pytest.raises(
            UsageError,
            match=r"is about 1e[+-]\d+; the (largest|smallest normal) float\d+",
        ):
            rlx.welch(scaled_x, fs, nperseg=128, device="cpu")


@pytest.mark.parametrize("call", [rlx.welch, rlx.welch_peaks])
def test_a_power_beyond_the_type_is_refused(call: Any) -> None:
    """A power beyond the type is refused with channel, power and the type's end."""
    x = X.copy()
    x[1] *= 1e200
    message = (
        r"channel 1 is about 1e\+40\d; the largest float64 is 1.8e\+308; "
        r"scale the samples"
    )
    with pytest.raises(UsageError, match=message):
        call(x)
    message = (
        r"about 1e-5\d; the smallest normal float32 is 1.2e-38; "
        r"pass precision='f64', or scale"
    )
    with pytest.raises(UsageError, match=message):
        call((X * 1e-30).astype("f4"))
    x = X.reshape(1, 3, 1500).astype("f4") * np.float32([[[1], [1], [1e30]]])
    with pytest.raises(UsageError, match=r"channel \[0, 2\] is about 1e\+6\d"):
        call(x)
    call(x, precision="f64")


def test_band_power_beyond_float64_is_refused() -> None:
    """A sample of 6e155 has a square beyond float64, but each bin's density is within
    it.
    """
    x = np.zeros(256)
    x[99] = 6e155
    x[::7] += 1.0
    hz, power = rlx.welch(x, 64.0, nperseg=64, device="cpu")
    small = np.ldexp(x, -520)
    expected = scipy.signal.welch(small, 64.0, nperseg=64)[1]
    np.testing.assert_allclose(power, np.ldexp(expected, 1040), rtol=1e-9)
    assert not rlx.band_power(x, 64.0, {"some": (9, 11)}, nperseg=64).flat.any()
    with pytest.raises(
        UsageError, match="from 1 to 31 Hz exceeds the range of float64"
    ):
        rlx.band_power_of(hz, power, {"all": (1, 31)})


def test_precision_f32_of_samples_beyond_float32() -> None:
    """precision="f32" accepts samples that float32 itself cannot hold."""
    for exponent in (-180, -140, 140, 180):
        fs = 2.0 ** (2 * exponent)
        _, power = rlx.welch(np.ldexp(X, exponent), fs, precision="f32", device="cpu")
        _, expected = rlx.welch(X, precision="f32", device="cpu")
        assert power.dtype == np.float32
        np.testing.assert_allclose(power, expected, rtol=1e-6)


def test_rows_of_different_size_keep_their_digits() -> None:
    """A loud row and a quiet one share an array with a dead one."""
    exponents = np.array([-400, 0, 400])
    x = np.ldexp(np.tile(X[0], (3, 1)), exponents[:, None])
    x = np.vstack([x, np.zeros_like(x[:1])])
    _, row_power = rlx.welch(X[0])
    _, power = rlx.welch(x, device="cpu")
    np.testing.assert_array_equal(
        power[:3], np.ldexp(row_power, 2 * exponents[:, None])
    )
    assert not power[3].any()
    result = rlx.welch_peaks(x, k=4, mode="peaks", device="cpu")
    np.testing.assert_array_equal(result.bins[0], result.bins[2])
    assert result.count.tolist() == [4, 4, 4, 0]


def test_a_window_and_a_rate_far_from_one() -> None:
    """A window times a power of two gives the same power; a rate may be far from 1."""
    window = np.hamming(64)
    for exponent in (-500, 500):
        _, power = rlx.welch(X, window=np.ldexp(window, exponent), scaling="spectrum")
        np.testing.assert_array_equal(
            power, rlx.welch(X, window=window, scaling="spectrum")[1]
        )
    hz, power = rlx.welch(X * 1e150, fs=1e305)
    np.testing.assert_allclose(hz[-1], 0.5e305)
    np.testing.assert_allclose(power, scipy.signal.welch(X)[1] * 1e-5, rtol=1e-9)


def test_samples_behind_the_last_segment_do_not_set_the_range() -> None:
    """Samples that no segment reads do not affect the range."""
    x = np.zeros(300, np.float32)
    x[:256] = 1e-25 * X[0, :256].astype("f4")
    x[299] = 1.0
    _, power = rlx.welch(x, 1e-30, nperseg=256, device="cpu")
    _, expected = scipy.signal.welch(x.astype(float), 1e-30, nperseg=256)
    np.testing.assert_allclose(power, expected, rtol=1e-5)


@pytest.mark.parametrize("exponent", [-100, -66, 66, 100])
def test_devices_have_the_same_range(adapter: AdapterRequest, exponent: int) -> None:
    """Squares may leave float32 where the samples do not."""
    x = np.ldexp(X, exponent).astype("f4")
    x[1] = 0.0
    placement = {"device": adapter.backends[0], "adapter": adapter.name}
    options = {"fs": 2.0 ** (2 * exponent), "detrend": "constant"}
    _, expected = rlx.welch(x, device="cpu", **options)
    _, power = rlx.welch(x, **placement, **options)
    np.testing.assert_allclose(power, expected, rtol=1e-4, atol=1e-6 * expected.max())
    for mode in ("bins", "peaks"):
        peak_options: dict[str, Any] = {
            "k": 3,
            "mode": mode,
            "preset": "scipy",
            **options,
        }
        cpu_result = rlx.welch_peaks(x, device="cpu", **peak_options)
        gpu_result = rlx.welch_peaks(x, **placement, **peak_options)
        np.testing.assert_array_equal(gpu_result.bins, cpu_result.bins)
        np.testing.assert_array_equal(gpu_result.count, [3, 0, 3])
    with pytest.raises(UsageError, match=r"the (largest|smallest normal) float32 is"):
        rlx.welch(x, **placement)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("mode", ["bins", "peaks"])
def test_non_finite_rows_are_the_same_on_devices(
    adapter: AdapterRequest, bad: float, mode: str
) -> None:
    """A non-finite row is NaN throughout and has no peak; the others are unchanged."""
    x = X.astype("f4")
    placement = {"device": adapter.backends[0], "adapter": adapter.name}
    clean = rlx.welch_peaks(x, k=4, mode=mode, **placement)
    x[1, 700] = bad
    options: dict[str, Any] = {"k": 4, "mode": mode, "nan": "propagate"}
    for result in (
        rlx.welch_peaks(x, device="cpu", **options),
        rlx.welch_peaks(x, **placement, **options),
    ):
        assert result.bins[1].tolist() == [-1] * 4
        assert np.isnan(result.power[1]).all()
        assert np.isnan(result.hz[1]).all()
        assert result.count.tolist() == [4, 0, 4]
        np.testing.assert_array_equal(result.bins[[0, 2]], clean.bins[[0, 2]])
    for arguments in ({"device": "cpu"}, placement):
        _, power = rlx.welch(x, nan="propagate", **arguments)
        assert np.isnan(power).all(axis=1).tolist() == [False, True, False]
    with pytest.raises(NotFinite, match=r"channel 1 is .* at sample 700; 1 of 4500"):
        rlx.welch_peaks(x, **placement)


def test_nan_behind_the_last_segment_may_be_allowed() -> None:
    """A NaN behind the last segment is refused, and harmless with nan="propagate"."""
    x = X[:1, :300].copy()
    x[0, 290] = np.nan
    with pytest.raises(NotFinite, match="sample 290"):
        rlx.welch(x, nperseg=256)
    _, power = rlx.welch(x, nperseg=256, nan="propagate")
    np.testing.assert_array_equal(power, rlx.welch(x[:, :256], nperseg=256)[1])


def test_stream_blocks_of_different_size(adapter: AdapterRequest) -> None:
    """Blocks of very different size are added as exact numbers would be."""
    x = X.copy()
    x[:, :500] = np.ldexp(x[:, :500], 480)
    x[2] = np.ldexp(X[2], -500)
    x[1, 500:] = 0.0
    spec = spec_from_preset("scipy", None, nperseg=64)
    stream = WelchAverage(spec, 3)
    for start in range(0, 1500, 170):
        stream.feed(x[:, start : start + 170])
    _, expected = rlx.welch(x, nperseg=64, device="cpu")
    np.testing.assert_allclose(stream.result(), expected, rtol=1e-10)
    stream.feed(np.ldexp(X, 520))
    with pytest.raises(UsageError, match="over a stream: the power of channel 0"):
        stream.result()


@pytest.mark.parametrize("shape", [(1, 50), (7, 50), (3, 9), (40, 3), (0, 50), (2, 0)])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.complex128])
def test_squares_are_summed_in_chunks(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], kind: Any
) -> None:
    """Other threads run, and cancelled work ends, between two chunks."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(kind) * kind(2)
    monkeypatch.setattr(row_preparation, "_CHUNK_SAMPLES", 16)
    got = row_preparation.sums_of_squares(x)
    np.testing.assert_allclose(got, (abs(x) ** 2).sum(axis=1), rtol=1e-6)
    assert got.dtype == x.real.dtype
    if x.size > 16:
        with cancellation_scope(lambda: True), pytest.raises(Cancelled):
            row_preparation.sums_of_squares(x)


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("nan", ["raise", "propagate"])
def test_signaling_nan_is_a_nan(kind: str, nan: NanPolicy) -> None:
    """A signaling NaN counts as a NaN; NumPy warns of converting it."""
    real_dtype = np.dtype(kind.replace("c8", "f4").replace("c16", "f8"))
    unsigned, exponent = f"u{real_dtype.itemsize}", np.array(np.inf, real_dtype)
    for position in range(0, 1200, 61):
        x = np.random.default_rng(position).standard_normal((3, 400)).astype(kind)
        bits = x.view(unsigned).reshape(-1)
        bits[position] = exponent.view(unsigned) + 1
        spec = WelchRequest(nperseg=64).spec(None, kind)
        stream = WelchAverage(spec, 3, nan=nan)
        calls = [partial(rlx.welch, x, nperseg=64, nan=nan), partial(stream.feed, x)]
        if nan == "raise":
            for call in calls:
                with pytest.raises(NotFinite, match="nan"):
                    call()
            with pytest.raises(UsageError, match="finite"):
                rlx.welch(x.real[0], nperseg=1200, window=bits[:1200].view(real_dtype))
            continue
        power = calls[0]()[1]
        calls[1]()
        is_nan = np.isnan(np.stack([power, stream.result()])).any(axis=2)
        row = position // (x.size * x.itemsize // real_dtype.itemsize // 3)
        assert not is_nan[:, np.arange(3) != row].any()
        assert is_nan[:, row].all() or position % 400 >= 400 - 400 % 32
