"""Workers that end over recordings: when is a recording to blame?

One that workers end over time and again is, as long as they do not end over others as
well: where whoever rents out the machines takes them away, a long recording may lose
many workers and none of them by its own fault.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlxweb.dask.packing import Piece

# Workers that may end over a recording; and those that may where they end over other
# recordings just as often.
MOST_DEATHS = 4
MOST_AMONG_OTHERS = 16


class Deaths:
    """Every worker that ended while it was at work, and over what."""

    def __init__(self) -> None:
        self._tasks: list[Sequence[Piece]] = []

    def note(self, task: Sequence[Piece], address: str) -> list[Piece]:
        """A worker ended over a task; the recordings of it that are to blame."""
        self._tasks.append(task)
        for piece in task:
            piece.over.append(address)
        return [piece for piece in task if self._is_to_blame(piece)]

    def _is_to_blame(self, piece: Piece) -> bool:
        n = len(piece.over)
        if n < MOST_DEATHS:
            return False
        first = next(at for at, task in enumerate(self._tasks) if piece in task)
        over_others = sum(piece not in task for task in self._tasks[first:])
        return n > over_others or n >= MOST_AMONG_OTHERS
