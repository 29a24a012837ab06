"""`--resume`: completed work is kept however a run ends, and nothing is missing."""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from rlxweb.batch import recording_analysis
from rlxweb.batch.resumable_run import journal_path
from rlxweb.cli import json_documents
from tests.cli_runners import CommandRunner, check_rejected, drop_times
from tests.unit.cli.resumable_run import (
    FILES,
    JOURNAL_PATH,
    OUT_ARGS,
    WELCH_ARGS,
    night,
    run_stopped_after,
    uninterrupted_output,
)

__all__ = ["night", "uninterrupted_output"]

pytestmark = pytest.mark.usefixtures("night")


def test_interrupted_run_can_be_resumed(
    uninterrupted_output: bytes, call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run_stopped_after(3, monkeypatch, call)
    kept_line, *_, last_line = result.err.splitlines()
    assert kept_line.startswith(
        "rlxweb: 3 of 5 recordings are done and saved; --resume"
    )
    assert last_line == "rlxweb: stopped"
    assert not Path("o.parquet").exists()
    result = call(
        *WELCH_ARGS, *OUT_ARGS, "--resume", "--json", "o.json", "--csv", "o.csv"
    )
    assert result.code == 0
    assert result.err.splitlines() == [
        "resuming: 3 of 5 recordings already done",
        "o.parquet: 5 recordings",
    ]
    assert Path("o.parquet").read_bytes() == uninterrupted_output
    # The others hold what was done before as well.
    assert call(*WELCH_ARGS, "--json", "p.json", "--csv", "p.csv").code == 0
    assert Path("o.csv").read_bytes() == Path("p.csv").read_bytes()
    resumed_document, full_document = (
        json.loads(Path(f"{n}.json").read_text()) for n in "op"
    )
    # Times are another in every run, and those that were predicted too.
    assert drop_times(resumed_document, "decision") == drop_times(
        full_document, "decision"
    )


def test_unfinished_run_needs_an_explicit_choice(
    uninterrupted_output: bytes, call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run without --resume or --no-resume reports an earlier run's progress and
    stops.
    """
    run_stopped_after(2, monkeypatch, call)
    for _ in range(2):
        result = call(*WELCH_ARGS, *OUT_ARGS)
        words = "an earlier run", "2 of the 5", "--resume to continue", "--no-resume"
        check_rejected(result, 2, *words)
    assert JOURNAL_PATH.exists()
    analysed_paths: list[str] = []
    original_analyse = recording_analysis.analyse

    def analyse(recording: object, *args: object) -> object:
        analysed_paths.append(recording.path)  # type: ignore[attr-defined]
        return original_analyse(recording, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(recording_analysis, "analyse", analyse)
    assert call(*WELCH_ARGS, *OUT_ARGS, "--no-resume").code == 0
    assert analysed_paths == FILES
    assert Path("o.parquet").read_bytes() == uninterrupted_output
    assert not JOURNAL_PATH.exists()


@pytest.mark.parametrize(
    ("change", "repeated_files", "words"),
    [
        ("samples", ["0.npy"], "the file has changed since"),
        ("time", ["0.npy"], "the file has changed since"),
        ("settings", FILES[:3], "k was null, now 5"),
        ("version", FILES[:3], 'numpy was "9.9", now'),
    ],
)
def test_outdated_work_is_repeated_and_reported(
    call: CommandRunner,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    repeated_files: list[str],
    words: str,
) -> None:
    """Outdated results are computed again: the output equals that of a full run."""
    with monkeypatch.context() as patch:
        if change == "version":
            real_versions = json_documents.library_versions()
            patch.setattr(
                "rlxweb.cli.welch_command.library_versions",
                lambda: {**real_versions, "numpy": "9.9"},
            )
        run_stopped_after(3, monkeypatch, call)
    if change == "samples":
        np.save("0.npy", np.random.default_rng(1).standard_normal((2, 700)))
    if change == "time":
        os.utime("0.npy", ns=(1, 1))
    options = ("--k", 5) if change == "settings" else ()
    result = call(*WELCH_ARGS, *options, *OUT_ARGS, "--resume")
    assert result.code == 0, result.err
    lines = result.err.splitlines()
    (line,) = [line for line in lines if line.startswith("processing '")]
    assert ", ".join(f"'{file}'" for file in repeated_files) in line
    assert words.replace("null", "not set") in line
    n_resumed = 3 - len(repeated_files)
    resumed_lines = [f"resuming: {n_resumed} of 5 recordings already done"] * bool(
        n_resumed
    )
    assert [line for line in lines if "resuming" in line] == resumed_lines
    assert call(*WELCH_ARGS, *options, "--out", "whole.parquet").code == 0
    assert Path("o.parquet").read_bytes() == Path("whole.parquet").read_bytes()


def test_same_file_name_in_another_folder_is_another_file(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file of the same name, size and time in another folder is another file."""
    out = "--out", tmp_path / "o.parquet"
    run_stopped_after(3, monkeypatch, call)
    other = tmp_path / "other"
    other.mkdir()
    for file in FILES:
        mtime_ns = Path(file).stat().st_mtime_ns
        np.save(other / file, np.ones((2, 600)))
        os.utime(other / file, ns=(mtime_ns, mtime_ns))
    monkeypatch.chdir(other)
    result = call(*WELCH_ARGS, *out, "--resume")
    assert result.code == 0
    assert "the file was at another path" in result.err
    powers = pq.read_table(tmp_path / "o.parquet").column("power").to_pylist()
    assert powers[0] == pytest.approx(16256.25)


def test_results_of_old_settings_can_still_be_resumed(
    uninterrupted_output: bytes, call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run with mistyped flags that is stopped at once loses nothing."""
    run_stopped_after(4, monkeypatch, call)
    original_analyse = recording_analysis.analyse

    def stop(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(recording_analysis, "analyse", stop)
    assert call(*WELCH_ARGS, *OUT_ARGS, "--resume", "--k", 3).code == 130
    monkeypatch.setattr(recording_analysis, "analyse", original_analyse)
    result = call(*WELCH_ARGS, *OUT_ARGS, "--resume")
    assert "resuming: 4 of 5 recordings already done" in result.err
    assert Path("o.parquet").read_bytes() == uninterrupted_output


def test_failed_file_is_retried(
    uninterrupted_output: bytes, call: CommandRunner
) -> None:
    """Only failed files are retried; the journal stays until all succeed."""
    valid_bytes = Path("2.npy").read_bytes()
    mtime_ns = Path("2.npy").stat().st_mtime_ns
    Path("2.npy").write_bytes(b"")
    result = call(*WELCH_ARGS, *OUT_ARGS, "--keep-going")
    assert result.code == 1
    assert "o.parquet: 4 of 5 recordings\n" in result.err
    assert "--resume retries only the failed recordings" in result.err
    for _ in range(2):
        result = call(*WELCH_ARGS, *OUT_ARGS, "--keep-going", "--resume")
        assert result.code == 1
        assert "resuming: 4 of 5 recordings already done" in result.err
    errors = pq.read_table("o.parquet").column("error").to_pylist()
    assert sum(error is not None for error in errors) == 1
    Path("2.npy").write_bytes(valid_bytes)
    os.utime("2.npy", ns=(mtime_ns, mtime_ns))
    assert call(*WELCH_ARGS, *OUT_ARGS, "--resume").code == 0
    assert Path("o.parquet").read_bytes() == uninterrupted_output
    assert not JOURNAL_PATH.exists()


def test_finished_run_has_nothing_to_resume(
    uninterrupted_output: bytes, call: CommandRunner
) -> None:
    """A finished run reports that there is nothing to resume, and gives the same
    bytes.
    """
    for _ in range(2):
        result = call(*WELCH_ARGS, *OUT_ARGS, "--resume")
        assert result.code == 0
        assert result.err.splitlines() == [
            "nothing to resume: 'o.parquet' has no unfinished run",
            "o.parquet: 5 recordings",
        ]
        assert Path("o.parquet").read_bytes() == uninterrupted_output


def test_error_reports_kept_results(call: CommandRunner) -> None:
    """An error ends the run and reports what is kept; without results nothing is
    kept.
    """
    os.rename("3.npy", "x.npy")
    result = call(*WELCH_ARGS, *OUT_ARGS)
    assert result.code == 2
    first, second = result.err.splitlines()
    assert first.startswith("rlxweb: 3 of 5 recordings are done and saved")
    assert "the file does not exist" in second
    JOURNAL_PATH.unlink()
    os.rename("0.npy", "y.npy")
    check_rejected(call(*WELCH_ARGS, *OUT_ARGS), 2, "0.npy")
    assert not JOURNAL_PATH.exists()


def _write_foreign_text(path: Path) -> None:
    path.write_text("my own notes, which nobody else shall touch\n" * 9)


def _write_newer_journal(path: Path) -> None:
    path.write_text("rlxweb.notes/2 process 1".ljust(400))


def _file_identity(path: Path) -> tuple[int, ...]:
    """Return the stat fields that change on a write but not on a read."""
    status = path.lstat()
    return (
        status.st_mode,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _make_symlink(path: Path) -> None:
    Path("elsewhere").write_text("")
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    "create_entry",
    [_write_foreign_text, _write_newer_journal, _make_symlink, Path.mkdir, os.mkfifo],
)
def test_foreign_file_in_place_of_the_journal_is_kept(
    call: CommandRunner, create_entry: object
) -> None:
    """A foreign file in the place of the journal is left alone."""
    create_entry(JOURNAL_PATH)  # type: ignore[operator]
    identity_before = _file_identity(JOURNAL_PATH)
    for flag in ((), ("--resume",), ("--no-resume",)):
        result = call(*WELCH_ARGS, *OUT_ARGS, *flag)
        check_rejected(result, 2, ".o.parquet.unfinished", "move or rename it")
    assert _file_identity(JOURNAL_PATH) == identity_before
    assert not Path("o.parquet").exists()


def test_journal_of_another_user_is_kept(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_stopped_after(2, monkeypatch, call)
    monkeypatch.setattr(os, "getuid", lambda: os.stat(".").st_uid + 1)
    result = call(*WELCH_ARGS, *OUT_ARGS, "--resume")
    check_rejected(
        result, 2, "belongs to another user's unfinished run", "another name"
    )


def test_damaged_journal_entry_is_recomputed(
    uninterrupted_output: bytes, call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bit of one line is flipped; the lines after it still count."""
    run_stopped_after(3, monkeypatch, call)
    data = bytearray(JOURNAL_PATH.read_bytes())
    lines = bytes(data).split(b"\n")
    (index,) = [n for n, line in enumerate(lines) if b'"1.npy"' in line]
    data[len(b"\n".join(lines[:index])) + 60] ^= 1
    JOURNAL_PATH.write_bytes(data)
    result = call(*WELCH_ARGS, *OUT_ARGS, "--resume")
    assert result.err.splitlines() == [
        "resuming: 2 of 5 recordings already done",
        "ignored 1 damaged record of the earlier run",
        "o.parquet: 5 recordings",
    ]
    assert Path("o.parquet").read_bytes() == uninterrupted_output


@pytest.mark.parametrize("flag", ["--csv", "--json"])
def test_csv_and_json_can_be_resumed(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    """CSV and JSON outputs can be resumed if the first run had --resume."""
    out = flag, "o.txt"
    os.rename("4.npy", "x.npy")
    assert call(*WELCH_ARGS, *out).code == 2
    assert not list(Path().glob(".o*"))
    result = call(*WELCH_ARGS, *out, "--resume")
    assert "4 of 5 recordings are done and saved" in result.err
    os.rename("x.npy", "4.npy")
    assert "an earlier run" not in call(*WELCH_ARGS, "--csv", "other.csv").err
    result = call(*WELCH_ARGS, *out, "--resume")
    assert "resuming: 4 of 5 recordings already done" in result.err
    assert not list(Path().glob(".o*"))
    assert call(*WELCH_ARGS, flag, "p.txt").code == 0
    if flag == "--csv":
        assert Path("o.txt").read_bytes() == Path("p.txt").read_bytes()
    else:
        assert [f["path"] for f in json.loads(Path("o.txt").read_text())["files"]] == (
            FILES
        )


def test_journal_of_a_long_name_has_a_short_name() -> None:
    """Every output name that the system allows has a valid journal name."""
    name = "ä" * 123 + ".parquet"
    assert len(os.fsencode(name)) == 254
    assert len(os.fsencode(journal_path(name).name)) <= 255
    assert journal_path(name) != journal_path("ö" * 123 + ".parquet")
    Path("link.parquet").symlink_to("sub/real.parquet")
    assert journal_path("link.parquet").name == ".real.parquet.unfinished"


def test_output_with_the_longest_name_is_written(call: CommandRunner) -> None:
    name = "x" * 247 + ".parquet"
    assert call(*WELCH_ARGS, "--out", name).code == 0
    assert Path(name).exists()
    assert sorted(os.listdir()) == sorted([*FILES, name])


def forge_journal_line(
    line: bytes, change: Callable[[Any, Any], tuple[Any, Any]]
) -> bytes:
    """Return a journal line with changed contents and a right checksum."""
    text = line.partition(b" ")[2]
    header, _, packed = text.partition(b"\t")
    body = json.loads(zlib.decompress(base64.b64decode(packed)))
    changed_header, body = change(json.loads(header), body)
    if not isinstance(body, bytes):
        body = base64.b64encode(zlib.compress(json.dumps(body).encode()))
    text = json.dumps(changed_header).encode() + b"\t" + body
    return b"%08x %s" % (zlib.crc32(text), text)


def remove_at(*path: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Return a forgery that removes the value at a path of the body."""

    def change(header: Any, body: Any) -> tuple[Any, Any]:
        inner = body
        for name in path[:-1]:
            inner = inner[name]
        del inner[path[-1]]
        return header, body

    return change


def set_at(value: Any, *path: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Return a forgery that sets the value at a path of the body."""

    def change(header: Any, body: Any) -> tuple[Any, Any]:
        inner = body
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = value
        return header, body

    return change


PEAK = ("groups", 0, "channels", 0, "peaks", 0)
FORGERIES: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "a note without facts": lambda n, b: ({k: n[k] for k in n if k != "facts"}, b),
    "a note without a stamp": lambda n, b: ({k: n[k] for k in n if k != "stamp"}, b),
    "a note with more": lambda n, b: (n | {"more": "x"}, b),
    "a file that is a list": lambda n, b: (n | {"file": ["1.npy"]}, b),
    "a stamp that is a number": lambda n, b: (n | {"stamp": 1}, b),
    "an entry that is a list": lambda n, b: (n, [b]),
    "no entry": lambda n, b: (n, None),
    "an entry that is not packed": lambda n, b: (n, b"AAAA"),
    "an entry that is no base64": lambda n, b: (n, b"?"),
    "no groups": remove_at("groups"),
    "no rate": remove_at("groups", 0, "fs"),
    "groups that are a number": set_at(7, "groups"),
    "a group that is a number": set_at(7, "groups", 0),
    "a channel that is null": set_at(None, "groups", 0, "channels", 0),
    "peaks that are a text": set_at("x", "groups", 0, "channels", 0, "peaks"),
    "a bin that is a text": set_at("x", *PEAK, "bin"),
    "a bin that is a bool": set_at(True, *PEAK, "bin"),
    "a peak without power": remove_at(*PEAK, "power"),
    "a prominence that is a text": set_at("x", *PEAK, "prominence"),
    "epochs that are a text": set_at("x", "groups", 0, "epochs"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_journal_entry_is_rejected(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch, forgery: str
) -> None:
    """A journal entry with a right checksum and other contents is rejected; --no-resume
    helps.
    """
    run_stopped_after(3, monkeypatch, call)
    lines = JOURNAL_PATH.read_bytes().split(b"\n")
    (index,) = [n for n, line in enumerate(lines) if b'"1.npy"' in line]
    lines[index] = forge_journal_line(lines[index], FORGERIES[forgery])
    JOURNAL_PATH.write_bytes(b"\n".join(lines))
    result = call(*WELCH_ARGS, *OUT_ARGS, "--resume")
    words = "an entry is invalid", "--no-resume"
    check_rejected(result, 2, str(JOURNAL_PATH), *words)
    assert not Path("o.parquet").exists()
    assert call(*WELCH_ARGS, *OUT_ARGS, "--no-resume").code == 0


def test_forged_settings_are_rejected(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forged settings are rejected, not reported as another run's."""
    run_stopped_after(3, monkeypatch, call)
    lines = JOURNAL_PATH.read_bytes().split(b"\n")
    (index,) = [n for n, line in enumerate(lines) if b' {"facts"' in line]
    lines[index] = forge_journal_line(
        lines[index], lambda header, body: (header, [body])
    )
    JOURNAL_PATH.write_bytes(b"\n".join(lines))
    result = call(*WELCH_ARGS, *OUT_ARGS, "--resume", "--k", "5")
    check_rejected(result, 2, str(JOURNAL_PATH), "its settings are [")


def test_journal_entry_that_is_not_json_is_skipped(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_stopped_after(3, monkeypatch, call)
    text = b"{\t"
    with JOURNAL_PATH.open("ab") as file:
        file.write(b"%08x %s\n" % (zlib.crc32(text), text))
    result = call(*WELCH_ARGS, *OUT_ARGS, "--resume")
    assert result.code == 0
    assert "ignored 1 damaged record of the earlier run" in result.err
