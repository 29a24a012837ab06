"""Fork server of the tests: a forked program behaves like a fresh one, and no helper
outlives pytest.
"""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

import pytest

from tests.cli_runners import (
    CommandResult,
    run_forked,
    run_python,
    running_process,
    subprocess_environment,
)
from tests.pytest_fork_server import find_server
from tests.wait_with_deadline import next_line

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere each program is a fresh interpreter"
)
REPORTING_PROGRAM = """
import os, sys
print(__name__, sys.argv, os.getcwd(), os.environ["MADE_UP"], "HOME" in os.environ)
print(sys.stdin.read() == "", sys.stdout.isatty(), sys.path[0] == "", file=sys.stderr)
"""
PARENT_PROGRAM = """

from tests.cli_runners import subprocess_environment
from tests.pytest_fork_server import ForkedProcess, find_server
helper = find_server(subprocess_environment())
sleeping = ["-c", "import time; time.sleep(600)"]
inner = ForkedProcess(helper, sleeping, subprocess_environment())
print(inner.pid, flush=True)
input()
"""


def run_both(*args: object, **variables: str) -> tuple[CommandResult, CommandResult]:
    return run_forked(*args, **variables), run_python(*args, **variables)


def test_a_forked_program_gets_what_a_fresh_one_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forked interpreter gets arguments, environment, folder and streams."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOME", raising=False)
    program = ("-c", REPORTING_PROGRAM, "a b", "-x")
    assert find_server(subprocess_environment()) is not None
    forked_result = run_forked(*program, MADE_UP="yes")
    fresh_result = run_python(*program, stdin="", MADE_UP="yes")
    assert forked_result == fresh_result
    assert forked_result.out == f"__main__ ['-c', 'a b', '-x'] {tmp_path} yes False\n"


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("pass", 0),
        ("raise SystemExit(7)", 7),
        ("raise SystemExit", 0),
        ("raise SystemExit('a reason')", 1),
        ("import os; os._exit(9)", 9),
        ("1 / 0", 1),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os; os.abort()", -6),
        ("import os; os.kill(os.getpid(), 2)", -2),
        ("import atexit; atexit.register(print, 'last')", 0),
        (
            "import threading as t; t.Thread(target=print, args=['thread']).start()",
            0,
        ),
    ],
)
def test_a_forked_program_ends_like_a_fresh_one(program: str, code: int) -> None:
    """A forked interpreter has the status, signals and last line of a fresh one."""
    forked_result, fresh_result = run_both("-c", program)
    assert forked_result.code == fresh_result.code == code
    assert forked_result.out == fresh_result.out
    assert forked_result.err.splitlines()[-1:] == fresh_result.err.splitlines()[-1:]


def test_a_forked_command_line_gives_the_same_result() -> None:
    forked_result, fresh_result = run_both("-m", "rlxweb", "welch", "/no/such.npy")
    assert forked_result == fresh_result
    assert forked_result.code == 2


def test_variables_read_at_startup_need_a_fresh_interpreter() -> None:
    """A variable that Python reads at startup needs a fresh interpreter."""
    ascii_environment = subprocess_environment(PYTHONIOENCODING="ascii")
    assert find_server(subprocess_environment()) is not None
    assert find_server(ascii_environment) is None
    program = "import sys; print(sys.stdout.encoding)"
    assert run_forked("-c", program, PYTHONIOENCODING="ascii").out == "ascii\n"


def test_a_helper_and_its_children_end_with_their_parent() -> None:
    """A helper and the processes it forked end when their parent is killed."""
    command = [sys.executable, "-c", PARENT_PROGRAM]
    pipes = {"env": subprocess_environment(), "stdin": -1}
    with running_process(command, **pipes) as parent:
        assert parent.stdout is not None
        line = next_line(parent.stdout, "the process id")
        inner = os.pidfd_open(int(line.split()[0]))
        try:
            parent.kill()
            assert select.select([inner], [], [], 60)[0] == [inner]
        finally:
            os.close(inner)
