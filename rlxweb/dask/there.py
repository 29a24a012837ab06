"""What runs on a worker of a cluster: recordings, and a look at its device.

A process opens its device once, whatever it is given after that (`backends.pool`). What
goes wrong comes home as a value, with word of whether it may go right elsewhere.
"""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from distributed import get_worker

from rlxweb.errors import (
    AdapterMissing,
    DeviceLost,
    GpuTimeout,
    OutOfMemory,
    RecordingError,
    RecordingWarning,
    RlxError,
    WorkerFailed,
)
from rlxweb.jobs.analysis import analyse_file, check_device
from rlxweb.jobs.settings import Settings
from rlxweb.jobs.spreading import Outcome
from rlxweb.stopping import Stopped, check_stopped, may_stop

_OF_THE_WORKER = (AdapterMissing, DeviceLost, GpuTimeout, OutOfMemory, MemoryError)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording as the user named it, and where every machine finds it."""

    named: str
    path: str


@dataclass(frozen=True, slots=True)
class Reports:
    """What came of the first recordings of a task.

    outcomes  theirs, in their order
    failure   of the one after them, where another worker may do better; what follows
              was not begun. None where all have an outcome.
    """

    outcomes: list[Outcome]
    failure: RlxError | None = None


def look_at_device(settings: Settings) -> RlxError | None:
    """Open the device that is asked for; the error where it cannot be."""
    try:
        check_device(settings)
    except RlxError as error:
        return error
    return None


def analyse_there(ones: Sequence[Recording], settings: Settings) -> Reports:
    """A task; it ends early where nobody waits for it any more, or the worker fails."""
    reports = Reports([])
    # Told at home, where the user is: the result holds them.
    warnings.simplefilter("ignore", RecordingWarning)
    with may_stop(_cancelled()):
        for one in ones:
            outcome, elsewhere = outcome_of(one, settings)
            if elsewhere and isinstance(outcome, RlxError):
                return replace(reports, failure=outcome)
            reports.outcomes.append(outcome)
    return reports


def outcome_of(one: Recording, settings: Settings) -> tuple[Outcome, bool]:
    """A recording analysed here; and may it go better on another worker?

    No error leaves it but `Stopped`.
    """
    try:
        result = analyse_file(one.path, settings, _step)
    except Stopped:
        raise
    except RlxError as error:
        return _refused(one, error)
    except Exception as error:
        return _unknown(one, error), _is_of_the_worker(error)
    return replace(result, path=one.named), False


def _step(n_samples: int, n_done: int) -> None:
    check_stopped()


def _cancelled() -> Callable[[], bool]:
    """Was the task that runs on this thread given up at home?"""
    worker = get_worker()
    task = worker.state.tasks[worker.get_current_task()]
    return lambda: task.state == "cancelled"


def _refused(one: Recording, error: RlxError) -> tuple[RlxError, bool]:
    if isinstance(error, RecordingError) and not _is_seen(one.path):
        return unseen(one), True
    for part in ("doing", "problem", "rule", "hint"):
        said = getattr(error, part)
        if type(said) is str:
            setattr(error, part, said.replace(repr(one.path), repr(one.named)))
    if "://" in one.path and error.__context__ is not None:
        # What a worker may read, and with whose credentials, is its own affair.
        error.rule = "; ".join(filter(None, (error.rule, f"seen from {_me()}")))
    return error, _is_of_the_worker(error)


def unseen(one: Recording) -> WorkerFailed:
    """The error where a worker looks for a file in vain."""
    return WorkerFailed(
        f"reading {one.named!r}",
        f"{_me()} sees no file {one.path!r}",
        hint="put recordings where every worker finds them under the same path",
    )


def _is_seen(path: str) -> bool:
    return "://" in path or os.path.lexists(path)


def _is_of_the_worker(error: Exception) -> bool:
    """Would another machine, or the same one later, not have failed so?"""
    causes: list[BaseException] = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    return any(
        isinstance(cause, _OF_THE_WORKER)
        or (isinstance(cause, OSError) and cause.errno in _NO_SPACE)
        for cause in causes
    )


def _unknown(one: Recording, error: Exception) -> WorkerFailed:
    """What is no error of ours: the others of the run are done all the same."""
    kind, said = type(error).__name__, " ".join(str(error).split())
    return WorkerFailed(
        f"welch of {one.named!r}",
        f"{kind} on {_me()}{': ' if said else ''}{said}",
        hint="without a cluster the same recording shows where",
    )


def _me() -> str:
    try:
        return f"the worker {get_worker().address}"
    except ValueError:  # no worker's thread
        return "this process"
