"""Worker process that runs a job on file after file for the process that started it.

Owns what is said over the pipe between them, and that nothing of this process is left
when the other has gone: who waits for a file, or says how far one is, notices.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

from rlxweb.batch.file_job_protocol import FileJob
from rlxweb.core.atomic_file import add_temporary_file_listener, error_reason
from rlxweb.core.errors import RlxError, WorkerFailed
from rlxweb.core.message_text import Advice, Blank
from rlxweb.core.thread_tasks import share_cpus

_PROGRESS_INTERVAL_S: Final = 0.1


class WorkerReady(NamedTuple):
    """Message that the process has started and waits for a file."""


class SampleProgress(NamedTuple):
    """Message that so many more samples of the file are done."""

    n_samples: int
    n_done: int


class UnfinishedOutput(NamedTuple):
    """Message that the process is about to create a file that must not stay as it
    is.
    """

    path: str


class ProcessOutcome(NamedTuple):
    """Result or error of a file, and the warnings on the way."""

    result: Any
    warnings: tuple[Warning, ...]


def serve_files(pipe: Connection, job: FileJob[Any], n_processes: int) -> None:
    """Run the job on each file whose name is received, until none comes any more.

    n_processes   that are at work alike, and share the processor with this one
    """
    # Ctrl-C in a terminal reaches all; the other process ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    share_cpus(n_processes)
    add_temporary_file_listener(lambda path: pipe.send(UnfinishedOutput(str(path))))
    with suppress(EOFError, OSError), pipe:  # the other one has gone
        pipe.send(WorkerReady())
        while True:
            pipe.send(_run_job(pipe.recv(), job, _ProgressSender(pipe.send)))


def _run_job(
    file: str, job: FileJob[Any], report_progress: _ProgressSender
) -> ProcessOutcome:
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        result: Any
        try:
            result = job(file, report_progress)
        except RlxError as error:
            result = error
        except Exception as error:  # a fault of ours: the others go on, if they may
            result = WorkerFailed(
                repr(file),
                f"the worker process failed: {type(error).__name__}: "
                f"{error_reason(error)}",
                hint=Advice(
                    "run this recording without {} to see where it fails",
                    jobs=Blank("N"),
                ),
            )
    messages = (warning.message for warning in caught_warnings)
    return ProcessOutcome(
        result, tuple(warning for warning in messages if isinstance(warning, Warning))
    )


class _ProgressSender:
    """Callback that sends the progress of a file, at most some times a second."""

    def __init__(self, send: Callable[[SampleProgress], object]) -> None:
        self._send = send
        self._last_sent = monotonic()
        self._n_done = 0

    def __call__(self, n_samples: int, n_done: int) -> None:
        self._n_done += n_done
        if monotonic() - self._last_sent >= _PROGRESS_INTERVAL_S:
            self._send(SampleProgress(n_samples, self._n_done))
            self._last_sent, self._n_done = monotonic(), 0


def remove_unfinished(paths: list[str]) -> None:
    """Remove the unfinished files of a process that has ended."""
    for path in paths:
        with suppress(OSError):
            Path(path).unlink(missing_ok=True)
