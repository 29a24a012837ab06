"""The numbers of rows in errors, where a batch is a part of a larger one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_first: ContextVar[tuple[int, ...]] = ContextVar("first", default=())


@contextmanager
def rows_from(first: tuple[int, ...]) -> Iterator[None]:
    """Errors of calls herein count rows from here.

    first    the whole batch's index of the first row, an entry per axis of the batch
    """
    before = _first.set(first)
    try:
        yield
    finally:
        _first.reset(before)


def numbered(at: Sequence[int]) -> list[int]:
    """A row's index in the whole batch, of its index in this part."""
    first = _first.get()
    if len(first) != len(at):
        return list(at)
    return [one + of_part for one, of_part in zip(first, at, strict=True)]
