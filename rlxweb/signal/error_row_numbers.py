"""Row numbers in error messages where a batch is a part of a larger one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_first_row: ContextVar[tuple[int, ...]] = ContextVar("first", default=())


@contextmanager
def row_number_offset(first: tuple[int, ...]) -> Iterator[None]:
    """Offset the row numbers in errors raised within this context.

    first    the whole batch's index of the first row, an entry per axis of the batch
    """
    token = _first_row.set(first)
    try:
        yield
    finally:
        _first_row.reset(token)


def batch_row_index(part_index: Sequence[int]) -> list[int]:
    """Return a row's index in the whole batch, given its index in this part."""
    first = _first_row.get()
    if len(first) != len(part_index):
        return list(part_index)
    return [offset + index for offset, index in zip(first, part_index, strict=True)]
