"""Waits with a deadline for driver calls and promises that have none.

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

from rlxweb.core.errors import GpuTimeout


def wait_for_event(event: threading.Event, deadline_s: float) -> bool:
    """Return True once the event is set, False if the deadline passes first."""
    deadline = time.monotonic() + deadline_s
    while True:
        # Slices keep Ctrl-C alive where a timed wait cannot be interrupted (Windows).
        remaining = deadline - time.monotonic()
        if event.wait(min(max(remaining, 0.0), 0.25)):
            return True
        if remaining <= 0:
            return False


class DeadlineWaits:
    """Waits of one device, including those that an exception interrupted."""

    def __init__(self, deadline_s: Callable[[], float]) -> None:
        self._deadline_s = deadline_s
        self._interrupted: list[tuple[threading.Event, Callable[[], object]]] = []
        self._job_queue: SimpleQueue[Callable[[], object] | None] | None = None

    def wait(self, event: threading.Event, undo: Callable[[], object]) -> None:
        """Wait for an event. If interrupted (Ctrl-C), `finish_interrupted` completes
        the wait and calls `undo`.

        Errors   GpuTimeout.
        """
        with self.wait_around(event, undo):
            pass

    @contextmanager
    def wait_around(
        self, event: threading.Event, undo: Callable[[], object]
    ) -> Iterator[None]:
        """Wait for an event, then run the block; an interrupted block is undone later
        too.
        """
        self._interrupted.append((event, undo))
        self._wait_until_deadline(event)
        yield
        self._interrupted.pop()

    def call_in_thread(self, function: Callable[[], object]) -> None:
        """Run a driver call that may block, in a thread that can be abandoned.

        Errors   GpuTimeout, and whatever the call raises.
        """
        errors: list[BaseException] = []
        self.wait(self.start_in_thread(function, errors), errors.clear)
        if errors:
            raise errors[0]

    def start_in_thread(
        self, function: Callable[[], object], errors: list[BaseException] | None = None
    ) -> threading.Event:
        """Start a function in the worker thread; return the event of its end. Its
        exception goes into `errors`.
        """
        done, error_sink = threading.Event(), [] if errors is None else errors

        def run_job() -> None:
            try:
                function()
            except BaseException as error:  # handed to the caller's thread
                error_sink.append(error)
            done.set()

        try:
            self._worker_queue().put(run_job)
        except RuntimeError:  # no new threads while the interpreter shuts down
            run_job()
        return done

    def finish_interrupted(self) -> None:
        """Complete every wait that an exception interrupted; the device is idle
        afterwards.

        Errors   GpuTimeout, and whatever the undoing raises.
        """
        while self._interrupted:
            event, undo = self._interrupted[-1]
            self._wait_until_deadline(event)
            undo()
            self._interrupted.pop()

    def _worker_queue(self) -> SimpleQueue[Callable[[], object] | None]:
        """Return the job queue of the worker thread, starting the thread if needed."""
        # One thread, as a driver may set itself up for every thread it meets. It ends
        # when these waits go.
        if self._job_queue is None:
            jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
            threading.Thread(
                target=_run_jobs, args=(jobs,), name="rlxweb-submit", daemon=True
            ).start()
            self._job_queue = jobs
            finalizer = weakref.finalize(self, self._job_queue.put, None)
            # At exit the port is closed first, and that needs the thread once more.
            finalizer.atexit = False
        return self._job_queue

    def _wait_until_deadline(self, event: threading.Event) -> None:
        """Wait for an event. Raise GpuTimeout after the deadline."""
        deadline_s = self._deadline_s()
        if not wait_for_event(event, deadline_s):
            raise GpuTimeout(
                "wait for the GPU",
                "the device did not finish in time",
                f"the deadline is {deadline_s:g} s",
                "use smaller inputs or a longer deadline, or choose device 'cpu'",
            )


def _run_jobs(jobs: SimpleQueue[Callable[[], object] | None]) -> None:
    """Run jobs from a queue until it yields None."""
    while (job := jobs.get()) is not None:
        job()
        del job
