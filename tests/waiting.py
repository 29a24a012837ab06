"""Waiting with a deadline for what another thread or process does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import IO

import pytest

from tests.threads import WAIT_S, begin

LOOK_S = 0.02
"""Seconds between two looks at a condition."""


def comes_true(
    is_so: Callable[[], object], deadline_s: float, look_s: float = LOOK_S
) -> bool:
    """Return whether a condition becomes true before the deadline passes."""
    end, pause = time.monotonic() + deadline_s, threading.Event()
    while not is_so():
        if time.monotonic() > end:
            return False
        pause.wait(look_s)
    return True


def until(
    is_so: Callable[[], object],
    what: str,
    deadline_s: float = WAIT_S,
    look_s: float = LOOK_S,
) -> None:
    """Wait for a condition; fail with its name when the deadline passes."""
    if not comes_true(is_so, deadline_s, look_s):
        pytest.fail(f"after {deadline_s:g} s it is not so that {what}")


def next_line(stream: IO[str], what: str, deadline_s: float = WAIT_S) -> str:
    """Return the next line of a process, "" at the end; fail when none comes in time.

    what   what the line is to tell
    Where it fails, the thread that reads ends with the process.
    """
    lines: list[str] = []
    (thread,) = begin([lambda: lines.append(stream.readline())])
    thread.join(deadline_s)
    if not lines:
        pytest.fail(f"after {deadline_s:g} s no line has come with {what}")
    return lines[0]
