"""A process that does file after file for the one that started it.

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

from rlxweb.advice import Advice, Blank
from rlxweb.errors import RlxError, WorkerFailed
from rlxweb.host.row_blocks import share_cpus
from rlxweb.jobs.spreading import Job
from rlxweb.whole_file import leave_to, reason

_OFTEN_S: Final = 0.1


class Ready(NamedTuple):
    """It has started, and waits for a file."""


class Part(NamedTuple):
    """So many more samples of its file are done."""

    n_samples: int
    n_done: int


class Unfinished(NamedTuple):
    """It is about to make a file that must not stay as it is."""

    path: str


class Outcome(NamedTuple):
    """A result or an error, and what was warned of on the way."""

    what: Any
    warned: tuple[Warning, ...]


def serve(pipe: Connection, job: Job[Any], n_processes: int) -> None:
    """Do each file whose name comes, until none comes any more.

    n_processes   that are at work alike, and share the processor with this one
    """
    # Ctrl-C in a terminal reaches all; the other process ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    share_cpus(n_processes)
    leave_to(lambda path: pipe.send(Unfinished(str(path))))
    with suppress(EOFError, OSError), pipe:  # the other one has gone
        pipe.send(Ready())
        while True:
            pipe.send(_done(pipe.recv(), job, _Teller(pipe.send)))


def _done(file: str, job: Job[Any], tell: _Teller) -> Outcome:
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        what: Any
        try:
            what = job(file, tell)
        except RlxError as error:
            what = error
        except Exception as error:  # a fault of ours: the others go on, if they may
            what = WorkerFailed(
                repr(file),
                f"the process that did it stumbled: {type(error).__name__}: "
                f"{reason(error)}",
                hint=Advice(
                    "without {} the same recording shows where", jobs=Blank("N")
                ),
            )
    said = (one.message for one in noted)
    return Outcome(what, tuple(one for one in said if isinstance(one, Warning)))


class _Teller:
    """Says how far a file is, some times a second."""

    def __init__(self, send: Callable[[Part], object]) -> None:
        self._send = send
        self._since = monotonic()
        self._n_done = 0

    def __call__(self, n_samples: int, n_done: int) -> None:
        self._n_done += n_done
        if monotonic() - self._since >= _OFTEN_S:
            self._send(Part(n_samples, self._n_done))
            self._since, self._n_done = monotonic(), 0


def forget(paths: list[str]) -> None:
    """Remove what a process that has ended left unfinished."""
    for path in paths:
        with suppress(OSError):
            Path(path).unlink(missing_ok=True)
