"""The newest update of a running signal, for however many that want to see it.

Who tells does not wait, and who looks gets the newest: nothing is kept for a viewer
that is slow or gone, and what nobody looks at costs nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from rlxweb.live.watch import Update

MOST_VIEWERS: Final = 32


@dataclass(frozen=True, slots=True)
class Told:
    """What stands on the board.

    count    updates so far
    update   the newest
    end      why no more come; None while they do
    """

    count: int = 0
    update: Update | None = None
    end: str | None = None


class Board:
    """One for all threads."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._told = Told()
        self._viewers = 0

    @property
    def viewers(self) -> int:
        return self._viewers

    def tell(self, update: Update) -> None:
        """Put it in the place of the last."""
        with self._turn:
            self._told = Told(self._told.count + 1, update)
            self._turn.notify_all()

    def end(self, words: str, timeout_s: float) -> None:
        """No more come; returns when all viewers took that, or in that time."""
        with self._turn:
            self._told = Told(self._told.count, self._told.update, words)
            self._turn.notify_all()
            self._turn.wait_for(lambda: not self._viewers, timeout_s)

    def after(self, count: int, timeout_s: float) -> Told:
        """What is newer than the first `count`; the same again where nothing came."""
        with self._turn:
            self._turn.wait_for(
                lambda: self._told.count > count or self._told.end is not None,
                timeout_s,
            )
            return self._told

    @contextmanager
    def viewer(self) -> Iterator[bool]:
        """A place for one more; False where there is none."""
        with self._turn:
            there = self._viewers < MOST_VIEWERS
            self._viewers += there
        try:
            yield there
        finally:
            with self._turn:
                self._viewers -= there
                self._turn.notify_all()
