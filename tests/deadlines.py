"""No test and no session hangs for ever, started in the foreground or the background.

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

HERE = Path(__file__).parent
TEST_S = 120
# A site, a browser or a virtual environment may be made for the first who asks.
FOLDERS_S = {
    **{"browser": 900, "packaging": 900, "benchmarks": 900},
    **{"unit/site": 600, "wasm": 1800},
}
# Playwright's loop does not outlive an exception: a test in it ends its process.
IN_A_LOOP = ("browser",)
GRACE_S = 30
DEADLINE = "deadline of a test"
"""The name of the thread that waits for it."""

_stderr: list[int] = []
_timers: list[threading.Timer] = []


def pytest_configure(config: pytest.Config) -> None:
    """Keep stderr while pytest does not capture it yet, and watch the session."""
    _stderr.append(os.dup(2))
    _hear_ctrl_c()
    most = config.getoption("session_timeout", None)
    if most and not hasattr(config, "workerinput"):
        timer = threading.Timer(most, _end, (f"the session took over {most:g} s",))
        timer.daemon = True
        timer.start()


def _hear_ctrl_c() -> None:
    """A shell starts jobs in the background deaf to SIGINT, nohup to SIGHUP.

    Children inherit that, and would never end when a test sends them either.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    hangup = getattr(signal, "SIGHUP", None)  # Windows has none
    if hangup is not None and signal.getsignal(hangup) is signal.SIG_IGN:
        signal.signal(hangup, signal.SIG_DFL)


def _end(why: str) -> None:
    """Stop this process; what it started sees its pipes close and ends, too."""
    os.write(_stderr[0], "\n\n".join(["", why, *_suspended(), ""]).encode())
    faulthandler.dump_traceback(_stderr[0], all_threads=True)
    os._exit(1)


def _suspended() -> Iterator[str]:
    """Stacks that no thread is in: Playwright leaves the test's to run its own loop."""
    greenlet = sys.modules.get("greenlet")
    for one in gc.get_objects() if greenlet else ():
        if isinstance(one, greenlet.greenlet) and one.gr_frame is not None:
            yield "suspended:\n" + "".join(traceback.format_stack(one.gr_frame))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The time of the folder, unless the test has its own; who has longest goes first.

    So of several workers none ends long before the last.
    """
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(_mark(item.path))
    items.sort(key=_seconds, reverse=True)


def _seconds(item: pytest.Item) -> float:
    mark = item.get_closest_marker("timeout")
    assert mark is not None
    return float(mark.args[0])


def _mark(path: Path) -> pytest.MarkDecorator:
    folder = path.relative_to(HERE).as_posix() if path.is_relative_to(HERE) else ""
    times = [s for f, s in FOLDERS_S.items() if folder.startswith(f"{f}/")]
    is_in_a_loop = folder.startswith(IN_A_LOOP)
    return pytest.mark.timeout(
        times[0] if times else TEST_S, method="thread" if is_in_a_loop else "signal"
    )


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """The second watch; where an exception would do harm, in place of the first."""
    faulthandler.dump_traceback_later(
        settings.timeout + GRACE_S, file=_stderr[0], exit=True
    )
    if settings.method != "thread":
        return None  # pytest-timeout sets its own
    why = f"{item.nodeid} took over {settings.timeout:g} s"
    _timers.append(threading.Timer(settings.timeout, _end, (why,)))
    _timers[-1].name = DEADLINE
    _timers[-1].start()
    return True


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    """Stop both watches."""
    faulthandler.cancel_dump_traceback_later()
    while _timers:
        _timers.pop().cancel()
