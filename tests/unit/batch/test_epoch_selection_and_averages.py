"""Epochs of a synthetic recording: samples read, refusals and averages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import rlxweb as rlx
from rlxweb.batch.epoch_options import EpochOptions
from rlxweb.batch.recording_analysis import analyse
from rlxweb.batch.settings import Settings
from rlxweb.core.errors import NotFinite, UnknownName, UsageError
from rlxweb.io import Annotation, Group, Recording, epochs
from rlxweb.io.byte_source import RecordingSource
from rlxweb.io.epoch_selection import read_spans, segments_as_group, select_epochs
from rlxweb.io.recording import Channel

FS = 100.0
X = np.random.default_rng(9).standard_normal((2, 40_000))


class CountingReader:
    """Reader of samples in memory that counts the samples read at once and in total."""

    def __init__(self, x: NDArray[Any]) -> None:
        self.x, self.max_samples, self.total_samples = x, 0, 0

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> NDArray[Any]:
        self.max_samples, self.total_samples = (
            max(self.max_samples, stop - start),
            self.total_samples + stop - start,
        )
        return self.x[list(channels), start:stop]


def make_recording(x: NDArray[Any], *onsets: float, unit: str = "uV") -> Recording:
    channels = tuple(Channel(f"c{at}", f"c{at}", unit, at) for at in range(len(x)))
    group = Group("made", FS, channels, x.shape[1], x.dtype, CountingReader(x))
    annotations = tuple(Annotation(at, 0.0, "go") for at in onsets)
    return Recording(
        "made", "made", (group,), (), RecordingSource("made"), None, lambda: annotations
    )


def analyse_epochs(recording: Recording, **changes: Any) -> Any:
    options = {"nperseg": None, "preset": "scipy", "device": "cpu", **changes}
    epoch_options = EpochOptions("go", 0.0, 1.0)
    (result,) = analyse(recording, Settings(epochs=epoch_options, **options)).groups
    return result


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_range_of_segments_is_read_correctly(data: Any) -> None:
    """Any range of segments is read correctly, in whatever groups and chunks."""
    count = data.draw(st.integers(1, 40))
    nperseg = data.draw(st.integers(1, count))
    hop = data.draw(st.integers(1, nperseg))
    segments_per_epoch = data.draw(st.integers(1, 1 + (count - nperseg) // hop))
    onsets = data.draw(st.lists(st.integers(0, 300), min_size=1, max_size=6))
    x = np.arange(2 * 400).reshape(2, 400)
    recording = make_recording(x, *(onset / FS for onset in onsets))
    selection = select_epochs(
        recording.groups[0], recording.annotations, 0, count / FS, "testing"
    )
    group = segments_as_group(
        selection, nperseg, hop, segments_per_epoch, needs_finite=True
    )
    expected = np.concatenate(
        [
            x[:, onset + hop * n : onset + hop * n + nperseg]
            for onset in onsets
            for n in range(segments_per_epoch)
        ],
        axis=1,
    )
    assert group.n_samples == expected.shape[1]
    start = data.draw(st.integers(0, expected.shape[1]))
    stop = data.draw(st.integers(start, expected.shape[1]))
    np.testing.assert_array_equal(group.read(start, stop), expected[:, start:stop])


def test_near_spans_are_read_together_and_far_ones_alone() -> None:
    reader = CountingReader(X)
    (group,) = make_recording(X).groups
    spans = [(100, 150), (120, 170), (300, 350), (9000, 9050), (0, 50)]
    parts = list(read_spans(group, spans, lambda a, b: reader.read((0, 1), a, b)))
    for part, (a, b) in zip(parts, spans, strict=True):
        np.testing.assert_array_equal(part, X[:, a:b])
    assert (reader.max_samples, reader.total_samples) == (250, 250 + 50 + 50)


def test_only_the_epochs_of_a_long_recording_are_read() -> None:
    """Only 3 of 400 seconds are read."""
    recording = make_recording(X, 10.0, 200.0, 390.0)
    result = analyse_epochs(recording, nperseg=50)
    reader = recording.groups[0].reader
    assert isinstance(reader, CountingReader)
    assert (reader.max_samples, reader.total_samples) == (100, 300)
    assert (result.n_segments, result.epochs.n_averaged, result.n_samples) == (
        9,
        3,
        40_000,
    )


def test_non_finite_samples_are_named_with_channel_and_time() -> None:
    x = X.copy()
    x[1, 5000] = np.nan
    with pytest.raises(NotFinite, match=r"'c1' is nan at sample 5000 \(50\.000 s\)"):
        analyse_epochs(make_recording(x, 10.0, 49.5))
    # Between epochs nobody looks.
    assert np.isfinite(analyse_epochs(make_recording(x, 10.0, 60.0)).power).all()
    propagated = analyse_epochs(make_recording(x, 10.0, 49.5), nan="propagate")
    assert propagated.states == ("", "not finite")


def test_a_channel_without_volts_takes_no_limit_in_volts() -> None:
    with pytest.raises(
        UsageError, match="'c0' has the unit '%'; a limit in µV requires channels"
    ):
        epochs(make_recording(X, 10.0, unit="%"), "go", 0, 1, reject=100)
    selected_epochs = epochs(
        make_recording(X, 10.0, 20.0, unit="mV"), "go", 0, 1, reject=1e4
    )
    assert len(selected_epochs) == 2
    for bad in (0, -1.0, float("nan")):
        with pytest.raises(UsageError, match="reject is"):
            epochs(make_recording(X, 10.0), "go", 0, 1, reject=bad)


def test_means_over_epochs() -> None:
    selected_epochs = epochs(make_recording(X, 10.0, 20.0, 30.0), "go", -0.5, 0.5)
    spectrum = rlx.welch(selected_epochs, nperseg=50)
    mean = spectrum.mean("epoch")
    np.testing.assert_allclose(mean.power, spectrum.power.mean(axis=0))
    assert (mean.labels.dims, mean.labels.names) == (("channel",), (("c0", "c1"),))
    assert mean.unit == "µV²/Hz"
    by_channel = spectrum.mean("channel")
    np.testing.assert_allclose(by_channel.power, spectrum.power.mean(axis=1))
    spectrogram = rlx.spectrogram(selected_epochs, nperseg=50)
    np.testing.assert_allclose(
        spectrogram.mean().values, spectrogram.values.mean(axis=0)
    )
    assert spectrogram.t[0] == pytest.approx(0.25 - 0.5)
    with pytest.raises(UnknownName, match="no axis is named 'epoch'; known axes: chan"):
        mean.mean()
    coherence = rlx.coherence(
        selected_epochs.data[:, 0], selected_epochs.data[:, 1], FS, nperseg=50
    )
    with pytest.raises(UsageError, match="the mean of coherence is not meaningful"):
        coherence.mean("channel")


def test_epochs_can_be_iterated() -> None:
    selected_epochs = epochs(make_recording(X, 10.0, 20.0), "go", 0, 1)
    parts = list(selected_epochs)
    np.testing.assert_array_equal(parts[1], X[:, 2000:2100])
    with pytest.raises(UnknownName, match="no annotation matches 'stop'"):
        selected_epochs["stop"]
