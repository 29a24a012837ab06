"""Process pool for `--jobs`: processes of this machine work on the recordings of a run,
without Dask.

Each is handed one file at a time and holds one result, so memory is bounded by their
number. One that dies costs the file it was at, and another takes its place. When the
run ends, however it does, they are ended, and what they left unfinished is removed.
Little work is begun here: a process takes longer to start than a small file to do.
"""

from __future__ import annotations

import os
import signal
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context
from multiprocessing.context import SpawnProcess
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from rlxweb.batch.child_process_tracker import ChildProcessTracker
from rlxweb.batch.file_job_protocol import FileJob, RunProgress, run_sequentially
from rlxweb.batch.worker_process import (
    ProcessOutcome,
    SampleProgress,
    UnfinishedOutput,
    WorkerReady,
    remove_unfinished,
    serve_files,
)
from rlxweb.cli.termination_signals import process_signals
from rlxweb.core.atomic_file import remove_temporary_files
from rlxweb.core.errors import ClusterError, RlxError, WorkerFailed
from rlxweb.core.library_crash_probe import exit_meaning
from rlxweb.io.url_parsing_and_redaction import is_url

T = TypeVar("T")

STARTUP_S: Final = 1.0
"""Approximate time until new processes are at work; a pool must save more than this."""
MIN_PARALLEL_NBYTES: Final = 1 << 30
"""Total file size from which processes are started at once; smaller runs begin in this
process.
"""
_EXIT_TIMEOUT_S: Final = 5.0
# Of libraries that would start a thread per core in every process.
_THREAD_VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)


class ProcessPool(Generic[T]):
    """Pool of processes that do the same job with file after file."""

    def __init__(self, job: FileJob[T], n_processes: int) -> None:
        self._job, self._max_processes = job, n_processes
        self._workers: list[_WorkerProcess] = []
        self._launcher = ChildProcessTracker()

    def process_files(
        self, files: Sequence[str], progress: RunProgress
    ) -> Iterator[tuple[str, T | RlxError]]:
        """Yield every file with its outcome, in the order in which they are done.

        Errors   ClusterError where processes do not start; what is wrong with a file is
                 its outcome, and so is the end of the process that was at it
        """
        pending = deque(files)
        yield from self._run_in_this_process(pending, progress)
        if len(pending) < 2:
            yield from run_sequentially(self._job, pending, progress)
            return
        self._launcher = ChildProcessTracker()
        previous_cleanup, process_signals.cleanup = (
            process_signals.cleanup,
            self._clean_up_on_signal,
        )
        try:
            yield from self._run_on_workers(pending, progress)
            self._close_workers()
        finally:
            self._kill_workers()
            process_signals.cleanup = previous_cleanup

    def _run_in_this_process(
        self, pending: deque[str], progress: RunProgress
    ) -> Iterator[tuple[str, T | RlxError]]:
        """Process small files here: the first ones, or all where a pool would not be
        faster.
        """
        if _total_nbytes(pending) >= MIN_PARALLEL_NBYTES:
            return
        start, n_files = monotonic(), len(pending)
        while pending:
            yield from run_sequentially(self._job, [pending.popleft()], progress)
            elapsed = monotonic() - start
            remaining_s = elapsed / (n_files - len(pending)) * len(pending)
            if (
                elapsed > STARTUP_S
                and remaining_s * (1 - 1 / self._max_processes) > 2 * STARTUP_S
            ):
                return

    def _run_on_workers(
        self, pending: deque[str], progress: RunProgress
    ) -> Iterator[tuple[str, T | RlxError]]:
        """Start workers, hand them files, replace workers that died and yield the
        outcomes.
        """
        n_workers = min(self._max_processes, len(pending))
        while pending or any(worker.file for worker in self._workers):
            n_idle = sum(not worker.file for worker in self._workers)
            # One that died is replaced, where there is a file for it.
            while len(self._workers) < n_workers and n_idle < len(pending):
                self._workers.append(_WorkerProcess(self._job, n_workers))
                self._workers[-1].start(self._launcher)
                n_idle += 1
            pipes = {worker.pipe: worker for worker in self._workers}
            for ready_pipe in connection.wait(list(pipes)):
                worker = pipes[ready_pipe]  # type: ignore[index]
                file = worker.file
                outcome = worker.hear(progress)
                if worker.is_dead:
                    self._workers.remove(worker)
                elif worker.is_ready and not worker.file and pending:
                    worker.send_file(pending.popleft())
                if outcome is not None:
                    yield file, outcome

    def _close_workers(self) -> None:
        """Close the pipes of idle workers and wait until they exit by themselves."""
        for worker in self._workers:
            worker.pipe.close()
        for worker in self._workers:
            worker.wait_for_exit()

    def _kill_workers(self) -> None:
        """Stop all workers at once, without waiting for their files."""
        self._launcher.kill_all()
        for worker in self._workers:
            worker.clean_up()
        self._workers.clear()

    def _clean_up_on_signal(self) -> None:
        """Stop starting workers and remove temporary files; called when a signal ends
        the process.
        """
        self._launcher.kill_all()
        for worker in list(self._workers):
            remove_unfinished(worker.temporary_files)
        remove_temporary_files()


class _WorkerProcess:
    """Process that works for the pool.

    file        that it is at; "" for none
    temporary_files  temporary files that it has told of
    """

    def __init__(self, job: FileJob[Any], n_processes: int) -> None:
        context = get_context("spawn")  # what forks inherits locks and drivers
        self.pipe, self._worker_pipe = context.Pipe()
        self.file, self.is_ready, self.is_dead = "", False, False
        self.temporary_files: list[str] = []
        self._n_processes = n_processes
        self._process: SpawnProcess = context.Process(
            target=serve_files, args=(self._worker_pipe, job, n_processes), daemon=True
        )

    def start(self, launcher: ChildProcessTracker) -> None:
        """Start the process. Raises ClusterError if the system refuses one more
        process.
        """
        try:
            with _limit_threads(self._n_processes), _block_interrupts():
                launcher.start(self._process)
        except OSError as error:
            raise _start_error(str(error.strerror or error)) from error
        finally:
            self._worker_pipe.close()  # so that its end is heard

    def send_file(self, file: str) -> None:
        """Send the worker a file to process."""
        self.file = file
        with suppress(OSError):  # that it is gone is heard next
            self.pipe.send(file)

    def hear(self, progress: RunProgress) -> Any:
        """Receive a message and return the outcome of the worker's file; None for other
        messages.
        """
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):
            return self._handle_death()
        if isinstance(message, WorkerReady):
            self.is_ready = True
        elif isinstance(message, SampleProgress):
            progress(self.file, message.n_samples, message.n_done)
        elif isinstance(message, UnfinishedOutput):
            self.temporary_files.append(message.path)
        elif isinstance(message, ProcessOutcome):
            self.file = ""
            self.temporary_files.clear()
            for warning in message.warnings:
                warnings.warn(warning, stacklevel=1)
            return message.result
        return None

    def _handle_death(self) -> WorkerFailed | None:
        """Clean up after a dead worker and return the error of its file. Raises
        ClusterError if it never started.
        """
        self.is_dead = True
        self._process.join(_EXIT_TIMEOUT_S)
        self.kill()
        reason = exit_meaning(self._process.exitcode or 0)
        self.clean_up()
        if not self.is_ready:
            raise _start_error(f"a worker process ended during startup with {reason}")
        if not self.file:
            return None
        return WorkerFailed(
            repr(self.file),
            f"the worker process ended with {reason}",
            hint="pass a smaller number to --jobs if memory is short, or run this "
            "recording without --jobs to see the error",
        )

    def wait_for_exit(self) -> None:
        """Wait until the process has ended by itself, unless it has not reported ready
        yet.
        """
        if self.is_ready:
            self._process.join(_EXIT_TIMEOUT_S)

    def kill(self) -> None:
        """Kill the process if it is alive."""
        if self._process.is_alive():
            self._process.kill()

    def clean_up(self) -> None:
        """Wait for the process to end, remove its temporary files and close the
        pipe.
        """
        if self._process.pid is not None:  # otherwise it never began
            self._process.join(_EXIT_TIMEOUT_S)
        # What it said last is still there, and may name a file.
        with suppress(EOFError, OSError, Exception):
            while not self.pipe.closed and self.pipe.poll():
                message = self.pipe.recv()
                if isinstance(message, UnfinishedOutput):
                    self.temporary_files.append(message.path)
        remove_unfinished(self.temporary_files)
        self.pipe.close()


def _start_error(reason: str) -> ClusterError:
    """Return the error for processes that do not start."""
    return ClusterError(
        "start processes for --jobs",
        reason,
        hint="omit --jobs to run in a single process",
    )


def _total_nbytes(files: Iterable[str]) -> float:
    """Return the size of all files together; infinite if one is not a local file."""
    total = 0.0
    for file in files:
        if is_url(file) or os.path.isdir(file):
            return float("inf")
        with suppress(OSError):  # it is told when it is its turn
            total += os.path.getsize(file)
    return total


@contextmanager
def _limit_threads(n_processes: int) -> Iterator[None]:
    """Limit the threads of numerical libraries in processes started here to their share
    of the cores.
    """
    share = str(max(1, (os.cpu_count() or 1) // n_processes))
    added_variables = [name for name in _THREAD_VARIABLES if name not in os.environ]
    os.environ.update(dict.fromkeys(added_variables, share))
    try:
        yield
    finally:
        for name in added_variables:
            os.environ.pop(name, None)


@contextmanager
def _block_interrupts() -> Iterator[None]:
    """Block Ctrl-C in processes that start here, from their first moment on."""
    set_mask = getattr(signal, "pthread_sigmask", None)  # Windows has none
    previous_mask = set_mask(signal.SIG_BLOCK, {signal.SIGINT}) if set_mask else None
    try:
        yield
    finally:
        if set_mask:
            set_mask(signal.SIG_SETMASK, previous_mask)
