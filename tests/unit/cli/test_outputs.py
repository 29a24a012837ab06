"""Where results go: all or none, never over an input, and into pipes as into files."""

from __future__ import annotations

import csv
import json
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from rlxweb.cli import targets
from tests.command_line import Call, check_refused, environment, forked, running, spawn
from tests.threads import begin

OUTPUTS = ("--csv", "--npz", "--json", "--plot")
PIECES = ("out.csv", "out.npz", "out.json", "out.png")


@pytest.fixture
def npy(tmp_path: Path, rng: np.random.Generator) -> Path:
    path = tmp_path / "in" / "x.npy"
    path.parent.mkdir()
    np.save(path, rng.standard_normal((3, 1000)))
    return path


def four(folder: Path) -> list[str]:
    """The options that put all four outputs in a folder."""
    pairs = zip(OUTPUTS, PIECES, strict=True)
    return [word for option, name in pairs for word in (option, str(folder / name))]


def test_a_picture_that_fails_costs_the_other_files(
    tmp_path: Path, npy: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A picture that fails, whatever it dies of, leaves old files and no new one."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "out.csv").write_text("old")
    broken = Mock(side_effect=RuntimeError("no glyph table\nin this font"))
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", broken)
    said = call("welch", npy, "--fs", 9, *four(out))
    check_refused(said, 1, "drawing ", "x.npy", "no glyph table")
    assert {p.name: p.read_text() for p in out.iterdir()} == {"out.csv": "old"}


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize("limit", [600, 60_000])
def test_a_disk_that_is_full_leaves_all_or_nothing(
    tmp_path: Path, npy: Path, limit: int
) -> None:
    """A disk that is full for one of the outputs leaves none of them."""
    out = tmp_path / "out"
    out.mkdir()
    code = (
        "import resource, sys\nfrom rlxweb.cli.main import main\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "main(sys.argv[1:])"
    )
    said = forked("-c", code, "welch", npy, "--fs", 9, "--k", 2, *four(out))
    assert said.code == 1, said.err
    (line,) = said.errors
    assert "File too large" in line
    assert "free some space" in line
    assert said.out == ""
    assert list(out.iterdir()) == []


@pytest.mark.needs("matplotlib")
def test_a_file_name_of_bytes_serves_everywhere(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """Names that are no text, with a picture too; titles and tables show them."""
    name = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9-\x1b[2J.npy")
    with open(name, "wb") as file:
        np.save(file, rng.standard_normal((2, 900)))
    out = os.fsdecode(os.fsencode(tmp_path) + b"/out-\xff")
    paths = [out + Path(name).suffix for name in PIECES]
    pairs = list(zip(OUTPUTS, paths, strict=True))
    said = spawn("welch", name, "--fs", 9, *(word for pair in pairs for word in pair))
    assert said.code == 0, said.err
    assert all(map(os.path.exists, paths))
    assert r"caf\xe9-\x1b[2J.npy" in said.out
    assert r"out-\xff.png" in said.err
    assert "\x1b" not in said.out + said.err
    record = json.loads(Path(paths[2]).read_text("utf-8"))
    assert record["files"][0]["path"].endswith("caf\\xe9-\x1b[2J.npy")


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize("how", ["hard link", "symbolic link", "another spelling"])
@pytest.mark.parametrize("option", OUTPUTS)
def test_no_output_goes_over_the_recording(
    tmp_path: Path, npy: Path, call: Call, how: str, option: str
) -> None:
    """The recording is not written over, whatever name an output gives it."""
    before, other = npy.read_bytes(), npy.with_name("out.png")
    if how == "hard link":
        other.hardlink_to(npy)
    elif how == "symbolic link":
        other.symlink_to(npy)
    else:
        (tmp_path / "out.png").symlink_to(tmp_path / "in")
        npy = npy.rename(npy.with_name("out.png"))
        other = tmp_path / "in" / ".." / "out.png" / "out.png"
    said = call("welch", npy, "--fs", 9, option, other)
    check_refused(said, 2, option, "the recording")
    assert npy.read_bytes() == before


def test_no_two_outputs_share_a_file(
    tmp_path: Path, npy: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hard links of a file, and spellings where no case is known, are refused."""
    (tmp_path / "a.csv").touch()
    (tmp_path / "a.json").hardlink_to(tmp_path / "a.csv")
    args = "--csv", tmp_path / "a.csv", "--json", tmp_path / "a.json"
    check_refused(call("welch", npy, "--fs", 9, *args), 2, "--json", "--csv")
    args = "--csv", tmp_path / "Straße", "--json", tmp_path / "STRASSE"
    assert call("welch", npy, "--fs", 9, *args).code == 0
    (tmp_path / "Straße").unlink()
    (tmp_path / "STRASSE").unlink()
    monkeypatch.setattr(targets, "_is_case_blind", lambda folder: True)
    check_refused(call("welch", npy, "--fs", 9, *args), 2, "--json", "--csv")


def test_the_file_behind_standard_output_is_no_output(npy: Path) -> None:
    """`--csv x > x` would lose the table; the same file for both is refused."""
    out = npy.with_name("out.csv")
    args = "-m", "rlxweb", "welch", npy, "--fs", "9", "--csv", out
    with out.open("w") as stdout, running(*args, stdout=stdout.fileno()) as process:
        assert process.wait(60) == 2
        assert "where standard output goes" in process.stderr.read()


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_by_any_of_its_names(npy: Path, name: str) -> None:
    """Standard output holds the result and nothing else; the table goes to stderr."""
    said = spawn("welch", npy, "--fs", 9, "--k", 2, "--json", name)
    assert said.code == 0, said.err
    assert [len(c["peaks"]) for c in said.group["channels"]] == [2, 2, 2]
    assert "strongest bin" in said.err
    rows = list(csv.reader(spawn("welch", npy, "--fs", 9, "--csv", name).out.split()))
    assert len(rows) == 1 + 3 * 16


@pytest.mark.needs("matplotlib")
def test_what_is_no_text_goes_into_pipes_as_well(npy: Path) -> None:
    """Arrays and a picture on standard output; without a suffix it is PNG."""
    for option, magic in (("--npz", b"PK"), ("--plot", b"\x89PNG")):
        with running("-m", "rlxweb", "welch", npy, "--fs", "9", option, "-") as one:
            assert one.stdout.buffer.read().startswith(magic)
            assert one.wait(60) == 0, one.stderr.read()


def test_nothing_binary_goes_to_a_terminal(npy: Path) -> None:
    import pty

    ours, theirs = pty.openpty()
    args = "-m", "rlxweb", "welch", npy, "--fs", "9", "--npz", "-"
    with running(*args, stdout=theirs) as process:
        assert process.wait(60) == 2
        assert "that is a terminal" in process.stderr.read()
    os.close(ours)
    os.close(theirs)


@pytest.mark.needs("matplotlib")
def test_every_output_may_be_thrown_away(npy: Path, call: Call) -> None:
    """/dev/null takes them all, and stays what it is."""
    args = [word for option in OUTPUTS for word in (option, os.devnull)]
    said = call("welch", npy, "--fs", 9, *args, "-q")
    assert (said.code, said.errors) == (0, [])
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_process_substitution_and_named_pipes(npy: Path) -> None:
    """Outputs go into what a shell hands over as /dev/fd/63, and named pipes."""
    pipe = npy.with_name("pipe")
    os.mkfifo(pipe)
    read: list[bytes] = []
    (reader,) = begin([lambda: read.append(pipe.read_bytes())])
    ours, theirs = os.pipe()
    command = [sys.executable, "-m", "rlxweb", "welch", npy, "--fs", "9", "-q"]
    done = subprocess.run(
        [*command, "--npz", pipe, "--csv", f"/dev/fd/{theirs}", "--k", "1"],
        env=environment(),
        pass_fds=[theirs],
        capture_output=True,
        check=False,
        timeout=60,
    )
    os.close(theirs)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    with os.fdopen(ours, "rb") as table:
        assert len(table.read().splitlines()) == 4
    reader.join(60)
    pipe.unlink()
    pipe.write_bytes(read[0])
    with zipfile.ZipFile(pipe) as arrays:
        assert "psd.npy" in arrays.namelist()


@pytest.mark.needs("matplotlib")
def test_several_pictures_do_not_fit_into_one_pipe(npy: Path, call: Call) -> None:
    other = npy.with_name("y.npy")
    other.write_bytes(npy.read_bytes())
    said = call("welch", npy, other, "--fs", 9, "--plot", "-")
    check_refused(said, 2, "--plot", "it names the file of --plot")


def test_names_that_look_like_options_or_are_long(
    tmp_path: Path, npy: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind `--` anything is a file; 255 bytes are a name like any other."""
    monkeypatch.chdir(tmp_path)
    np.save("-x.npy", np.ones((1, 300)))
    longest = "n" * 251 + ".csv"
    said = call("welch", "--fs", 9, "--csv", longest, "-q", "--", "-x.npy")
    assert (said.code, said.err) == (0, "")
    assert Path(longest).stat().st_size > 0
    said = call("welch", "--fs", 9, "--csv", "n" * 300, "--", "-x.npy")
    check_refused(said, 2, "name too long")
