"""EDF+D files are read where they have samples, and say where they have none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import edfio
import numpy as np
import pytest
import scipy.signal

import rlxweb as rlx
from rlxweb.digital import Digital
from rlxweb.errors import NotFinite, RecordingWarning, UsageError
from rlxweb.io import Recording, bounds, epochs, open_recording, prepared
from rlxweb.io.annotations import Annotation
from rlxweb.jobs.analysis import analyse
from rlxweb.jobs.epoching import Epoching
from rlxweb.jobs.settings import Settings
from rlxweb.jobs.spectrogram import SpectrogramSettings, group_spectrogram
from tests.command_line import Call
from tests.recordings import by_edfio, check_unreadable, discontinuous, restarted

FS = 64
STARTS = ["0", "1", "2", "7.5", "8.5", "9.5", "10.5", "20", "21"]
"""Of nine records of a second: pieces of 3, 4 and 2 s."""
PIECES = [(0, 192), (480, 736), (1280, 1408)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Fz at 64 Hz and Resp at 4 Hz; three notes, the last behind both gaps."""
    return discontinuous(
        tmp_path / "d.edf",
        STARTS,
        ("Fz", FS),
        ("Resp", 4),
        notes=[("0.5", "on"), ("8", "on"), ("8.25\x150.5", "off")],
    )


def opened(path: Path, **how: Any) -> Recording:
    """The recording; its gaps are told of."""
    with pytest.warns(RecordingWarning, match=r"2 gaps, of 13 s, the first 4\.5 s aft"):
        return open_recording(path, **how)


def stored(path: Path) -> np.ndarray:
    """Fz as edfio has it: as if there were no gaps."""
    return by_edfio(path)["Fz"]


def by_time(path: Path) -> np.ndarray:
    """Fz with NaN where nothing was recorded, put together by hand."""
    out = np.full(1408, np.nan)
    x = stored(path)
    for (start, stop), at in zip(PIECES, (0, 192, 448), strict=True):
        out[start:stop] = x[at : at + stop - start]
    return out


def test_samples_lie_where_they_were_recorded(path: Path) -> None:
    """NaN between, in every range that is asked for, at every rate."""
    with opened(path) as recording:
        fast, slow = recording.groups
        assert fast.gaps == ((192, 480), (736, 1280))
        assert slow.gaps == ((12, 30), (46, 80))
        assert (fast.n_samples, fast.n_recorded, fast.longest) == (1408, 576, 256)
        assert "2 gaps" in repr(fast)
        expected = by_time(path)
        np.testing.assert_array_equal(fast.read()[0], expected)
        for start, stop in ((100, 200), (192, 480), (191, 481), (500, 600), (5, 5)):
            np.testing.assert_array_equal(
                fast.read(start, stop)[0], expected[start:stop]
            )
        walked = np.concatenate([b.data for b in fast.blocks(77)], axis=1)
        np.testing.assert_array_equal(walked[0], expected)
        assert np.isnan(slow.read()).sum() == 52


def test_pieces_are_recordings_of_their_own(path: Path) -> None:
    """Pieces hold the file's integers and the number of their first sample."""
    with opened(path) as recording:
        pieces = recording.groups[0].pieces
        assert [(one.first, one.n_samples) for one in pieces] == [
            (start, stop - start) for start, stop in PIECES
        ]
        for piece, (start, stop) in zip(pieces, PIECES, strict=True):
            held = piece.read_stored()
            assert isinstance(held, Digital)
            assert held.counts.dtype == np.int16
            np.testing.assert_array_equal(piece.read()[0], by_time(path)[start:stop])
        (whole,) = pieces[1].pieces
        assert whole == pieces[1]


def test_a_gap_is_never_averaged_over_unasked(path: Path) -> None:
    """What is read as one signal has NaN in it, which every function refuses."""
    with opened(path) as recording:
        x = recording.groups[0].read()
    with pytest.raises(NotFinite):
        rlx.welch(x, FS, nperseg=64)


def test_welch_takes_the_segments_of_all_pieces(path: Path) -> None:
    """The mean of each piece's own, weighted by how many segments it has."""
    with opened(path, channels="Fz") as recording:
        result = analyse(recording, Settings(nperseg=100, preset="mne"))
        pieces = [piece.read() for piece in recording.groups[0].pieces]
    # Of 192, 256 and 128 samples, without overlap.
    counts, powers = [1, 2, 1], []
    for x in pieces:
        _, power = rlx.welch(x, FS, nperseg=100, noverlap=0, window="hamming")
        powers.append(power)
    (group,) = result.groups
    assert (group.n_segments, group.n_samples) == (4, 576)
    expected = np.average(powers, axis=0, weights=counts)
    np.testing.assert_allclose(group.power, expected, rtol=1e-12)
    assert "2 gaps" in result.warnings[0]


def test_a_segment_longer_than_every_piece_is_refused(path: Path) -> None:
    """A refusal names the longest piece; a default segment is shortened to it."""
    with opened(path, channels="Fz") as recording:
        with pytest.raises(UsageError, match=r"nperseg is 300.*256 .*without a gap"):
            analyse(recording, Settings(nperseg=300))
        with pytest.raises(UsageError, match=r"7 segments of 256.*gave 1"):
            analyse(recording, Settings(nperseg=256, nsegments=7))
        with pytest.warns(RecordingWarning, match="10 s are longer .* 4 s without a"):
            (group,) = analyse(recording, Settings(segment_s=10)).groups
        assert (group.spec.nperseg, group.n_segments) == (256, 1)


def test_a_spectrogram_is_empty_in_gaps(path: Path) -> None:
    """Columns that would reach over one are NaN; the others are as without."""
    how = SpectrogramSettings(segment_s=1, overlap=0.5)
    with opened(path, channels="Fz") as recording:
        found = group_spectrogram(recording.groups[0], how)
    x = by_time(path)
    whole = np.isfinite([x[at : at + 64].sum() for at in range(0, 1408 - 63, 32)])
    assert whole.sum() == 5 + 7 + 3
    np.testing.assert_array_equal(np.isfinite(found.power[0]).all(axis=0), whole)
    np.testing.assert_array_equal(np.isnan(found.power[0]).all(axis=0), ~whole)
    np.testing.assert_allclose(found.t, 0.5 + 0.5 * np.arange(43))
    _, _, alone = rlx.spectrogram(x[480:736], FS, "hann", 64, 32)
    np.testing.assert_allclose(found.power[0][:, 15:22], alone, rtol=1e-9)


def test_notes_and_stretches_go_by_true_time(path: Path) -> None:
    """Onsets count the gaps; a stretch in one is refused, one across it has it."""
    with opened(path, channels="Fz") as recording:
        assert recording.annotations[1] == Annotation(8.0, 0.0, "on")
        kept = epochs(recording, "on", -0.25, 0.75)
        np.testing.assert_array_equal(kept.data[1, 0], by_time(path)[496:560])
        kept = epochs(recording, "o*", -0.7, 0.3)  # of 8 s it begins in the gap
        assert [note.onset for note in kept.events] == [8.25]
        assert [note.onset for note in kept.dropped] == [0.5, 8.0]
    with opened(path, channels="Fz", start="off", stop=20.5) as recording:
        (group,) = recording.groups
        assert group.gaps == ((208, 752),)
        np.testing.assert_array_equal(group.read()[0], by_time(path)[528:1312])
    with pytest.raises(UsageError, match=r"between 3\.5 s and 7 s nothing was record"):
        open_recording(path, start=3.5, stop=7)


def test_epochs_are_averaged_of_what_is_there(path: Path) -> None:
    """Near ones on both sides of a gap are read by time, not end to end."""
    how = Settings(nperseg=32, preset="mne", epochs=Epoching("o*", 0, 0.5))
    with opened(path, channels="Fz") as recording:
        (group,) = analyse(recording, how).groups
        parts = epochs(recording, "o*", 0, 0.5).data[:, 0]
    _, expected = rlx.welch(parts, FS, nperseg=32, window="hamming")
    np.testing.assert_allclose(group.power[0], expected.mean(axis=0), rtol=1e-9)


def test_each_piece_is_filtered_by_itself(path: Path) -> None:
    """Each piece between gaps is filtered as SciPy filters it alone, in any blocks."""
    sections = scipy.signal.butter(2, 20, "lowpass", fs=FS, output="sos")
    with opened(path, channels="Fz") as recording:
        (group,) = recording.groups
        own = prepared(group, lowpass=20, order=2)
        x = by_time(path)
        expected = np.full(1408, np.nan)
        for start, stop in PIECES:
            expected[start:stop] = scipy.signal.sosfiltfilt(sections, x[start:stop])
        np.testing.assert_allclose(own.read()[0], expected, rtol=1e-12)
        walked = np.concatenate([b.data for b in own.blocks(150)], axis=1)
        np.testing.assert_allclose(walked[0], expected, rtol=1e-9)
        with pytest.raises(UsageError, match="a piece between its gaps has 128 samp"):
            prepared(group, notch=[*range(2, 30, 1)])
        with pytest.raises(UsageError, match="2 gaps lie in the recording"):
            prepared(group, resample=32)


def test_one_gap_of_less_than_a_sample_of_a_slow_channel(tmp_path: Path) -> None:
    """Parts it all the same; what is behind lies at its time again."""
    path = discontinuous(
        tmp_path / "d.edf", ["0", "1.0625", "9"], ("Fz", 64), ("Resp", 2)
    )
    with pytest.warns(RecordingWarning, match="2 gaps"):
        recording = open_recording(path)
    with recording:
        fast, slow = recording.groups
        assert fast.gaps == ((64, 68), (132, 576))
        assert slow.gaps == ((2, 3), (5, 18))


@pytest.mark.parametrize(
    ("starts", "n_gaps", "match"),
    [
        (["0", "1", "2.0"], 0, ""),
        (["0.5", "1.5", "2.5"], 0, ""),  # the first needs not begin at 0
        (["0", "1.003", "2.006"], 0, ""),  # less than half a sample each
        (["0.00", "1.03", "2.06"], 2, "2 gaps, of 0.06 s"),
        (["0", "1", "2.1"], 1, "a gap of 0.1 s after 2 s"),
        (["0", "1.0078", "2.0156", "3.0234"], 0, "part by up to 0.0234 s"),
    ],
)
def test_what_a_gap_is(
    tmp_path: Path, starts: list[str], n_gaps: int, match: str
) -> None:
    """A gap is more than half a sample; a clock that drifts is told of instead."""
    path = discontinuous(tmp_path / "d.edf", starts, ("Fz", FS))
    if match:
        with pytest.warns(RecordingWarning, match=match):
            recording = open_recording(path)
    else:
        recording = open_recording(path)
    with recording:
        assert recording.format == "EDF+D"
        assert len(recording.groups[0].gaps) == n_gaps
        np.testing.assert_array_equal(
            np.concatenate([p.read()[0] for p in recording.groups[0].pieces]),
            by_edfio(path)["Fz"],
        )


def test_times_that_were_rounded_are_no_gaps(tmp_path: Path) -> None:
    """Records of an eighth of a second at 800 Hz, their times to 0.01 s."""
    signal = edfio.EdfSignal(np.arange(300.0), 800, label="Fz", physical_range=(0, 300))
    path = tmp_path / "d.edf"
    note = edfio.EdfAnnotation(0, None, "begin")
    edfio.Edf([signal], annotations=[note], data_record_duration=0.125).write(path)
    with open_recording(restarted(path, ["0.00", "0.12", "0.25"])) as marked:
        assert marked.groups[0].gaps == ()


@pytest.mark.parametrize(
    ("starts", "match"),
    [
        (["0", "1", "1.5"], r"record 2 begins at 1\.5 s, before .* ended at 2 s"),
        (["0", "5", "1"], r"record 2 begins at 1 s, before .* ended at 6 s"),
    ],
)
def test_records_that_overlap_are_refused(
    tmp_path: Path, starts: list[str], match: str
) -> None:
    """Two signals at one time cannot both be right."""
    path = discontinuous(tmp_path / "d.edf", starts, ("Fz", FS))
    check_unreadable(path, match)


def test_a_gap_of_years_costs_no_memory(tmp_path: Path) -> None:
    """The pieces are read and analysed; all of it as one array is refused."""
    path = discontinuous(tmp_path / "d.edf", ["0", "1", "4000000000"], ("Fz", FS))
    with pytest.warns(RecordingWarning, match="a gap of 4e"):
        recording = open_recording(path)
    with recording:
        (group,) = recording.groups
        with pytest.raises(UsageError, match=f"{bounds.GAP_NBYTES} are made at once"):
            group.read()
        with pytest.raises(UsageError, match="are made at once"):
            group.blocks(1000)
        (result,) = analyse(recording, Settings(nperseg=32)).groups
        assert result.n_segments == 7 + 3  # a hop is 16 samples
        found = group_spectrogram(group, SpectrogramSettings(segment_s=0.5, columns=9))
        assert np.isfinite(found.power[0, 0]).tolist() == [True] + 7 * [False] + [True]


def test_mne_reads_it_as_if_there_were_no_gap(path: Path) -> None:
    """MNE reads samples end to end and onsets by time, so pieces and notes agree."""
    import mne

    raw = mne.io.read_raw_edf(path, include=["Fz"], verbose="ERROR")
    with opened(path, channels="Fz") as recording:
        pieces = [piece.read()[0] for piece in recording.groups[0].pieces]
        onsets = [note.onset for note in recording.annotations]
    np.testing.assert_allclose(raw.get_data(units="uV")[0], np.concatenate(pieces))
    np.testing.assert_allclose(raw.annotations.onset, onsets)


def test_welch_on_the_command_line(path: Path, call: Call, tmp_path: Path) -> None:
    """The gaps are told of, the samples that are there are counted."""
    out = tmp_path / "o.json"
    done = call("welch", path, "-c", "Fz", "--nperseg", 64, "--json", out)
    assert done.code == 0
    assert "2 gaps" in done.err
