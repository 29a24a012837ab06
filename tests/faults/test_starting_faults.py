"""Processes known from their first moment: all of them end, and no other begins."""

from __future__ import annotations

import time
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess

import pytest

from rlxweb.jobs.starting import Starting


def sleeper() -> SpawnProcess:
    return get_context("spawn").Process(target=time.sleep, args=(600,), daemon=True)


def test_what_was_started_ends_and_no_other_begins() -> None:
    """Processes that were started end, told nothing yet or not, and no other begins.

    Python is left as it was.
    """
    usual, starting = vars(SpawnProcess)["_Popen"], Starting()
    first, second, late = sleeper(), sleeper(), sleeper()
    starting.start(first)
    with starting.watched():
        second.start()
    starting.end()
    for process in (first, second):
        process.join(60)
        assert process.exitcode not in (None, 0)
    with pytest.raises(OSError, match="has ended"):
        starting.start(late)
    assert late.pid is None
    assert vars(SpawnProcess)["_Popen"] is usual


def test_after_ctrl_c_other_threads_start_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SpawnProcess, "_Popen", vars(SpawnProcess)["_Popen"])
    starting, begun = Starting(), sleeper()

    def stopped() -> None:
        with starting.watched():
            begun.start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    begun.join(60)
    assert begun.exitcode not in (None, 0)
    with pytest.raises(OSError, match="has ended"):
        sleeper().start()
