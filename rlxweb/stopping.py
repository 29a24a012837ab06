"""Work that was given up: nobody waits for its answer any more, so it ends early.

Long loops ask `check_stopped` between two steps; whoever starts work that can be given
up says by `may_stop` how it will learn of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Stopped(BaseException):
    """Ends work that was given up. No failure: nothing catches it but who gave up."""


def _never() -> bool:
    return False


_given_up: ContextVar[Callable[[], bool]] = ContextVar("given_up", default=_never)


@contextmanager
def may_stop(given_up: Callable[[], bool]) -> Iterator[None]:
    """What runs in here ends at its next step once `given_up()` is true."""
    before = _given_up.set(given_up)
    try:
        yield
    finally:
        _given_up.reset(before)


def stop_check() -> Callable[[], None] | None:
    """`check_stopped` for a loop of small steps; None where nobody can give up."""
    return None if _given_up.get() is _never else check_stopped


def check_stopped() -> None:
    """Raise Stopped if the work on this thread was given up."""
    if _given_up.get()():
        raise Stopped
