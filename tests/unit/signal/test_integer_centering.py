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
from rlxweb.core.adc_samples import Digital
from rlxweb.core.device import Device
from rlxweb.core.errors import DTypeError, ShapeError, UsageError
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.io import open_recording
from rlxweb.ops.welch.cpu.spectrum import welch_power
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.signal.integer_centering import center_integer_rows
from rlxweb.signal.presets import spec_from_preset
from rlxweb.signal.welch_blockwise_average import WelchAverage
from rlxweb.signal.welch_engine import NUMPY_ENGINE, device_engine

PRESETS = ("rlx", "scipy", "mne")
# Of the strongest bin of a row, and of a bin's own power: what the manual states.
MAX_PEAK_ERROR, MAX_BIN_ERRORS = 5e-7, {"test.edf": 1e-5, "test.bdf": 1e-4}


def make_recording(bits: int, seed: int = 3) -> Digital:
    """Return six channels of falling noise with a hum, as from a converter of so many
    bits.
    """
    rng = np.random.default_rng(seed)
    noise = np.cumsum(rng.standard_normal((6, 4000)), axis=1)
    hum = 30 * np.sin(2 * np.pi * 50 / 512 * np.arange(4000))
    x = noise - noise.mean(axis=1, keepdims=True) + hum
    counts = np.rint(x / np.abs(x).max() * 0.4 * 2 ** (bits - 1)).astype(np.int32)
    return Digital(counts, rng.uniform(0.01, 2, 6), rng.uniform(-1, 1, 6))


def worst_errors(computed: np.ndarray, exact: np.ndarray) -> tuple[float, float]:
    """Return the worst errors relative to a bin's own power and to the strongest bin of
    its row.
    """
    difference = np.abs(computed - exact)
    peak = exact.max(axis=1, keepdims=True)
    return float((difference / exact).max()), float((difference / peak).max())


def check_close(computed: Any, exact: Any, max_bin_error: float = 1e-4) -> None:
    bin_error, peak_error = worst_errors(computed, exact)
    assert computed.dtype == np.float64
    assert bin_error < max_bin_error
    assert peak_error < MAX_PEAK_ERROR


def shift_from_zero(x: Digital, n_deviations: float) -> Digital:
    """Return the same signal, moved away from zero by so many standard deviations."""
    return Digital(x.counts, x.gain, x.offset + n_deviations * x.counts.std(axis=1))


def make_spec(preset: str, n_samples: int, **options: Any) -> WelchSpec:
    return spec_from_preset(preset, n_samples, fs=512, dtype="int24", **options)


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
def test_centering_keeps_the_power(
    seed: int,
    bits: int,
    height: int,
    offset: float,
    detrend: str | None,
    nperseg: int,
    hop: int,
    pad: int,
) -> None:
    """Centred integers have the power of the physical values, in float64."""
    rng = np.random.default_rng(seed)
    half = 2 ** (min(bits, 23) - 1)
    counts = rng.integers(-half, half, (3, 200)) + height
    counts = np.clip(counts, -(2**23), 2**23 - 1)
    x = Digital(counts, rng.uniform(0.1, 9, 3), offset)
    spec = spec_from_preset(
        "scipy",
        200,
        dtype="int24",
        nperseg=nperseg,
        nfft=nperseg + pad,
        detrend=detrend,
    )
    spec = replace(spec, hop=hop, n_segments=1 + (200 - nperseg) // hop)
    centered = center_integer_rows(x)
    level = center_integer_rows(x.counts).dc_level
    np.testing.assert_array_equal(centered.x + level[:, None], x.counts)
    got = centered.physical_power(
        welch_power(centered.x, replace(spec, dtype="float64")), spec
    )
    exact = welch_power(x.physical(), spec)
    scale = (x.gain**2 * (np.square(counts + offset).mean(axis=1)))[:, None]
    noise = 1e-13 * scale * spec.scale * np.sum(np.abs(spec.window_array)) ** 2
    assert (np.abs(got - exact) <= noise + 1e-9 * exact).all()


# Each sixth has the first preset: what other adapters take is of one shader.
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("bits", [16, 24])
@pytest.mark.parametrize("n_deviations", [0, 1e4, 1e7])
def test_device_error_is_independent_of_the_offset(
    preset: str, bits: int, n_deviations: float, adapter: AdapterRequest
) -> None:
    """The error far from zero is no larger; the result is float64."""
    x = shift_from_zero(make_recording(bits), n_deviations)
    spec = make_spec(preset, 4000)
    engine = device_engine(Device(adapter.backends[0]), adapter.name)
    exact = welch_power(x.physical(), spec)
    check_close(run_blocking(engine.power(x, spec)), exact)
    bins, power = run_blocking(engine.strongest_bins(x, spec, 5))
    expected_bins, expected_power = run_blocking(
        NUMPY_ENGINE.strongest_bins(x, spec, 5)
    )
    np.testing.assert_array_equal(bins, expected_bins)
    np.testing.assert_allclose(power, expected_power, rtol=1e-5)


@pytest.mark.parametrize("n_deviations", [0, 1e6])
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", ["test.edf", "test.bdf"])
def test_the_error_on_recordings(
    eeg_recordings: Path,
    name: str,
    preset: str,
    n_deviations: float,
    adapter: AdapterRequest,
) -> None:
    """The error on recordings is small, also with an offset far over the signal."""
    with open_recording(eeg_recordings / name) as recording:
        (group,) = recording.groups
        stored = group.read_stored()
    assert isinstance(stored, Digital)
    x = shift_from_zero(stored, n_deviations)
    spec = spec_from_preset(preset, x.shape[1], fs=group.fs, dtype="int24")
    engine = device_engine(Device(adapter.backends[0]), adapter.name)
    exact = welch_power(x.physical(), spec)
    check_close(run_blocking(engine.power(x, spec)), exact, MAX_BIN_ERRORS[name])


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("preset", PRESETS)
def test_python_takes_integers_to_a_device(
    preset: str, adapter: AdapterRequest
) -> None:
    """Integers are sent to a device as they are; counts with a gain as physical
    values.
    """
    placement = {"device": adapter.backends[0], "adapter": adapter.name}
    x = make_recording(16)
    short = x.counts.astype(np.int16)
    options: dict[str, Any] = {"fs": 512, "k": 5, "preset": preset}
    for samples in (short, short.reshape(2, 3, -1), shift_from_zero(x, 1e5)):
        on_device = rlx.welch_peaks(samples, **options, **placement)
        on_cpu = rlx.welch_peaks(samples, device="cpu", **options)
        assert on_device.device is Device(adapter.backends[0])
        assert on_device.power.dtype == on_cpu.power.dtype == np.float64
        np.testing.assert_array_equal(on_device.bins, on_cpu.bins)
        np.testing.assert_allclose(on_device.power, on_cpu.power, rtol=1e-5)
    check_close(rlx.welch(short, 512, **placement)[1], rlx.welch(short, 512)[1])


def test_numpy_computes_integers_as_float64() -> None:
    """Integers give NumPy the bits of their physical values, whatever the input
    form.
    """
    x = make_recording(24)
    short = x.counts.astype(np.int16)
    for value, wide in ((x, x.physical()), (short, short.astype(np.float64))):
        np.testing.assert_array_equal(rlx.welch(value)[1], rlx.welch(wide)[1])
        result, exact = rlx.welch_peaks(value), rlx.welch_peaks(wide)
        np.testing.assert_array_equal(result.bins, exact.bins)
        np.testing.assert_array_equal(result.power, exact.power)
    value = rlx.welch(Digital(x.counts[0], 2.0), 512.0)[1]
    np.testing.assert_array_equal(value, rlx.welch(2.0 * x.counts[0], 512.0)[1])


def test_integer_stream_equals_physical_stream() -> None:
    """An integer stream equals that of its physical values, block by block, in one
    scale.
    """
    x = shift_from_zero(make_recording(16), 100)
    spec = spec_from_preset("rlx", None, fs=512, dtype="int24")
    stream = WelchAverage(spec, 6)
    for start in range(0, 4000, 700):
        stream.feed(Digital(x.counts[:, start : start + 700], x.gain, x.offset))
    exact = welch_power(x.physical(), replace(spec, dtype="float64"))
    np.testing.assert_allclose(stream.result(), exact, rtol=1e-12)
    with pytest.raises(UsageError, match="the gain or the offset of a channel changed"):
        stream.feed(x.counts)
    with pytest.raises(DTypeError, match="the counts have dtype float64"):
        WelchAverage(spec, 6).feed(x.physical())
    wide = WelchAverage(replace(spec, dtype="float64"), 6)
    wide.feed(x)
    np.testing.assert_allclose(wide.result(), exact, rtol=1e-12)


def test_the_time_axis_of_counts_is_the_last() -> None:
    with pytest.raises(ShapeError, match="time must be the last axis"):
        rlx.welch(make_recording(8), axis=0)


def test_a_power_that_float64_does_not_hold_is_refused() -> None:
    x = center_integer_rows(Digital([[1, -1, 1, -1]] * 2, [1.0, 1e200]))
    with pytest.raises(UsageError, match="channel 1 exceeds the range of float64"):
        x.to_physical_units(np.ones((2, 3)))
