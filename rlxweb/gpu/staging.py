"""Bytes from the host to a wgpu device through mapped memory.

A ring of staging buffers that are kept: one is filled while the device copies out of
the others, and mapped again as soon as it has. Works on wgpu objects it is handed and
never imports wgpu. Used by `native.py` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlxweb.gpu.mapping import Bytes, Mapper, Submit, writable

STAGE_BYTES = 16 << 20
"""Of one staging buffer at most."""
STAGES = 4
"""Staging buffers at most: a batch of a large job, so that a whole one can be on its
way while the batch before is computed."""


@dataclass(slots=True)
class _Stage:
    """A staging buffer.

    promise   of its next map; None for the first, which it was made with
    is_sound  False while it is in use, and for good where that broke off
    """

    native: Any
    promise: Any = None
    is_sound: bool = False


class Uploads:
    """Writes to buffers of one device. `submit` queues a command buffer."""

    def __init__(self, device: Any, mapper: Mapper, submit: Submit) -> None:
        self._device = device
        self._mapper = mapper
        self._submit = submit
        self._ring: list[_Stage] = []
        self._next = 0

    def staged(self, native: Any, offset: int, data: Bytes) -> None:
        """Queue a copy into any buffer; whole words. Returns when `data` is read."""
        count = -(-data.size // STAGE_BYTES)
        for low in range(0, data.size, STAGE_BYTES):
            part = data[low : low + STAGE_BYTES]
            stage = self._taken(part.size, min(count, STAGES))
            with self._mapper.mapped(stage.native, stage.promise):
                self._mapper.copy(writable(stage.native, 0, part.size), part)
            encoder = self._device.create_command_encoder()
            encoder.copy_buffer_to_buffer(
                stage.native, 0, native, offset + low, part.size
            )
            self._submit(encoder.finish())
            stage.promise = stage.native.map_async("WRITE")
            stage.is_sound = True

    def in_place(self, native: Any, offset: int, data: Bytes) -> None:
        """Write into a mappable buffer, once nothing submitted uses it any more."""
        # A map starts on a multiple of 8 and is a multiple of 4 long.
        low = offset // 8 * 8
        size = offset - low + data.size
        with self._mapper.mapped(native, native.map_async("WRITE", low, size)):
            self._mapper.copy(writable(native, low, size)[offset - low :], data)

    def free(self) -> None:
        """Give the staging buffers back; the next write makes new ones."""
        self._next = 0
        while self._ring:
            self._ring.pop().native.destroy()

    def _taken(self, size: int, most: int) -> _Stage:
        """The next buffer of the ring, which may grow to `most`."""
        at = self._next % max(most, len(self._ring))
        self._next = at + 1
        if at >= len(self._ring):
            self._ring.append(self._made(size))
            return self._ring[-1]
        stage = self._ring[at]
        if not stage.is_sound or stage.native.size < size:
            stage.native.destroy()
            stage = self._ring[at] = self._made(size)
        stage.is_sound = False
        return stage

    def _made(self, size: int) -> _Stage:
        room = 1 << (size - 1).bit_length()
        usage = "MAP_WRITE|COPY_SRC"
        return _Stage(
            self._device.create_buffer(size=room, usage=usage, mapped_at_creation=True)
        )
