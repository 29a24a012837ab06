"""The processes that this one starts, known from their first moment.

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

_BEGIN = "_Popen"  # the one place where Python begins a process, on every system


class Starting:
    """What was started while it looked on."""

    def __init__(self) -> None:
        self._one_at_a_time = Lock()
        self._begun: list[Any] = []
        self._is_over = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Processes that any thread starts in here are known.

        Ctrl-C ends them, and what threads would still start in the rest of this
        process is refused.
        """
        begin = vars(SpawnProcess)[_BEGIN]
        setattr(SpawnProcess, _BEGIN, staticmethod(self._watching(begin.__func__)))
        try:
            yield
        except KeyboardInterrupt:
            self.end()
            raise
        except BaseException:
            setattr(SpawnProcess, _BEGIN, begin)
            raise
        setattr(SpawnProcess, _BEGIN, begin)

    def start(self, process: SpawnProcess) -> None:
        """On a thread of its own, which Ctrl-C does not stop halfway.

        Errors   OSError where the system has no room for it
        """
        failed: list[OSError] = []

        def begin() -> None:
            try:
                with self.watched():
                    process.start()
            except OSError as error:
                failed.append(error)

        thread = Thread(target=begin, daemon=True)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]

    def end(self) -> None:
        """Those that were started end at once; none is started any more."""
        with self._one_at_a_time:
            self._is_over = True
            for process in self._begun:
                process.kill()

    def _watching(self, begin: Any) -> Any:
        def begin_watched(process: Any) -> Any:
            with self._one_at_a_time:
                if self._is_over:
                    raise OSError("what started processes has ended")
                begun = begin(process)
                self._begun.append(begun)
                return begun

        return begin_watched
