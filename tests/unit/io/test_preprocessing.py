"""Block by block, preprocessing of recordings gives what SciPy computes of the whole
signal.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.core.errors import RecordingWarning, UnknownName, Unsupported, UsageError
from rlxweb.io import Group, prepared
from rlxweb.io.recording import Channel
from tests.cli_runners import CommandRunner, check_rejected
from tests.edf_bdf_recordings import save_recording, write_recording

FS = 200.0
N = 60_000
X = np.random.default_rng(8).standard_normal((4, N)).cumsum(1)
NAMES = ("Cz", "Pz", "A1", "A2")


class CountingArrayReader:
    """Reader of samples in memory that records the longest read."""

    def __init__(self, x: np.ndarray) -> None:
        self.x, self.max_read = x, 0

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> np.ndarray:
        self.max_read = max(self.max_read, stop - start)
        return self.x[list(channels), start:stop]


def make_group(x: np.ndarray = X, fs: float = FS) -> Group:
    channels = tuple(
        Channel(name, name, "uV", i) for i, name in enumerate(NAMES[: len(x)])
    )
    return Group("made", fs, channels, x.shape[1], x.dtype, CountingArrayReader(x))


def check_samples(
    prepared_group: Group, expected: np.ndarray, block: int = 7001
) -> None:
    """Check the samples, read at once and in blocks, against the expected ones to
    rounding.
    """
    assert prepared_group.n_samples == expected.shape[1]
    tolerance = 1e-11 * np.abs(expected).max()
    np.testing.assert_allclose(prepared_group.read(), expected, atol=tolerance, rtol=0)
    parts = np.concatenate(
        [sample_block.data for sample_block in prepared_group.blocks(block)], axis=1
    )
    np.testing.assert_allclose(parts, expected, atol=tolerance, rtol=0)


def resample_by_scipy(x: np.ndarray, up: int, down: int) -> np.ndarray:
    """Resample with SciPy's resample_poly after removing the line between the two end
    samples.
    """
    n = x.shape[1]
    begin, slope = x[:, :1], (x[:, -1:] - x[:, :1]) / max(1, n - 1)
    residual = scipy.signal.resample_poly(
        x - begin - slope * np.arange(n), up, down, axis=-1
    )
    return residual + begin + slope * np.arange(residual.shape[1]) * down / up


def test_references_are_subtracted() -> None:
    check_samples(prepared(make_group(), reference="average"), X - X.mean(0))
    linked = prepared(make_group(), reference=["A1", "A2"])
    assert linked.names == ("Cz", "Pz")
    check_samples(linked, X[:2] - X[2:].mean(0))
    assert prepared(make_group(), reference="A1").names == ("Cz", "Pz", "A2")


@pytest.mark.parametrize(
    ("options", "design"),
    [
        ({"highpass": 1.0}, (1.0, "highpass")),
        ({"lowpass": 40.0}, (40.0, "lowpass")),
        ({"highpass": 1.0, "lowpass": 40.0}, ((1.0, 40.0), "bandpass")),
    ],
)
@pytest.mark.parametrize("order", [1, 4])
def test_filters_equal_sosfiltfilt(options: Any, design: Any, order: int) -> None:
    sos = scipy.signal.butter(order, *design, fs=FS, output="sos")
    prepared_group = prepared(make_group(), **options, order=order)
    check_samples(prepared_group, scipy.signal.sosfiltfilt(sos, X, axis=-1))


def test_notches_equal_iirnotch() -> None:
    parts = [
        scipy.signal.tf2sos(*scipy.signal.iirnotch(hz, 30, fs=FS)) for hz in (50, 75)
    ]
    expected = scipy.signal.sosfiltfilt(np.concatenate(parts), X, axis=-1)
    check_samples(prepared(make_group(), notch=[50.0, 75.0]), expected)
    t = np.arange(N) / FS
    hum = prepared(make_group(np.sin(2 * np.pi * 50 * t)[None]), notch=50.0).read()
    assert np.abs(hum[:, 2000:-2000]).max() < 1e-3


@pytest.mark.parametrize("rate", [100.0, 128.0, 250.0, 441.0, 2000.0, FS / 3])
def test_resampling_equals_resample_poly(rate: float) -> None:
    ratio = {100: (1, 2), 128: (16, 25), 250: (5, 4), 441: (441, 200), 2000: (10, 1)}
    up, down = ratio.get(rate, (1, 3))  # type: ignore[call-overload]
    prepared_group = prepared(make_group(X[:, :20_001]), resample=rate)
    check_samples(prepared_group, resample_by_scipy(X[:, :20_001], up, down), 777)
    assert prepared_group.fs == rate


@settings(max_examples=60, deadline=None)
@given(
    up=st.integers(1, 40),
    down=st.integers(1, 40),
    n=st.integers(1, 400),
    block=st.integers(1, 90),
)
def test_resampling_by_any_ratio_in_any_blocks(
    up: int, down: int, n: int, block: int
) -> None:
    x = X[:1, :n]
    prepared_group = prepared(make_group(x), resample=FS * up / down)
    expected = resample_by_scipy(x, up, down)
    if up == down:
        expected = x
    check_samples(prepared_group, expected, block)


def test_steps_run_in_order_within_bounded_memory() -> None:
    source = make_group()
    prepared_group = prepared(source, reference="average", lowpass=40.0, resample=100.0)
    sos = scipy.signal.butter(4, 40.0, "lowpass", fs=FS, output="sos")
    expected = scipy.signal.sosfiltfilt(sos, X - X.mean(0), axis=-1)
    reader = source.reader
    assert isinstance(reader, CountingArrayReader)
    list(prepared_group.blocks(1000))
    assert reader.max_read < 4000
    check_samples(prepared_group, resample_by_scipy(expected, 1, 2))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"highpass": 100.0}, UsageError, "highpass is 100 Hz.*100 Hz"),
        ({"lowpass": 0.0}, UsageError, "lowpass is 0 Hz"),
        ({"highpass": 40.0, "lowpass": 1.0}, UsageError, "below lowpass, 1 Hz"),
        ({"notch": [50.0, 300.0]}, UsageError, "notch is 300 Hz"),
        ({"lowpass": 1.0, "order": 13}, UsageError, "order is 13"),
        ({"resample": -1.0}, UsageError, "above 0"),
        ({"resample": 200.0123456}, UsageError, "not a fraction of small integers"),
        ({"reference": "Fz"}, UnknownName, "no channel is named 'Fz'.*Cz"),
        ({"reference": list(NAMES)}, UsageError, "at least 1 channel must remain"),
    ],
)
def test_impossible_options_are_refused(options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        prepared(make_group(), **options)


def test_only_a_group_is_prepared(tmp_path: Path) -> None:
    """Other objects than a group are refused, and so is a number as reference."""
    with rlx.read(write_recording(tmp_path / "a.edf", ("Fz", 128))) as recording:
        for value in (recording, recording.path, None):
            with pytest.raises(UsageError, match=r"expected a Group; pass one of rec"):
                prepared(value, lowpass=3)  # type: ignore[arg-type]
    message = "reference is 5; must be a channel name or a list of channel names; "
    message += "pass 'average' for"
    with pytest.raises(UsageError, match=message):
        prepared(make_group(), reference=5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=message):
        rlx.read(recording.path, reference=5)


def test_a_filter_longer_than_the_recording_is_refused() -> None:
    with pytest.raises(
        UsageError, match="has 10 samples; the filter needs at least 28"
    ):
        prepared(make_group(X[:, :10]), highpass=1.0, lowpass=40.0)
    with pytest.raises(
        UsageError, match="an average reference needs at least 2 channels"
    ):
        prepared(make_group(X[:1]), reference="average")


def test_without_scipy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.signal", None)
    monkeypatch.delattr("scipy.signal")
    with pytest.raises(Unsupported, match=r"rlxweb\[filter\]"):
        prepared(make_group(), lowpass=40.0)


def test_files_and_commands_accept_preprocessing(
    tmp_path: Path, call: CommandRunner
) -> None:
    path = write_recording(tmp_path / "a.edf", ("Cz", 128.0), ("Pz", 128.0), seconds=20)
    with rlx.read(path) as recording_as_read:
        x = recording_as_read.groups[0].read().astype(np.float64)
    options = {"reference": "average", "highpass": 1.0, "resample": 64.0}
    with rlx.read(path, **options, start=5.0, stop=15.0) as recording:
        (group,) = recording.groups
        assert (group.fs, group.n_samples) == (64.0, 640)
        sos = scipy.signal.butter(4, 1.0, "highpass", fs=128.0, output="sos")
        expected = scipy.signal.sosfiltfilt(sos, x - x.mean(0), axis=-1)
        expected = resample_by_scipy(expected, 1, 2)[:, 320:960]
        np.testing.assert_allclose(group.read(), expected, atol=1e-10)
        peaks = rlx.welch_peaks(group, nperseg=128, k=2, preset="scipy")
    flags = ("-r", "average", "--highpass", "1", "--resample", "64")
    span = ("--start", "5", "--stop", "15")
    result = call(
        *("welch", path, *flags, *span, "--preset", "scipy", "--nperseg", "128"),
        *("--k", "2", "--json", "-"),
    )
    channels = result.group["channels"]
    got = [[peak["hz"] for peak in channel["peaks"]] for channel in channels]
    assert got == peaks.hz.tolist()
    for command in (("bands", "--bands", "alpha=8:13"), ("spectrogram",)):
        command_result = call(*command, path, *flags, "--segment-s", "2")
        assert command_result.code == 0, command_result
    check_rejected(call("welch", path, "--lowpass", "70"), 2, "lowpass is 70 Hz")


# --- a reference that is not taken ------------------------------------------------


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"channels": ["Cz", "Pz"], "reference": "A1"}, [2]),
        ({"channels": ["Cz", "Pz"], "reference": ["A1", "a2"]}, [2, 3]),
        ({"channels": ["Cz", "Pz"], "reference": "A?"}, [2, 3]),
        ({"exclude": "A*", "reference": ["A1", "A2"]}, [2, 3]),
        ({"channels": ["Cz", "Pz", "A1"], "reference": ["A1", "A2"]}, [2, 3]),
        ({"channels": ["Cz", "Pz"], "reference": "average"}, [0, 1]),
    ],
)
def test_a_reference_is_read_even_if_not_selected(
    tmp_path: Path, options: Any, rows: list[int]
) -> None:
    path = write_recording(tmp_path / "a.edf", *((name, 64.0) for name in NAMES))
    with rlx.read(path) as recording_as_read:
        x = recording_as_read.groups[0].read()
    with rlx.read(path, **options) as recording:
        (group,) = recording.groups
        assert group.names == ("Cz", "Pz")
        np.testing.assert_allclose(group.read(), x[:2] - x[rows].mean(0), atol=1e-10)


def test_invalid_references_are_refused(tmp_path: Path, call: CommandRunner) -> None:
    path = write_recording(tmp_path / "a.edf", ("Cz", 64.0), ("Pz", 64.0), ("A1", 32.0))
    message = (
        "the rate of the reference 'A1' is 32 Hz, the rate of channel 'Cz' is 64 Hz; "
        "a reference must have the same"
    )
    for options in ({}, {"channels": "Cz"}):
        with pytest.raises(UsageError, match=message):
            rlx.read(path, reference="A1", **options)
    with pytest.raises(
        UnknownName, match=r"no channel is named 'A3'; 3 channels are available: Cz, Pz"
    ):
        rlx.read(path, reference="A3")
    with pytest.raises(
        UsageError, match=r"are reference channels; .*at least 1 channel must remain"
    ):
        rlx.read(path, channels="Cz", reference="Cz")
    result = call("welch", path, "-r", "A1")
    check_rejected(
        result,
        2,
        "select only channels with the rate of the reference: --channels NAMES",
    )
    flags = ("-c", "Cz", "-r", "Pz", "--bands", "alpha=8:13")
    assert call("bands", path, *flags).code == 0


def test_units_are_not_mixed() -> None:
    millivolt_channels = tuple(
        replace(channel, unit="mV") for channel in make_group().channels[:1]
    )
    mixed = replace(
        make_group(), channels=(*millivolt_channels, *make_group().channels[1:])
    )
    for reference in ("average", "A1"):
        with pytest.raises(
            UsageError, match="channels have different units: mV, uV; a reference"
        ):
            prepared(mixed, reference=reference)


def test_a_filter_that_outlasts_the_recording_is_a_warning() -> None:
    """A filter with a response longer than the recording still equals SciPy's, with a
    warning.
    """
    x = X[:, :4000] + 1000.0
    with pytest.warns(
        RecordingWarning, match=r"shorter than the filter response \(192 s\)"
    ):
        prepared_group = prepared(make_group(x), highpass=0.01)
    sos = scipy.signal.butter(4, 0.01, "highpass", fs=FS, output="sos")
    expected = scipy.signal.sosfiltfilt(sos, x, axis=-1)
    np.testing.assert_allclose(prepared_group.read(), expected, rtol=1e-9)
    prepared(make_group(), highpass=0.01)


def test_the_suggested_rate_is_accepted() -> None:
    with pytest.raises(UsageError, match="use ") as caught:
        prepared(make_group(), resample=37.123)
    rate = float(caught.value.hint.removeprefix("use ").removesuffix(" Hz"))
    assert prepared(make_group(), resample=rate).fs == rate
    odd_rate_group = replace(make_group(), fs=99.97)
    with pytest.raises(
        UsageError, match=r"use 100\.\d+ Hz, or the integer rate 104 Hz"
    ):
        prepared(odd_rate_group, resample=100)
    assert prepared(odd_rate_group, resample=104).fs == 104


# --- the ends -----------------------------------------------------------------------

RATES = [128.0, 100.0, 250.0, 441.0, 512.0, 2000.0]


@pytest.mark.parametrize("rate", RATES)
def test_resampling_keeps_an_offset_and_a_slope(rate: float) -> None:
    """The signal is not taken as zero beyond its ends, and an offset does not leak to
    other frequencies.
    """
    n = 9999
    x = np.stack([np.full(n, 2e4), np.full(n, -3e5), 2e4 - 0.7 * np.arange(n)])
    prepared_group = prepared(make_group(x), resample=rate)
    positions = np.arange(prepared_group.n_samples) * FS / rate
    expected = np.stack(
        [
            np.full(len(positions), 2e4),
            np.full(len(positions), -3e5),
            2e4 - 0.7 * positions,
        ]
    )
    np.testing.assert_allclose(prepared_group.read(), expected, rtol=1e-12)
    blocks = np.concatenate(
        [sample_block.data for sample_block in prepared_group.blocks(101)], axis=1
    )
    np.testing.assert_allclose(blocks, expected, rtol=1e-12)


@pytest.mark.parametrize("rate", RATES)
def test_resampled_ends_are_as_exact_as_those_of_mne_and_scipy(rate: float) -> None:
    """Tones on an offset of 20 mV are resampled at least as exactly as by MNE and
    SciPy.

    MNE and SciPy leave up to 13 of the offset's 20000 in images of 0 Hz.
    """
    hz = np.random.default_rng(1).uniform(1, 40, 30)

    def signal(n: int, fs: float) -> np.ndarray:
        t = np.arange(n) / fs
        return 2e4 + np.sin(2 * np.pi * hz[:, None] * t + hz[:, None]).sum(0)

    x = signal(4000, FS)
    samples = prepared(make_group(x[None]), resample=rate).read()[0]
    expected = signal(len(samples), rate)
    errors = np.abs(samples - expected)
    inner = slice(len(samples) // 10, -(len(samples) // 10))
    assert (errors.max() < 1.5, errors[inner].max() < 0.02) == (True, True)
    ratio = Fraction(rate / FS).limit_denominator(1000)
    scipy_samples = scipy.signal.resample_poly(
        x, ratio.numerator, ratio.denominator, padtype="line"
    )
    import mne  # not there in WebAssembly, where the rest of the file runs

    raw = mne.io.RawArray(
        x[None], mne.create_info(1, FS, verbose="error"), verbose="error"
    )
    mne_samples = raw.resample(rate, method="polyphase", verbose="error").get_data()[0]
    for reference in (scipy_samples, mne_samples):
        assert errors.max() <= np.abs(reference - expected).max() + 1e-6
        np.testing.assert_allclose(samples, reference, atol=15)


def test_conversion_keeps_an_offset(tmp_path: Path) -> None:
    """Integers on an offset survive resampling and a round trip through EDF."""
    rng = np.random.default_rng(2)
    counts = rng.integers(-9, 10, (2, 2560)) + np.array([[20_000], [-30_000]])
    np.savez(tmp_path / "a.npz", x=counts.astype(np.int16), fs=256.0, units="uV")
    with rlx.read(tmp_path / "a.npz", resample=128.0) as recording:
        samples = recording.groups[0].read()
        assert np.abs(samples - np.array([[20_000], [-30_000]])).max() < 15
        save_recording(tmp_path / "b.edf", recording)
    with rlx.read(tmp_path / "b.edf") as converted:
        np.testing.assert_allclose(converted.groups[0].read(), samples, atol=0.001)


@pytest.mark.parametrize("index", [0, -1])
def test_a_nan_at_an_end_does_not_spread(index: int) -> None:
    x = X[:1, :4000].copy()
    x[0, index] = np.nan
    samples = prepared(make_group(x), resample=100.0).read()[0]
    assert 0 < np.isnan(samples).sum() < 30
    assert np.isnan(samples[index])


@pytest.mark.parametrize(
    "options",
    [
        {"highpass": 0.5},
        {"lowpass": 40.0},
        {"notch": [50.0]},
        {"highpass": 1.0, "lowpass": 40.0, "notch": 50.0, "resample": 128.0},
    ],
)
def test_filters_start_without_a_step(options: Any) -> None:
    """An offset makes no step at either end, in blocks or as a whole."""
    x = np.full((1, 20_000), 3e5)
    prepared_group = prepared(make_group(x), **options)
    expected = 0.0 if "highpass" in options else 3e5
    np.testing.assert_allclose(prepared_group.read(), expected, atol=1e-5)
    for sample_block in prepared_group.blocks(997):
        np.testing.assert_allclose(sample_block.data, expected, atol=1e-5)
