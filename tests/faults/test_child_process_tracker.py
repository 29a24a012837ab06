"""Processes tracked from their start: all of them end, and no other begins."""

from __future__ import annotations

import time
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess

import pytest

from rlxweb.batch.child_process_tracker import ChildProcessTracker


def make_sleeping_process() -> SpawnProcess:
    return get_context("spawn").Process(target=time.sleep, args=(600,), daemon=True)


def test_started_processes_end_and_no_other_begins() -> None:
    """Processes that were started end, whether or not they got work, and no other
    begins.

    Python is left as it was.
    """
    original_popen, starting = vars(SpawnProcess)["_Popen"], ChildProcessTracker()
    first = make_sleeping_process()
    second = make_sleeping_process()
    late_process = make_sleeping_process()
    starting.start(first)
    with starting.track():
        second.start()
    starting.kill_all()
    for process in (first, second):
        process.join(60)
        assert process.exitcode not in (None, 0)
    with pytest.raises(OSError, match="pool is closed"):
        starting.start(late_process)
    assert late_process.pid is None
    assert vars(SpawnProcess)["_Popen"] is original_popen


def test_after_ctrl_c_other_threads_start_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SpawnProcess, "_Popen", vars(SpawnProcess)["_Popen"])
    starting, process = ChildProcessTracker(), make_sleeping_process()

    def start_and_interrupt() -> None:
        with starting.track():
            process.start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start_and_interrupt()
    process.join(60)
    assert process.exitcode not in (None, 0)
    with pytest.raises(OSError, match="pool is closed"):
        make_sleeping_process().start()
