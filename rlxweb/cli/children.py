"""`--jobs`: processes of this machine do the recordings of a run, without Dask.

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

from rlxweb.cli.signals import signals
from rlxweb.errors import ClusterError, RlxError, WorkerFailed
from rlxweb.io.urls import is_url
from rlxweb.jobs.child import Outcome, Part, Ready, Unfinished, forget, serve
from rlxweb.jobs.spreading import Job, Told, each
from rlxweb.jobs.starting import Starting
from rlxweb.library_probe import exit_meaning
from rlxweb.whole_file import abandon

T = TypeVar("T")

START_S: Final = 1.0
"""What processes take until they are at work, about: what must be won by them."""
LITTLE_NBYTES: Final = 1 << 30
"""Files of so few bytes together are begun here; more are worth processes at once."""
_END_S: Final = 5.0
# Of libraries that would start a thread per core in every process.
_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Children(Generic[T]):
    """So many processes that do the same job with file after file."""

    def __init__(self, job: Job[T], n_processes: int) -> None:
        self._job, self._most = job, n_processes
        self._at_work: list[_Child] = []
        self._starting = Starting()

    def each(
        self, files: Sequence[str], progress: Told
    ) -> Iterator[tuple[str, T | RlxError]]:
        """Every file with what came of it, as they are done.

        Errors   ClusterError where processes do not start; what is wrong with a file is
                 its outcome, and so is the end of the process that was at it
        """
        waiting = deque(files)
        yield from self._begun_here(waiting, progress)
        if len(waiting) < 2:
            yield from each(self._job, waiting, progress)
            return
        self._starting = Starting()
        before, signals.cleanup = signals.cleanup, self._abandon
        try:
            yield from self._spread(waiting, progress)
            self._dismiss()
        finally:
            self._end()
            signals.cleanup = before

    def _begun_here(
        self, waiting: deque[str], progress: Told
    ) -> Iterator[tuple[str, T | RlxError]]:
        """The first of few bytes; all of them where the rest is done as soon here."""
        if _nbytes(waiting) >= LITTLE_NBYTES:
            return
        begun, count = monotonic(), len(waiting)
        while waiting:
            yield from each(self._job, [waiting.popleft()], progress)
            spent = monotonic() - begun
            rest = spent / (count - len(waiting)) * len(waiting)
            if spent > START_S and rest * (1 - 1 / self._most) > 2 * START_S:
                return

    def _spread(
        self, waiting: deque[str], progress: Told
    ) -> Iterator[tuple[str, T | RlxError]]:
        count = min(self._most, len(waiting))
        while waiting or any(child.file for child in self._at_work):
            free = sum(not child.file for child in self._at_work)
            # One that died is replaced, where there is a file for it.
            while len(self._at_work) < count and free < len(waiting):
                self._at_work.append(_Child(self._job, count))
                self._at_work[-1].start(self._starting)
                free += 1
            pipes = {child.pipe: child for child in self._at_work}
            for ready in connection.wait(list(pipes)):
                child = pipes[ready]  # type: ignore[index]
                file = child.file
                came = child.hear(progress)
                if child.is_gone:
                    self._at_work.remove(child)
                elif child.is_ready and not child.file and waiting:
                    child.give(waiting.popleft())
                if came is not None:
                    yield file, came

    def _dismiss(self) -> None:
        """They have nothing more to do, and end by themselves."""
        for child in self._at_work:
            child.pipe.close()
        for child in self._at_work:
            child.leave()

    def _end(self) -> None:
        """At once: nobody waits for what they are at."""
        self._starting.end()
        for child in self._at_work:
            child.bury()
        self._at_work.clear()

    def _abandon(self) -> None:
        self._starting.end()
        for child in list(self._at_work):
            forget(child.unfinished)
        abandon()


class _Child:
    """A process.

    file        that it is at; "" for none
    unfinished  temporary files that it has told of
    """

    def __init__(self, job: Job[Any], n_processes: int) -> None:
        context = get_context("spawn")  # what forks inherits locks and drivers
        self.pipe, self._theirs = context.Pipe()
        self.file, self.is_ready, self.is_gone = "", False, False
        self.unfinished: list[str] = []
        self._n_processes = n_processes
        self._process: SpawnProcess = context.Process(
            target=serve, args=(self._theirs, job, n_processes), daemon=True
        )

    def start(self, starting: Starting) -> None:
        """Errors   ClusterError where there is no room for one more process"""
        try:
            with _few_threads(self._n_processes), _deaf():
                starting.start(self._process)
        except OSError as error:
            raise _not_started(str(error.strerror or error)) from error
        finally:
            self._theirs.close()  # so that its end is heard

    def give(self, file: str) -> None:
        """A file to do."""
        self.file = file
        with suppress(OSError):  # that it is gone is heard next
            self.pipe.send(file)

    def hear(self, progress: Told) -> Any:
        """What it says: the outcome of its file, or None for less."""
        try:
            said = self.pipe.recv()
        except (EOFError, OSError):
            return self._died()
        if isinstance(said, Ready):
            self.is_ready = True
        elif isinstance(said, Part):
            progress(self.file, said.n_samples, said.n_done)
        elif isinstance(said, Unfinished):
            self.unfinished.append(said.path)
        elif isinstance(said, Outcome):
            self.file = ""
            self.unfinished.clear()
            for warned in said.warned:
                warnings.warn(warned, stacklevel=1)
            return said.what
        return None

    def _died(self) -> WorkerFailed | None:
        self.is_gone = True
        self._process.join(_END_S)
        self.kill()
        why = exit_meaning(self._process.exitcode or 0)
        self.bury()
        if not self.is_ready:
            raise _not_started(f"one ended at once: {why}")
        if not self.file:
            return None
        return WorkerFailed(
            repr(self.file),
            f"the process that did it ended: {why}",
            hint="it may need more memory than there is for so many at once: give "
            "fewer --jobs; without them the same recording shows what is wrong",
        )

    def leave(self) -> None:
        """Wait until it has ended by itself, unless it has only just begun."""
        if self.is_ready:
            self._process.join(_END_S)

    def kill(self) -> None:
        if self._process.is_alive():
            self._process.kill()

    def bury(self) -> None:
        """What it left, once it has ended."""
        if self._process.pid is not None:  # otherwise it never began
            self._process.join(_END_S)
        # What it said last is still there, and may name a file.
        with suppress(EOFError, OSError, Exception):
            while not self.pipe.closed and self.pipe.poll():
                said = self.pipe.recv()
                if isinstance(said, Unfinished):
                    self.unfinished.append(said.path)
        forget(self.unfinished)
        self.pipe.close()


def _not_started(why: str) -> ClusterError:
    return ClusterError(
        "start processes for --jobs", why, hint="without --jobs nothing is started"
    )


def _nbytes(files: Iterable[str]) -> float:
    """Of all files together; no end where one is not a file of this machine."""
    total = 0.0
    for file in files:
        if is_url(file) or os.path.isdir(file):
            return float("inf")
        with suppress(OSError):  # it is told when it is its turn
            total += os.path.getsize(file)
    return total


@contextmanager
def _few_threads(n_processes: int) -> Iterator[None]:
    """Libraries of a process that starts here take its share of the cores."""
    share = str(max(1, (os.cpu_count() or 1) // n_processes))
    added = [name for name in _THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(added, share))
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def _deaf() -> Iterator[None]:
    """What starts here does not hear Ctrl-C, from its first moment on."""
    mask = getattr(signal, "pthread_sigmask", None)  # Windows has none
    before = mask(signal.SIG_BLOCK, {signal.SIGINT}) if mask else None
    try:
        yield
    finally:
        if mask:
            mask(signal.SIG_SETMASK, before)
