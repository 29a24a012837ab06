"""Command `rlxweb info`: its report agrees with the files."""

from __future__ import annotations

import csv
import datetime
import io
from pathlib import Path

import edfio
import numpy as np
import pytest

from rlxweb.cli.info_command import _format_clock
from tests.cli_runners import CommandRunner, check_rejected
from tests.edf_bdf_recordings import write_recording

NOTES = [(1.0, None, "go"), (2.5, 1.5, "Größe"), (3.0, None, "go"), (3.5, 0.5, "Größe")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_recording(
        tmp_path / "a.edf",
        *(("Cz", 128.0), ("Temp", 2.0), ("Pz", 128.0)),
        seconds=90,
        annotations=[edfio.EdfAnnotation(*note) for note in NOTES],
        starttime=datetime.time(23, 59, 30),
        recording=edfio.Recording(startdate=datetime.date(2002, 3, 2)),
    )


def test_text_output(path: Path, call: CommandRunner) -> None:
    result = call("info", path)
    assert result.code == 0
    assert not result.err
    lines = [line.rstrip() for line in result.out.splitlines()]
    assert (
        lines[0]
        == f"{path}: EDF+C, begins on 2002-03-02 at 23:59:30, lasts 0:01:30 (90 s)"
    )
    assert "  2 channels at 128 Hz, 11,520 samples each, read as int16" in lines
    assert "  1 channel at 2 Hz, 180 samples each, read as int16" in lines
    assert "    in µV: Cz, Pz" in lines
    assert "  skipped channel 'EDF Annotations': contains annotations (text)" in lines
    assert "  4 annotations with 2 different texts" in lines
    rows = [line.split() for line in lines]
    assert ["go", "2", "1", "3", "–"] in rows
    assert ["Größe", "2", "2.5", "3.5", "0.5", "to", "1.5"] in rows


def test_json_and_csv_output(path: Path, call: CommandRunner) -> None:
    document = call("info", path, "--json", "-").document
    assert document["schema"] == "rlxweb.info/1"
    (file,) = document["files"]
    assert (file["begun_s"], file["seconds"]) == (86_370.0, 90.0)
    assert file["date"] == "2002-03-02"
    assert [group["fs"] for group in file["groups"]] == [128.0, 2.0]
    assert file["groups"][0]["channels"][1] == {
        "name": "Pz",
        "label": "Pz",
        "unit": "uV",
    }
    assert file["annotations"][1]["most_duration_s"] == 1.5
    rows = list(csv.DictReader(io.StringIO(call("info", path, "--csv", "-").out)))
    assert [(float(r["onset_s"]), r["text"]) for r in rows] == [
        (onset, text) for onset, _, text in NOTES
    ]


def test_several_files_and_a_bad_one(
    path: Path, tmp_path: Path, call: CommandRunner
) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 250)), fs=250.0)
    bad = tmp_path / "bad.edf"
    bad.write_bytes(b"0       nothing")
    check_rejected(call("info", bad, path), 2, "bad.edf")
    result = call("info", bad, path, tmp_path / "x.npz", "--keep-going", "--json", "-")
    assert result.code == 1
    assert [Path(f["path"]).name for f in result.document["files"]] == [
        "a.edf",
        "x.npz",
    ]
    assert len(result.document["failed"]) == 1
    assert "without a unit: ch1, ch2" in result.err
    assert "no annotations" in result.err
    assert not call("info", path, "--quiet").out


def test_file_defects_are_listed(path: Path, call: CommandRunner) -> None:
    path.write_bytes(path.read_bytes()[:-500])
    result = call("info", path)
    assert result.code == 0
    assert "  warning: " in result.out


def test_invalid_arguments_are_rejected(
    tmp_path: Path, path: Path, call: CommandRunner
) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 250)))
    check_rejected(call("info", tmp_path / "x.npy"), 2, "pass --fs HZ")
    assert call("info", tmp_path / "x.npy", "--fs", 250).code == 0
    check_rejected(
        call("info", path, "--csv", path), 2, "the file is also the recording"
    )
    check_rejected(call("info", tmp_path / "no.edf"), 2, "no.edf")


def test_clock_format() -> None:
    assert [_format_clock(s) for s in (0, 59.9996, 3661.25, 86_399)] == [
        *("0:00:00", "0:01:00", "1:01:01.25", "23:59:59")
    ]


def test_recordings_of_other_software(
    call: CommandRunner, eeg_recordings: Path
) -> None:
    result = call("info", eeg_recordings / "test.edf", eeg_recordings / "test.bdf")
    assert result.code == 0
    assert "138 channels at 512 Hz" in result.out
    assert "72 channels at 2048 Hz" in result.out
