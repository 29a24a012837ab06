"""Wait, up to a deadline, for what another thread or process does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import IO

import pytest

from tests.run_in_threads import WAIT_S, start_threads

POLL_S = 0.02
"""Seconds between two evaluations of a condition."""


def becomes_true(
    condition: Callable[[], object], deadline_s: float, poll_s: float = POLL_S
) -> bool:
    """Return whether a condition becomes true before the deadline passes."""
    deadline, never_set = time.monotonic() + deadline_s, threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            return False
        never_set.wait(poll_s)
    return True


def wait_until(
    condition: Callable[[], object],
    description: str,
    deadline_s: float = WAIT_S,
    poll_s: float = POLL_S,
) -> None:
    """Wait for a condition; fail the test with its description when the deadline
    passes.
    """
    if not becomes_true(condition, deadline_s, poll_s):
        pytest.fail(f"after {deadline_s:g} s it is not so that {description}")


def next_line(stream: IO[str], description: str, deadline_s: float = WAIT_S) -> str:
    """Return the next line of a process, "" at the end; fail the test when none comes
    in time.

    description  what the line is to tell
    Where it fails, the thread that reads ends with the process.
    """
    lines: list[str] = []
    (thread,) = start_threads([lambda: lines.append(stream.readline())])
    thread.join(deadline_s)
    if not lines:
        pytest.fail(f"after {deadline_s:g} s no line has come with {description}")
    return lines[0]
