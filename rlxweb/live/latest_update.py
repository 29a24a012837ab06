"""Holder of the latest update of a live signal, which any number of viewers read.

Who tells does not wait, and who looks gets the newest: nothing is kept for a viewer
that is slow or gone, and what nobody looks at costs nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from rlxweb.live.continuous_analysis import LiveUpdate

MAX_VIEWERS: Final = 32


@dataclass(frozen=True, slots=True)
class BoardState:
    """State of an update board.

    n_updates  updates so far
    update   the newest
    end_reason  why no more come; None while they do
    """

    n_updates: int = 0
    update: LiveUpdate | None = None
    end_reason: str | None = None


class UpdateBoard:
    """Thread-safe holder of the latest update."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._state = BoardState()
        self._n_viewers = 0

    @property
    def n_viewers(self) -> int:
        """Number of viewers now connected."""
        return self._n_viewers

    def publish(self, update: LiveUpdate) -> None:
        """Replace the latest update and wake the viewers."""
        with self._condition:
            self._state = BoardState(self._state.n_updates + 1, update)
            self._condition.notify_all()

    def close(self, reason: str, timeout_s: float) -> None:
        """Announce the end and return once all viewers have left, or after the
        timeout.
        """
        with self._condition:
            self._state = BoardState(self._state.n_updates, self._state.update, reason)
            self._condition.notify_all()
            self._condition.wait_for(lambda: not self._n_viewers, timeout_s)

    def wait_for_newer(self, count: int, timeout_s: float) -> BoardState:
        """Wait for an update newer than the first `count`; return the current state
        after the timeout.
        """
        with self._condition:
            self._condition.wait_for(
                lambda: (
                    self._state.n_updates > count or self._state.end_reason is not None
                ),
                timeout_s,
            )
            return self._state

    @contextmanager
    def viewer_slot(self) -> Iterator[bool]:
        """Reserve a place for a viewer inside the block; yield False if all are
        taken.
        """
        with self._condition:
            is_admitted = self._n_viewers < MAX_VIEWERS
            self._n_viewers += is_admitted
        try:
            yield is_admitted
        finally:
            with self._condition:
                self._n_viewers -= is_admitted
                self._condition.notify_all()
