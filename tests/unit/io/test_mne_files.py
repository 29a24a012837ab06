"""FIF, BrainVision and EEGLAB: the numbers that others wrote, by MNE."""

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
from rlxweb.errors import RecordingError, RecordingWarning, Unsupported
from rlxweb.io import open_recording
from rlxweb.io.identity import identity
from rlxweb.live.file_source import Replay
from tests.recordings import attempt, check_unreadable

mne.set_log_level("ERROR")
FS, N = 256.0, 4096
T = np.arange(N) / FS
RNG = np.random.default_rng(7)
# Three rhythms in microvolts, and a trigger.
X = np.array([40 * np.sin(2 * np.pi * hz * T) for hz in (6, 10, 20)])
X += RNG.normal(0, 2, X.shape)
NAMES = ("Fz", "Cz", "Oz")
BEGUN = 1_700_000_000.0  # 22:13:20 UTC


def of_mne(*, first: int = 0, dated: bool = True) -> Any:
    """The recording as MNE holds it: volts, a bad channel and a trigger channel."""
    kinds = ["eeg", "eeg", "eeg", "stim"]
    info = mne.create_info([*NAMES, "STI 014"], FS, kinds)
    info["bads"] = ["Oz"]
    data = np.vstack([X * 1e-6, np.zeros((1, N))])
    raw = mne.io.RawArray(data, info, first_samp=first)
    if dated:
        raw.set_meas_date(BEGUN)
    raw.set_annotations(mne.Annotations([4.0, 9.0], [0.5, 0], ["Lights off", "Stim 1"]))
    return raw


def fif(folder: Path) -> Path:
    path = folder / "night_raw.fif"
    of_mne().save(path, fmt="double")
    return path


def packed_fif(folder: Path) -> Path:
    path = folder / "night_raw.fif.gz"
    of_mne().save(path, fmt="double")
    return path


def brainvision(folder: Path) -> Path:
    notes = [
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
        events=notes,
        resolution=1e-3,
        unit="µV",
        fmt="binary_float32",
        meas_date="20231114221320000000",
    )
    return folder / "night.vhdr"


def eeglab(folder: Path) -> Path:
    path = folder / "night.set"
    mne.export.export_raw(path, of_mne().pick("eeg"))
    return path


def edf(folder: Path) -> Path:
    path = folder / "night.edf"
    mne.export.export_raw(path, of_mne().pick("eeg"))
    return path


WRITERS: dict[str, tuple[Callable[[Path], Path], float]] = {
    "FIF": (fif, 1e-12),
    "packed FIF": (packed_fif, 1e-12),
    "BrainVision": (brainvision, 1e-5),
    "EEGLAB": (eeglab, 1e-7),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_they_are_the_microvolts_that_were_written(tmp_path: Path, kind: str) -> None:
    """Microvolts come back in blocks and any channel order, with notes and begin."""
    writer, error = WRITERS[kind]
    path = writer(tmp_path)
    with open_recording(path, channels=["Oz", "Fz", "Cz"]) as recording:
        (group,) = recording.groups
        assert (group.fs, group.names) == (FS, ("Oz", "Fz", "Cz"))
        assert {channel.unit for channel in group.channels} == {"uV"}
        x = group.read()
        np.testing.assert_allclose(x, X[[2, 0, 1]], rtol=0, atol=error * 100)
        walked = np.concatenate([b.data for b in group.blocks(777)], axis=1)
        np.testing.assert_array_equal(walked, x)
        assert recording.format == kind.removeprefix("packed ")
        first = recording.annotations[0]
        assert (first.onset, first.duration, first.text) == (4.0, 0.5, "Lights off")
        moment = (None, None) if kind == "EEGLAB" else (80_000.0, date(2023, 11, 14))
        assert (recording.begun, recording.date) == moment
    with pytest.raises(RecordingError, match="closed"):
        group.read()


@pytest.mark.parametrize("kind", WRITERS)
def test_a_stretch_is_found_by_words_and_by_the_clock(
    tmp_path: Path, kind: str
) -> None:
    """The same samples as of the EDF+ file of the same recording."""
    path, plus = WRITERS[kind][0](tmp_path), edf(tmp_path)
    asks: list[dict[str, Any]] = [{"start": "lights off", "stop": 12}]
    if kind != "EEGLAB":
        asks.append({"start": "@22:13:25", "stop": "@22:13:30"})
    for ask in asks:
        with open_recording(path, channels=NAMES, **ask) as recording:
            (group,) = recording.groups
            x = group.read()
        with open_recording(plus, channels=NAMES, **ask) as recording:
            (group,) = recording.groups
            # EDF rounds to one of 65,536 steps.
            np.testing.assert_allclose(x, group.read(), rtol=0, atol=5e-3)
            assert {channel.unit for channel in group.channels} == {"uV"}


def test_bad_and_trigger_channels_are_left_out_with_a_reason(tmp_path: Path) -> None:
    """Bad and trigger channels are left out with a reason, and taken by name."""
    path = fif(tmp_path)
    with open_recording(path) as recording:
        assert recording.groups[0].names == ("Fz", "Cz")
        assert dict(recording.left_out) == {
            "Oz": "is marked bad in the file",
            "STI 014": "holds triggers or status bits, not a signal",
        }
    with open_recording(path, channels=["STI 014", "Oz"]) as recording:
        assert recording.groups[0].names == ("STI 014", "Oz")


@pytest.mark.parametrize("dated", [True, False])
def test_annotations_of_fif_count_from_the_first_sample(
    tmp_path: Path, dated: bool
) -> None:
    """Annotations of FIF count from the first sample, whatever its number or date."""
    path = tmp_path / "later_raw.fif"
    of_mne(first=1000, dated=dated).save(path)
    with open_recording(path) as recording:
        assert [one.onset for one in recording.annotations] == [4.0, 9.0]
        assert recording.begun == (80_000 + 1000 / FS if dated else None)


def test_units_of_other_kinds_are_those_that_people_use(tmp_path: Path) -> None:
    """Femtotesla, and what no kind says stays as it is."""
    info = mne.create_info(["M", "G", "H"], FS, ["mag", "grad", "misc"])
    raw = mne.io.RawArray(np.full((3, N), 2e-13), info)
    raw.save(tmp_path / "meg_raw.fif", fmt="double")
    with open_recording(tmp_path / "meg_raw.fif") as recording:
        (group,) = recording.groups
        assert [channel.unit for channel in group.channels] == ["fT", "fT/cm", ""]
        np.testing.assert_allclose(group.read()[:, 0], [200, 2, 2e-13], rtol=1e-12)


def test_what_fif_never_recorded_is_a_gap(tmp_path: Path) -> None:
    """MNE would give zeros."""
    raw = of_mne().pick("eeg")
    raw.info["bads"] = []
    raw.set_annotations(mne.Annotations([5.0], [2.0], ["BAD_ACQ_SKIP"]))
    path = tmp_path / "gap_raw.fif"
    raw.save(path, buffer_size_sec=1.0, fmt="double")
    with pytest.warns(RecordingWarning, match="a gap of 2 s after 5 s"):
        recording = open_recording(path)
    with recording:
        (group,) = recording.groups
        assert group.gaps == ((int(5 * FS), int(7 * FS)),)
        x = group.read()
        assert np.isnan(x[:, int(5 * FS) : int(7 * FS)]).all()
        np.testing.assert_allclose(x[:, int(7 * FS) :], X[:, int(7 * FS) :], rtol=1e-9)
        assert recording.annotations == ()


def test_pieces_that_were_strung_together_are_told(tmp_path: Path) -> None:
    """One sentence for all of them."""
    raw = of_mne().pick("eeg")
    whole = mne.concatenate_raws([raw.copy().crop(0, 5), raw.copy().crop(8, 12)])
    whole.save(tmp_path / "cut_raw.fif")
    with pytest.warns(RecordingWarning, match=r"strung together.*5\.0039 s sees"):
        open_recording(tmp_path / "cut_raw.fif").close()


def test_epochs_and_averages_are_no_recordings(tmp_path: Path) -> None:
    """A file of epochs or averages is refused with what it is and how it is read."""
    raw = of_mne().pick("eeg")
    epochs = mne.make_fixed_length_epochs(raw, 2.0, preload=True)
    epochs.save(tmp_path / "night-epo.fif")
    check_unreadable(tmp_path / "night-epo.fif", r"epochs.*mne\.read_epochs")
    epochs.average().save(tmp_path / "night-ave.fif")
    check_unreadable(tmp_path / "night-ave.fif", "it holds averages")
    path = tmp_path / "pieces.set"
    epochs.drop_bad().export(path)
    check_unreadable(path, r"epochs.*mne\.read_epochs_eeglab")
    scipy.io.savemat(tmp_path / "a.set", {"x": np.zeros(3)})
    check_unreadable(tmp_path / "a.set", "MNE cannot read it as EEGLAB")


def test_every_header_leads_to_its_files(tmp_path: Path) -> None:
    """The others name the header; a change of any is a change of the recording."""
    path = brainvision(tmp_path)
    for suffix in (".eeg", ".vmrk"):
        check_unreadable(path.with_suffix(suffix), r"open '.*night\.vhdr' instead")
    before = identity(str(path))
    os.utime(path.with_suffix(".eeg"), (1, 1))
    assert identity(str(path)) not in ("", before)
    path.with_suffix(".eeg").unlink()
    check_unreadable(path, r"MNE cannot read it as BrainVision.*lies beside it")


def test_a_folder_gives_each_recording_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Samples and markers of a recording do not count as files of their own."""
    brainvision(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    csv = tmp_path / "out" / "peaks.csv"
    csv.parent.mkdir()
    with pytest.raises(SystemExit, match="0"):
        main(["welch", str(tmp_path), "--csv", str(csv), "--device", "cpu"])
    said = capsys.readouterr().err
    assert "1 file of other kinds (.txt)" in said
    assert len({line.split(",")[0] for line in csv.read_text().splitlines()[1:]}) == 1


def test_missing_mne_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fif(tmp_path)
    monkeypatch.setitem(sys.modules, "mne", None)
    with pytest.raises(Unsupported, match=r"package mne.*rlxweb\[mne\]"):
        open_recording(path)


def test_a_url_is_to_be_downloaded_first(tmp_path: Path) -> None:
    """MNE opens files by their names."""
    import fsspec

    with fsspec.open("memory://night_raw.fif", "wb") as file:
        file.write(fif(tmp_path).read_bytes())
    with pytest.raises(RecordingError, match="download it first"):
        open_recording("memory://night_raw.fif")
    with open_recording(fif(tmp_path / "..").as_uri()) as recording:
        assert recording.format == "FIF"


def test_a_name_of_another_kind_is_told(tmp_path: Path) -> None:
    """MNE goes by names."""
    path = fif(tmp_path).rename(tmp_path / "night.dat")
    check_unreadable(path, r"named \.dat.*end in \.fif.*rename it")
    scipy.io.savemat(tmp_path / "a.mat", {"x": np.zeros(3)})
    check_unreadable(tmp_path / "a.mat", r"MATLAB file of version 7 or older.*-v7\.3")


# --- damage ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["FIF", "BrainVision", "EEGLAB", "packed FIF"])
@pytest.mark.filterwarnings("ignore::rlxweb.errors.RecordingWarning")
def test_damage_gives_samples_or_an_error_of_ours(tmp_path: Path, kind: str) -> None:
    """A file that is cut or has bytes changed gives samples or an error of ours."""
    path = WRITERS[kind][0](tmp_path)
    whole, chance = path.read_bytes(), np.random.default_rng(3)
    outcomes = set()
    for at in range(24):
        raw = bytearray(whole)
        if at < 8:
            raw = raw[: int(chance.integers(1, len(raw)))]
        else:
            reach = min(len(raw), 4000)
            for place in chance.integers(0, reach, 4):
                raw[place] = chance.integers(256)
        path.write_bytes(bytes(raw))
        outcomes.add(attempt(path))
    assert "refused" in outcomes


def test_headers_that_claim_too_much_cost_nothing(tmp_path: Path) -> None:
    """Headers are judged before MNE sees them."""
    path = brainvision(tmp_path)
    text = path.read_text("utf-8").replace("OfChannels=3", "OfChannels=2000000000")
    path.write_text(text, "utf-8")
    check_unreadable(path, "2000000000 channels; at most 65536")
    raw = bytearray(fif(tmp_path).read_bytes())
    struct.pack_into(">i", raw, 12, 4)
    (tmp_path / "night_raw.fif").write_bytes(raw)
    check_unreadable(tmp_path / "night_raw.fif", "damaged")
    struct.pack_into(">i", raw, 12, 0)
    second = 16 + 20
    struct.pack_into(">i", raw, second + 12, 8)
    (tmp_path / "night_raw.fif").write_bytes(raw)
    check_unreadable(tmp_path / "night_raw.fif", "its tags lead back")


def test_a_packed_file_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A packed file is unpacked to a limit in a temporary file, gone when closed."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    path = packed_fif(tmp_path)
    with open_recording(path) as recording:
        assert len(list(folder.rglob("*.fif"))) == 1
        assert recording.groups[0].n_samples == N
    assert list(folder.iterdir()) == []
    monkeypatch.setattr("rlxweb.io.bounds.UNPACKED_NBYTES", 1000)
    check_unreadable(path, "bytes unpacked; at most 1000")
    assert list(folder.iterdir()) == []
    path.write_bytes(gzip.compress(b"hello"))
    check_unreadable(path, "packed with gzip|does not begin like FIF")


# --- and what comes after -------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fif", "vhdr", "set"])
def test_a_recording_has_equal_peaks_in_every_format(
    tmp_path: Path, eeg_recordings: Path, kind: str
) -> None:
    """The file of 139 channels, saved anew from MNE."""
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
        wanted = rlx.welch_peaks(group.read(), group.fs, k=3, preset="scipy")
    with open_recording(path) as recording:
        (group,) = recording.groups
        found = rlx.welch_peaks(group.read(), group.fs, k=3, preset="scipy")
        assert {channel.unit for channel in group.channels} == {"uV"}
    np.testing.assert_array_equal(found.bins, wanted.bins)
    np.testing.assert_allclose(found.power, wanted.power, rtol=1e-5)


def test_they_are_played_like_others(tmp_path: Path) -> None:
    """Files that MNE reads are played by `rlxweb live --replay` like others."""
    replay = Replay(str(fif(tmp_path)), speed=1e6, channels=["Fz"])
    try:
        chunk = replay.read(1.0)
    finally:
        replay.close()
    assert chunk is not None
    np.testing.assert_allclose(chunk.samples[0], X[0, : chunk.samples.shape[1]], 1e-9)


def test_a_long_fif_file_goes_on_in_others(tmp_path: Path) -> None:
    """A FIF file and its sequels are one recording, read in bounded memory."""
    noise = np.random.default_rng(1).normal(0, 5e-5, (2, 256 * 2500))
    raw = mne.io.RawArray(noise, mne.create_info(["a", "b"], FS, "eeg"))
    path = tmp_path / "long_raw.fif"
    raw.save(path, split_size="2MB", buffer_size_sec=1)
    assert (tmp_path / "long_raw-1.fif").exists()
    with open_recording(path) as recording:
        (group,) = recording.groups
        tracemalloc.start()
        at = 0
        for block in group.blocks(20_000):
            found = block.data[:, ::97]
            wanted = noise[:, block.start : block.stop : 97] * 1e6
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)
            at = block.stop
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert at == noise.shape[1]
    assert peak < noise.nbytes / 4
    before = identity(str(path))
    os.utime(tmp_path / "long_raw-1.fif", (1, 1))
    assert identity(str(path)) != before


def test_complex_samples_are_refused(tmp_path: Path) -> None:
    """MNE gives their real parts with no more than a warning."""
    path = tmp_path / "a_raw.fif"
    raw = of_mne().pick("eeg")
    raw._data = raw._data * (1 + 1j)
    raw.save(path, fmt="double")
    check_unreadable(path, "its samples are complex")
