"""Output files in CSV, JSON and NPZ: written atomically, and read back exactly."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import stat
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from rlxweb.core import atomic_file
from rlxweb.core.atomic_file import AtomicFiles
from rlxweb.core.errors import NotWritten, RecordingError, UsageError
from rlxweb.io import atomic_path, write_csv, write_json, write_npz
from tests.cli_runners import run_python
from tests.run_in_threads import start_threads


def test_a_file_is_replaced_only_when_the_block_ends(tmp_path: Path) -> None:
    """A file keeps its old content until the end; the temporary file has the same
    suffix.
    """
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
    """The system's error while writing becomes a RecordingError, and no file is
    left.
    """
    with pytest.raises(RecordingError, match=r"out\.csv.*No space left"):
        with atomic_path(tmp_path / "out.csv"):
            raise OSError(28, "No space left on device")
    assert os.listdir(tmp_path) == []


def test_a_failed_flush_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is not renamed unless its content is on the disk."""
    broken = OSError(5, "Input/output error")
    monkeypatch.setattr(atomic_file.os, "fsync", Mock(side_effect=broken))
    with pytest.raises(RecordingError, match="Input/output error"):
        write_json(tmp_path / "out.json", {})
    assert os.listdir(tmp_path) == []


def test_permissions_of_the_old_file_are_preserved(tmp_path: Path) -> None:
    """A private file stays private; a new one follows the umask."""
    old = tmp_path / "old.json"
    old.write_text("{}")
    old.chmod(0o640)
    write_json(old, {"a": 1})
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    plain, new = tmp_path / "plain", tmp_path / "made"
    plain.touch()
    write_json(new, {})
    assert new.stat().st_mode == plain.stat().st_mode


def test_a_write_protected_file_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename would circumvent the write protection (root is never refused by
    access).
    """
    target = tmp_path / "out.json"
    target.write_text("old")
    monkeypatch.setattr(atomic_file.os, "access", lambda path, mode: False)
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


def test_an_unwritable_path_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing folder, file for a folder, folder for a file, no permission."""
    (tmp_path / "file").touch()
    for path, match in (
        (tmp_path / "gone" / "a.csv", r"gone/a\.csv.*the folder does not exist"),
        (tmp_path / "file" / "a.csv", "the folder does not exist"),
        (tmp_path, "expected a file, got a folder"),
        ("a\0b", "null"),
    ):
        with pytest.raises(RecordingError, match=match):
            write_csv(path, ["a"], [])
    denied = PermissionError(13, "Permission denied")
    monkeypatch.setattr(atomic_file.os, "open", Mock(side_effect=denied))
    with pytest.raises(RecordingError, match="do not have permission to write"):
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


def test_a_row_of_wrong_length_is_refused(tmp_path: Path) -> None:
    """A ragged table is never written."""
    with pytest.raises(
        UsageError, match="row 1 has 1 cells; expected 2, one per column"
    ):
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
    with pytest.raises(UsageError, match="'bad' contains Python objects"):
        write_npz(tmp_path / "b.npz", bad=np.array([{}], object))
    assert os.listdir(tmp_path) == ["a.npz"]


def test_json_is_written_to_a_file_or_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """NumPy numbers, arrays and paths are converted; a dash means standard output."""
    obj = {"hz": np.array([1.5, 2.0]), "n": np.int64(3), "at": Path("x"), "µ": None}
    expected = {"hz": [1.5, 2.0], "n": 3, "at": "x", "µ": None}
    write_json(tmp_path / "a.json", obj)
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == expected
    write_json("-", obj)
    assert json.loads(capsys.readouterr().out) == expected


def test_results_are_written_to_paths_and_binary_files() -> None:
    for write in (
        lambda target: write_csv(target, ["a"], [[1]]),
        lambda target: write_npz(target, a=1),
        lambda target: write_json(target, {}),
    ):
        with pytest.raises(UsageError, match="got 5; expected a path or an open file"):
            write(5)
        with pytest.raises(UsageError, match="open it with mode 'wb'"):
            write(io.StringIO())
        write(io.BytesIO())


@pytest.mark.parametrize("obj", [float("nan"), {"a": np.inf}, {"a": object()}])
def test_values_json_cannot_represent_are_refused(tmp_path: Path, obj: object) -> None:
    """No `NaN` token is written, because other readers fail on it."""
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        write_json(tmp_path / "a.json", obj)
    assert os.listdir(tmp_path) == []


def test_a_private_file_is_private_from_the_start(tmp_path: Path) -> None:
    """Nobody else could open what is being written, at any moment."""
    target = tmp_path / "secret.csv"
    target.write_text("old")
    target.chmod(0o600)
    old_mask = os.umask(0o022)
    modes: list[int] = []
    real_open = os.open

    def recording_open(path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        handle = real_open(path, flags, mode, **options)
        if flags & os.O_CREAT:
            modes.append(stat.S_IMODE(os.fstat(handle).st_mode))
        return handle

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(atomic_file.os, "open", recording_open)
            with AtomicFiles() as files:
                temporary = files.temporary_path(target)
                modes.append(stat.S_IMODE(temporary.stat().st_mode))
    finally:
        os.umask(old_mask)
    assert modes == [0o600, 0o600]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


@pytest.mark.skipif(not hasattr(os, "fchown"), reason="files have no group here")
def test_owner_and_group_are_preserved_or_group_rights_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rights granted to one group are not granted to another."""
    target = tmp_path / "shared.csv"
    target.write_text("old")
    target.chmod(0o660)
    requests: list[tuple[int, int]] = []
    monkeypatch.setattr(
        atomic_file.os,
        "fchown",
        lambda handle, *owner: requests.append(owner),
        raising=True,
    )
    status = target.stat()
    write_json(target, {})
    assert requests == [(status.st_uid, -1), (-1, status.st_gid)]
    assert stat.S_IMODE(target.stat().st_mode) == 0o660
    other_group_status = os.stat_result([*status[:5], status.st_gid + 1, *status[6:]])
    with target.open("rb") as file:
        atomic_file._copy_ownership(file.fileno(), other_group_status)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def write_files_together(*paths: Path) -> None:
    with AtomicFiles(allow_streams=True) as files:
        for path in paths:
            files.open(path).write(b"new")


def test_several_files_appear_together(tmp_path: Path) -> None:
    """None of several files is visible before the end, with or without a
    predecessor.
    """
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text("old")
    with AtomicFiles() as files:
        files.open(old).write(b"1")
        files.open(new).write(b"2")
        assert (old.read_text(), new.exists()) == ("old", False)
    assert (old.read_text(), new.read_text()) == ("1", "2")
    assert sorted(os.listdir(tmp_path)) == ["new.csv", "old.csv"]


def test_duplicate_output_files_are_refused(tmp_path: Path) -> None:
    """Two files of one name, also by a link, are refused: only one would be left."""
    (tmp_path / "link.csv").symlink_to("a.csv")
    with pytest.raises(
        UsageError,
        match=r"link\.csv.*a\.csv', another output, refers to the same file",
    ):
        write_files_together(tmp_path / "a.csv", tmp_path / "link.csv")
    assert os.listdir(tmp_path) == ["link.csv"]


@pytest.mark.parametrize("broken", [1, 2, 3])
@pytest.mark.parametrize("has_links", [True, False])
def test_a_failed_rename_undoes_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: int, has_links: bool
) -> None:
    """Old files are restored, new ones are removed, and nothing else is left."""
    names = ["a.csv", "b.csv", "c.csv"]
    for name in names[::2]:
        (tmp_path / name).write_text(f"old {name}")
    real_replace, count = Path.replace, iter(range(1, 10))

    def replace(path: Path, target: Path) -> Path:
        if next(count) == broken:
            raise OSError(errno.EBUSY, "Device or resource busy")
        return real_replace(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    if not has_links:
        refuse = Mock(side_effect=OSError(errno.EPERM, "no links here"))
        monkeypatch.setattr(atomic_file.os, "link", refuse)
    with pytest.raises(NotWritten, match=f"{names[broken - 1]}.*resource busy"):
        write_files_together(*(tmp_path / name for name in names))
    contents = {name: (tmp_path / name).read_text() for name in os.listdir(tmp_path)}
    assert contents == {"a.csv": "old a.csv", "c.csv": "old c.csv"}


def test_exceeding_the_file_size_limit_leaves_nothing(tmp_path: Path) -> None:
    """The system's file size limit is hit in the middle of the second of two files."""
    code = (
        "import resource, sys\nfrom rlxweb.core.atomic_file import AtomicFiles\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "with AtomicFiles() as files:\n"
        "    files.open('a.csv').write(b'x' * 100)\n"
        "    files.open('b.csv').write(b'x' * 100_000)\n"
    )
    result = run_python("-c", code, cwd=tmp_path)
    assert "NotWritten: writing 'b.csv'" in result.err
    assert "File too large" in result.err
    assert os.listdir(tmp_path) == []


def test_unfinished_files_can_be_removed(tmp_path: Path) -> None:
    """Unfinished files can be removed by a process that is terminated from outside."""
    with AtomicFiles() as files:
        temporary = files.temporary_path(tmp_path / "a.csv")
        atomic_file.remove_temporary_files()
        assert not temporary.exists()
        temporary.touch()
    assert os.listdir(tmp_path) == ["a.csv"]
    assert not atomic_file._temporary_paths


def test_streams_are_written_if_allowed(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Standard output by any of its names, devices, and descriptors at their file
    position.
    """
    for name in ("-", "/dev/stdout", "/dev/fd/1"):
        with AtomicFiles(allow_streams=True) as files:
            files.open(name).write(b"to stdout\n")
        assert capsysbinary.readouterr().out == b"to stdout\n"
    with (tmp_path / "log").open("wb") as log:
        log.write(b"before, ")
        log.flush()
        with AtomicFiles(allow_streams=True) as files:
            files.open(f"/dev/fd/{log.fileno()}").write(b"ours, ")
            files.open(os.devnull).write(b"nothing")
        log.write(b"after")
    assert (tmp_path / "log").read_bytes() == b"before, ours, after"
    for name in (os.devnull, str(tmp_path)):
        with pytest.raises(RecordingError, match=r"regular file|folder"):
            write_json(name, {})


def test_a_named_pipe_receives_everything(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    (reader,) = start_threads([lambda: read.append(pipe.read_bytes())])
    with AtomicFiles(allow_streams=True) as files:
        files.open(pipe).write(b"x" * 1_000_000)
    reader.join(60)
    assert read == [b"x" * 1_000_000]
    with pytest.raises(RecordingError, match="not a regular file"):
        write_json(pipe, {})


def test_a_failed_stream_discards_the_files_too(tmp_path: Path) -> None:
    """A full device is an error; a closed reader is not."""
    if Path("/dev/full").exists():
        with pytest.raises(NotWritten, match=r"/dev/full.*No space"):
            write_files_together(tmp_path / "a.csv", Path("/dev/full"))
        assert os.listdir(tmp_path) == []
    reader, writer = os.pipe()
    os.close(reader)
    write_files_together(tmp_path / "a.csv", Path(f"/dev/fd/{writer}"))
    os.close(writer)
    assert os.listdir(tmp_path) == ["a.csv"]


def test_spreadsheet_formulas_are_written_as_text(tmp_path: Path) -> None:
    """Names that would begin a formula get an apostrophe; numbers stay."""
    path = tmp_path / "a.csv"
    texts = ["=1+1", "+cmd|' /C calc'!A0", "-2", "@SUM(A1)", "\t=1", "\r=1", "x=1", ""]
    # Some parts of the world have semicolons between cells, others wide letters.
    texts += ["a;=1;b;-c", "\uff1d1", "Fp1-A2;x"]
    write_csv(path, ["=head", "n"], [[text, -1.5] for text in texts])
    with path.open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    assert head == ["'=head", "n"]
    assert [row[0] for row in rows] == [
        *("'=1+1", "'+cmd|' /C calc'!A0", "'-2", "'@SUM(A1)", r"'\t=1", r"'\r=1"),
        *("x=1", "", "a;'=1;b;'-c", "'\uff1d1", "Fp1-A2;x"),
    ]
    assert {float(row[1]) for row in rows} == {-1.5}


def test_terminal_control_characters_are_escaped(tmp_path: Path) -> None:
    """Terminal control characters are escaped in CSV, and in JSON with JSON's
    escapes.
    """
    name = "\x1b[2J\u202e\x9b\x7f\ud800\nµ"
    write_csv(tmp_path / "a.csv", ["n"], [[name]])
    assert (tmp_path / "a.csv").read_text("utf-8") == (
        "n\n\\x1b[2J\\u202e\\x9b\\x7f\\ud800\\nµ\n"
    )
    write_json(tmp_path / "a.json", {name: [name]})
    text = (tmp_path / "a.json").read_text("utf-8")
    assert all(c.isprintable() or c == "\n" for c in text)
    assert "µ" in text
    assert json.loads(text) == {name: [name]}
