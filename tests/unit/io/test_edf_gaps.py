"""EDF+D files are read by time: samples where they were recorded, NaN in the gaps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import edfio
import numpy as np
import pytest
import scipy.signal

import rlxweb as rlx
from rlxweb.batch.channel_group_spectrogram import (
    SpectrogramSettings,
    group_spectrogram,
)
from rlxweb.batch.epoch_options import EpochOptions
from rlxweb.batch.recording_analysis import analyse
from rlxweb.batch.settings import Settings
from rlxweb.core.adc_samples import Digital
from rlxweb.core.errors import NotFinite, RecordingWarning, UsageError
from rlxweb.io import Recording, epochs, file_limits, open_recording, prepared
from rlxweb.io.annotations import Annotation
from tests.cli_runners import CommandRunner
from tests.edf_bdf_recordings import (
    check_unreadable,
    make_discontinuous,
    read_with_edfio,
    write_discontinuous,
)

FS = 64
STARTS = ["0", "1", "2", "7.5", "8.5", "9.5", "10.5", "20", "21"]
"""Start times of nine one-second records: segments of 3, 4 and 2 s."""
SEGMENTS = [(0, 192), (480, 736), (1280, 1408)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Path of a file with Fz at 64 Hz, Resp at 4 Hz and three annotations, the last
    after both gaps.
    """
    return write_discontinuous(
        tmp_path / "d.edf",
        STARTS,
        ("Fz", FS),
        ("Resp", 4),
        notes=[("0.5", "on"), ("8", "on"), ("8.25\x150.5", "off")],
    )


def open_with_gap_warning(path: Path, **options: Any) -> Recording:
    """Open the recording and expect the warning of its gaps."""
    with pytest.warns(
        RecordingWarning, match=r"2 gaps, 13 s in total, the first of 4\.5 s"
    ):
        return open_recording(path, **options)


def edfio_segments(path: Path) -> np.ndarray:
    """Return Fz as edfio reads it: as if there were no gaps."""
    return read_with_edfio(path)["Fz"]


def expected_samples(path: Path) -> np.ndarray:
    """Return Fz with NaN in the gaps, assembled by hand."""
    out = np.full(1408, np.nan)
    x = edfio_segments(path)
    for (start, stop), offset in zip(SEGMENTS, (0, 192, 448), strict=True):
        out[start:stop] = x[offset : offset + stop - start]
    return out


def test_samples_are_placed_by_time(path: Path) -> None:
    """Gaps hold NaN, in every range and at every rate."""
    with open_with_gap_warning(path) as recording:
        fast, slow = recording.groups
        assert fast.gaps == ((192, 480), (736, 1280))
        assert slow.gaps == ((12, 30), (46, 80))
        assert (fast.n_samples, fast.n_recorded, fast.longest) == (1408, 576, 256)
        assert "2 gaps" in repr(fast)
        expected = expected_samples(path)
        np.testing.assert_array_equal(fast.read()[0], expected)
        for start, stop in ((100, 200), (192, 480), (191, 481), (500, 600), (5, 5)):
            np.testing.assert_array_equal(
                fast.read(start, stop)[0], expected[start:stop]
            )
        joined_blocks = np.concatenate([b.data for b in fast.blocks(77)], axis=1)
        np.testing.assert_array_equal(joined_blocks[0], expected)
        assert np.isnan(slow.read()).sum() == 52


def test_pieces_are_groups_of_their_own(path: Path) -> None:
    """Pieces between gaps hold the file's integers and the number of their first
    sample.
    """
    with open_with_gap_warning(path) as recording:
        pieces = recording.groups[0].pieces
        assert [(part.first, part.n_samples) for part in pieces] == [
            (start, stop - start) for start, stop in SEGMENTS
        ]
        for piece, (start, stop) in zip(pieces, SEGMENTS, strict=True):
            stored_samples = piece.read_stored()
            assert isinstance(stored_samples, Digital)
            assert stored_samples.counts.dtype == np.int16
            np.testing.assert_array_equal(
                piece.read()[0], expected_samples(path)[start:stop]
            )
        (whole,) = pieces[1].pieces
        assert whole == pieces[1]


def test_a_gap_is_never_averaged_over_silently(path: Path) -> None:
    """Samples read as one signal contain NaN, which every function refuses."""
    with open_with_gap_warning(path) as recording:
        x = recording.groups[0].read()
    with pytest.raises(NotFinite):
        rlx.welch(x, FS, nperseg=64)


def test_welch_averages_the_segments_of_all_pieces(path: Path) -> None:
    """The result is the mean over pieces, weighted by their number of segments."""
    with open_with_gap_warning(path, channels="Fz") as recording:
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
    with open_with_gap_warning(path, channels="Fz") as recording:
        with pytest.raises(UsageError, match=r"nperseg is 300.*256 .*between gaps"):
            analyse(recording, Settings(nperseg=300))
        with pytest.raises(
            UsageError, match=r"1 segment of 256 samples; at least 7 are required"
        ):
            analyse(recording, Settings(nperseg=256, nsegments=7))
        with pytest.warns(
            RecordingWarning, match="4 s between gaps, less than a segment of 10 s"
        ):
            (group,) = analyse(recording, Settings(segment_s=10)).groups
        assert (group.spec.nperseg, group.n_segments) == (256, 1)


def test_a_spectrogram_is_empty_in_gaps(path: Path) -> None:
    """Columns that would overlap a gap are NaN; the others are as without gaps."""
    options = SpectrogramSettings(segment_s=1, overlap=0.5)
    with open_with_gap_warning(path, channels="Fz") as recording:
        spectrogram = group_spectrogram(recording.groups[0], options)
    x = expected_samples(path)
    has_no_gap = np.isfinite(
        [x[start : start + 64].sum() for start in range(0, 1408 - 63, 32)]
    )
    assert has_no_gap.sum() == 5 + 7 + 3
    np.testing.assert_array_equal(
        np.isfinite(spectrogram.power[0]).all(axis=0), has_no_gap
    )
    np.testing.assert_array_equal(
        np.isnan(spectrogram.power[0]).all(axis=0), ~has_no_gap
    )
    np.testing.assert_allclose(spectrogram.t, 0.5 + 0.5 * np.arange(43))
    _, _, segment_power = rlx.spectrogram(x[480:736], FS, "hann", 64, 32)
    np.testing.assert_allclose(spectrogram.power[0][:, 15:22], segment_power, rtol=1e-9)


def test_annotations_and_time_ranges_use_true_time(path: Path) -> None:
    """Onsets count the gaps; a time range inside a gap is refused, one across it
    includes it.
    """
    with open_with_gap_warning(path, channels="Fz") as recording:
        assert recording.annotations[1] == Annotation(8.0, 0.0, "on")
        selected = epochs(recording, "on", -0.25, 0.75)
        np.testing.assert_array_equal(
            selected.data[1, 0], expected_samples(path)[496:560]
        )
        selected = epochs(recording, "o*", -0.7, 0.3)  # of 8 s it begins in the gap
        assert [note.onset for note in selected.events] == [8.25]
        assert [note.onset for note in selected.dropped] == [0.5, 8.0]
    with open_with_gap_warning(
        path, channels="Fz", start="off", stop=20.5
    ) as recording:
        (group,) = recording.groups
        assert group.gaps == ((208, 752),)
        np.testing.assert_array_equal(group.read()[0], expected_samples(path)[528:1312])
    with pytest.raises(
        UsageError, match=r"no sample was recorded between 3\.5 s and 7 s"
    ):
        open_recording(path, start=3.5, stop=7)


def test_epochs_near_gaps_are_averaged(path: Path) -> None:
    """Epochs on both sides of a gap are read by time, not end to end."""
    options = Settings(nperseg=32, preset="mne", epochs=EpochOptions("o*", 0, 0.5))
    with open_with_gap_warning(path, channels="Fz") as recording:
        (group,) = analyse(recording, options).groups
        parts = epochs(recording, "o*", 0, 0.5).data[:, 0]
    _, expected = rlx.welch(parts, FS, nperseg=32, window="hamming")
    np.testing.assert_allclose(group.power[0], expected.mean(axis=0), rtol=1e-9)


def test_each_piece_is_filtered_by_itself(path: Path) -> None:
    """Each piece between gaps is filtered as SciPy filters it alone, in any blocks."""
    sections = scipy.signal.butter(2, 20, "lowpass", fs=FS, output="sos")
    with open_with_gap_warning(path, channels="Fz") as recording:
        (group,) = recording.groups
        filtered = prepared(group, lowpass=20, order=2)
        x = expected_samples(path)
        expected = np.full(1408, np.nan)
        for start, stop in SEGMENTS:
            expected[start:stop] = scipy.signal.sosfiltfilt(sections, x[start:stop])
        np.testing.assert_allclose(filtered.read()[0], expected, rtol=1e-12)
        joined_blocks = np.concatenate([b.data for b in filtered.blocks(150)], axis=1)
        np.testing.assert_allclose(joined_blocks[0], expected, rtol=1e-9)
        with pytest.raises(UsageError, match="a piece between gaps has 128 samp"):
            prepared(group, notch=[*range(2, 30, 1)])
        with pytest.raises(UsageError, match="the recording has 2 gaps"):
            prepared(group, resample=32)


def test_a_gap_shorter_than_a_sample_of_a_slow_channel(tmp_path: Path) -> None:
    """A gap shorter than a sample splits the channel all the same; later samples keep
    their times.
    """
    path = write_discontinuous(
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
        (["0.00", "1.03", "2.06"], 2, "2 gaps, 0.06 s in total"),
        (["0", "1", "2.1"], 1, "a gap of 0.1 s at 2 s"),
        (
            ["0", "1.0078", "2.0156", "3.0234"],
            0,
            "differ by up to 0.0234 s from the times computed from the",
        ),
    ],
)
def test_gaps_are_longer_than_half_a_sample(
    tmp_path: Path, starts: list[str], n_gaps: int, match: str
) -> None:
    """A gap is more than half a sample; a drifting clock is warned of instead."""
    path = write_discontinuous(tmp_path / "d.edf", starts, ("Fz", FS))
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
            read_with_edfio(path)["Fz"],
        )


def test_rounded_times_are_no_gaps(tmp_path: Path) -> None:
    """Records of an eighth of a second at 800 Hz, their times to 0.01 s."""
    signal = edfio.EdfSignal(np.arange(300.0), 800, label="Fz", physical_range=(0, 300))
    path = tmp_path / "d.edf"
    note = edfio.EdfAnnotation(0, None, "begin")
    edfio.Edf([signal], annotations=[note], data_record_duration=0.125).write(path)
    with open_recording(
        make_discontinuous(path, ["0.00", "0.12", "0.25"])
    ) as recording:
        assert recording.groups[0].gaps == ()


@pytest.mark.parametrize(
    ("starts", "match"),
    [
        (["0", "1", "1.5"], r"record 2 starts at 1\.5 s, before .* ends at 2 s"),
        (["0", "5", "1"], r"record 2 starts at 1 s, before .* ends at 6 s"),
    ],
)
def test_records_that_overlap_are_refused(
    tmp_path: Path, starts: list[str], match: str
) -> None:
    """Two signals at one time cannot both be right."""
    path = write_discontinuous(tmp_path / "d.edf", starts, ("Fz", FS))
    check_unreadable(path, match)


def test_a_gap_of_years_costs_no_memory(tmp_path: Path) -> None:
    """The pieces are read and analysed; all of it as one array is refused."""
    path = write_discontinuous(tmp_path / "d.edf", ["0", "1", "4000000000"], ("Fz", FS))
    with pytest.warns(RecordingWarning, match="a gap of 4e"):
        recording = open_recording(path)
    with recording:
        (group,) = recording.groups
        with pytest.raises(UsageError, match=f"the limit is {file_limits.GAP_NBYTES}"):
            group.read()
        with pytest.raises(UsageError, match=f"the limit is {file_limits.GAP_NBYTES}"):
            group.blocks(1000)
        (result,) = analyse(recording, Settings(nperseg=32)).groups
        assert result.n_segments == 7 + 3  # a hop is 16 samples
        spectrogram = group_spectrogram(
            group, SpectrogramSettings(segment_s=0.5, columns=9)
        )
        assert np.isfinite(spectrogram.power[0, 0]).tolist() == [True] + 7 * [False] + [
            True
        ]


def test_pieces_and_annotations_agree_with_mne(path: Path) -> None:
    """MNE reads samples end to end and onsets by time, so pieces and notes agree."""
    import mne

    raw = mne.io.read_raw_edf(path, include=["Fz"], verbose="ERROR")
    with open_with_gap_warning(path, channels="Fz") as recording:
        pieces = [piece.read()[0] for piece in recording.groups[0].pieces]
        onsets = [note.onset for note in recording.annotations]
    np.testing.assert_allclose(raw.get_data(units="uV")[0], np.concatenate(pieces))
    np.testing.assert_allclose(raw.annotations.onset, onsets)


def test_welch_on_the_command_line(
    path: Path, call: CommandRunner, tmp_path: Path
) -> None:
    """The command warns of the gaps and counts the recorded samples."""
    out = tmp_path / "o.json"
    result = call("welch", path, "-c", "Fz", "--nperseg", 64, "--json", out)
    assert result.code == 0
    assert "2 gaps" in result.err
