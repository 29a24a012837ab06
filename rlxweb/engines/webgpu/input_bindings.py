"""Binding of device arrays as the inputs of a WebGPU program, directly or by a copy.

The commands of a program name the buffers of its inputs. Where an array can stand in
for such a buffer they are named anew, and what comes of that is kept for the next run
over the same arrays. Knows ranges of buffers and nothing of what is in them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rlxweb.gpu.port_protocol import (
    BufferClear,
    BufferCopy,
    BufferRange,
    Command,
    Dispatch,
)

MIN_BIND_BYTES = 1 << 20
"""Bytes from which an array is bound at its first use. A smaller one is copied then:
that is less work than to make commands ready that may run once.
"""
MAX_CACHED_BINDINGS = 8
"""Sets of arrays for which commands are cached."""


class BufferPlacement(NamedTuple):
    """Place of an array in a buffer of the port.

    span   its numbers, in whole words; of 0 bytes where there are none
    available_bytes  bytes from the first of them to the end of its buffer
    """

    span: BufferRange
    available_bytes: int


class BoundCommands(NamedTuple):
    """Commands over arrays, and the place of each output after them."""

    commands: tuple[Command, ...]
    output_ranges: tuple[BufferRange | None, ...]


@dataclass(slots=True, eq=False)
class InputBindings:
    """Commands of one program over its own inputs or bound arrays; callers take turns.

    default  the work over the program's own buffers
    input_handles  handles of these, which the work reads and never writes
    alignment  of what the offset of a bound range must be a multiple, in bytes
    """

    default: BoundCommands
    input_handles: Collection[int]
    alignment: int
    _read_ends: dict[int, int] = field(default_factory=dict)
    _last_ranges: dict[int, BufferRange] = field(default_factory=dict)
    _cache: dict[frozenset[tuple[int, BufferRange]], BoundCommands] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        for span in _read_ranges(self.default):
            if span.handle in self.input_handles:
                end = span.offset + span.nbytes
                self._read_ends[span.handle] = max(
                    end, self._read_ends.get(span.handle, 0)
                )

    def bind(
        self, placements: Mapping[int, BufferPlacement]
    ) -> tuple[list[BufferCopy], BoundCommands]:
        """Return the copies to be made first, and the commands with arrays in place of
        inputs.
        """
        bound_ranges, copies = {}, []
        for handle, placement in placements.items():
            if not placement.span.nbytes or handle not in self._read_ends:
                continue
            if self._can_bind(handle, placement) and self._should_bind(
                handle, placement.span
            ):
                bound_ranges[handle] = placement.span
            else:
                copies.append(BufferCopy(placement.span, handle))
        self._last_ranges = {
            handle: placement.span for handle, placement in placements.items()
        }
        return copies, self._bound_commands(
            bound_ranges
        ) if bound_ranges else self.default

    def _can_bind(self, handle: int, placement: BufferPlacement) -> bool:
        """Return True if an array may stand in for an input buffer; kernels that read
        four numbers at once may read past its last one.
        """
        return (
            not placement.span.offset % self.alignment
            and self._read_ends[handle] <= placement.available_bytes
        )

    def _should_bind(self, handle: int, span: BufferRange) -> bool:
        """Return True if an array is large, or was used by the run before."""
        return span.nbytes >= MIN_BIND_BYTES or self._last_ranges.get(handle) == span

    def _bound_commands(self, arrays: Mapping[int, BufferRange]) -> BoundCommands:
        """Return the commands over these arrays, cached."""
        key = frozenset(arrays.items())
        commands = self._cache.pop(key, None)
        if commands is None:
            substituted = tuple(
                _substitute_in_command(command, arrays)
                for command in self.default.commands
            )
            output_ranges = [
                output and _substitute_range(output, arrays)
                for output in self.default.output_ranges
            ]
            commands = BoundCommands(substituted, tuple(output_ranges))
            while len(self._cache) >= MAX_CACHED_BINDINGS:
                del self._cache[next(iter(self._cache))]
        self._cache[key] = commands
        return commands


def _read_ranges(bound: BoundCommands) -> Iterator[BufferRange]:
    """Yield the buffer ranges that commands read."""
    for command in bound.commands:
        if isinstance(command, Dispatch):
            yield from command.bindings
        elif isinstance(command, BufferCopy):
            yield command.source
    yield from (source for source in bound.output_ranges if source is not None)


def _substitute_in_command(
    command: Command, arrays: Mapping[int, BufferRange]
) -> Command:
    """Return a command over arrays in place of inputs."""
    if isinstance(command, BufferClear):
        return command
    if isinstance(command, BufferCopy):
        return replace(command, source=_substitute_range(command.source, arrays))
    bindings = tuple(_substitute_range(span, arrays) for span in command.bindings)
    return (
        command if bindings == command.bindings else replace(command, bindings=bindings)
    )


def _substitute_range(
    span: BufferRange, arrays: Mapping[int, BufferRange]
) -> BufferRange:
    """Return the range within the array that stands in for a buffer."""
    array = arrays.get(span.handle)
    if array is None:
        return span
    return BufferRange(array.handle, array.offset + span.offset, span.nbytes)
