"""A forked program gets and gives what a fresh one would; no helper outlives pytest."""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

import pytest

from tests.command_line import Said, environment, forked, python, started
from tests.fork_server import server
from tests.waiting import next_line

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere each program is a fresh interpreter"
)
SAYS_ALL = """
import os, sys
print(__name__, sys.argv, os.getcwd(), os.environ["MADE_UP"], "HOME" in os.environ)
print(sys.stdin.read() == "", sys.stdout.isatty(), sys.path[0] == "", file=sys.stderr)
"""
PARENT = """

from tests.command_line import environment
from tests.fork_server import Forked, server
helper = server(environment())
inner = Forked(helper, ["-c", "import time; time.sleep(600)"], environment())
print(inner.pid, flush=True)
input()
"""


def both(*args: object, **more: str) -> tuple[Said, Said]:
    return forked(*args, **more), python(*args, **more)


def test_it_gets_what_a_fresh_one_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forked interpreter gets arguments, environment, folder and streams."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOME", raising=False)
    program = ("-c", SAYS_ALL, "a b", "-x")
    assert server(environment()) is not None
    mine = forked(*program, MADE_UP="yes")
    fresh = python(*program, stdin="", MADE_UP="yes")
    assert mine == fresh
    assert mine.out == f"__main__ ['-c', 'a b', '-x'] {tmp_path} yes False\n"


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
def test_it_ends_as_a_fresh_one_does(program: str, code: int) -> None:
    """A forked interpreter ends with status, signals and last line as a fresh one."""
    mine, fresh = both("-c", program)
    assert mine.code == fresh.code == code
    assert mine.out == fresh.out
    assert mine.err.splitlines()[-1:] == fresh.err.splitlines()[-1:]


def test_the_command_line_is_the_same() -> None:
    mine, fresh = both("-m", "rlxweb", "welch", "/no/such.npy")
    assert mine == fresh
    assert mine.code == 2


def test_variables_that_are_read_at_the_start_take_a_fresh_interpreter() -> None:
    """A variable that is read at the start takes a fresh interpreter."""
    ascii_ = environment(PYTHONIOENCODING="ascii")
    assert server(environment()) is not None
    assert server(ascii_) is None
    program = "import sys; print(sys.stdout.encoding)"
    assert forked("-c", program, PYTHONIOENCODING="ascii").out == "ascii\n"


def test_a_helper_and_what_it_forked_end_with_their_parent() -> None:
    """A helper and what it forked end with a parent that is killed."""
    command = [sys.executable, "-c", PARENT]
    pipes = {"env": environment(), "stdin": -1}
    with started(command, **pipes) as parent:
        assert parent.stdout is not None
        line = next_line(parent.stdout, "the process id")
        inner = os.pidfd_open(int(line.split()[0]))
        try:
            parent.kill()
            assert select.select([inner], [], [], 60)[0] == [inner]
        finally:
            os.close(inner)
