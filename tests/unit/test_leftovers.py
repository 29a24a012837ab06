"""What a test leaves behind is found, named once, and waited for."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

from tests import leftovers


def test_a_process_and_a_thread_are_told_once() -> None:
    end = threading.Event()
    assert leftovers.left() == []
    thread = threading.Thread(target=end.wait, name="forgotten")
    thread.start()
    process = subprocess.Popen(["sleep", "60"])
    try:
        told = leftovers.left(wait_s=0)
        assert told[-1] == "the thread 'forgotten'"
        if Path("/proc/self/task").exists():  # only Linux tells
            assert told[0].startswith(f"the process {process.pid}, ")
        assert leftovers.left(wait_s=0) == []
    finally:
        process.kill()
        process.wait(10)
        end.set()
        thread.join(10)


def test_what_is_about_to_end_is_waited_for() -> None:
    end = threading.Event()
    assert leftovers.left() == []
    threading.Thread(target=end.wait).start()
    threading.Timer(0.2, end.set).start()
    assert leftovers.left() == []
