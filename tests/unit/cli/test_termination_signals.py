"""Ctrl-C, SIGTERM and SIGHUP at any moment: one line and the exit code of the signal.

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

from tests.cli_runners import (
    CommandResult,
    run_forked,
    run_python,
    running_process,
    subprocess_environment,
)

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Sends itself a signal when a module is looked for, then runs the command line.
SIGNAL_DURING_IMPORT = """
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
PATCHED_RUN = """
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
WORK_FUNCTION = "rlxweb.batch.channel_group_power", "check_finite"
WRITE_FUNCTION = "os", "fsync"
SEND_SIGNAL = "os.kill(os.getpid(), {number})"
# A call into C that is begun anew after each signal, with a signal on its way.
SIGNAL_IN_NATIVE_CALL = """
reader, writer = os.pipe()
for number in (signal.SIGINT, signal.SIGTERM):
    signal.siginterrupt(number, False)
later = threading.Timer(0.1, os.kill, (os.getpid(), {number}))
later.start()
ctypes.CDLL(None).read(reader, ctypes.create_string_buffer(1), 1)
"""
# Python drops what a destructor raises.
SIGNAL_IN_DESTRUCTOR = """
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


def check_stopped(result: CommandResult, number: int) -> None:
    assert result.code == 128 + number, result.err
    assert result.err.strip() == "rlxweb: stopped"
    assert result.out == ""


@pytest.mark.parametrize(
    "module",
    [
        "click",
        "rlxweb.cli.main",
        "rlxweb.cli.welch_command",
        "numpy._core.multiarray",
        "rlxweb.io.npy_reader",
        "matplotlib.figure",
    ],
)
def test_signal_while_a_module_loads(npy: Path, module: str) -> None:
    """A signal stops the first import and the imports that only a picture needs."""
    args = "welch", npy, "--fs", 9, "--plot", npy.with_name("p.png")
    check_stopped(
        run_python("-c", SIGNAL_DURING_IMPORT, 2, module, *args), signal.SIGINT
    )
    assert not npy.with_name("p.png").exists()


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    "line", [SEND_SIGNAL, SIGNAL_IN_NATIVE_CALL, SIGNAL_IN_DESTRUCTOR]
)
def test_signal_during_the_work(npy: Path, line: str, number: int) -> None:
    """A signal stops the work, also during native code or a destructor."""
    out = npy.with_name("o.csv")
    args = "welch", npy, "--fs", 9, "--csv", out
    code = line.format(number=int(number))
    check_stopped(run_forked("-c", PATCHED_RUN, *WORK_FUNCTION, code, *args), number)
    assert os.listdir(npy.parent) == ["x.npy"]


def test_second_signal_ends_the_run_at_once(npy: Path) -> None:
    """A second signal ends the run, whatever the first one is waiting for."""
    twice = (
        "import time\n"
        "try:\n    os.kill(os.getpid(), 2)\n    time.sleep(60)\n"
        "finally:\n    os.kill(os.getpid(), 2)\n    time.sleep(60)"
    )
    result = run_forked(
        "-c", PATCHED_RUN, *WORK_FUNCTION, twice, "welch", npy, "--fs", 9
    )
    check_stopped(result, signal.SIGINT)


def test_partial_files_are_removed_when_native_code_hangs(npy: Path) -> None:
    """The process ends without its `finally` blocks, and still removes its files."""
    code = SIGNAL_IN_NATIVE_CALL.format(number=int(signal.SIGINT))
    args = "welch", npy, "--fs", 9, "--csv", npy.with_name("o.csv")
    result = run_forked("-c", PATCHED_RUN, *WRITE_FUNCTION, code, *args)
    check_stopped(result, signal.SIGINT)
    assert os.listdir(npy.parent) == ["x.npy"]


# Sends itself a signal when the interpreter calls what was registered, or later, when
# it takes its modules down and knows of no signals any more.
SIGNAL_AT_EXIT = """
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
@pytest.mark.parametrize("at_teardown", [False, True])
def test_signal_after_the_work_is_ignored(
    npy: Path, number: int, at_teardown: bool
) -> None:
    """The results are written, so the run succeeded, however the process ends."""
    code = SIGNAL_AT_EXIT.format(number=int(number), late=at_teardown)
    out = npy.with_name("o.csv")
    # A forked process takes no modules down.
    run_script = run_python if at_teardown else run_forked
    result = run_script("-c", code, "welch", npy, "--fs", 9, "--csv", out)
    assert (result.code, result.err) == (0, "")
    assert len(result.out.splitlines()) == 5
    assert len(out.read_text().splitlines()) == 33


def test_signal_at_exit_keeps_the_exit_code_of_a_failure(npy: Path) -> None:
    """A signal at exit does not change the exit code of a failure."""
    code = SIGNAL_AT_EXIT.format(number=int(signal.SIGTERM), late=True)
    result = run_python("-c", code, "welch", npy, npy.with_name("no.npy"), "--fs", 9)
    assert result.code == 2
    assert "the file does not exist" in result.err


def test_signal_ignored_by_the_parent_stays_ignored(npy: Path) -> None:
    """`nohup rlxweb … &` goes on when its terminal is closed."""
    code = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + PATCHED_RUN
    kill = SEND_SIGNAL.format(number=int(signal.SIGHUP))
    result = run_forked("-c", code, *WORK_FUNCTION, kill, "welch", npy, "--fs", 9, "-q")
    assert (result.code, result.err) == (0, "")


def test_signal_handling_imports_nothing() -> None:
    """The signal handlers import no further module."""
    code = (
        "import sys\nfrom rlxweb.__main__ import process_signals\n"
        "names = 'numpy', 'rich', 'click', 'threading', 'rlxweb.core.errors'\n"
        "print(*(m for m in names if m in sys.modules))"
    )
    assert run_python("-c", code).out.strip() == ""


def test_installed_script_handles_sigterm(npy: Path) -> None:
    """SIGTERM from outside, at no particular moment: quiet, and its code."""
    command = sys.executable, "-c", "from rlxweb.__main__ import run; run()"
    pipe = npy.with_name("pipe.csv")
    os.mkfifo(pipe)
    args = "welch", npy, "--fs", "9", "-q", "--csv", pipe
    with running_process([*command, *args], env=subprocess_environment()) as process:
        # It waits for a reader of the pipe; until one comes it is told to stop.
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
        assert process.stderr is not None
        assert code in (128 + signal.SIGTERM, -signal.SIGTERM)
        assert process.stderr.read() in ("rlxweb: stopped\n", "\nrlxweb: stopped\n", "")
