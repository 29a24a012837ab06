"""Output files: all or none are written, never over an input, and pipes work like
files.
"""

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

from rlxweb.cli import output_files
from tests.cli_runners import (
    CommandRunner,
    check_rejected,
    run_cli,
    run_forked,
    running_program,
    subprocess_environment,
)
from tests.run_in_threads import start_threads

OUTPUTS = ("--csv", "--npz", "--json", "--plot")
OUTPUT_NAMES = ("out.csv", "out.npz", "out.json", "out.png")


@pytest.fixture
def npy(tmp_path: Path, rng: np.random.Generator) -> Path:
    path = tmp_path / "in" / "x.npy"
    path.parent.mkdir()
    np.save(path, rng.standard_normal((3, 1000)))
    return path


def all_output_options(folder: Path) -> list[str]:
    """Return the options that put all four outputs in a folder."""
    pairs = zip(OUTPUTS, OUTPUT_NAMES, strict=True)
    return [word for option, name in pairs for word in (option, str(folder / name))]


def test_failed_picture_writes_no_outputs(
    tmp_path: Path, npy: Path, call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A picture that fails for any reason leaves old files and no new one."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "out.csv").write_text("old")
    failing_savefig = Mock(side_effect=RuntimeError("no glyph table\nin this font"))
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", failing_savefig)
    result = call("welch", npy, "--fs", 9, *all_output_options(out))
    check_rejected(result, 1, "drawing ", "x.npy", "no glyph table")
    assert {p.name: p.read_text() for p in out.iterdir()} == {"out.csv": "old"}


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize("limit", [600, 60_000])
def test_full_disk_writes_no_outputs(tmp_path: Path, npy: Path, limit: int) -> None:
    """A disk that is full for one of the outputs leaves none of them."""
    out = tmp_path / "out"
    out.mkdir()
    code = (
        "import resource, sys\nfrom rlxweb.cli.main import main\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "main(sys.argv[1:])"
    )
    result = run_forked(
        "-c", code, "welch", npy, "--fs", 9, "--k", 2, *all_output_options(out)
    )
    assert result.code == 1, result.err
    (line,) = result.errors
    assert "File too large" in line
    assert "free some space" in line
    assert result.out == ""
    assert list(out.iterdir()) == []


@pytest.mark.needs("matplotlib")
def test_undecodable_file_names_work_for_all_outputs(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """Names that are not valid text work, with a picture too; titles and tables show
    them escaped.
    """
    name = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9-\x1b[2J.npy")
    with open(name, "wb") as file:
        np.save(file, rng.standard_normal((2, 900)))
    out = os.fsdecode(os.fsencode(tmp_path) + b"/out-\xff")
    paths = [out + Path(name).suffix for name in OUTPUT_NAMES]
    pairs = list(zip(OUTPUTS, paths, strict=True))
    result = run_cli(
        "welch", name, "--fs", 9, *(word for pair in pairs for word in pair)
    )
    assert result.code == 0, result.err
    assert all(map(os.path.exists, paths))
    assert r"caf\xe9-\x1b[2J.npy" in result.out
    assert r"out-\xff.png" in result.err
    assert "\x1b" not in result.out + result.err
    document = json.loads(Path(paths[2]).read_text("utf-8"))
    assert document["files"][0]["path"].endswith("caf\\xe9-\x1b[2J.npy")


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize(
    "alias_kind", ["hard link", "symbolic link", "another spelling"]
)
@pytest.mark.parametrize("option", OUTPUTS)
def test_outputs_never_overwrite_the_recording(
    tmp_path: Path, npy: Path, call: CommandRunner, alias_kind: str, option: str
) -> None:
    """The recording is never overwritten, whatever path names it as an output."""
    old_bytes, alias = npy.read_bytes(), npy.with_name("out.png")
    if alias_kind == "hard link":
        alias.hardlink_to(npy)
    elif alias_kind == "symbolic link":
        alias.symlink_to(npy)
    else:
        (tmp_path / "out.png").symlink_to(tmp_path / "in")
        npy = npy.rename(npy.with_name("out.png"))
        alias = tmp_path / "in" / ".." / "out.png" / "out.png"
    result = call("welch", npy, "--fs", 9, option, alias)
    check_rejected(result, 2, option, "the recording")
    assert npy.read_bytes() == old_bytes


def test_no_two_outputs_share_a_file(
    tmp_path: Path, npy: Path, call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hard links of a file, and names that differ in case on a case-insensitive file
    system, are rejected.
    """
    (tmp_path / "a.csv").touch()
    (tmp_path / "a.json").hardlink_to(tmp_path / "a.csv")
    args = "--csv", tmp_path / "a.csv", "--json", tmp_path / "a.json"
    check_rejected(call("welch", npy, "--fs", 9, *args), 2, "--json", "--csv")
    args = "--csv", tmp_path / "Straße", "--json", tmp_path / "STRASSE"
    assert call("welch", npy, "--fs", 9, *args).code == 0
    (tmp_path / "Straße").unlink()
    (tmp_path / "STRASSE").unlink()
    monkeypatch.setattr(output_files, "_is_case_insensitive", lambda folder: True)
    check_rejected(call("welch", npy, "--fs", 9, *args), 2, "--json", "--csv")


def test_redirected_stdout_file_is_rejected_as_output(npy: Path) -> None:
    """`--csv x > x` would lose the table; the same file for both is rejected."""
    out = npy.with_name("out.csv")
    args = "-m", "rlxweb", "welch", npy, "--fs", "9", "--csv", out
    with (
        out.open("w") as stdout,
        running_program(*args, stdout=stdout.fileno()) as process,
    ):
        assert process.wait(60) == 2
        assert (
            "the file to which standard output is redirected" in process.stderr.read()
        )


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_stdout_by_any_of_its_names(npy: Path, name: str) -> None:
    """Standard output holds the result and nothing else; the table goes to stderr."""
    result = run_cli("welch", npy, "--fs", 9, "--k", 2, "--json", name)
    assert result.code == 0, result.err
    assert [len(c["peaks"]) for c in result.group["channels"]] == [2, 2, 2]
    assert "strongest bin" in result.err
    rows = list(csv.reader(run_cli("welch", npy, "--fs", 9, "--csv", name).out.split()))
    assert len(rows) == 1 + 3 * 16


@pytest.mark.needs("matplotlib")
def test_binary_outputs_go_into_pipes(npy: Path) -> None:
    """Arrays and a picture go to stdout; without a suffix a picture is PNG."""
    for option, magic in (("--npz", b"PK"), ("--plot", b"\x89PNG")):
        with running_program(
            "-m", "rlxweb", "welch", npy, "--fs", "9", option, "-"
        ) as process:
            assert process.stdout.buffer.read().startswith(magic)
            assert process.wait(60) == 0, process.stderr.read()


def test_nothing_binary_goes_to_a_terminal(npy: Path) -> None:
    import pty

    controller_fd, terminal_fd = pty.openpty()
    args = "-m", "rlxweb", "welch", npy, "--fs", "9", "--npz", "-"
    with running_program(*args, stdout=terminal_fd) as process:
        assert process.wait(60) == 2
        assert "cannot be written to a terminal" in process.stderr.read()
    os.close(controller_fd)
    os.close(terminal_fd)


@pytest.mark.needs("matplotlib")
def test_outputs_to_dev_null(npy: Path, call: CommandRunner) -> None:
    """/dev/null takes all outputs and stays a device."""
    args = [word for option in OUTPUTS for word in (option, os.devnull)]
    result = call("welch", npy, "--fs", 9, *args, "-q")
    assert (result.code, result.errors) == (0, [])
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_process_substitution_and_named_pipes(npy: Path) -> None:
    """Outputs go into the /dev/fd/63 of a shell, and into named pipes."""
    pipe = npy.with_name("pipe")
    os.mkfifo(pipe)
    contents: list[bytes] = []
    (reader,) = start_threads([lambda: contents.append(pipe.read_bytes())])
    read_fd, write_fd = os.pipe()
    command = [sys.executable, "-m", "rlxweb", "welch", npy, "--fs", "9", "-q"]
    process = subprocess.run(
        [*command, "--npz", pipe, "--csv", f"/dev/fd/{write_fd}", "--k", "1"],
        env=subprocess_environment(),
        pass_fds=[write_fd],
        capture_output=True,
        check=False,
        timeout=60,
    )
    os.close(write_fd)
    assert (process.returncode, process.stdout, process.stderr) == (0, b"", b"")
    with os.fdopen(read_fd, "rb") as table:
        assert len(table.read().splitlines()) == 4
    reader.join(60)
    pipe.unlink()
    pipe.write_bytes(contents[0])
    with zipfile.ZipFile(pipe) as arrays:
        assert "psd.npy" in arrays.namelist()


def test_names_like_options_and_long_names(
    tmp_path: Path, npy: Path, call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `--` anything is a file; names of 255 bytes work."""
    monkeypatch.chdir(tmp_path)
    np.save("-x.npy", np.ones((1, 300)))
    longest = "n" * 251 + ".csv"
    result = call("welch", "--fs", 9, "--csv", longest, "-q", "--", "-x.npy")
    assert (result.code, result.err) == (0, "")
    assert Path(longest).stat().st_size > 0
    result = call("welch", "--fs", 9, "--csv", "n" * 300, "--", "-x.npy")
    check_rejected(result, 2, "name too long")
