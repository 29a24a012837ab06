"""Queue of recordings and their packing into tasks for workers.

A task costs scheduler, client and worker about 6 ms whatever is in it, so small
recordings share one. Owns how much a task holds. Knows no worker but by its address.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rlxweb.batch.cluster.worker_tasks import RecordingPath

# What one task holds at most: 128 MiB, as a chunk of Dask's own arrays does. The work
# on that takes half a second, and that much is done again where a worker ends. Of the
# smallest recordings the opening is the work.
MAX_TASK_NBYTES = 128 << 20
MAX_RECORDINGS_PER_TASK = 64
# A task holds at most this part of what waits for a thread, so that towards the end
# tasks get smaller and all workers end at about the same time.
TASKS_LEFT_PER_THREAD = 2


@dataclass(slots=True, eq=False)
class PendingRecording:
    """Recording that is not done yet.

    nbytes  of the file; None where that cannot be known from here
    ended_workers  the workers that ended while they worked on it, or on its task
    failed_workers  the workers on which it failed for reasons of theirs
    """

    recording: RecordingPath
    nbytes: int | None = None
    ended_workers: list[str] = field(default_factory=list)
    failed_workers: list[str] = field(default_factory=list)

    @property
    def needs_own_task(self) -> bool:
        """Return whether it must not share a task: it may be long, or end its worker
        and the rest of the task with it.
        """
        return (
            self.nbytes is None or bool(self.ended_workers) or bool(self.failed_workers)
        )


class RecordingQueue:
    """Queue of the recordings that no worker has, the largest first."""

    def __init__(self, files: Sequence[str]) -> None:
        self._pending = deque(sort_by_size(files))

    def __len__(self) -> int:
        return len(self._pending)

    def push_front(self, recordings: Sequence[PendingRecording]) -> None:
        """Put recordings before all others; they did not come back through a fault of
        their own.
        """
        self._pending.extendleft(reversed(recordings))

    def push_back(self, recordings: Iterable[PendingRecording]) -> None:
        """Put recordings behind all others."""
        self._pending.extend(recordings)

    def pop_task(
        self,
        address: str,
        n_threads: int,
        has_other_worker: Callable[[list[str]], bool],
    ) -> list[PendingRecording]:
        """Remove and return the next task for a worker; an empty list if all that waits
        failed there.

        n_threads      of all workers together
        has_other_worker  is there a worker besides those named?
        """
        first = self._pop_next(address, has_other_worker)
        if first is None:
            return []
        task, nbytes = [first], first.nbytes or 0
        fair_share = len(self._pending) // (TASKS_LEFT_PER_THREAD * n_threads)
        max_count = (
            1 if first.needs_own_task else min(MAX_RECORDINGS_PER_TASK, fair_share)
        )
        while len(task) < max_count and not self._pending[0].needs_own_task:
            nbytes += self._pending[0].nbytes or 0
            if nbytes > MAX_TASK_NBYTES:
                break
            task.append(self._pending.popleft())
        return task

    def _pop_next(
        self, address: str, has_other_worker: Callable[[list[str]], bool]
    ) -> PendingRecording | None:
        """Remove and return the first recording that did not fail on the worker before,
        or that no other worker can take.
        """
        for index, recording in enumerate(self._pending):
            if address not in recording.failed_workers or not has_other_worker(
                recording.failed_workers
            ):
                del self._pending[index]
                return recording
        return None


def sort_by_size(files: Sequence[str]) -> list[PendingRecording]:
    """Sort recordings by size, the largest first, so that the last to end is a small
    one.

    Files are given by their whole path, for a worker stands in another folder.
    """
    recordings = [
        PendingRecording(RecordingPath(file, file), None)
        if "://" in file
        else PendingRecording(
            RecordingPath(file, os.path.abspath(file)), _file_size(file)
        )
        for file in files
    ]
    return sorted(recordings, key=lambda recording: -(recording.nbytes or 0))


def _file_size(path: str) -> int | None:
    """Return the size of a file in bytes; None for a folder, or for what cannot be seen
    from here.
    """
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
