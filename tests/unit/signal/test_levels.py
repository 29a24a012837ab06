"""Integers on engines that compute in float32: the error, also far from zero."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.device import Device
from rlxweb.digital import Digital
from rlxweb.errors import DTypeError, ShapeError, UsageError
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Want
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import welch_power
from rlxweb.io import open_recording
from rlxweb.signal.engine import NUMPY, device_engine
from rlxweb.signal.levels import level_rows
from rlxweb.signal.presets import from_preset
from rlxweb.signal.stream import WelchAverage

PRESETS = ("rlx", "scipy", "mne")
# Of the strongest bin of a row, and of a bin's own power: what the manual states.
OF_PEAK, OF_BIN = 5e-7, {"test.edf": 1e-5, "test.bdf": 1e-4}


def recording_like(bits: int, seed: int = 3) -> Digital:
    """Six channels of falling noise with a hum, as a converter of so many bits."""
    rng = np.random.default_rng(seed)
    noise = np.cumsum(rng.standard_normal((6, 4000)), axis=1)
    hum = 30 * np.sin(2 * np.pi * 50 / 512 * np.arange(4000))
    x = noise - noise.mean(axis=1, keepdims=True) + hum
    counts = np.rint(x / np.abs(x).max() * 0.4 * 2 ** (bits - 1)).astype(np.int32)
    return Digital(counts, rng.uniform(0.01, 2, 6), rng.uniform(-1, 1, 6))


def errors(found: np.ndarray, exact: np.ndarray) -> tuple[float, float]:
    """The worst of a bin's own power, and of the strongest bin's of its row."""
    apart = np.abs(found - exact)
    peak = exact.max(axis=1, keepdims=True)
    return float((apart / exact).max()), float((apart / peak).max())


def check_close(found: Any, exact: Any, most: float = 1e-4) -> None:
    of_bin, of_peak = errors(found, exact)
    assert found.dtype == np.float64
    assert of_bin < most
    assert of_peak < OF_PEAK


def far(x: Digital, times: float) -> Digital:
    """The same signal, so many times its deviation away from zero."""
    return Digital(x.counts, x.gain, x.offset + times * x.counts.std(axis=1))


def spec_of(preset: str, n_samples: int, **more: Any) -> WelchSpec:
    return from_preset(preset, n_samples, fs=512, dtype="int24", **more)


@given(
    seed=st.integers(0, 2**32 - 1),
    bits=st.integers(2, 24),
    height=st.integers(-(2**22), 2**22),
    offset=st.floats(-1e12, 1e12),
    detrend=st.sampled_from([None, "constant", "linear"]),
    nperseg=st.integers(2, 40),
    hop=st.integers(1, 60),
    pad=st.integers(0, 9),
)
def test_a_level_taken_off_comes_back(
    seed: int,
    bits: int,
    height: int,
    offset: float,
    detrend: str | None,
    nperseg: int,
    hop: int,
    pad: int,
) -> None:
    """A level taken off leaves the power of the physical values, in float64."""
    rng = np.random.default_rng(seed)
    half = 2 ** (min(bits, 23) - 1)
    counts = rng.integers(-half, half, (3, 200)) + height
    counts = np.clip(counts, -(2**23), 2**23 - 1)
    x = Digital(counts, rng.uniform(0.1, 9, 3), offset)
    spec = from_preset(
        "scipy",
        200,
        dtype="int24",
        nperseg=nperseg,
        nfft=nperseg + pad,
        detrend=detrend,
    )
    spec = replace(spec, hop=hop, n_segments=1 + (200 - nperseg) // hop)
    own = level_rows(x)
    level = level_rows(x.counts).level
    np.testing.assert_array_equal(own.x + level[:, None], x.counts)
    got = own.power(welch_power(own.x, replace(spec, dtype="float64")), spec)
    exact = welch_power(x.physical(), spec)
    scale = (x.gain**2 * (np.square(counts + offset).mean(axis=1)))[:, None]
    noise = 1e-13 * scale * spec.scale * np.sum(np.abs(spec.window_array)) ** 2
    assert (np.abs(got - exact) <= noise + 1e-9 * exact).all()


# Each sixth has the first preset: what other adapters take is of one shader.
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("bits", [16, 24])
@pytest.mark.parametrize("times", [0, 1e4, 1e7])
def test_a_device_is_as_near_wherever_the_signal_lies(
    preset: str, bits: int, times: float, adapter: Want
) -> None:
    """Far from zero the error is no larger; the answer is float64."""
    x = far(recording_like(bits), times)
    spec = spec_of(preset, 4000)
    engine = device_engine(Device(adapter.backends[0]), adapter.name)
    exact = welch_power(x.physical(), spec)
    check_close(drive(engine.power(x, spec)), exact)
    bins, power = drive(engine.strongest(x, spec, 5))
    found, exactly = drive(NUMPY.strongest(x, spec, 5))
    np.testing.assert_array_equal(bins, found)
    np.testing.assert_allclose(power, exactly, rtol=1e-5)


@pytest.mark.parametrize("times", [0, 1e6])
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", ["test.edf", "test.bdf"])
def test_the_error_on_recordings(
    eeg_recordings: Path, name: str, preset: str, times: float, adapter: Want
) -> None:
    """The error on recordings is small, also with an offset far over the signal."""
    with open_recording(eeg_recordings / name) as recording:
        (group,) = recording.groups
        stored = group.read_stored()
    assert isinstance(stored, Digital)
    x = far(stored, times)
    spec = from_preset(preset, x.shape[1], fs=group.fs, dtype="int24")
    engine = device_engine(Device(adapter.backends[0]), adapter.name)
    exact = welch_power(x.physical(), spec)
    check_close(drive(engine.power(x, spec)), exact, OF_BIN[name])


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("preset", PRESETS)
def test_python_takes_integers_to_a_device(preset: str, adapter: Want) -> None:
    """Integers go to a device as they are; counts with a gain as what they mean."""
    where = {"device": adapter.backends[0], "adapter": adapter.name}
    x = recording_like(16)
    short = x.counts.astype(np.int16)
    how: dict[str, Any] = {"fs": 512, "k": 5, "preset": preset}
    for one in (short, short.reshape(2, 3, -1), far(x, 1e5)):
        there = rlx.welch_peaks(one, **how, **where)
        here = rlx.welch_peaks(one, device="cpu", **how)
        assert there.device is Device(adapter.backends[0])
        assert there.power.dtype == here.power.dtype == np.float64
        np.testing.assert_array_equal(there.bins, here.bins)
        np.testing.assert_allclose(there.power, here.power, rtol=1e-5)
    check_close(rlx.welch(short, 512, **where)[1], rlx.welch(short, 512)[1])


def test_numpy_computes_integers_as_float64() -> None:
    """Integers give NumPy the bits of their physical values, whatever the way there."""
    x = recording_like(24)
    short = x.counts.astype(np.int16)
    for one, wide in ((x, x.physical()), (short, short.astype(np.float64))):
        np.testing.assert_array_equal(rlx.welch(one)[1], rlx.welch(wide)[1])
        found, exact = rlx.welch_peaks(one), rlx.welch_peaks(wide)
        np.testing.assert_array_equal(found.bins, exact.bins)
        np.testing.assert_array_equal(found.power, exact.power)
    one = rlx.welch(Digital(x.counts[0], 2.0), 512.0)[1]
    np.testing.assert_array_equal(one, rlx.welch(2.0 * x.counts[0], 512.0)[1])


def test_a_stream_of_integers_is_that_of_their_values() -> None:
    """Integers stream as their values, block by block, in one scale."""
    x = far(recording_like(16), 100)
    spec = from_preset("rlx", None, fs=512, dtype="int24")
    stream = WelchAverage(spec, 6)
    for at in range(0, 4000, 700):
        stream.feed(Digital(x.counts[:, at : at + 700], x.gain, x.offset))
    exact = welch_power(x.physical(), replace(spec, dtype="float64"))
    np.testing.assert_allclose(stream.result(), exact, rtol=1e-12)
    with pytest.raises(UsageError, match="the gain or the offset of a channel changed"):
        stream.feed(x.counts)
    with pytest.raises(DTypeError, match="the counts are float64"):
        WelchAverage(spec, 6).feed(x.physical())
    wide = WelchAverage(replace(spec, dtype="float64"), 6)
    wide.feed(x)
    np.testing.assert_allclose(wide.result(), exact, rtol=1e-12)


def test_the_time_axis_of_counts_is_the_last() -> None:
    with pytest.raises(ShapeError, match="their time axis is the last"):
        rlx.welch(recording_like(8), axis=0)


def test_a_power_that_float64_does_not_hold_is_refused() -> None:
    x = level_rows(Digital([[1, -1, 1, -1]] * 2, [1.0, 1e200]))
    with pytest.raises(UsageError, match="channel 1 is over the largest float64"):
        x.scaled(np.ones((2, 3)))
