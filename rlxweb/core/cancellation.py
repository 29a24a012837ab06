"""Cancellation of work whose result is no longer wanted.

Long loops ask `raise_if_cancelled` between two steps; whoever starts work that can be
given up says by `cancellation_scope` how it will learn of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Cancelled(BaseException):
    """Raised to end cancelled work; caught only by the code that cancelled it."""


def _never_cancelled() -> bool:
    """Return False: the work cannot be cancelled."""
    return False


_is_cancelled: ContextVar[Callable[[], bool]] = ContextVar(
    "given_up", default=_never_cancelled
)


@contextmanager
def cancellation_scope(is_cancelled: Callable[[], bool]) -> Iterator[None]:
    """End work in the block at its next check once `is_cancelled()` returns True."""
    token = _is_cancelled.set(is_cancelled)
    try:
        yield
    finally:
        _is_cancelled.reset(token)


def cancellation_check() -> Callable[[], None] | None:
    """Return `raise_if_cancelled` for a loop of small steps; None if the work cannot be
    cancelled.
    """
    return None if _is_cancelled.get() is _never_cancelled else raise_if_cancelled


def raise_if_cancelled() -> None:
    """Raise Cancelled if the work on this thread was cancelled."""
    if _is_cancelled.get()():
        raise Cancelled
