"""Annotations of a recording: read as other readers read them, and found by their
text.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import edfio
import mne
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.core.errors import RecordingWarning, UnknownName, UsageError
from rlxweb.io import Annotation, epochs
from rlxweb.io.annotations import parse_annotations
from tests.cli_runners import CommandRunner, check_rejected

FS = 100.0
X = np.random.default_rng(3).normal(0, 50, (2, 6000))
ANNOTATIONS = (
    Annotation(5.0, 0.0, "Lights off"),
    Annotation(12.5, 1.0, "Stim 1"),
    Annotation(20.0, 0.0, "Stim 2"),
    Annotation(59.9, 0.0, "Stim 3"),
    Annotation(40.25, 2.5, "Größe Ω"),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    signals = [
        edfio.EdfSignal(x, FS, label=name, physical_range=(-500, 500))
        for name, x in zip(("Cz", "Pz"), X, strict=True)
    ]
    annotations = [
        edfio.EdfAnnotation(n.onset, n.duration or None, n.text) for n in ANNOTATIONS
    ]
    start_time = datetime.time(23, 59, 30)
    path = tmp_path / "a.edf"
    edfio.Edf(signals, annotations=annotations, starttime=start_time).write(path)
    return path


def test_annotations_are_sorted_by_onset(path: Path) -> None:
    with rlx.read(path) as recording:
        assert recording.annotations == tuple(sorted(ANNOTATIONS))
        assert recording.begun == 23 * 3600 + 59 * 60 + 30


@pytest.mark.parametrize("name", ["test.edf", "test.bdf"])
def test_annotations_agree_with_mne(eeg_recordings: Path, name: str) -> None:
    theirs = mne.io.read_raw(eeg_recordings / name, verbose="error").annotations
    with rlx.read(eeg_recordings / name) as recording:
        ours = recording.annotations
    assert len(ours) == len(theirs)
    np.testing.assert_allclose([n.onset for n in ours], theirs.onset, atol=1e-6)
    assert [n.text for n in ours] == list(theirs.description)


@given(
    onset=st.decimals(-1000, 100_000, places=3),
    duration=st.none() | st.decimals(0, 1000, places=2),
    texts=st.lists(
        st.text(st.characters(blacklist_characters="\x00\x14\x15", codec="utf-8")),
        max_size=3,
    ),
)
def test_any_annotation_list_is_parsed(onset: Any, duration: Any, texts: Any) -> None:
    raw = f"{onset:+f}".encode()
    raw += b"" if duration is None else b"\x15" + f"{duration:f}".encode()
    raw += b"\x14" + b"".join(text.encode() + b"\x14" for text in texts) + b"\x00\x00"
    annotations = list(parse_annotations(b"+0\x14\x14\x00" + raw))
    expected = [text.strip() for text in texts if text]
    assert [n.text for n in annotations] == expected
    for n in annotations:
        assert (n.onset, n.duration) == (float(onset), float(duration or 0))


@pytest.mark.parametrize(
    ("start", "stop", "first", "count"),
    [
        ("Lights off", "stim 1", 500, 750),
        ("Stim*", None, 1250, 4750),
        ("@23:59:40", "@00:00:00", 1000, 2000),
        ("Größe Ω", 50.0, 4025, 975),
    ],
)
def test_time_range_from_annotations_and_clock_times(
    path: Path, start: Any, stop: Any, first: int, count: int
) -> None:
    with rlx.read(path, start=start, stop=stop) as recording:
        (group,) = recording.groups
        assert (group.first, group.n_samples) == (first, count)


@pytest.mark.parametrize(
    ("start", "error", "message"),
    [
        ("Lights of", UnknownName, "no annotation matches 'Lights of'.*Lights off"),
        ("@25:00", UsageError, "a time of day must have the form @22:15"),
        ("1:90", UsageError, r"\[hours:\]minutes:seconds"),
        ("@23:59:00", UsageError, "no sample is between 86370 s"),
    ],
)
def test_unknown_moments_are_refused(
    path: Path, start: str, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        rlx.read(path, start=start)


def test_files_without_annotations_or_start_time(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    with pytest.raises(UnknownName, match="the recording has no annotations"):
        rlx.read(tmp_path / "a.npy", fs=FS, start="Stim")
    with pytest.raises(UsageError, match="the NPY file does not contain a start time"):
        rlx.read(tmp_path / "a.npy", fs=FS, start="@10:00")


def test_epochs_are_selected_and_used(path: Path) -> None:
    with rlx.read(path) as recording:
        stimuli = epochs(recording, "Stim*", -0.2, 0.8)
        whole = recording.groups[0].read()
    assert [n.text for n in stimuli.events] == ["Stim 1", "Stim 2"]
    assert [n.text for n in stimuli.dropped] == ["Stim 3"]
    np.testing.assert_array_equal(stimuli.data[1], whole[:, 1980:2080])
    np.testing.assert_allclose(stimuli.times[[0, -1]], [-0.2, 0.79])
    spectrum = rlx.welch(stimuli, nperseg=50)
    assert spectrum.labels.dims == ("epoch", "channel")
    assert spectrum.power.shape == (2, 2, 26)
    assert repr(stimuli) == "Epochs(2×2×100 at 100 Hz, 1 dropped)"
    with rlx.read(path, start=10.0, stop=30.0) as part:
        from_part = epochs(part, "Stim*", -0.2, 0.8)
    np.testing.assert_array_equal(from_part.data, stimuli.data)


def test_impossible_epochs_are_refused(path: Path) -> None:
    with rlx.read(path) as recording:
        with pytest.raises(UnknownName, match="no annotation"):
            epochs(recording, "Foo", 0, 1)
        with pytest.raises(UsageError, match="must be greater than tmin"):
            epochs(recording, "Stim*", 1, 0)
        with pytest.raises(
            UsageError, match="none of 3 epochs remains: 3 outside the recording"
        ):
            epochs(recording, "Stim*", -100, 0)
        with pytest.raises(
            UsageError, match="group is 1; the recording has 1 group, numbered"
        ):
            epochs(recording, "Stim*", 0, 1, group=1)
        with pytest.raises(UsageError, match="expected a Recording; use"):
            epochs(recording.groups[0], "Stim*", 0, 1)  # type: ignore[arg-type]
        with pytest.raises(
            UsageError, match="around is 5; must be the text of an annotation"
        ):
            epochs(recording, 5, 0, 1)  # type: ignore[arg-type]


def test_the_command_line_accepts_annotation_texts(
    path: Path, call: CommandRunner
) -> None:
    result = call(
        "welch", path, "--start", "Lights off", "--stop", "Stim 2", "--json", "-"
    )
    assert result.group["n_samples"] == 1500
    check_rejected(call("welch", path, "--start", "Nothing"), 2, "Lights off")


def test_annotations_of_a_truncated_file(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.warns(RecordingWarning), rlx.read(path) as recording:
        assert len(recording.annotations) >= 3
