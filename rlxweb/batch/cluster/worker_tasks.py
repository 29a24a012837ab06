"""Functions that run on a worker of a cluster: the analysis of recordings, and a check
of its device.

A process opens its device once, whatever it is given after that (`engines.pool`). What
goes wrong comes home as a value, with word of whether it may go right elsewhere.
"""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from distributed import get_worker

from rlxweb.batch.file_job_protocol import AnalysisOutcome
from rlxweb.batch.recording_analysis import analyse_file, check_device
from rlxweb.batch.settings import Settings
from rlxweb.core.errors import (
    AdapterMissing,
    DeviceLost,
    GpuTimeout,
    OutOfMemory,
    RecordingError,
    RecordingWarning,
    RlxError,
    WorkerFailed,
)
from rlxweb.core.thread_tasks import Cancelled, cancellation_scope, raise_if_cancelled

_WORKER_ERRORS = (AdapterMissing, DeviceLost, GpuTimeout, OutOfMemory, MemoryError)
_NO_SPACE_ERRNOS = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class RecordingPath:
    """Path of a recording as the user named it, and the path where every machine finds
    it.
    """

    user_path: str
    path: str


@dataclass(frozen=True, slots=True)
class TaskReport:
    """Outcomes of the first recordings of a task.

    outcomes  theirs, in their order
    failure   of the one after them, where another worker may do better; what follows
              was not begun. None where all have an outcome.
    """

    outcomes: list[AnalysisOutcome]
    failure: RlxError | None = None


def try_device(settings: Settings) -> RlxError | None:
    """Open the requested device; return the error if it cannot be opened."""
    try:
        check_device(settings)
    except RlxError as error:
        return error
    return None


def analyse_recordings(
    recordings: Sequence[RecordingPath], settings: Settings
) -> TaskReport:
    """Analyse the recordings of a task; end early if the task is cancelled or the
    worker fails.
    """
    report = TaskReport([])
    # Told at home, where the user is: the result holds them.
    warnings.simplefilter("ignore", RecordingWarning)
    with cancellation_scope(_cancellation_check()):
        for recording in recordings:
            outcome, may_retry = analyse_recording(recording, settings)
            if may_retry and isinstance(outcome, RlxError):
                return replace(report, failure=outcome)
            report.outcomes.append(outcome)
    return report


def analyse_recording(
    recording: RecordingPath, settings: Settings
) -> tuple[AnalysisOutcome, bool]:
    """Analyse a recording here; return its outcome and whether another worker may do
    better.

    No error leaves it but `Cancelled`.
    """
    try:
        result = analyse_file(recording.path, settings, _check_cancelled)
    except Cancelled:
        raise
    except RlxError as error:
        return _convert_error(recording, error)
    except Exception as error:
        return _unexpected_error(recording, error), _is_worker_fault(error)
    return replace(result, path=recording.user_path), False


def _check_cancelled(n_samples: int, n_done: int) -> None:
    raise_if_cancelled()


def _cancellation_check() -> Callable[[], bool]:
    """Return a function that tells whether the task on this thread was cancelled by its
    client.
    """
    worker = get_worker()
    task = worker.state.tasks[worker.get_current_task()]
    return lambda: task.state == "cancelled"


def _convert_error(recording: RecordingPath, error: RlxError) -> tuple[RlxError, bool]:
    if isinstance(error, RecordingError) and not _file_exists(recording.path):
        return missing_file_error(recording), True
    for field in ("doing", "problem", "rule", "hint"):
        text = getattr(error, field)
        if type(text) is str:
            setattr(
                error,
                field,
                text.replace(repr(recording.path), repr(recording.user_path)),
            )
    if "://" in recording.path and error.__context__ is not None:
        # What a worker may read, and with whose credentials, is its own affair.
        error.rule = "; ".join(filter(None, (error.rule, f"raised in {_own_name()}")))
    return error, _is_worker_fault(error)


def missing_file_error(recording: RecordingPath) -> WorkerFailed:
    """Return the error for a file that a worker does not find."""
    return WorkerFailed(
        f"reading {recording.user_path!r}",
        f"{_own_name()} cannot find the file {recording.path!r}",
        hint="use a folder that every worker can read under the same path",
    )


def _file_exists(path: str) -> bool:
    return "://" in path or os.path.lexists(path)


def _is_worker_fault(error: Exception) -> bool:
    """Return whether another machine, or the same one later, might succeed."""
    causes: list[BaseException] = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    return any(
        isinstance(cause, _WORKER_ERRORS)
        or (isinstance(cause, OSError) and cause.errno in _NO_SPACE_ERRNOS)
        for cause in causes
    )


def _unexpected_error(recording: RecordingPath, error: Exception) -> WorkerFailed:
    """Convert an unexpected exception, so that the others of the run are done all the
    same.
    """
    kind, message = type(error).__name__, " ".join(str(error).split())
    return WorkerFailed(
        f"welch of {recording.user_path!r}",
        f"{kind} on {_own_name()}{': ' if message else ''}{message}",
        hint="run this recording without a cluster to see where it fails",
    )


def _own_name() -> str:
    try:
        return f"worker {get_worker().address}"
    except ValueError:  # no worker's thread
        return "this process"
