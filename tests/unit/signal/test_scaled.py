"""Finite samples have a finite power, or the reason why not; on every engine alike."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.errors import NotFinite, UsageError
from rlxweb.gpu.port import Want
from rlxweb.signal import scaled
from rlxweb.signal.presets import from_preset
from rlxweb.signal.request import WelchRequest
from rlxweb.signal.scaled import NanPolicy
from rlxweb.signal.stream import WelchAverage
from rlxweb.stopping import Stopped, may_stop

DRAW = np.random.default_rng(11)
X = DRAW.standard_normal((3, 1500))


@settings(max_examples=60, deadline=None)
@given(
    up=st.integers(-900, 900),
    rate=st.integers(-900, 900),
    dtype=st.sampled_from(["float32", "float64", "complex64", "complex128"]),
)
def test_a_power_of_two_in_is_its_square_out(up: int, rate: int, dtype: str) -> None:
    """A power of two squares to the last bit, or is refused where the type ends."""
    x = (X + 0.5j * X[::-1]).astype(dtype) if dtype[0] == "c" else X.astype(dtype)
    single = dtype in ("float32", "complex64")
    if single:
        up, rate = up // 8, rate // 8
    fs = 2.0**rate
    _, plain = rlx.welch(x, nperseg=128, device="cpu")
    exact = np.log2(plain.max(axis=1).astype(float)) + 2 * up - rate
    info = np.finfo(plain.dtype)
    scaled = np.ldexp(x.real, up)
    if dtype[0] == "c":
        scaled = scaled + 1j * np.ldexp(x.imag, up)
    if (exact < info.maxexp - 1e-6).all() and (exact > info.minexp + 1e-6).all():
        hz, power = rlx.welch(scaled, fs, nperseg=128, device="cpu")
        assert np.isfinite(hz).all()
        wanted = np.ldexp(plain.astype(float), 2 * up - rate).astype(plain.dtype)
        np.testing.assert_array_equal(power, wanted)
    elif (abs(exact - info.maxexp) > 1e-6).all() and (
        abs(exact - info.minexp) > 1e-6
    ).all():
        with pytest.raises(
            UsageError, match=r"is about 1e[+-]\d+; float\d+ (begin|end)s"
        ):
            rlx.welch(scaled, fs, nperseg=128, device="cpu")


@pytest.mark.parametrize("call", [rlx.welch, rlx.welch_peaks])
def test_a_power_beyond_the_type_is_refused(call: Any) -> None:
    """A power beyond the type is refused with channel, power and the type's end."""
    x = X.copy()
    x[1] *= 1e200
    said = r"channel 1 is about 1e\+40\d; float64 ends at 1.8e\+308; scale the samples"
    with pytest.raises(UsageError, match=said):
        call(x)
    said = r"about 1e-5\d; float32 begins at 1.2e-38; pass precision='f64', or scale"
    with pytest.raises(UsageError, match=said):
        call((X * 1e-30).astype("f4"))
    x = X.reshape(1, 3, 1500).astype("f4") * np.float32([[[1], [1], [1e30]]])
    with pytest.raises(UsageError, match=r"channel \[0, 2\] is about 1e\+6\d"):
        call(x)
    call(x, precision="f64")


def test_a_power_whose_sum_is_beyond_the_type_is_told() -> None:
    """One sample of 6e155: its square is no float64, but each bin's density is."""
    x = np.zeros(256)
    x[99] = 6e155
    x[::7] += 1.0
    hz, power = rlx.welch(x, 64.0, nperseg=64, device="cpu")
    small = np.ldexp(x, -520)
    wanted = scipy.signal.welch(small, 64.0, nperseg=64)[1]
    np.testing.assert_allclose(power, np.ldexp(wanted, 1040), rtol=1e-9)
    assert not rlx.band_power(x, 64.0, {"some": (9, 11)}, nperseg=64).flat.any()
    with pytest.raises(UsageError, match="from 1 to 31 Hz is beyond float64"):
        rlx.band_power_of(hz, power, {"all": (1, 31)})


def test_wider_samples_of_a_narrow_type_are_not_lost() -> None:
    """precision="f32" of samples that float32 itself cannot hold."""
    for up in (-180, -140, 140, 180):
        fs = 2.0 ** (2 * up)
        _, power = rlx.welch(np.ldexp(X, up), fs, precision="f32", device="cpu")
        _, wanted = rlx.welch(X, precision="f32", device="cpu")
        assert power.dtype == np.float32
        np.testing.assert_allclose(power, wanted, rtol=1e-6)


def test_rows_far_apart_keep_their_own_digits() -> None:
    """A loud row and a quiet one in one array, beside a dead one."""
    ups = np.array([-400, 0, 400])
    x = np.ldexp(np.tile(X[0], (3, 1)), ups[:, None])
    x = np.vstack([x, np.zeros_like(x[:1])])
    _, one = rlx.welch(X[0])
    _, power = rlx.welch(x, device="cpu")
    np.testing.assert_array_equal(power[:3], np.ldexp(one, 2 * ups[:, None]))
    assert not power[3].any()
    found = rlx.welch_peaks(x, k=4, mode="peaks", device="cpu")
    np.testing.assert_array_equal(found.bins[0], found.bins[2])
    assert found.count.tolist() == [4, 4, 4, 0]


def test_a_window_and_a_rate_far_from_one() -> None:
    """A window times a power of two gives the same power; a rate may be far from 1."""
    window = np.hamming(64)
    for up in (-500, 500):
        _, power = rlx.welch(X, window=np.ldexp(window, up), scaling="spectrum")
        np.testing.assert_array_equal(
            power, rlx.welch(X, window=window, scaling="spectrum")[1]
        )
    hz, power = rlx.welch(X * 1e150, fs=1e305)
    np.testing.assert_allclose(hz[-1], 0.5e305)
    np.testing.assert_allclose(power, scipy.signal.welch(X)[1] * 1e-5, rtol=1e-9)


def test_the_loudest_sample_may_lie_behind_the_last_segment() -> None:
    """What no segment reads tells nothing of the range."""
    x = np.zeros(300, np.float32)
    x[:256] = 1e-25 * X[0, :256].astype("f4")
    x[299] = 1.0
    _, power = rlx.welch(x, 1e-30, nperseg=256, device="cpu")
    _, wanted = scipy.signal.welch(x.astype(float), 1e-30, nperseg=256)
    np.testing.assert_allclose(power, wanted, rtol=1e-5)


@pytest.mark.parametrize("up", [-100, -66, 66, 100])
def test_devices_compute_in_the_same_range(adapter: Want, up: int) -> None:
    """Squares that float32 cannot hold, of samples that it can."""
    x = np.ldexp(X, up).astype("f4")
    x[1] = 0.0
    where = {"device": adapter.backends[0], "adapter": adapter.name}
    named = {"fs": 2.0 ** (2 * up), "detrend": "constant"}
    _, wanted = rlx.welch(x, device="cpu", **named)
    _, power = rlx.welch(x, **where, **named)
    np.testing.assert_allclose(power, wanted, rtol=1e-4, atol=1e-6 * wanted.max())
    for mode in ("bins", "peaks"):
        asked: dict[str, Any] = {"k": 3, "mode": mode, "preset": "scipy", **named}
        cpu = rlx.welch_peaks(x, device="cpu", **asked)
        gpu = rlx.welch_peaks(x, **where, **asked)
        np.testing.assert_array_equal(gpu.bins, cpu.bins)
        np.testing.assert_array_equal(gpu.count, [3, 0, 3])
    with pytest.raises(UsageError, match=r"float32 (ends|begins) at"):
        rlx.welch(x, **where)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("mode", ["bins", "peaks"])
def test_what_is_not_finite_means_the_same_on_devices(
    adapter: Want, bad: float, mode: str
) -> None:
    """The row is NaN throughout and has no peak; the others are as they were."""
    x = X.astype("f4")
    where = {"device": adapter.backends[0], "adapter": adapter.name}
    clean = rlx.welch_peaks(x, k=4, mode=mode, **where)
    x[1, 700] = bad
    asked: dict[str, Any] = {"k": 4, "mode": mode, "nan": "propagate"}
    for found in (
        rlx.welch_peaks(x, device="cpu", **asked),
        rlx.welch_peaks(x, **where, **asked),
    ):
        assert found.bins[1].tolist() == [-1] * 4
        assert np.isnan(found.power[1]).all()
        assert np.isnan(found.hz[1]).all()
        assert found.count.tolist() == [4, 0, 4]
        np.testing.assert_array_equal(found.bins[[0, 2]], clean.bins[[0, 2]])
    for place in ({"device": "cpu"}, where):
        _, power = rlx.welch(x, nan="propagate", **place)
        assert np.isnan(power).all(axis=1).tolist() == [False, True, False]
    with pytest.raises(NotFinite, match=r"channel 1 is .* at sample 700; 1 of 4500"):
        rlx.welch_peaks(x, **where)


def test_what_no_segment_reads_may_be_anything_on_request() -> None:
    """A NaN behind the last segment is refused, and harmless where it may pass."""
    x = X[:1, :300].copy()
    x[0, 290] = np.nan
    with pytest.raises(NotFinite, match="sample 290"):
        rlx.welch(x, nperseg=256)
    _, power = rlx.welch(x, nperseg=256, nan="propagate")
    np.testing.assert_array_equal(power, rlx.welch(x[:, :256], nperseg=256)[1])


def test_a_stream_of_any_range(adapter: Want) -> None:
    """Blocks far apart are added as exact numbers would be."""
    x = X.copy()
    x[:, :500] = np.ldexp(x[:, :500], 480)
    x[2] = np.ldexp(X[2], -500)
    x[1, 500:] = 0.0
    spec = from_preset("scipy", None, nperseg=64)
    stream = WelchAverage(spec, 3)
    for start in range(0, 1500, 170):
        stream.feed(x[:, start : start + 170])
    _, wanted = rlx.welch(x, nperseg=64, device="cpu")
    np.testing.assert_allclose(stream.result(), wanted, rtol=1e-10)
    stream.feed(np.ldexp(X, 520))
    with pytest.raises(UsageError, match="over a stream: the power of channel 0"):
        stream.result()


@pytest.mark.parametrize("shape", [(1, 50), (7, 50), (3, 9), (40, 3), (0, 50), (2, 0)])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.complex128])
def test_squares_are_summed_in_steps(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], kind: Any
) -> None:
    """Other threads run, and work that was given up ends, between two of them."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(kind) * kind(2)
    monkeypatch.setattr(scaled, "_STEP", 16)
    got = scaled.sums_of_squares(x)
    np.testing.assert_allclose(got, (abs(x) ** 2).sum(axis=1), rtol=1e-6)
    assert got.dtype == x.real.dtype
    if x.size > 16:
        with may_stop(lambda: True), pytest.raises(Stopped):
            scaled.sums_of_squares(x)


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("nan", ["raise", "propagate"])
def test_a_nan_that_signals_is_a_nan(kind: str, nan: NanPolicy) -> None:
    """One that is quiet nowhere in the file; NumPy warns of converting it."""
    part = np.dtype(kind.replace("c8", "f4").replace("c16", "f8"))
    unsigned, exponent = f"u{part.itemsize}", np.array(np.inf, part)
    for at in range(0, 1200, 61):
        x = np.random.default_rng(at).standard_normal((3, 400)).astype(kind)
        bits = x.view(unsigned).reshape(-1)
        bits[at] = exponent.view(unsigned) + 1
        spec = WelchRequest(nperseg=64).spec(None, kind)
        stream = WelchAverage(spec, 3, nan=nan)
        calls = [partial(rlx.welch, x, nperseg=64, nan=nan), partial(stream.feed, x)]
        if nan == "raise":
            for call in calls:
                with pytest.raises(NotFinite, match="nan"):
                    call()
            with pytest.raises(UsageError, match="finite"):
                rlx.welch(x.real[0], nperseg=1200, window=bits[:1200].view(part))
            continue
        power = calls[0]()[1]
        calls[1]()
        lost = np.isnan(np.stack([power, stream.result()])).any(axis=2)
        row = at // (x.size * x.itemsize // part.itemsize // 3)
        assert not lost[:, np.arange(3) != row].any()
        assert lost[:, row].all() or at % 400 >= 400 - 400 % 32
