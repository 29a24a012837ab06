"""FIF, BrainVision and EEGLAB files, written by other libraries and read through
MNE.
"""

from __future__ import annotations

import gzip
import os
import struct
import sys
import tracemalloc
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import mne
import numpy as np
import pybv
import pytest
import scipy.io

import rlxweb as rlx
from rlxweb.cli.main import main
from rlxweb.core.errors import RecordingError, RecordingWarning, Unsupported
from rlxweb.io import open_recording
from rlxweb.io.recording_state_fingerprint import state_fingerprint
from rlxweb.live.file_source import RecordingReplay
from tests.edf_bdf_recordings import check_unreadable, try_reading

mne.set_log_level("ERROR")
FS, N = 256.0, 4096
T = np.arange(N) / FS
RNG = np.random.default_rng(7)
# Three rhythms in microvolts, and a trigger.
X = np.array([40 * np.sin(2 * np.pi * hz * T) for hz in (6, 10, 20)])
X += RNG.normal(0, 2, X.shape)
NAMES = ("Fz", "Cz", "Oz")
MEASUREMENT_TIME = 1_700_000_000.0  # 22:13:20 UTC


def make_raw(*, first_sample: int = 0, is_dated: bool = True) -> Any:
    """Return the recording as an MNE object: volts, with a bad channel and a trigger
    channel.
    """
    kinds = ["eeg", "eeg", "eeg", "stim"]
    info = mne.create_info([*NAMES, "STI 014"], FS, kinds)
    info["bads"] = ["Oz"]
    data = np.vstack([X * 1e-6, np.zeros((1, N))])
    raw = mne.io.RawArray(data, info, first_samp=first_sample)
    if is_dated:
        raw.set_meas_date(MEASUREMENT_TIME)
    raw.set_annotations(mne.Annotations([4.0, 9.0], [0.5, 0], ["Lights off", "Stim 1"]))
    return raw


def write_fif(folder: Path) -> Path:
    path = folder / "night_raw.fif"
    make_raw().save(path, fmt="double")
    return path


def write_packed_fif(folder: Path) -> Path:
    path = folder / "night_raw.fif.gz"
    make_raw().save(path, fmt="double")
    return path


def write_brainvision(folder: Path) -> Path:
    events = [
        {"onset": int(4 * FS), "duration": int(0.5 * FS), "type": "Comment"}
        | {"description": "Lights off", "channels": "all"},
        {"onset": int(9 * FS), "description": 1},
    ]
    pybv.write_brainvision(
        data=X * 1e-6,
        sfreq=FS,
        ch_names=list(NAMES),
        fname_base="night",
        folder_out=str(folder),
        events=events,
        resolution=1e-3,
        unit="µV",
        fmt="binary_float32",
        meas_date="20231114221320000000",
    )
    return folder / "night.vhdr"


def write_eeglab(folder: Path) -> Path:
    path = folder / "night.set"
    mne.export.export_raw(path, make_raw().pick("eeg"))
    return path


def write_edf(folder: Path) -> Path:
    path = folder / "night.edf"
    mne.export.export_raw(path, make_raw().pick("eeg"))
    return path


WRITERS: dict[str, tuple[Callable[[Path], Path], float]] = {
    "FIF": (write_fif, 1e-12),
    "packed FIF": (write_packed_fif, 1e-12),
    "BrainVision": (write_brainvision, 1e-5),
    "EEGLAB": (write_eeglab, 1e-7),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_written_microvolts_are_read_back(tmp_path: Path, kind: str) -> None:
    """Microvolts come back in blocks and in any channel order, with annotations and
    start time.
    """
    writer, tolerance = WRITERS[kind]
    path = writer(tmp_path)
    with open_recording(path, channels=["Oz", "Fz", "Cz"]) as recording:
        (group,) = recording.groups
        assert (group.fs, group.names) == (FS, ("Oz", "Fz", "Cz"))
        assert {channel.unit for channel in group.channels} == {"uV"}
        x = group.read()
        np.testing.assert_allclose(x, X[[2, 0, 1]], rtol=0, atol=tolerance * 100)
        joined_blocks = np.concatenate([b.data for b in group.blocks(777)], axis=1)
        np.testing.assert_array_equal(joined_blocks, x)
        assert recording.format == kind.removeprefix("packed ")
        first = recording.annotations[0]
        assert (first.onset, first.duration, first.text) == (4.0, 0.5, "Lights off")
        start_time = (
            (None, None) if kind == "EEGLAB" else (80_000.0, date(2023, 11, 14))
        )
        assert (recording.begun, recording.date) == start_time
    with pytest.raises(RecordingError, match="closed"):
        group.read()


@pytest.mark.parametrize("kind", WRITERS)
def test_a_time_range_is_found_by_annotation_and_by_clock_time(
    tmp_path: Path, kind: str
) -> None:
    """A time range gives the same samples as in the EDF+ file of the same recording."""
    path, edf_path = WRITERS[kind][0](tmp_path), write_edf(tmp_path)
    selections: list[dict[str, Any]] = [{"start": "lights off", "stop": 12}]
    if kind != "EEGLAB":
        selections.append({"start": "@22:13:25", "stop": "@22:13:30"})
    for selection in selections:
        with open_recording(path, channels=NAMES, **selection) as recording:
            (group,) = recording.groups
            x = group.read()
        with open_recording(edf_path, channels=NAMES, **selection) as recording:
            (group,) = recording.groups
            # EDF rounds to one of 65,536 steps.
            np.testing.assert_allclose(x, group.read(), rtol=0, atol=5e-3)
            assert {channel.unit for channel in group.channels} == {"uV"}


def test_bad_and_trigger_channels_are_left_out_with_a_reason(tmp_path: Path) -> None:
    """Bad and trigger channels are left out with a reason, and taken by name."""
    path = write_fif(tmp_path)
    with open_recording(path) as recording:
        assert recording.groups[0].names == ("Fz", "Cz")
        assert dict(recording.left_out) == {
            "Oz": "is marked bad in the file",
            "STI 014": "contains triggers or status bits, not a signal",
        }
    with open_recording(path, channels=["STI 014", "Oz"]) as recording:
        assert recording.groups[0].names == ("STI 014", "Oz")


@pytest.mark.parametrize("is_dated", [True, False])
def test_annotations_of_fif_count_from_the_first_sample(
    tmp_path: Path, is_dated: bool
) -> None:
    """Annotations of FIF count from the first sample, whatever its number or date."""
    path = tmp_path / "later_raw.fif"
    make_raw(first_sample=1000, is_dated=is_dated).save(path)
    with open_recording(path) as recording:
        assert [annotation.onset for annotation in recording.annotations] == [4.0, 9.0]
        assert recording.begun == (80_000 + 1000 / FS if is_dated else None)


def test_magnetic_channels_have_conventional_units(tmp_path: Path) -> None:
    """Magnetometers are in femtotesla; channels whose kind has no unit keep their
    numbers.
    """
    info = mne.create_info(["M", "G", "H"], FS, ["mag", "grad", "misc"])
    raw = mne.io.RawArray(np.full((3, N), 2e-13), info)
    raw.save(tmp_path / "meg_raw.fif", fmt="double")
    with open_recording(tmp_path / "meg_raw.fif") as recording:
        (group,) = recording.groups
        assert [channel.unit for channel in group.channels] == ["fT", "fT/cm", ""]
        np.testing.assert_allclose(group.read()[:, 0], [200, 2, 2e-13], rtol=1e-12)


def test_skipped_fif_samples_are_a_gap(tmp_path: Path) -> None:
    """Samples that were never recorded are a gap of NaN, where MNE would give zeros."""
    raw = make_raw().pick("eeg")
    raw.info["bads"] = []
    raw.set_annotations(mne.Annotations([5.0], [2.0], ["BAD_ACQ_SKIP"]))
    path = tmp_path / "gap_raw.fif"
    raw.save(path, buffer_size_sec=1.0, fmt="double")
    with pytest.warns(RecordingWarning, match="a gap of 2 s at 5 s"):
        recording = open_recording(path)
    with recording:
        (group,) = recording.groups
        assert group.gaps == ((int(5 * FS), int(7 * FS)),)
        x = group.read()
        assert np.isnan(x[:, int(5 * FS) : int(7 * FS)]).all()
        np.testing.assert_allclose(x[:, int(7 * FS) :], X[:, int(7 * FS) :], rtol=1e-9)
        assert recording.annotations == ()


def test_concatenated_recordings_are_reported(tmp_path: Path) -> None:
    """One warning covers all boundaries of concatenated recordings."""
    raw = make_raw().pick("eeg")
    concatenated = mne.concatenate_raws([raw.copy().crop(0, 5), raw.copy().crop(8, 12)])
    concatenated.save(tmp_path / "cut_raw.fif")
    with pytest.warns(
        RecordingWarning, match=r"joined from several pieces.*5\.0039 s mixes"
    ):
        open_recording(tmp_path / "cut_raw.fif").close()


def test_epochs_and_averages_are_refused(tmp_path: Path) -> None:
    """A file of epochs or averages is refused with its kind and the function that reads
    it.
    """
    raw = make_raw().pick("eeg")
    epochs = mne.make_fixed_length_epochs(raw, 2.0, preload=True)
    epochs.save(tmp_path / "night-epo.fif")
    check_unreadable(tmp_path / "night-epo.fif", r"epochs.*mne\.read_epochs")
    epochs.average().save(tmp_path / "night-ave.fif")
    check_unreadable(tmp_path / "night-ave.fif", "got averages")
    path = tmp_path / "pieces.set"
    epochs.drop_bad().export(path)
    check_unreadable(path, r"epochs.*mne\.read_epochs_eeglab")
    scipy.io.savemat(tmp_path / "a.set", {"x": np.zeros(3)})
    check_unreadable(tmp_path / "a.set", "MNE cannot read the file as EEGLAB")


def test_companion_files_belong_to_their_header(tmp_path: Path) -> None:
    """Companion files name their header; a change of any file changes the fingerprint
    of the recording.
    """
    path = write_brainvision(tmp_path)
    for suffix in (".eeg", ".vmrk"):
        check_unreadable(path.with_suffix(suffix), r"open '.*night\.vhdr' instead")
    before = state_fingerprint(str(path))
    os.utime(path.with_suffix(".eeg"), (1, 1))
    assert state_fingerprint(str(path)) not in ("", before)
    path.with_suffix(".eeg").unlink()
    check_unreadable(path, r"MNE cannot read the file as BrainVision.*companion files")


def test_a_folder_lists_each_recording_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Samples and markers of a recording do not count as files of their own."""
    write_brainvision(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    csv = tmp_path / "out" / "peaks.csv"
    csv.parent.mkdir()
    with pytest.raises(SystemExit, match="0"):
        main(["welch", str(tmp_path), "--csv", str(csv), "--device", "cpu"])
    message = capsys.readouterr().err
    assert "1 file of other kinds (.txt)" in message
    assert len({line.split(",")[0] for line in csv.read_text().splitlines()[1:]}) == 1


def test_missing_mne_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_fif(tmp_path)
    monkeypatch.setitem(sys.modules, "mne", None)
    with pytest.raises(Unsupported, match=r"package mne.*rlxweb\[mne\]"):
        open_recording(path)


def test_a_remote_file_must_be_downloaded_first(tmp_path: Path) -> None:
    """MNE opens files by path, so remote URLs are refused and file URLs are read."""
    import fsspec

    with fsspec.open("memory://night_raw.fif", "wb") as file:
        file.write(write_fif(tmp_path).read_bytes())
    with pytest.raises(RecordingError, match="download the file first"):
        open_recording("memory://night_raw.fif")
    with open_recording(write_fif(tmp_path / "..").as_uri()) as recording:
        assert recording.format == "FIF"


def test_a_wrong_suffix_is_reported(tmp_path: Path) -> None:
    """MNE chooses its reader by the file name, so a wrong suffix is reported."""
    path = write_fif(tmp_path).rename(tmp_path / "night.dat")
    check_unreadable(
        path, r"suffix is \.dat.*requires the suffix \.fif.*rename the file"
    )
    scipy.io.savemat(tmp_path / "a.mat", {"x": np.zeros(3)})
    check_unreadable(
        tmp_path / "a.mat", r"MATLAB file has format version 7 or older.*-v7\.3"
    )


# --- damage ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["FIF", "BrainVision", "EEGLAB", "packed FIF"])
@pytest.mark.filterwarnings("ignore::rlxweb.core.errors.RecordingWarning")
def test_a_damaged_file_is_read_or_refused(tmp_path: Path, kind: str) -> None:
    """A file that is truncated or has bytes changed gives samples or a
    RecordingError.
    """
    path = WRITERS[kind][0](tmp_path)
    original, rng = path.read_bytes(), np.random.default_rng(3)
    outcomes = set()
    for trial in range(24):
        raw = bytearray(original)
        if trial < 8:
            raw = raw[: int(rng.integers(1, len(raw)))]
        else:
            limit = min(len(raw), 4000)
            for offset in rng.integers(0, limit, 4):
                raw[offset] = rng.integers(256)
        path.write_bytes(bytes(raw))
        outcomes.add(try_reading(path))
    assert "refused" in outcomes


def test_headers_with_excessive_claims_are_refused(tmp_path: Path) -> None:
    """Headers are validated before MNE sees them."""
    path = write_brainvision(tmp_path)
    text = path.read_text("utf-8").replace("OfChannels=3", "OfChannels=2000000000")
    path.write_text(text, "utf-8")
    check_unreadable(path, "2000000000 channels; expected at most 65536")
    raw = bytearray(write_fif(tmp_path).read_bytes())
    struct.pack_into(">i", raw, 12, 4)
    (tmp_path / "night_raw.fif").write_bytes(raw)
    check_unreadable(tmp_path / "night_raw.fif", "damaged")
    struct.pack_into(">i", raw, 12, 0)
    second_tag = 16 + 20
    struct.pack_into(">i", raw, second_tag + 12, 8)
    (tmp_path / "night_raw.fif").write_bytes(raw)
    check_unreadable(tmp_path / "night_raw.fif", "a tag points backwards")


def test_unpacking_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A packed file is unpacked to a limit in a temporary file, gone when closed."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    path = write_packed_fif(tmp_path)
    with open_recording(path) as recording:
        assert len(list(folder.rglob("*.fif"))) == 1
        assert recording.groups[0].n_samples == N
    assert list(folder.iterdir()) == []
    monkeypatch.setattr("rlxweb.io.file_limits.UNPACKED_NBYTES", 1000)
    check_unreadable(path, "decompressed bytes; expected at most 1000")
    assert list(folder.iterdir()) == []
    path.write_bytes(gzip.compress(b"hello"))
    check_unreadable(path, "compressed with gzip|the content is not FIF")


# --- and what comes after -------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fif", "vhdr", "set"])
def test_a_recording_has_equal_peaks_in_every_format(
    tmp_path: Path, eeg_recordings: Path, kind: str
) -> None:
    """The recording of 139 channels has equal peaks after MNE saves it in each
    format.
    """
    raw = mne.io.read_raw_edf(eeg_recordings / "test.edf", preload=True).pick("eeg")
    raw.drop_channels([name for name in raw.ch_names if name == "Status"])
    raw.pick(raw.ch_names[:12])
    raw.set_annotations(None)
    path = tmp_path / (f"test_raw.{kind}" if kind == "fif" else f"test.{kind}")
    if kind == "fif":
        raw.save(path, fmt="double")
    else:
        mne.export.export_raw(path, raw)
    with open_recording(
        eeg_recordings / "test.edf", channels=raw.ch_names
    ) as recording:
        (group,) = recording.groups
        expected = rlx.welch_peaks(group.read(), group.fs, k=3, preset="scipy")
    with open_recording(path) as recording:
        (group,) = recording.groups
        peaks = rlx.welch_peaks(group.read(), group.fs, k=3, preset="scipy")
        assert {channel.unit for channel in group.channels} == {"uV"}
    np.testing.assert_array_equal(peaks.bins, expected.bins)
    np.testing.assert_allclose(peaks.power, expected.power, rtol=1e-5)


def test_replay_plays_files_read_through_mne(tmp_path: Path) -> None:
    """Files that MNE reads are played by `rlxweb live --replay` like other files."""
    replay = RecordingReplay(str(write_fif(tmp_path)), speed=1e6, channels=["Fz"])
    try:
        chunk = replay.read(1.0)
    finally:
        replay.close()
    assert chunk is not None
    np.testing.assert_allclose(chunk.samples[0], X[0, : chunk.samples.shape[1]], 1e-9)


def test_a_split_fif_file_is_one_recording(tmp_path: Path) -> None:
    """A FIF file and its continuation files are one recording, read in bounded
    memory.
    """
    noise = np.random.default_rng(1).normal(0, 5e-5, (2, 256 * 2500))
    raw = mne.io.RawArray(noise, mne.create_info(["a", "b"], FS, "eeg"))
    path = tmp_path / "long_raw.fif"
    raw.save(path, split_size="2MB", buffer_size_sec=1)
    assert (tmp_path / "long_raw-1.fif").exists()
    with open_recording(path) as recording:
        (group,) = recording.groups
        tracemalloc.start()
        end = 0
        for block in group.blocks(20_000):
            samples = block.data[:, ::97]
            expected = noise[:, block.start : block.stop : 97] * 1e6
            np.testing.assert_allclose(samples, expected, rtol=0, atol=1e-4)
            end = block.stop
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert end == noise.shape[1]
    assert peak < noise.nbytes / 4
    before = state_fingerprint(str(path))
    os.utime(tmp_path / "long_raw-1.fif", (1, 1))
    assert state_fingerprint(str(path)) != before


def test_complex_samples_are_refused(tmp_path: Path) -> None:
    """Complex samples are refused; MNE would return their real parts with only a
    warning.
    """
    path = tmp_path / "a_raw.fif"
    raw = make_raw().pick("eeg")
    raw._data = raw._data * (1 + 1j)
    raw.save(path, fmt="double")
    check_unreadable(path, "the samples are complex")
