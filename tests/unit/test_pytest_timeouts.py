"""Deadlines of tests: a test that hangs fails, whatever it hangs in, and the session
ends.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cli_runners import ROOT, CommandResult, run_python

pytestmark = pytest.mark.slow

WAITING_CODE = "threading.Event().wait()"
# A loop in C that holds the GIL and looks for no signals.
NATIVE_LOOP_CODE = "sum(itertools.repeat(0))"
HANGING_SUITE = """
import itertools, signal, threading
import pytest
import tests.pytest_timeouts
tests.pytest_timeouts.GRACE_S = 0.5

@pytest.mark.timeout(0.5, method="{method}")
def test_that_hangs():
    {hangs}

def test_beside_it():
    pass
"""
PLUGIN_OPTIONS = (
    "-p",
    "tests.pytest_timeouts",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:randomly",
)

IGNORED_SIGNALS = (signal.SIGINT, signal.SIGHUP)
"""Signals that a shell or nohup makes background programs ignore."""
REQUIRED_PLUGINS = ("-p", "xdist.plugin", "-p", "pytest_timeout")


def run_suite(suite: Path, *args: object) -> CommandResult:
    """Run pytest with only the plugins it needs, which load quickly."""
    arguments = ("-m", "pytest", *PLUGIN_OPTIONS, *REQUIRED_PLUGINS, suite, *args)
    variables = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return run_python(*arguments, cwd=ROOT, timeout=100, **variables)


@pytest.mark.parametrize(
    ("hangs", "method", "n", "message"),
    [
        (WAITING_CODE, "signal", 0, "1 failed, 1 passed"),
        (WAITING_CODE, "thread", 2, "1 failed, 1 passed"),
        (NATIVE_LOOP_CODE, "signal", 1, "1 failed, 1 passed"),
        (NATIVE_LOOP_CODE, "signal", 0, "Timeout (0:00:01)!"),
    ],
)
def test_a_test_that_hangs_fails_with_its_stack(
    tmp_path: Path, hangs: str, method: str, n: int, message: str
) -> None:
    """A hanging test fails alone or beside others, while waiting or in native code.

    Where there is one worker, another one takes its place.
    """
    suite = tmp_path / "test_suite.py"
    suite.write_text(HANGING_SUITE.format(hangs=hangs, method=method))
    result = run_suite(suite, "-n", n)
    output = result.out + result.err
    assert result.code == 1, output
    assert message in output
    assert "test_that_hangs" in output
    # pytest writes the shorter of the path and the way there from the checkout
    assert (
        f'{suite.name}", line 9 in test_that_hangs' in output or "suite.py:9:" in output
    )


@pytest.mark.parametrize("n", [0, 2])
def test_a_session_that_takes_too_long_is_stopped(tmp_path: Path, n: int) -> None:
    """A session's deadline stops it, whatever takes so long."""
    suite = tmp_path / "test_suite.py"
    suite.write_text("import time\ndef test_one():\n    time.sleep(60)\n")
    result = run_suite(suite, "-n", n, "--session-timeout", 1)
    assert result.code == 1
    assert "the session took over 1 s" in result.err
    assert "most recent call first" in result.err


SIGNAL_SUITE = """
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
def test_ctrl_c_works_in_the_background(tmp_path: Path, n: int) -> None:
    """Ctrl-C works though a shell starts background programs with SIGINT ignored."""
    suite = tmp_path / "test_suite.py"
    suite.write_text(SIGNAL_SUITE)
    before = {
        number: signal.signal(number, signal.SIG_IGN) for number in IGNORED_SIGNALS
    }
    try:
        result = run_suite(suite, "-n", n)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert result.code == 0, result.out
    assert "3 passed" in result.out
