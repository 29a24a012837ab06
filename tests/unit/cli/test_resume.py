"""`--resume`: what is done stays done, whatever ended the run; nothing is missing."""

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

from rlxweb.cli import record
from rlxweb.jobs import analysis
from rlxweb.jobs.unfinished import notes_beside
from tests.command_line import Call, check_refused, untimed
from tests.unit.cli.night import ARGS, FILES, NOTES, OUT, night, stopped_after, whole

__all__ = ["night", "whole"]

pytestmark = pytest.mark.usefixtures("night")


def test_ctrl_c_says_what_is_kept_and_the_next_run_goes_on(
    whole: bytes, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = stopped_after(3, monkeypatch, call)
    kept, *_, stopped = said.err.splitlines()
    assert kept.startswith("rlxweb: 3 of 5 recordings are done, and kept: --resume")
    assert stopped == "rlxweb: stopped"
    assert not Path("o.parquet").exists()
    said = call(*ARGS, *OUT, "--resume", "--json", "o.json", "--csv", "o.csv")
    assert said.code == 0
    assert said.err.splitlines() == [
        "taken up: 3 of 5 recordings done before",
        "o.parquet: 5 recordings",
    ]
    assert Path("o.parquet").read_bytes() == whole
    # The others hold what was done before as well.
    assert call(*ARGS, "--json", "p.json", "--csv", "p.csv").code == 0
    assert Path("o.csv").read_bytes() == Path("p.csv").read_bytes()
    ours, theirs = (json.loads(Path(f"{n}.json").read_text()) for n in "op")
    # Times are another in every run, and those that were predicted too.
    assert untimed(ours, "decision") == untimed(theirs, "decision")


def test_nothing_is_taken_up_or_lost_unasked(
    whole: bytes, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run without --resume or --no-resume tells how far another came, at no cost."""
    stopped_after(2, monkeypatch, call)
    for _ in range(2):
        said = call(*ARGS, *OUT)
        words = "an earlier run", "2 of these 5", "--resume takes them", "--no-resume"
        check_refused(said, 2, *words)
    assert NOTES.exists()
    done: list[str] = []
    really = analysis.analyse

    def analyse(recording: object, *rest: object) -> object:
        done.append(recording.path)  # type: ignore[attr-defined]
        return really(recording, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(analysis, "analyse", analyse)
    assert call(*ARGS, *OUT, "--no-resume").code == 0
    assert done == FILES
    assert Path("o.parquet").read_bytes() == whole
    assert not NOTES.exists()


@pytest.mark.parametrize(
    ("change", "again", "words"),
    [
        ("samples", ["0.npy"], "the file has changed since"),
        ("time", ["0.npy"], "the file has changed since"),
        ("settings", FILES[:3], "k was null and is 5"),
        ("version", FILES[:3], 'numpy was "9.9" and is'),
    ],
)
def test_what_is_no_longer_true_is_done_again_and_told(
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    again: list[str],
    words: str,
) -> None:
    """Work that is no longer true is done again: the result is a full run's."""
    with monkeypatch.context() as patch:
        if change == "version":
            really = record.versions()
            patch.setattr(
                "rlxweb.cli.welch_command.versions", lambda: {**really, "numpy": "9.9"}
            )
        stopped_after(3, monkeypatch, call)
    if change == "samples":
        np.save("0.npy", np.random.default_rng(1).standard_normal((2, 700)))
    if change == "time":
        os.utime("0.npy", ns=(1, 1))
    more = ("--k", 5) if change == "settings" else ()
    said = call(*ARGS, *more, *OUT, "--resume")
    assert said.code == 0, said.err
    lines = said.err.splitlines()
    (line,) = [line for line in lines if line.startswith("done again, ")]
    assert ", ".join(f"'{file}'" for file in again) in line
    assert words.replace("null", "not given") in line
    n_taken = 3 - len(again)
    taken = [f"taken up: {n_taken} of 5 recordings done before"] * bool(n_taken)
    assert [line for line in lines if "taken" in line] == taken
    assert call(*ARGS, *more, "--out", "whole.parquet").code == 0
    assert Path("o.parquet").read_bytes() == Path("whole.parquet").read_bytes()


def test_the_same_name_elsewhere_is_another_file(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file of the same name, size and time elsewhere is another file."""
    out = "--out", tmp_path / "o.parquet"
    stopped_after(3, monkeypatch, call)
    other = tmp_path / "other"
    other.mkdir()
    for file in FILES:
        time = Path(file).stat().st_mtime_ns
        np.save(other / file, np.ones((2, 600)))
        os.utime(other / file, ns=(time, time))
    monkeypatch.chdir(other)
    said = call(*ARGS, *out, "--resume")
    assert said.code == 0
    assert "another file of that name was done" in said.err
    powers = pq.read_table(tmp_path / "o.parquet").column("power").to_pylist()
    assert powers[0] == pytest.approx(16256.25)


def test_old_settings_find_what_was_done_with_them(
    whole: bytes, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slip of the flags that is stopped in time costs nothing."""
    stopped_after(4, monkeypatch, call)
    really = analysis.analyse

    def stop(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(analysis, "analyse", stop)
    assert call(*ARGS, *OUT, "--resume", "--k", 3).code == 130
    monkeypatch.setattr(analysis, "analyse", really)
    said = call(*ARGS, *OUT, "--resume")
    assert "taken up: 4 of 5 recordings done before" in said.err
    assert Path("o.parquet").read_bytes() == whole


def test_a_failed_file_is_tried_again(whole: bytes, call: Call) -> None:
    """The others are not; until it is well the notes stay."""
    good = Path("2.npy").read_bytes()
    time = Path("2.npy").stat().st_mtime_ns
    Path("2.npy").write_bytes(b"")
    said = call(*ARGS, *OUT, "--keep-going")
    assert said.code == 1
    assert "o.parquet: 4 of 5 recordings\n" in said.err
    assert "with --resume only what failed is tried again" in said.err
    for _ in range(2):
        said = call(*ARGS, *OUT, "--keep-going", "--resume")
        assert said.code == 1
        assert "taken up: 4 of 5 recordings done before" in said.err
    errors = pq.read_table("o.parquet").column("error").to_pylist()
    assert sum(error is not None for error in errors) == 1
    Path("2.npy").write_bytes(good)
    os.utime("2.npy", ns=(time, time))
    assert call(*ARGS, *OUT, "--resume").code == 0
    assert Path("o.parquet").read_bytes() == whole
    assert not NOTES.exists()


def test_a_finished_run_has_nothing_to_take_up(whole: bytes, call: Call) -> None:
    """A finished run is told to have nothing to take up, and gives the same bytes."""
    for _ in range(2):
        said = call(*ARGS, *OUT, "--resume")
        assert said.code == 0
        assert said.err.splitlines() == [
            "no unfinished run of 'o.parquet' to take up",
            "o.parquet: 5 recordings",
        ]
        assert Path("o.parquet").read_bytes() == whole


def test_an_error_names_what_is_kept(call: Call) -> None:
    """An error ends the run and names what is kept; with nothing done nothing is."""
    os.rename("3.npy", "x.npy")
    said = call(*ARGS, *OUT)
    assert said.code == 2
    first, second = said.err.splitlines()
    assert first.startswith("rlxweb: 3 of 5 recordings are done, and kept")
    assert "there is no such file" in second
    NOTES.unlink()
    os.rename("0.npy", "y.npy")
    check_refused(call(*ARGS, *OUT), 2, "0.npy")
    assert not NOTES.exists()


def _text(path: Path) -> None:
    path.write_text("my own notes, which nobody else shall touch\n" * 9)


def _newer(path: Path) -> None:
    path.write_text("rlxweb.notes/2 process 1".ljust(400))


def _facts(path: Path) -> tuple[int, ...]:
    """What stays where nobody wrote; it may have been looked at."""
    own = path.lstat()
    return own.st_mode, own.st_ino, own.st_size, own.st_mtime_ns, own.st_ctime_ns


def _link(path: Path) -> None:
    Path("elsewhere").write_text("")
    path.symlink_to("elsewhere")


@pytest.mark.parametrize("what", [_text, _newer, _link, Path.mkdir, os.mkfifo])
def test_what_is_not_our_notes_is_left_alone(call: Call, what: object) -> None:
    """A file in the place of the notes that is not ours is left alone."""
    what(NOTES)  # type: ignore[operator]
    before = _facts(NOTES)
    for flag in ((), ("--resume",), ("--no-resume",)):
        said = call(*ARGS, *OUT, *flag)
        check_refused(said, 2, ".o.parquet.unfinished", "move it away")
    assert _facts(NOTES) == before
    assert not Path("o.parquet").exists()


def test_notes_of_another_user_are_left_alone(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_after(2, monkeypatch, call)
    monkeypatch.setattr(os, "getuid", lambda: os.stat(".").st_uid + 1)
    said = call(*ARGS, *OUT, "--resume")
    check_refused(said, 2, "the unfinished run of another user", "another name")


def test_a_damaged_note_is_done_again(
    whole: bytes, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bit of one line; the lines behind it count."""
    stopped_after(3, monkeypatch, call)
    data = bytearray(NOTES.read_bytes())
    lines = bytes(data).split(b"\n")
    (at,) = [n for n, line in enumerate(lines) if b'"1.npy"' in line]
    data[len(b"\n".join(lines[:at])) + 60] ^= 1
    NOTES.write_bytes(data)
    said = call(*ARGS, *OUT, "--resume")
    assert said.err.splitlines() == [
        "taken up: 2 of 5 recordings done before",
        "1 note of the earlier run not whole, and passed over",
        "o.parquet: 5 recordings",
    ]
    assert Path("o.parquet").read_bytes() == whole


@pytest.mark.parametrize("flag", ["--csv", "--json"])
def test_tables_and_records_can_be_resumed_too(
    call: Call, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    """Tables and records can be resumed if the first run had --resume."""
    out = flag, "o.txt"
    os.rename("4.npy", "x.npy")
    assert call(*ARGS, *out).code == 2
    assert not list(Path().glob(".o*"))
    said = call(*ARGS, *out, "--resume")
    assert "4 of 5 recordings are done, and kept" in said.err
    os.rename("x.npy", "4.npy")
    assert "an earlier run" not in call(*ARGS, "--csv", "other.csv").err
    said = call(*ARGS, *out, "--resume")
    assert "taken up: 4 of 5 recordings done before" in said.err
    assert not list(Path().glob(".o*"))
    assert call(*ARGS, flag, "p.txt").code == 0
    if flag == "--csv":
        assert Path("o.txt").read_bytes() == Path("p.txt").read_bytes()
    else:
        assert [f["path"] for f in json.loads(Path("o.txt").read_text())["files"]] == (
            FILES
        )


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--resume",), ("--resume: ", "noted beside an output", "--out, --csv")),
        (("--no-resume", "--csv", "-"), ("--no-resume: ", "the name of a file")),
        (("--resume", *OUT, "--npz", "o.npz"), ("spectra are not noted", "--npz")),
        (("--resume", *OUT, "--plot", "o.png"), ("spectra are not noted", "--plot")),
    ],
)
def test_what_cannot_be_resumed_is_refused(
    call: Call, flags: tuple[str, ...], words: tuple[str, ...]
) -> None:
    check_refused(call(*ARGS, *flags), 2, *words)


def test_the_notes_of_a_long_name_have_a_short_one() -> None:
    """The notes have a name for every name that the system takes."""
    name = "ä" * 123 + ".parquet"
    assert len(os.fsencode(name)) == 254
    assert len(os.fsencode(notes_beside(name).name)) <= 255
    assert notes_beside(name) != notes_beside("ö" * 123 + ".parquet")
    Path("link.parquet").symlink_to("sub/real.parquet")
    assert notes_beside("link.parquet").name == ".real.parquet.unfinished"


def test_an_output_with_the_longest_name_is_written(call: Call) -> None:
    name = "x" * 247 + ".parquet"
    assert call(*ARGS, "--out", name).code == 0
    assert Path(name).exists()
    assert sorted(os.listdir()) == sorted([*FILES, name])


def forged(line: bytes, change: Callable[[Any, Any], tuple[Any, Any]]) -> bytes:
    """A line of notes of which something else is said, and its checksum is right."""
    text = line.partition(b" ")[2]
    note, _, packed = text.partition(b"\t")
    body = json.loads(zlib.decompress(base64.b64decode(packed)))
    changed, body = change(json.loads(note), body)
    if not isinstance(body, bytes):
        body = base64.b64encode(zlib.compress(json.dumps(body).encode()))
    text = json.dumps(changed).encode() + b"\t" + body
    return b"%08x %s" % (zlib.crc32(text), text)


def without(*path: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
    """The body without what is at a path in it."""

    def change(note: Any, body: Any) -> tuple[Any, Any]:
        inner = body
        for name in path[:-1]:
            inner = inner[name]
        del inner[path[-1]]
        return note, body

    return change


def with_value(value: Any, *path: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
    """The body with another value at a path in it."""

    def change(note: Any, body: Any) -> tuple[Any, Any]:
        inner = body
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = value
        return note, body

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
    "no groups": without("groups"),
    "no rate": without("groups", 0, "fs"),
    "groups that are a number": with_value(7, "groups"),
    "a group that is a number": with_value(7, "groups", 0),
    "a channel that is null": with_value(None, "groups", 0, "channels", 0),
    "peaks that are a text": with_value("x", "groups", 0, "channels", 0, "peaks"),
    "a bin that is a text": with_value("x", *PEAK, "bin"),
    "a bin that is a bool": with_value(True, *PEAK, "bin"),
    "a peak without power": without(*PEAK, "power"),
    "a prominence that is a text": with_value("x", *PEAK, "prominence"),
    "epochs that are a text": with_value("x", "groups", 0, "epochs"),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_a_note_that_nobody_wrote_is_refused(
    call: Call, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A note with a right checksum and other contents is refused; --no-resume helps."""
    stopped_after(3, monkeypatch, call)
    lines = NOTES.read_bytes().split(b"\n")
    (at,) = [n for n, line in enumerate(lines) if b'"1.npy"' in line]
    lines[at] = forged(lines[at], FORGERIES[what])
    NOTES.write_bytes(b"\n".join(lines))
    said = call(*ARGS, *OUT, "--resume")
    words = "a note in it is not one that this rlxweb writes", "--no-resume"
    check_refused(said, 2, str(NOTES), *words)
    assert not Path("o.parquet").exists()
    assert call(*ARGS, *OUT, "--no-resume").code == 0


def test_settings_that_nobody_wrote_are_refused(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings that nobody wrote are refused, not told as another run's."""
    stopped_after(3, monkeypatch, call)
    lines = NOTES.read_bytes().split(b"\n")
    (at,) = [n for n, line in enumerate(lines) if b' {"facts"' in line]
    lines[at] = forged(lines[at], lambda note, body: (note, [body]))
    NOTES.write_bytes(b"\n".join(lines))
    said = call(*ARGS, *OUT, "--resume", "--k", "5")
    check_refused(said, 2, str(NOTES), "its settings are [")


def test_a_note_that_is_no_json_is_passed_over(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_after(3, monkeypatch, call)
    text = b"{\t"
    with NOTES.open("ab") as file:
        file.write(b"%08x %s\n" % (zlib.crc32(text), text))
    said = call(*ARGS, *OUT, "--resume")
    assert said.code == 0
    assert "1 note of the earlier run not whole, and passed over" in said.err
