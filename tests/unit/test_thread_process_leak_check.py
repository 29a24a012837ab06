"""Threads and processes that a test leaves behind are waited for and reported once."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

from tests import thread_process_leak_check


def test_a_process_and_a_thread_are_reported_once() -> None:
    end = threading.Event()
    assert thread_process_leak_check.unfinished() == []
    thread = threading.Thread(target=end.wait, name="forgotten")
    thread.start()
    process = subprocess.Popen(["sleep", "60"])
    try:
        lines = thread_process_leak_check.unfinished(wait_s=0)
        assert lines[-1] == "the thread 'forgotten'"
        if Path("/proc/self/task").exists():  # only Linux tells
            assert lines[0].startswith(f"the process {process.pid}, ")
        assert thread_process_leak_check.unfinished(wait_s=0) == []
    finally:
        process.kill()
        process.wait(10)
        end.set()
        thread.join(10)


def test_a_thread_about_to_end_is_waited_for() -> None:
    end = threading.Event()
    assert thread_process_leak_check.unfinished() == []
    threading.Thread(target=end.wait).start()
    threading.Timer(0.2, end.set).start()
    assert thread_process_leak_check.unfinished() == []
