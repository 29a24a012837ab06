"""Output files appear whole or not at all."""

from __future__ import annotations

import csv
import json
import os
import stat
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from rlxweb import whole_file
from rlxweb.errors import RecordingError, UsageError
from rlxweb.io import atomic_path, write_csv, write_json, write_npz


def test_a_file_appears_only_when_the_block_ends(tmp_path: Path) -> None:
    """Until then the old content stands; the temporary file keeps the suffix."""
    target = tmp_path / "out.png"
    target.write_text("old")
    with atomic_path(target) as temporary:
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".png"
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["out.png"]


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyboardInterrupt(), UsageError("", "x")]
)
def test_nothing_is_left_when_the_block_fails(
    tmp_path: Path, error: BaseException
) -> None:
    """The old file stays, the temporary one goes, the error passes unchanged."""
    target = tmp_path / "out.csv"
    target.write_text("old")

    def write_half() -> None:
        with atomic_path(target) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(type(error)):
        write_half()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.csv"]


def test_a_full_disk_is_a_recording_error(tmp_path: Path) -> None:
    """The system's error while writing becomes ours, and nothing is left."""
    with pytest.raises(RecordingError, match=r"out\.csv.*No space left"):
        with atomic_path(tmp_path / "out.csv"):
            raise OSError(28, "No space left on device")
    assert os.listdir(tmp_path) == []


def test_a_failed_flush_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is not renamed unless it is on the disk."""
    broken = OSError(5, "Input/output error")
    monkeypatch.setattr(whole_file.os, "fsync", Mock(side_effect=broken))
    with pytest.raises(RecordingError, match="Input/output error"):
        write_json(tmp_path / "out.json", {})
    assert os.listdir(tmp_path) == []


def test_permissions_of_the_old_file_are_kept(tmp_path: Path) -> None:
    """A private file stays private; a new one follows the umask."""
    old = tmp_path / "old.json"
    old.write_text("{}")
    old.chmod(0o640)
    write_json(old, {"a": 1})
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    plain, made = tmp_path / "plain", tmp_path / "made"
    plain.touch()
    write_json(made, {})
    assert made.stat().st_mode == plain.stat().st_mode


def test_a_write_protected_file_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename would get around the protection (root is never refused by access)."""
    target = tmp_path / "out.json"
    target.write_text("old")
    monkeypatch.setattr(whole_file.os, "access", lambda path, mode: False)
    with pytest.raises(RecordingError, match="write-protected"):
        write_json(target, {})
    assert target.read_text() == "old"


def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    """The file it points to is written; the link stays a link."""
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "real" / "out.json")
    write_json(link, {"a": 1})
    assert link.is_symlink()
    assert json.loads((tmp_path / "real" / "out.json").read_text()) == {"a": 1}


def test_a_place_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing folder, file for a folder, folder for a file, no permission."""
    (tmp_path / "file").touch()
    for path, match in (
        (tmp_path / "gone" / "a.csv", r"gone/a\.csv.*no such folder"),
        (tmp_path / "file" / "a.csv", "no such folder"),
        (tmp_path, "it is a folder"),
        ("a\0b", "null"),
    ):
        with pytest.raises(RecordingError, match=match):
            write_csv(path, ["a"], [])
    denied = PermissionError(13, "Permission denied")
    monkeypatch.setattr(whole_file.os, "open", Mock(side_effect=denied))
    with pytest.raises(RecordingError, match="may not write there"):
        write_csv(tmp_path / "a.csv", ["a"], [])


def test_csv_reads_back_exactly(tmp_path: Path) -> None:
    """Names with commas, floats to the last bit, NumPy numbers and empty cells."""
    path = tmp_path / "a.csv"
    third32, third64 = np.float32(1) / 3, np.float64(1) / 3
    write_csv(
        path, ["channel, name", "hz"], [["Fp1", 0.1], [third32, third64], [None, 3]]
    )
    assert b"\r" not in path.read_bytes()
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["channel, name", "hz"]
    assert rows[1] == ["Fp1", "0.1"]
    assert np.float32(rows[2][0]) == third32
    assert float(rows[2][1]) == third64
    assert rows[3] == ["", "3"]


def test_a_row_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """A ragged table is never written."""
    with pytest.raises(UsageError, match="row 1 has 1 cells; 2 columns"):
        write_csv(tmp_path / "a.csv", ["a", "b"], [[1, 2], [3]])
    assert os.listdir(tmp_path) == []


def test_npz_reads_back_without_unpickling(tmp_path: Path) -> None:
    """Numbers and text come back; any name serves; objects are refused."""
    path = tmp_path / "a.npz"
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    write_npz(path, power=x, file=x[0], names=np.array(["Fp1", "O2"]), fs=256.0)
    with np.load(path, allow_pickle=False) as loaded:
        assert sorted(loaded) == ["file", "fs", "names", "power"]
        np.testing.assert_array_equal(loaded["power"], x)
        assert loaded["power"].dtype == np.float32
        assert loaded["names"].tolist() == ["Fp1", "O2"]
        assert loaded["fs"] == 256.0
    with pytest.raises(UsageError, match="'bad' holds Python objects"):
        write_npz(tmp_path / "b.npz", bad=np.array([{}], object))
    assert os.listdir(tmp_path) == ["a.npz"]


def test_json_goes_to_a_file_or_to_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """NumPy numbers, arrays and paths have a form; the dash is standard output."""
    obj = {"hz": np.array([1.5, 2.0]), "n": np.int64(3), "at": Path("x"), "µ": None}
    expected = {"hz": [1.5, 2.0], "n": 3, "at": "x", "µ": None}
    write_json(tmp_path / "a.json", obj)
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == expected
    write_json("-", obj)
    assert json.loads(capsys.readouterr().out) == expected


@pytest.mark.parametrize("obj", [float("nan"), {"a": np.inf}, {"a": object()}])
def test_what_json_cannot_hold_is_refused(tmp_path: Path, obj: object) -> None:
    """No `NaN` token that other readers stumble over."""
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        write_json(tmp_path / "a.json", obj)
    assert os.listdir(tmp_path) == []
