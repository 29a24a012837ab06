"""A test that hangs fails, whatever it hangs in, and the session ends."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.command_line import ROOT, Said, python

pytestmark = pytest.mark.slow

WAITS = "threading.Event().wait()"
# A loop in C that holds the GIL and looks for no signals.
COMPUTES = "sum(itertools.repeat(0))"
SUITE = """
import itertools, signal, threading
import pytest
import tests.deadlines
tests.deadlines.GRACE_S = 0.5

@pytest.mark.timeout(0.5, method="{method}")
def test_that_hangs():
    {hangs}

def test_beside_it():
    pass
"""
PLUGIN = ("-p", "tests.deadlines", "-p", "no:cacheprovider", "-p", "no:randomly")

DEAF = (signal.SIGINT, signal.SIGHUP)
"""What a shell has programs in the background ignore, or nohup."""
NEEDED = ("-p", "xdist.plugin", "-p", "pytest_timeout")


def run_suite(suite: Path, *args: object) -> Said:
    """Pytest with no other plugins than it needs, which are quickly loaded."""
    words = ("-m", "pytest", *PLUGIN, *NEEDED, suite, *args)
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return python(*words, cwd=ROOT, timeout=100, **alone)


@pytest.mark.parametrize(
    ("hangs", "method", "n", "says"),
    [
        (WAITS, "signal", 0, "1 failed, 1 passed"),
        (WAITS, "thread", 2, "1 failed, 1 passed"),
        (COMPUTES, "signal", 1, "1 failed, 1 passed"),
        (COMPUTES, "signal", 0, "Timeout (0:00:01)!"),
    ],
)
def test_a_test_that_hangs_fails_with_its_stack(
    tmp_path: Path, hangs: str, method: str, n: int, says: str
) -> None:
    """Alone and beside others, waiting and in native code.

    Where there is one worker, another one takes its place.
    """
    suite = tmp_path / "test_suite.py"
    suite.write_text(SUITE.format(hangs=hangs, method=method))
    done = run_suite(suite, "-n", n)
    said = done.out + done.err
    assert done.code == 1, said
    assert says in said
    assert "test_that_hangs" in said
    # pytest writes the shorter of the path and the way there from the checkout
    assert f'{suite.name}", line 9 in test_that_hangs' in said or "suite.py:9:" in said


@pytest.mark.parametrize("n", [0, 2])
def test_a_session_that_takes_too_long_is_ended(tmp_path: Path, n: int) -> None:
    """A session's deadline ends it whatever takes so long."""
    suite = tmp_path / "test_suite.py"
    suite.write_text("import time\ndef test_one():\n    time.sleep(60)\n")
    done = run_suite(suite, "-n", n, "--session-timeout", 1)
    assert done.code == 1
    assert "the session took over 1 s" in done.err
    assert "most recent call first" in done.err


HEARS = """
import signal, subprocess, sys
import pytest

@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_that_sends(number):
    code = f"import signal; signal.raise_signal({number})"
    child = [sys.executable, "-S", "-c", code]
    done = subprocess.run(child, stderr=subprocess.DEVNULL, timeout=60)
    assert done.returncode == -number

def test_that_is_stopped():
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.parametrize("n", [0, 1])
def test_ctrl_c_is_heard_in_the_background(tmp_path: Path, n: int) -> None:
    """A shell starts what it puts there with SIGINT ignored, which children inherit."""
    suite = tmp_path / "test_suite.py"
    suite.write_text(HEARS)
    before = {one: signal.signal(one, signal.SIG_IGN) for one in DEAF}
    try:
        done = run_suite(suite, "-n", n)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert done.code == 0, done.out
    assert "3 passed" in done.out
