"""A program's work over arrays that lie on its port: bound there, or copied in.

The commands of a program name the buffers of its inputs. Where an array can stand in
for such a buffer they are named anew, and what comes of that is kept for the next run
over the same arrays. Knows ranges of buffers and nothing of what is in them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rlxweb.gpu.port import Clear, Command, Copy, Dispatch, Range

WORTH_BINDING = 1 << 20
"""Bytes from which an array is bound the first time it is seen. A smaller one is copied
then: that is less work than to make commands ready that may run once."""
KEPT = 8
"""Sets of arrays for which the commands are kept."""


class Lying(NamedTuple):
    """An array on the port.

    span   its numbers, in whole words; of 0 bytes where there are none
    room   bytes from the first of them to the end of its buffer
    """

    span: Range
    room: int


class BoundWork(NamedTuple):
    """Commands over arrays, and where each output lies after them."""

    work: tuple[Command, ...]
    sources: tuple[Range | None, ...]


@dataclass(slots=True, eq=False)
class Bindings:
    """The work of one program, whose callers take turns.

    own      the work over the program's own buffers
    inputs   handles of these, which the work reads and never writes
    align    of what the offset of a bound range must be a multiple, in bytes
    """

    own: BoundWork
    inputs: Collection[int]
    align: int
    _reach: dict[int, int] = field(default_factory=dict)
    _last: dict[int, Range] = field(default_factory=dict)
    _kept: dict[frozenset[tuple[int, Range]], BoundWork] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for span in _read(self.own):
            if span.handle in self.inputs:
                end = span.offset + span.nbytes
                self._reach[span.handle] = max(end, self._reach.get(span.handle, 0))

    def over(self, lying: Mapping[int, Lying]) -> tuple[list[Copy], BoundWork]:
        """Copies to be made first, and the work with arrays in place of inputs."""
        bound, copies = {}, []
        for handle, one in lying.items():
            if not one.span.nbytes or handle not in self._reach:
                continue
            if self._can_bind(handle, one) and self._is_worth_it(handle, one.span):
                bound[handle] = one.span
            else:
                copies.append(Copy(one.span, handle))
        self._last = {handle: one.span for handle, one in lying.items()}
        return copies, self._bound(bound) if bound else self.own

    def _can_bind(self, handle: int, one: Lying) -> bool:
        """Kernels that read four numbers at once may reach past the last."""
        return not one.span.offset % self.align and self._reach[handle] <= one.room

    def _is_worth_it(self, handle: int, span: Range) -> bool:
        return span.nbytes >= WORTH_BINDING or self._last.get(handle) == span

    def _bound(self, arrays: Mapping[int, Range]) -> BoundWork:
        key = frozenset(arrays.items())
        found = self._kept.pop(key, None)
        if found is None:
            work = tuple(_with(command, arrays) for command in self.own.work)
            sources = [s and _moved(s, arrays) for s in self.own.sources]
            found = BoundWork(work, tuple(sources))
            while len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
        self._kept[key] = found
        return found


def _read(bound: BoundWork) -> Iterator[Range]:
    for command in bound.work:
        if isinstance(command, Dispatch):
            yield from command.bindings
        elif isinstance(command, Copy):
            yield command.source
    yield from (source for source in bound.sources if source is not None)


def _with(command: Command, arrays: Mapping[int, Range]) -> Command:
    if isinstance(command, Clear):
        return command
    if isinstance(command, Copy):
        return replace(command, source=_moved(command.source, arrays))
    bindings = tuple(_moved(span, arrays) for span in command.bindings)
    return (
        command if bindings == command.bindings else replace(command, bindings=bindings)
    )


def _moved(span: Range, arrays: Mapping[int, Range]) -> Range:
    array = arrays.get(span.handle)
    if array is None:
        return span
    return Range(array.handle, array.offset + span.offset, span.nbytes)
