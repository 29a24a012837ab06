"""Tracking of child processes from the moment they start, so that Ctrl-C ends all of
them.

Python knows of a process once it is started, and tells it what to be through a pipe and
semaphores. Where this process ends before that is read, the one that starts finds half
a message, or a semaphore gone, and says so by a traceback nobody asked for. So whoever
ends early ends those first, and lets no other begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnProcess
from threading import Lock, Thread
from typing import Any

_POPEN = "_Popen"  # the one place where Python begins a process, on every system


class ChildProcessTracker:
    """Tracker of the processes that start while it is active."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._processes: list[Any] = []
        self._is_closed = False

    @contextmanager
    def track(self) -> Iterator[None]:
        """Track the processes that any thread starts in this block.

        Ctrl-C ends them, and what threads would still start in the rest of this
        process is refused.
        """
        original_popen = vars(SpawnProcess)[_POPEN]
        setattr(
            SpawnProcess,
            _POPEN,
            staticmethod(self._tracked_popen(original_popen.__func__)),
        )
        try:
            yield
        except KeyboardInterrupt:
            self.kill_all()
            raise
        except BaseException:
            setattr(SpawnProcess, _POPEN, original_popen)
            raise
        setattr(SpawnProcess, _POPEN, original_popen)

    def start(self, process: SpawnProcess) -> None:
        """Start a process on a thread of its own, which Ctrl-C does not stop halfway.

        Errors   OSError where the system has no room for it
        """
        errors: list[OSError] = []

        def begin() -> None:
            try:
                with self.track():
                    process.start()
            except OSError as error:
                errors.append(error)

        thread = Thread(target=begin, daemon=True)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]

    def kill_all(self) -> None:
        """Kill the processes that were started, and refuse to start more."""
        with self._lock:
            self._is_closed = True
            for process in self._processes:
                process.kill()

    def _tracked_popen(self, popen: Any) -> Any:
        def popen_tracked(process: Any) -> Any:
            with self._lock:
                if self._is_closed:
                    raise OSError("the process pool is closed")
                handle = popen(process)
                self._processes.append(handle)
                return handle

        return popen_tracked
