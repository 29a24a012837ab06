"""Ctrl-C, SIGTERM and SIGHUP at any moment: one line, the code of the signal, no more.

Each case puts the signal at one exact moment of a real process: while a module loads,
in a native call that does not come back, in a destructor, after the work is done.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.command_line import Said, environment, forked, python, started

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Sends itself a signal when a module is looked for, then runs the command line.
WHILE_LOADING = """
import os, runpy, sys
number, name = int(sys.argv[1]), sys.argv[2]
class Finder:
    def find_spec(self, full, *rest):
        if full == name:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), number)
sys.meta_path.insert(0, Finder())
sys.argv = ["rlxweb", *sys.argv[3:]]
runpy.run_module("rlxweb", run_name="__main__")
"""

# Runs some Python in place of a function of a module, and then the function.
INSTEAD = """
import ctypes, os, signal, sys, threading
from importlib import import_module
from rlxweb.__main__ import run
module, name, text = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)
module = import_module(module)
really = getattr(module, name)
def instead(*args):
    setattr(module, name, really)
    exec(text, globals())
    return really(*args)
setattr(module, name, instead)
run()
"""
IN_THE_WORK = "rlxweb.jobs.averaging", "check_finite"
IN_THE_WRITING = "os", "fsync"
KILL = "os.kill(os.getpid(), {number})"
# A call into C that is begun anew after each signal, with a signal on its way.
NATIVE = """
reader, writer = os.pipe()
for number in (signal.SIGINT, signal.SIGTERM):
    signal.siginterrupt(number, False)
later = threading.Timer(0.1, os.kill, (os.getpid(), {number}))
later.start()
ctypes.CDLL(None).read(reader, ctypes.create_string_buffer(1), 1)
"""
# Python drops what a destructor raises.
DESTRUCTOR = """
import time
class Dying:
    def __del__(self):
        os.kill(os.getpid(), {number})
        for _ in range(1000):
            pass
Dying()
ends = time.monotonic() + 60
while time.monotonic() < ends:
    pass
"""


@pytest.fixture
def npy(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((2, 4000)))
    return tmp_path / "x.npy"


def check_stopped(said: Said, number: int) -> None:
    assert said.code == 128 + number, said.err
    assert said.err.strip() == "rlxweb: stopped"
    assert said.out == ""


@pytest.mark.parametrize(
    "module",
    [
        "click",
        "rlxweb.cli.main",
        "rlxweb.cli.welch_command",
        "numpy._core.multiarray",
        "rlxweb.io.npy",
        "matplotlib.figure",
    ],
)
def test_while_a_module_loads(npy: Path, module: str) -> None:
    """A signal stops the first import as well as those that only a picture needs."""
    args = "welch", npy, "--fs", 9, "--plot", npy.with_name("p.png")
    check_stopped(python("-c", WHILE_LOADING, 2, module, *args), signal.SIGINT)
    assert not npy.with_name("p.png").exists()


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("line", [KILL, NATIVE, DESTRUCTOR])
def test_in_the_middle_of_the_work(npy: Path, line: str, number: int) -> None:
    """A signal stops the work, also where native code or a destructor holds it up."""
    out = npy.with_name("o.csv")
    args = "welch", npy, "--fs", 9, "--csv", out
    code = line.format(number=int(number))
    check_stopped(forked("-c", INSTEAD, *IN_THE_WORK, code, *args), number)
    assert os.listdir(npy.parent) == ["x.npy"]


def test_a_second_signal_does_not_wait(npy: Path) -> None:
    """A second signal ends the run, whatever the first one is waiting for."""
    twice = (
        "import time\n"
        "try:\n    os.kill(os.getpid(), 2)\n    time.sleep(60)\n"
        "finally:\n    os.kill(os.getpid(), 2)\n    time.sleep(60)"
    )
    said = forked("-c", INSTEAD, *IN_THE_WORK, twice, "welch", npy, "--fs", 9)
    check_stopped(said, signal.SIGINT)


def test_half_written_files_go_when_native_code_is_stuck(npy: Path) -> None:
    """The process is ended past its `finally`s, and clears up all the same."""
    code = NATIVE.format(number=int(signal.SIGINT))
    args = "welch", npy, "--fs", 9, "--csv", npy.with_name("o.csv")
    said = forked("-c", INSTEAD, *IN_THE_WRITING, code, *args)
    check_stopped(said, signal.SIGINT)
    assert os.listdir(npy.parent) == ["x.npy"]


# Sends itself a signal when the interpreter calls what was registered, or later, when
# it takes its modules down and knows of no signals any more.
ON_THE_WAY_OUT = """
import atexit, os
from rlxweb.__main__ import run
class Dying:
    def __del__(self, kill=os.kill, me=os.getpid()):
        kill(me, {number})
if {late}:
    os.dying = Dying()
else:
    atexit.register(os.kill, os.getpid(), {number})
run()
"""


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("late", [False, True])
def test_when_everything_is_done(npy: Path, number: int, late: bool) -> None:
    """The results are there, so the run went well, however the process ends."""
    code = ON_THE_WAY_OUT.format(number=int(number), late=late)
    out = npy.with_name("o.csv")
    # A forked process takes no modules down.
    process = python if late else forked
    said = process("-c", code, "welch", npy, "--fs", 9, "--csv", out)
    assert (said.code, said.err) == (0, "")
    assert len(said.out.splitlines()) == 5
    assert len(out.read_text().splitlines()) == 33


def test_the_exit_code_of_a_failure_stays(npy: Path) -> None:
    """A signal on the way out does not change the exit code of a failure."""
    code = ON_THE_WAY_OUT.format(number=int(signal.SIGTERM), late=True)
    said = python("-c", code, "welch", npy, npy.with_name("no.npy"), "--fs", 9)
    assert said.code == 2
    assert "there is no such file" in said.err


def test_a_signal_that_the_parent_ignores_is_ignored(npy: Path) -> None:
    """`nohup rlxweb … &` goes on when its terminal is closed."""
    code = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + INSTEAD
    kill = KILL.format(number=int(signal.SIGHUP))
    said = forked("-c", code, *IN_THE_WORK, kill, "welch", npy, "--fs", 9, "-q")
    assert (said.code, said.err) == (0, "")


def test_help_starts_without_what_it_does_not_need() -> None:
    """The watch over signals loads nothing."""
    code = (
        "import sys\nfrom rlxweb.__main__ import signals\n"
        "print(*(m for m in ('numpy', 'rich', 'click', 'threading', 'rlxweb.errors') "
        "if m in sys.modules))"
    )
    assert python("-c", code).out.strip() == ""


def test_the_installed_script_and_the_module_are_one(npy: Path) -> None:
    """SIGTERM from outside, at no particular moment: quiet, and its code."""
    command = sys.executable, "-c", "from rlxweb.__main__ import run; run()"
    pipe = npy.with_name("pipe.csv")
    os.mkfifo(pipe)
    args = "welch", npy, "--fs", "9", "-q", "--csv", pipe
    with started([*command, *args], env=environment()) as process:
        # It waits for a reader of the pipe; until one comes it is told to stop.
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
        assert process.stderr is not None
        assert code in (128 + signal.SIGTERM, -signal.SIGTERM)
        assert process.stderr.read() in ("rlxweb: stopped\n", "\nrlxweb: stopped\n", "")
