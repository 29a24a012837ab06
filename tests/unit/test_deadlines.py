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
tests.deadlines.GRACE_S = 1

@pytest.mark.timeout(1, method="{method}")
def test_that_hangs():
    {hangs}

def test_beside_it():
    pass
"""
PLUGIN = ("-p", "tests.deadlines", "-p", "no:cacheprovider", "-p", "no:randomly")

NEEDED = ("-p", "xdist.plugin", "-p", "pytest_timeout")


def run_pytest(*args: object) -> Said:
    """Pytest in a process of its own."""
    return python("-m", "pytest", *PLUGIN, *args, cwd=ROOT, timeout=100)


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
        (COMPUTES, "signal", 2, "1 failed, 1 passed"),
        (COMPUTES, "signal", 0, "Timeout (0:00:02)!"),
    ],
)
def test_a_test_that_hangs_fails_with_its_stack(
    tmp_path: Path, hangs: str, method: str, n: int, says: str
) -> None:
    """Alone and beside others, waiting and in native code."""
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
    """Whatever it is that takes so long."""
    suite = tmp_path / "test_suite.py"
    suite.write_text("import time\ndef test_one():\n    time.sleep(60)\n")
    done = run_suite(suite, "-n", n, "--session-timeout", 2)
    assert done.code == 1
    assert "the session took over 2 s" in done.err
    assert "most recent call first" in done.err


def test_ctrl_c_is_heard_in_the_background() -> None:
    """A shell starts what it puts there with SIGINT ignored, which children inherit."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = run_pytest(
            *("tests/unit/site/test_serve.py", "tests/unit/cli/test_main.py", "-n0"),
            *("-q", "-k", "ctrl_c or interrupted"),
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.code == 0, done.out
    assert "2 passed" in done.out
