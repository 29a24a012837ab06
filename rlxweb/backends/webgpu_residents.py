"""Arrays that stay on a port: their buffers, and the copies from and to them.

Each owns its buffer: what a run leaves is copied out of the program's buffers, on the
device and in the submission of the run. Knows no program.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import Any

import numpy as np

from rlxweb.backends.protocol import Array, Backend, Resident, as_bytes, own_resident
from rlxweb.backends.webgpu_bindings import Lying
from rlxweb.backends.webgpu_buffers import as_stored, buffer_bytes, stored_bytes
from rlxweb.backends.webgpu_narrow import (
    NARROWER,
    check_held,
    free_of,
    held_as,
    narrow,
)
from rlxweb.backends.webgpu_program import Spot
from rlxweb.compile.plan import Held, Plan
from rlxweb.errors import DeviceLost, GraphError, SessionClosed
from rlxweb.forked import ForkLock
from rlxweb.gpu.port import Copy, Port, Range
from rlxweb.ir.dtype import as_dtype
from rlxweb.ir.op import TensorType
from rlxweb.kernels.launch import width_of
from rlxweb.limits import Limits


class BufferResident(Resident):
    """Numbers in a storage buffer, in the form in which shaders have them.

    lying   where they lie
    owned   the buffer, until it is freed
    held    between which values it lies, where shaders have not its type
    whole   what this is a part of, if it is one
    """

    __slots__ = ("held", "lying", "owned", "port", "whole")

    def __init__(
        self,
        engine: Backend,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        port: Port,
        lying: Lying,
        owned: list[int],
        whole: BufferResident | None = None,
        held: Held | None = None,
    ) -> None:
        super().__init__(engine, shape, dtype)
        self.held = held
        self.port, self.lying, self.owned, self.whole = port, lying, owned, whole


def copies_into(
    stay: Sequence[BufferResident | None], sources: Sequence[Range | None]
) -> list[Copy]:
    """What fills arrays that stay, from where outputs lie."""
    return [
        Copy(source, one.lying.span.handle)
        for source, one in zip(sources, stay, strict=True)
        if one is not None and source is not None
    ]


class Residents:
    """The arrays that stay on one port, for one engine.

    limits   what the engine may take of the device
    dropped  gets the buffers of those that nobody refers to any more
    """

    def __init__(
        self,
        engine: Backend,
        port: Port,
        limits: Limits,
        dropped: deque[list[int]],
    ) -> None:
        self._engine, self._port = engine, port
        self._limits, self._dropped = limits, dropped
        self._lock = ForkLock()

    @property
    def steady(self) -> AbstractContextManager[None]:
        """While it is held, nobody frees one."""
        return self._lock

    def made(self, kind: TensorType, held: Held | None = None) -> BufferResident:
        """Room for an array, its numbers not yet there.

        held     between which they will lie, of a type that shaders have not
        Errors   OutOfMemory, LimitExceeded.
        """
        size = stored_bytes(kind)
        room = buffer_bytes(size, self._limits, f"an array of shape {[*kind.shape]}")
        handle = self._port.buffer(room, "storage")
        owned, lying = [handle], Lying(Range(handle, 0, -(-size // 4) * 4), room)
        args = self._engine, kind.shape, kind.dtype.numpy, self._port, lying, owned
        one = BufferResident(*args, held=held)
        weakref.finalize(one, self._dropped.append, owned).atexit = False
        return one

    def put(self, array: Array) -> BufferResident:
        """An array of the host, written. Errors  DTypeError for what does not fit."""
        kind, held = TensorType(array.shape, as_dtype(array.dtype)), None
        if kind.dtype in NARROWER:
            doing = f"put an array on {self._engine.name}"
            array, held = narrow(doing, array, free_of(kind.dtype))
        one = self.made(kind, held)
        if array.size:
            self._port.write(one.lying.span.handle, 0, as_bytes(as_stored(array)))
        return one

    def mine(self, doing: str, one: Resident) -> BufferResident:
        """It, if it is here and can be used.

        Errors   DeviceLost, SessionClosed; GraphError for another engine's.
        """
        mine = own_resident(self._engine, BufferResident, one)
        if self._port.lost:
            raise DeviceLost(
                doing,
                f"the array was lost with {self._engine.name} ({self._port.lost})",
                "what stays on a device has no copy elsewhere",
                "put it there again",
            )
        if not mine.owned:
            raise SessionClosed(doing, "the array was closed")
        return mine

    def fed(self, doing: str, plan: Plan, name: str, one: Resident) -> Lying:
        """Where it lies, for an input or param. Errors  those of `mine`, DTypeError."""
        mine = self.mine(doing, one)
        check_held(plan, name, mine.held)
        return mine.lying

    async def get(self, doing: str, one: Resident) -> Array:
        """Its numbers, read back."""
        mine = self.mine(doing, one)
        kind = TensorType(mine.shape, as_dtype(mine.dtype))
        if not kind.numel:
            return np.empty(mine.shape, mine.dtype)
        size = stored_bytes(kind)
        span = mine.lying.span
        raw = await self._port.read(span.handle, span.offset, size)
        return Spot(0, kind).take(raw)

    def free(self, one: Resident) -> None:
        """Destroy its buffer; what is submitted is computed all the same."""
        if isinstance(one, BufferResident) and one.whole is None:
            with self._lock:
                while one.owned:
                    one.port.destroy(one.owned.pop())

    def part(
        self, doing: str, one: Resident, first: int, shape: tuple[int, ...]
    ) -> BufferResident:
        """Some of its numbers, where they lie. Errors  GraphError off a whole word."""
        mine = self.mine(doing, one)
        width = width_of(held_as(as_dtype(mine.dtype)))
        if first * width % 4:
            raise GraphError(doing, f"number {first} lies within a word")
        size, (span, room) = -(-prod(shape) * width // 4) * 4, mine.lying
        span = Range(span.handle, span.offset + first * width, size)
        lying = Lying(span, room - first * width)
        args = shape, mine.dtype, self._port, lying, mine.owned
        return BufferResident(mine.engine, *args, mine.whole or mine, mine.held)
