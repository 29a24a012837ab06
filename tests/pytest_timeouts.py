"""Deadlines for tests and sessions: none hangs for ever, started in the foreground or
the background.

A test's time covers its fixtures. When it is over, pytest-timeout shows the stacks of
all threads and fails the test. A signal does not reach a test that sits in native code:
a while later faulthandler's own thread, which needs neither the signal nor the GIL,
shows the stacks and ends the process; under xdist the test has failed then and another
worker goes on. `--session-timeout` is kept in the same hard way.

The times are ten times and more what tests take on two busy cores.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS_FOLDER = Path(__file__).parent
DEFAULT_TIMEOUT_S = 120
# A site, a browser or a virtual environment may be made for the first who asks.
FOLDER_TIMEOUTS_S = {
    **{"browser": 900, "packaging": 900, "benchmarks": 900},
    **{"unit/site": 600, "wasm": 1800},
}
# Playwright's loop does not outlive an exception: a test in it ends its process.
ASYNC_LOOP_FOLDERS = ("browser",)
GRACE_S = 30
TIMER_THREAD_NAME = "deadline of a test"
"""Name of the thread that waits for a test's deadline."""

_stderr: list[int] = []
_timers: list[threading.Timer] = []


def pytest_configure(config: pytest.Config) -> None:
    """Keep stderr while pytest does not capture it yet, and watch the session."""
    _stderr.append(os.dup(2))
    _restore_signal_handlers()
    session_limit_s = config.getoption("session_timeout", None)
    if session_limit_s and not hasattr(config, "workerinput"):
        timer = threading.Timer(
            session_limit_s,
            _abort_process,
            (f"the session took over {session_limit_s:g} s",),
        )
        timer.daemon = True
        timer.start()


def _restore_signal_handlers() -> None:
    """Restore the handlers of SIGINT and SIGHUP: a shell starts background jobs with
    SIGINT ignored, nohup with SIGHUP ignored.

    Children inherit that, and would never end when a test sends them either.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    hangup = getattr(signal, "SIGHUP", None)  # Windows has none
    if hangup is not None and signal.getsignal(hangup) is signal.SIG_IGN:
        signal.signal(hangup, signal.SIG_DFL)


def _abort_process(reason: str) -> None:
    """Abort this process; its children see their pipes close and end, too."""
    os.write(_stderr[0], "\n\n".join(["", reason, *_suspended_stacks(), ""]).encode())
    faulthandler.dump_traceback(_stderr[0], all_threads=True)
    os._exit(1)


def _suspended_stacks() -> Iterator[str]:
    """Yield the stacks of suspended greenlets: Playwright leaves the test's stack to
    run its own loop.
    """
    greenlet = sys.modules.get("greenlet")
    for candidate in gc.get_objects() if greenlet else ():
        if isinstance(candidate, greenlet.greenlet) and candidate.gr_frame is not None:
            yield "suspended:\n" + "".join(traceback.format_stack(candidate.gr_frame))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test the timeout of its folder unless it has its own, and run the
    longest first.

    So of several workers none ends long before the last.
    """
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(_timeout_marker(item.path))
    items.sort(key=_timeout_seconds, reverse=True)


def _timeout_seconds(item: pytest.Item) -> float:
    mark = item.get_closest_marker("timeout")
    assert mark is not None
    return float(mark.args[0])


def _timeout_marker(path: Path) -> pytest.MarkDecorator:
    folder = (
        path.relative_to(TESTS_FOLDER).as_posix()
        if path.is_relative_to(TESTS_FOLDER)
        else ""
    )
    timeouts = [s for f, s in FOLDER_TIMEOUTS_S.items() if folder.startswith(f"{f}/")]
    has_async_loop = folder.startswith(ASYNC_LOOP_FOLDERS)
    return pytest.mark.timeout(
        timeouts[0] if timeouts else DEFAULT_TIMEOUT_S,
        method="thread" if has_async_loop else "signal",
    )


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Arm the second, hard timer; it replaces the first where an exception would do
    harm.
    """
    faulthandler.dump_traceback_later(
        settings.timeout + GRACE_S, file=_stderr[0], exit=True
    )
    if settings.method != "thread":
        return None  # pytest-timeout sets its own
    reason = f"{item.nodeid} took over {settings.timeout:g} s"
    _timers.append(threading.Timer(settings.timeout, _abort_process, (reason,)))
    _timers[-1].name = TIMER_THREAD_NAME
    _timers[-1].start()
    return True


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    """Cancel both timers."""
    faulthandler.cancel_dump_traceback_later()
    while _timers:
        _timers.pop().cancel()
