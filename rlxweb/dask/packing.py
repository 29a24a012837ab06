"""Which recordings go to a worker together.

A task costs scheduler, client and worker about 6 ms whatever is in it, so small
recordings share one. Owns how much a task holds. Knows no worker but by its address.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rlxweb.dask.there import Recording

# What one task holds at most: 128 MiB, as a chunk of Dask's own arrays does. The work
# on that takes half a second, and that much is done again where a worker ends. Of the
# smallest recordings the opening is the work.
TASK_BYTES = 128 << 20
MOST_TOGETHER = 64
# A task holds at most this part of what waits for a thread, so that towards the end
# tasks get smaller and all workers end at about the same time.
PART = 2


@dataclass(slots=True, eq=False)
class Piece:
    """A recording that is not done.

    nbytes  of the file; None where that cannot be known from here
    over    the workers that ended while they worked on it, or on its task
    tried   the workers on which it failed for reasons of theirs
    """

    one: Recording
    nbytes: int | None = None
    over: list[str] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)

    @property
    def goes_alone(self) -> bool:
        """May it be long, or the end of its worker, and of what is in the same task?"""
        return self.nbytes is None or bool(self.over) or bool(self.tried)


class Waiting:
    """The recordings that nobody works on, the largest first."""

    def __init__(self, files: Sequence[str]) -> None:
        self._pieces = deque(largest_first(files))

    def __len__(self) -> int:
        return len(self._pieces)

    def first(self, pieces: Sequence[Piece]) -> None:
        """Put these before all others: it is not for their sake that they are here."""
        self._pieces.extendleft(reversed(pieces))

    def last(self, pieces: Iterable[Piece]) -> None:
        """Put these behind all others."""
        self._pieces.extend(pieces)

    def task_for(
        self, address: str, n_threads: int, may_elsewhere: Callable[[list[str]], bool]
    ) -> list[Piece]:
        """What a worker is given next; nothing where all that waits failed there.

        n_threads      of all workers together
        may_elsewhere  is there a worker besides those named?
        """
        first = self._next_for(address, may_elsewhere)
        if first is None:
            return []
        task, nbytes = [first], first.nbytes or 0
        part = len(self._pieces) // (PART * n_threads)
        most = 1 if first.goes_alone else min(MOST_TOGETHER, part)
        while len(task) < most and not self._pieces[0].goes_alone:
            nbytes += self._pieces[0].nbytes or 0
            if nbytes > TASK_BYTES:
                break
            task.append(self._pieces.popleft())
        return task

    def _next_for(
        self, address: str, may_elsewhere: Callable[[list[str]], bool]
    ) -> Piece | None:
        """The first that did not fail there before, or may fail nowhere else."""
        for at, piece in enumerate(self._pieces):
            if address not in piece.tried or not may_elsewhere(piece.tried):
                del self._pieces[at]
                return piece
        return None


def largest_first(files: Sequence[str]) -> list[Piece]:
    """By size, so that the last to end is a small one; then as they were named.

    Files are given by their whole path, for a worker stands in another folder.
    """
    found = [
        Piece(Recording(f, f), None)
        if "://" in f
        else Piece(Recording(f, os.path.abspath(f)), _size(f))
        for f in files
    ]
    return sorted(found, key=lambda piece: -(piece.nbytes or 0))


def _size(path: str) -> int | None:
    """In bytes; of a folder, or what cannot be seen from here, it is not known."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None
