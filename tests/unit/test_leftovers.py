"""What a test leaves behind is found, named once, and waited for."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from tests import leftovers


@pytest.mark.skipif(sys.platform != "linux", reason="children are listed in /proc")
def test_a_process_and_a_thread_are_told_once() -> None:
    end = threading.Event()
    assert leftovers.left() == []
    thread = threading.Thread(target=end.wait, name="forgotten")
    thread.start()
    process = subprocess.Popen(["sleep", "60"])
    try:
        told = leftovers.left(wait_s=0)
        assert told == [
            f"the process {process.pid}, `sleep 60`",
            "the thread 'forgotten'",
        ]
        assert leftovers.left(wait_s=0) == []
    finally:
        process.kill()
        process.wait()
        end.set()
        thread.join()


def test_what_is_about_to_end_is_waited_for() -> None:
    end = threading.Event()
    assert leftovers.left() == []
    threading.Thread(target=end.wait).start()
    threading.Timer(0.2, end.set).start()
    assert leftovers.left() == []
