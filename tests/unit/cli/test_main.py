"""The error boundary, exit codes, pipes, signals and colours of the command line."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from rlxweb.cli.main import COMMANDS
from tests.command_line import (
    Call,
    check_refused,
    environment,
    forked,
    python,
    running,
    spawn,
    started,
)

STOP = """
import os, signal, sys
import rlxweb.jobs.averaging as averaging
from rlxweb.cli.main import main
check = averaging.check_finite
def stop(*args):
    os.kill(os.getpid(), signal.SIGINT)
    check(*args)
averaging.check_finite = stop
main(sys.argv[1:])
"""


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(0).standard_normal((40, 4000)))
    return path


COMMAND = ("-m", "rlxweb")
IMPATIENT = """
from rlxweb.cli import main, meter
meter.PATIENCE_S = 0
main.main()
"""
"""The command, to which all work is long."""


def in_terminal(
    *args: object, command: Sequence[str] = COMMAND, **more: str
) -> tuple[int, str]:
    """Exit code and all output of `rlxweb ARGS` on a terminal of its own."""
    ours, theirs = pty.openpty()
    with running(*command, *args, stdout=theirs, stderr=theirs, **more) as process:
        os.close(theirs)
        parts = []
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:  # Linux says so when the other end is closed
                break
            if not part:
                break
            parts.append(part)
        os.close(ours)
        return process.wait(60), b"".join(parts).decode()


def test_help_names_every_command_and_loads_none() -> None:
    """`rlxweb --help` is quick: no command's module, no rich, no GPU library."""
    code = (
        "import sys\nfrom rlxweb.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print(*(m for m in sys.modules if m.endswith('_command')), 'rich' in "
        "sys.modules, 'wgpu' in sys.modules, 'matplotlib' in sys.modules)"
    )
    said = python("-c", code)
    assert said.code == 0, said.err
    *text, loaded = said.out.splitlines()
    assert loaded == "False False False"
    assert all(any(name in line for line in text) for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_listed_line_is_the_commands_own(call: Call, name: str) -> None:
    """The one-line help in the list agrees with the command it stands for."""
    said = call(name, "--help")
    assert said.code == 0
    words = [word for word in COMMANDS[name].split() if word.isalpha()][:3]
    assert all(word in said.out for word in words)


def test_no_arguments_show_the_help(call: Call) -> None:
    """`rlxweb` alone is a usage error that shows how to go on."""
    said = call()
    assert said.code == 2
    assert "Commands:" in said.err


def test_version(call: Call) -> None:
    said = call("--version")
    assert said.code == 0
    assert said.out.startswith("rlxweb, version ")


def test_interrupted_work_ends_with_130(recording: Path, tmp_path: Path) -> None:
    """Ctrl-C in the middle of the work: one line, 130, and no file."""
    out = tmp_path / "out.csv"
    said = forked("-c", STOP, "welch", recording, "--fs", 9, "--csv", out)
    assert said.code == 130
    assert said.err.removeprefix("\n") == "rlxweb: stopped\n"
    assert not out.exists()


def test_a_reader_that_leaves_costs_no_file(recording: Path, tmp_path: Path) -> None:
    """`rlxweb … | head` writes its files and complains about nothing."""
    out = tmp_path / "out.csv"
    args = "welch", recording, "--fs", "9", "--json", "-", "-q", "--csv", out
    command = sys.executable, "-m", "rlxweb", *args
    with started(command, env=environment()) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 0
    assert len(out.read_text().splitlines()) == 1 + 40 * 16


@pytest.mark.parametrize("args", [("welch",), ("devices",)], ids="".join)
def test_a_reader_that_leaves_a_table_is_no_failure(
    recording: Path, args: tuple[str]
) -> None:
    """`rlxweb … | head -0` ends well: a table is told in no other way than JSON."""
    named = (recording, "--fs", "9") if args == ("welch",) else ()
    with running("-m", "rlxweb", *args, *named) as process:
        process.stdout.close()
        assert process.wait(60) == 0


@pytest.mark.parametrize("quiet", [(), ("-q", "--json", "-")], ids=len)
def test_a_reader_that_leaves_hides_no_failure(
    recording: Path, quiet: tuple[str, ...]
) -> None:
    """The exit code is that of what was done, whoever read how much of it."""
    args = "welch", recording, "no.npy", "--fs", "9", "--keep-going", *quiet
    with running("-m", "rlxweb", *args) as process:
        process.stdout.close()
        assert process.wait(60) == 1


@pytest.mark.parametrize("forced", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_a_file_is_no_terminal_whatever_a_variable_says(
    recording: Path, forced: str
) -> None:
    """Build servers set these; a file gets all rows and columns, and only text."""
    args = "welch", recording, "--fs", 9
    said = spawn(*args, **{forced: "1"})
    assert said.out == spawn(*args).out
    assert len(said.out.splitlines()) == 3 + 40
    assert "\x1b" not in spawn("devices", **{forced: "1"}).out


@pytest.mark.needs("matplotlib")
def test_warnings_that_python_is_told_to_raise_end_nothing(
    recording: Path, tmp_path: Path
) -> None:
    """PYTHONWARNINGS is for the programs of developers; ours are told, once."""
    path = tmp_path / "x.npz"
    np.savez(path, x=np.eye(2, 500), fs=9.0, channels=["\u8111", "\ue000"])
    args = "welch", path, "-q", "--plot", tmp_path / "x.png"
    said = spawn(*args, PYTHONWARNINGS="error", RLX_DEVICE="no such thing")
    assert said.code == 0, said.err
    ignored, missing, _ = said.err.splitlines()
    assert ignored.startswith("rlxweb: RLX_DEVICE='no such thing' is ignored")
    assert "no font here has" in missing


def test_a_width_of_nothing_hides_nothing(recording: Path) -> None:
    """A width of 0, as in some containers, hides nothing: nobody knows the width."""
    args = "welch", recording, "--fs", 9
    said = spawn(*args, COLUMNS="0")
    assert said.code == 0
    assert said.out == spawn(*args).out != ""


def test_nobody_at_standard_error_costs_no_file(
    recording: Path, tmp_path: Path
) -> None:
    """What is told beside the work does not end it, as in `rlxweb … 2>&1 | head`."""
    out, bad = tmp_path / "out.csv", tmp_path / "bad.npy"
    bad.write_bytes(b"")
    args = "welch", bad, recording, "--fs", "9", "-q", "--keep-going", "--csv", out
    with running("-m", "rlxweb", *args) as process:
        process.stderr.close()
        assert process.wait(60) == 1
    assert len(out.read_text().splitlines()) == 1 + 40 * 16


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a full device")
def test_a_full_standard_output_is_an_error(recording: Path) -> None:
    """What could not be printed is not passed over in silence."""
    args = "-m", "rlxweb", "welch", recording, "--fs", "9"
    with open("/dev/full", "w") as full, running(*args, stdout=full.fileno()) as done:
        said = done.stderr.read()
        assert done.wait(60) == 1
    assert "No space left" in said
    assert "Traceback" not in said


def test_piped_output_holds_no_escape_codes(recording: Path) -> None:
    """Nothing but text goes into a pipe."""
    said = spawn("welch", recording, "--fs", 9)
    assert said.code == 0
    assert "\x1b" not in said.out + said.err


def test_no_color_is_obeyed_on_a_terminal() -> None:
    """A terminal gets colours, with NO_COLOR it gets none."""
    terminal = {"TERM": "xterm-256color", "COLORTERM": ""}
    code, plain = in_terminal("devices", NO_COLOR="1", **terminal)
    assert code == 0
    assert "\x1b[3" not in plain
    _, coloured = in_terminal("devices", NO_COLOR="", **terminal)
    assert "\x1b[32m" in coloured


def test_long_work_shows_a_bar_on_a_terminal_only(tmp_path: Path) -> None:
    """A per cent sign for people, none for pipes."""
    path = tmp_path / "x.npy"
    np.save(path, np.eye(2, 4_000))
    impatient = "-c", IMPATIENT
    args = "welch", path, "--fs", "100", "-q"
    code, shown = in_terminal(*args, command=impatient, TERM="xterm")
    assert code == 0
    assert "100 %" in shown
    said = forked(*impatient, *args)
    assert (said.code, said.out, said.err) == (0, "", "")


def test_a_terminal_without_unicode_still_gets_its_table(tmp_path: Path) -> None:
    """Letters that it lacks are written out, so two names stay two; JSON is UTF-8."""
    path = tmp_path / "x.npz"
    np.savez(path, x=np.eye(2, 500), channels=np.array(["µV", "Ωhm"]), fs=100.0)
    said = spawn("welch", path, "--array", "x", PYTHONIOENCODING="ascii")
    assert said.code == 0
    _, head, rule, first, second, _ = said.out.splitlines()
    assert set(rule) == {"-"}
    assert first.startswith(r"\xb5V     ")
    assert second.startswith(r"\u03a9hm  ")
    assert len(head) == len(rule) == len(first)
    said = spawn("welch", path, "--array", "x", "--json", "-", PYTHONIOENCODING="ascii")
    assert [c["name"] for c in said.group["channels"]] == ["µV", "Ωhm"]


def test_json_on_standard_output_is_utf8(tmp_path: Path) -> None:
    """JSON on standard output is UTF-8 whatever the terminal's encoding."""
    path = tmp_path / "脑.npz"
    np.savez(path, x=np.eye(2, 500), fs=100.0)
    said = spawn("explain", path, "--json", PYTHONIOENCODING="ascii")
    assert "脑.npz" in said.record["jobs"][0]["job"]


def test_a_file_name_that_is_no_text_is_shown_as_well_as_can_be(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 in a name stop neither the table nor the record.

    Written out, so that two such names stay two.
    """
    name = os.fsencode(tmp_path) + b"/caf\xe9.npy"
    with open(name, "wb") as file:
        np.save(file, np.ones((1, 300)))
    out = tmp_path / "out.json"
    said = spawn("welch", os.fsdecode(name), "--fs", 9, "--json", out)
    assert said.code == 0, said.err
    assert json.loads(out.read_text("utf-8"))["files"][0]["path"].endswith(
        r"caf\xe9.npy"
    )


@pytest.mark.skipif(not Path("/bin/sh").exists(), reason="a shell closes the streams")
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_written_nowhere(recording: Path, closed: str) -> None:
    """What goes to a closed stream lands in no file that got its number."""
    out = recording.with_name("out.csv")
    line = f'"$1" -m rlxweb welch "$2" --fs 9 --csv "$3" {closed}'
    done = subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, recording, out],
        env=environment(),
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(out.read_text().splitlines()) == 1 + 40 * 16


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        (["welch", "--nfft"], "--nperseg"),
        (["welch", "--N_FFT"], "--nperseg"),
        (["welch", "--sfreq"], "--fs"),
        (["welch", "--freq-max"], "--fmax"),
        (["welch", "--fmaxx"], "--fmax"),
        (["welch", "--picks"], "--channels"),
        (["welch", "--skip-errors"], "--keep-going"),
        (["welch", "--precission"], "--precision"),
        (["welch", "--output"], "--out or --csv or --npz or --json or --plot"),
        (["explain", "--nfft"], "--n-fft or --nperseg"),
        (["devices", "--jsn"], "--json"),
    ],
)
def test_an_unknown_option_is_answered_by_its_meaning(
    call: Call, args: list[str], meant: str
) -> None:
    """What it is called elsewhere comes before what it merely looks like."""
    (line,) = call(*args, 1).err.splitlines()
    assert f"no such option {args[-1]!r}; did you mean {meant}?; see" in line


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["welch"], "FILE… is missing; see rlxweb welch --help"),
        (["welch", "--fs"], "option '--fs' requires an argument; see rlxweb welch -"),
        (["bench", "x"], "got unexpected extra argument (x); see rlxweb bench --help"),
    ],
)
def test_a_line_that_makes_no_sense(call: Call, args: list[str], line: str) -> None:
    """A senseless line has one error like all others, and the help of its command."""
    check_refused(call(*args), 2, f"rlxweb: {line}")


def test_what_looks_like_nothing_gets_no_suggestion(call: Call) -> None:
    """`--fs` is no answer to a band, nor is a command that shares two letters."""
    for option in ("--frequency", "--xyz"):
        assert "did you mean" not in call("welch", option, 1).err
    assert "did you mean 'welch'" in call("wlech").err
    assert "known: welch, bands" in call("xyz").err
