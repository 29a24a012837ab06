"""Waits that end: a deadline over driver calls and promises which have none.

wgpu-py waits without a time-out, and a driver may block inside a plain submit (OpenGL
runs the work there; lavapipe waits there for earlier work). Both happen here, where
Ctrl-C still reaches the caller. Knows events and functions, no GPU object.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from rlxweb.errors import GpuTimeout


def happened(event: threading.Event, deadline_s: float) -> bool:
    """True once the event is set, False when the deadline passed first."""
    end = time.monotonic() + deadline_s
    while True:
        # Slices keep Ctrl-C alive where a timed wait cannot be interrupted (Windows).
        left = end - time.monotonic()
        if event.wait(min(max(left, 0.0), 0.25)):
            return True
        if left <= 0:
            return False


class Waits:
    """The waits of one device, and what an exception left of them unfinished."""

    def __init__(self, deadline_s: Callable[[], float]) -> None:
        self._deadline_s = deadline_s
        self._unfinished: list[tuple[threading.Event, Callable[[], object]]] = []
        self._jobs: SimpleQueue[Callable[[], object] | None] | None = None

    def until(self, event: threading.Event, undo: Callable[[], object]) -> None:
        """Wait for an event. Interrupted (Ctrl-C), `finish` waits on, then undoes.

        Errors   GpuTimeout.
        """
        with self.after(event, undo):
            pass

    @contextmanager
    def after(
        self, event: threading.Event, undo: Callable[[], object]
    ) -> Iterator[None]:
        """The same, and what breaks off in the block is undone then too."""
        self._unfinished.append((event, undo))
        self._until(event)
        yield
        self._unfinished.pop()

    def call(self, function: Callable[[], object]) -> None:
        """Run a driver call that may block, on a thread that can be left behind.

        Errors   GpuTimeout, and whatever the call raises.
        """
        raised: list[BaseException] = []
        self.until(self.begin(function, raised), raised.clear)
        if raised:
            raise raised[0]

    def begin(
        self, function: Callable[[], object], raised: list[BaseException] | None = None
    ) -> threading.Event:
        """Run it on that thread; set at its end. What it raises goes into `raised`."""
        done, told = threading.Event(), [] if raised is None else raised

        def work() -> None:
            try:
                function()
            except BaseException as error:  # handed to the caller's thread
                told.append(error)
            done.set()

        try:
            self._worker().put(work)
        except RuntimeError:  # no new threads while the interpreter shuts down
            work()
        return done

    def finish(self) -> None:
        """End every wait that an exception broke off; the device is quiet after it.

        Errors   GpuTimeout, and whatever the undoing raises.
        """
        while self._unfinished:
            event, undo = self._unfinished[-1]
            self._until(event)
            undo()
            self._unfinished.pop()

    def _worker(self) -> SimpleQueue[Callable[[], object] | None]:
        # One thread, as a driver may set itself up for every thread it meets. It ends
        # when these waits go.
        if self._jobs is None:
            jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
            threading.Thread(
                target=_serve, args=(jobs,), name="rlxweb-submit", daemon=True
            ).start()
            self._jobs = jobs
            ends = weakref.finalize(self, self._jobs.put, None)
            # At exit the port is closed first, and that needs the thread once more.
            ends.atexit = False
        return self._jobs

    def _until(self, event: threading.Event) -> None:
        deadline_s = self._deadline_s()
        if not happened(event, deadline_s):
            raise GpuTimeout(
                "wait for the GPU",
                "the device did not finish its work",
                f"deadline {deadline_s:g} s",
                "use smaller blocks or a longer deadline, or choose device 'cpu'",
            )


def _serve(jobs: SimpleQueue[Callable[[], object] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job
