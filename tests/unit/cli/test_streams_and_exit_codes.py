"""Error messages, exit codes, pipes, signals and colours of the command line."""

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
from tests.cli_runners import (
    CommandRunner,
    run_cli,
    run_forked,
    run_python,
    running_process,
    running_program,
    subprocess_environment,
)

INTERRUPTED_RUN = """
import os, signal, sys
import rlxweb.batch.channel_group_power as averaging
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
PROGRESS_FROM_START = """
from rlxweb.cli import main, recording_progress
recording_progress.SHOW_BAR_AFTER_S = 0
main.main()
"""
"""Run the command with a progress bar from the start."""


def run_in_terminal(
    *args: object, command: Sequence[str] = COMMAND, **env: str
) -> tuple[int, str]:
    """Return exit code and all output of `rlxweb ARGS` on a terminal of its own."""
    controller_fd, terminal_fd = pty.openpty()
    with running_program(
        *command, *args, stdout=terminal_fd, stderr=terminal_fd, **env
    ) as process:
        os.close(terminal_fd)
        chunks = []
        while True:
            try:
                chunk = os.read(controller_fd, 1 << 16)
            except OSError:  # Linux says so when the other end is closed
                break
            if not chunk:
                break
            chunks.append(chunk)
        os.close(controller_fd)
        return process.wait(60), b"".join(chunks).decode()


def test_help_names_every_command_and_loads_none() -> None:
    """`rlxweb --help` is quick: no command's module, no rich, no GPU library."""
    code = (
        "import sys\nfrom rlxweb.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print(*(m for m in sys.modules if m.endswith('_command')), 'rich' in "
        "sys.modules, 'wgpu' in sys.modules, 'matplotlib' in sys.modules)"
    )
    result = run_python("-c", code)
    assert result.code == 0, result.err
    *text, last_line = result.out.splitlines()
    assert last_line == "False False False"
    assert all(any(name in line for line in text) for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_listed_summaries_match_command_help(call: CommandRunner, name: str) -> None:
    """The one-line help in the list agrees with the command it stands for."""
    result = call(name, "--help")
    assert result.code == 0
    words = [word for word in COMMANDS[name].split() if word.isalpha()][:3]
    assert all(word in result.out for word in words)


def test_no_arguments_show_the_help(call: CommandRunner) -> None:
    """`rlxweb` alone is a usage error that shows how to go on."""
    result = call()
    assert result.code == 2
    assert "Commands:" in result.err


def test_interrupted_work_exits_with_130(recording: Path, tmp_path: Path) -> None:
    """Ctrl-C in the middle of the work: one line, 130, and no file."""
    out = tmp_path / "out.csv"
    result = run_forked(
        "-c", INTERRUPTED_RUN, "welch", recording, "--fs", 9, "--csv", out
    )
    assert result.code == 130
    assert result.err.removeprefix("\n") == "rlxweb: stopped\n"
    assert not out.exists()


def test_closed_stdout_reader_still_gets_files(recording: Path, tmp_path: Path) -> None:
    """`rlxweb … | head` writes its files and complains about nothing."""
    out = tmp_path / "out.csv"
    args = "welch", recording, "--fs", "9", "--json", "-", "-q", "--csv", out
    command = sys.executable, "-m", "rlxweb", *args
    with running_process(command, env=subprocess_environment()) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 0
    assert len(out.read_text().splitlines()) == 1 + 40 * 16


@pytest.mark.parametrize("args", [("welch",), ("devices",)], ids="".join)
def test_closed_stdout_during_a_table_is_no_error(
    recording: Path, args: tuple[str]
) -> None:
    """`rlxweb … | head -0` exits with 0: a table on stdout may be left unread."""
    extra_args = (recording, "--fs", "9") if args == ("welch",) else ()
    with running_program("-m", "rlxweb", *args, *extra_args) as process:
        process.stdout.close()
        assert process.wait(60) == 0


@pytest.mark.parametrize("quiet", [(), ("-q", "--json", "-")], ids=len)
def test_closed_stdout_does_not_hide_errors(
    recording: Path, quiet: tuple[str, ...]
) -> None:
    """The exit code reports the work, however much of the output was read."""
    args = "welch", recording, "no.npy", "--fs", "9", "--keep-going", *quiet
    with running_program("-m", "rlxweb", *args) as process:
        process.stdout.close()
        assert process.wait(60) == 1


@pytest.mark.parametrize("forced", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_output_to_a_file_ignores_forced_terminal_variables(
    recording: Path, forced: str
) -> None:
    """Build servers set these; a file gets all rows and columns, and only text."""
    args = "welch", recording, "--fs", 9
    result = run_cli(*args, **{forced: "1"})
    assert result.out == run_cli(*args).out
    assert len(result.out.splitlines()) == 3 + 40
    assert "\x1b" not in run_cli("devices", **{forced: "1"}).out


@pytest.mark.needs("matplotlib")
def test_pythonwarnings_error_does_not_end_the_run(
    recording: Path, tmp_path: Path
) -> None:
    """PYTHONWARNINGS is for developers' programs; the command prints its warnings
    once.
    """
    path = tmp_path / "x.npz"
    np.savez(path, x=np.eye(2, 500), fs=9.0, channels=["\u8111", "\ue000"])
    args = "welch", path, "-q", "--plot", tmp_path / "x.png"
    result = run_cli(*args, PYTHONWARNINGS="error", RLX_DEVICE="no such thing")
    assert result.code == 0, result.err
    ignored, missing, _ = result.err.splitlines()
    assert ignored.startswith("rlxweb: RLX_DEVICE='no such thing' is ignored")
    assert "no installed font contains" in missing


def test_zero_columns_hides_nothing(recording: Path) -> None:
    """A width of 0, as in some containers, means unknown and hides nothing."""
    args = "welch", recording, "--fs", 9
    result = run_cli(*args, COLUMNS="0")
    assert result.code == 0
    assert result.out == run_cli(*args).out != ""


def test_closed_stderr_still_writes_files(recording: Path, tmp_path: Path) -> None:
    """A closed stderr does not end the work, as in `rlxweb … 2>&1 | head`."""
    out, empty_file = tmp_path / "out.csv", tmp_path / "bad.npy"
    empty_file.write_bytes(b"")
    args = (
        "welch",
        empty_file,
        recording,
        "--fs",
        "9",
        "-q",
        "--keep-going",
        "--csv",
        out,
    )
    with running_program("-m", "rlxweb", *args) as process:
        process.stderr.close()
        assert process.wait(60) == 1
    assert len(out.read_text().splitlines()) == 1 + 40 * 16


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a full device")
def test_a_full_standard_output_is_an_error(recording: Path) -> None:
    """Output that cannot be printed is reported as an error."""
    args = "-m", "rlxweb", "welch", recording, "--fs", "9"
    with (
        open("/dev/full", "w") as full,
        running_program(*args, stdout=full.fileno()) as process,
    ):
        error_text = process.stderr.read()
        assert process.wait(60) == 1
    assert "No space left" in error_text
    assert "Traceback" not in error_text


def test_piped_output_holds_no_escape_codes(recording: Path) -> None:
    """A pipe gets plain text."""
    result = run_cli("welch", recording, "--fs", 9)
    assert result.code == 0
    assert "\x1b" not in result.out + result.err


def test_no_color_is_obeyed_on_a_terminal() -> None:
    """A terminal gets colours, with NO_COLOR it gets none."""
    terminal = {"TERM": "xterm-256color", "COLORTERM": ""}
    code, plain = run_in_terminal("devices", NO_COLOR="1", **terminal)
    assert code == 0
    assert "\x1b[3" not in plain
    _, coloured = run_in_terminal("devices", NO_COLOR="", **terminal)
    assert "\x1b[32m" in coloured


def test_long_work_shows_a_bar_on_a_terminal_only(tmp_path: Path) -> None:
    """A per cent sign for people, none for pipes."""
    path = tmp_path / "x.npy"
    np.save(path, np.eye(2, 4_000))
    command = "-c", PROGRESS_FROM_START
    args = "welch", path, "--fs", "100", "-q"
    code, output = run_in_terminal(*args, command=command, TERM="xterm")
    assert code == 0
    assert "100 %" in output
    result = run_forked(*command, *args)
    assert (result.code, result.out, result.err) == (0, "", "")


def test_ascii_terminal_gets_escaped_names(tmp_path: Path) -> None:
    """Letters that the encoding lacks are escaped, so two names stay distinct; JSON is
    UTF-8.
    """
    path = tmp_path / "x.npz"
    np.savez(path, x=np.eye(2, 500), channels=np.array(["µV", "Ωhm"]), fs=100.0)
    result = run_cli("welch", path, "--array", "x", PYTHONIOENCODING="ascii")
    assert result.code == 0
    _, head, rule, first, second, _ = result.out.splitlines()
    assert set(rule) == {"-"}
    assert first.startswith(r"\xb5V     ")
    assert second.startswith(r"\u03a9hm  ")
    assert len(head) == len(rule) == len(first)
    result = run_cli(
        "welch", path, "--array", "x", "--json", "-", PYTHONIOENCODING="ascii"
    )
    assert [c["name"] for c in result.group["channels"]] == ["µV", "Ωhm"]


def test_json_on_standard_output_is_utf8(tmp_path: Path) -> None:
    """JSON on standard output is UTF-8 whatever the terminal's encoding."""
    path = tmp_path / "脑.npz"
    np.savez(path, x=np.eye(2, 500), fs=100.0)
    result = run_cli("explain", path, "--json", PYTHONIOENCODING="ascii")
    assert "脑.npz" in result.document["jobs"][0]["job"]


def test_undecodable_file_name_is_escaped(tmp_path: Path) -> None:
    """Bytes in a name that are not UTF-8 stop neither the table nor the JSON document.

    Written out, so that two such names stay two.
    """
    name = os.fsencode(tmp_path) + b"/caf\xe9.npy"
    with open(name, "wb") as file:
        np.save(file, np.ones((1, 300)))
    out = tmp_path / "out.json"
    result = run_cli("welch", os.fsdecode(name), "--fs", 9, "--json", out)
    assert result.code == 0, result.err
    assert json.loads(out.read_text("utf-8"))["files"][0]["path"].endswith(
        r"caf\xe9.npy"
    )


@pytest.mark.skipif(not Path("/bin/sh").exists(), reason="a shell closes the streams")
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_are_not_written_into_other_files(
    recording: Path, closed: str
) -> None:
    """Output for a closed stream never goes into a file that got its descriptor."""
    out = recording.with_name("out.csv")
    line = f'"$1" -m rlxweb welch "$2" --fs 9 --csv "$3" {closed}'
    process = subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, recording, out],
        env=subprocess_environment(),
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (process.returncode, process.stderr) == (0, b"")
    assert len(out.read_text().splitlines()) == 1 + 40 * 16
