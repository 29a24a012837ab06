"""Epochs of a made recording: what is read of it, what is refused, what is averaged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import rlxweb as rlx
from rlxweb.errors import NotFinite, UnknownName, UsageError
from rlxweb.io import Annotation, Group, Recording, epochs
from rlxweb.io.cutting import cut, read_spans, segments_of
from rlxweb.io.recording import Channel
from rlxweb.io.source import Source
from rlxweb.jobs.analysis import analyse
from rlxweb.jobs.epoching import Epoching
from rlxweb.jobs.settings import Settings

FS = 100.0
X = np.random.default_rng(9).standard_normal((2, 40_000))


class Held:
    """Samples in memory; what was asked for at once, and all in all."""

    def __init__(self, x: NDArray[Any]) -> None:
        self.x, self.most, self.total = x, 0, 0

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> NDArray[Any]:
        self.most, self.total = max(self.most, stop - start), self.total + stop - start
        return self.x[list(channels), start:stop]


def recording(x: NDArray[Any], *onsets: float, unit: str = "uV") -> Recording:
    channels = tuple(Channel(f"c{at}", f"c{at}", unit, at) for at in range(len(x)))
    group = Group("made", FS, channels, x.shape[1], x.dtype, Held(x))
    notes = tuple(Annotation(at, 0.0, "go") for at in onsets)
    return Recording("made", "made", (group,), (), Source("made"), None, lambda: notes)


def analysed(made: Recording, **asked: Any) -> Any:
    how = {"nperseg": None, "preset": "scipy", "device": "cpu", **asked}
    around = Epoching("go", 0.0, 1.0)
    (result,) = analyse(made, Settings(epochs=around, **how)).groups
    return result


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_range_of_the_segments_is_theirs(data: Any) -> None:
    """Any range of segments is right, in whatever groups and pieces it is read."""
    count = data.draw(st.integers(1, 40))
    nperseg = data.draw(st.integers(1, count))
    hop = data.draw(st.integers(1, nperseg))
    each = data.draw(st.integers(1, 1 + (count - nperseg) // hop))
    onsets = data.draw(st.lists(st.integers(0, 300), min_size=1, max_size=6))
    x = np.arange(2 * 400).reshape(2, 400)
    made = recording(x, *(at / FS for at in onsets))
    found = cut(made.groups[0], made.annotations, 0, count / FS, "testing")
    group = segments_of(found, nperseg, hop, each, is_looked_at=True)
    whole = np.concatenate(
        [
            x[:, at + hop * n : at + hop * n + nperseg]
            for at in onsets
            for n in range(each)
        ],
        axis=1,
    )
    assert group.n_samples == whole.shape[1]
    start = data.draw(st.integers(0, whole.shape[1]))
    stop = data.draw(st.integers(start, whole.shape[1]))
    np.testing.assert_array_equal(group.read(start, stop), whole[:, start:stop])


def test_near_spans_are_read_together_and_far_ones_alone() -> None:
    reader = Held(X)
    (group,) = recording(X).groups
    spans = [(100, 150), (120, 170), (300, 350), (9000, 9050), (0, 50)]
    parts = list(read_spans(group, spans, lambda a, b: reader.read((0, 1), a, b)))
    for part, (a, b) in zip(parts, spans, strict=True):
        np.testing.assert_array_equal(part, X[:, a:b])
    assert (reader.most, reader.total) == (250, 250 + 50 + 50)


def test_little_of_a_long_recording_is_read() -> None:
    """Three seconds of 400, each at most a few times."""
    made = recording(X, 10.0, 200.0, 390.0)
    result = analysed(made, nperseg=50)
    reader = made.groups[0].reader
    assert isinstance(reader, Held)
    assert (reader.most, reader.total) == (100, 300)
    assert (result.n_segments, result.epochs.n, result.n_samples) == (9, 3, 40_000)


def test_what_is_not_finite_is_named_where_it_is() -> None:
    x = X.copy()
    x[1, 5000] = np.nan
    with pytest.raises(NotFinite, match=r"'c1' is nan at sample 5000 \(50\.000 s\)"):
        analysed(recording(x, 10.0, 49.5))
    # Between epochs nobody looks.
    assert np.isfinite(analysed(recording(x, 10.0, 60.0)).power).all()
    lost = analysed(recording(x, 10.0, 49.5), nan="propagate")
    assert lost.states == ("", "not finite")


def test_a_channel_without_volts_has_no_limit_in_them() -> None:
    with pytest.raises(UsageError, match="'c0' has '%'; a limit in µV is of channels"):
        epochs(recording(X, 10.0, unit="%"), "go", 0, 1, reject=100)
    found = epochs(recording(X, 10.0, 20.0, unit="mV"), "go", 0, 1, reject=1e4)
    assert len(found) == 2
    for bad in (0, -1.0, float("nan")):
        with pytest.raises(UsageError, match="reject is"):
            epochs(recording(X, 10.0), "go", 0, 1, reject=bad)


def test_means_over_epochs() -> None:
    found = epochs(recording(X, 10.0, 20.0, 30.0), "go", -0.5, 0.5)
    spectrum = rlx.welch(found, nperseg=50)
    mean = spectrum.mean("epoch")
    np.testing.assert_allclose(mean.power, spectrum.power.mean(axis=0))
    assert (mean.labels.dims, mean.labels.names) == (("channel",), (("c0", "c1"),))
    assert mean.unit == "µV²/Hz"
    by_channel = spectrum.mean("channel")
    np.testing.assert_allclose(by_channel.power, spectrum.power.mean(axis=1))
    over = rlx.spectrogram(found, nperseg=50)
    np.testing.assert_allclose(over.mean().values, over.values.mean(axis=0))
    assert over.t[0] == pytest.approx(0.25 - 0.5)
    with pytest.raises(UnknownName, match="no axis is called 'epoch'; there are chan"):
        mean.mean()
    f = rlx.coherence(found.data[:, 0], found.data[:, 1], FS, nperseg=50)
    with pytest.raises(UsageError, match="the mean of coherence means nothing"):
        f.mean("channel")


def test_epochs_are_gone_through() -> None:
    found = epochs(recording(X, 10.0, 20.0), "go", 0, 1)
    parts = list(found)
    np.testing.assert_array_equal(parts[1], X[:, 2000:2100])
    with pytest.raises(UnknownName, match="no annotation is called 'stop'"):
        found["stop"]
