"""Writes from the host to a wgpu device through a ring of mapped staging buffers.

A ring of staging buffers that are kept: one is filled while the device copies out of
the others, and mapped again as soon as it has. Works on wgpu objects it is handed and
never imports wgpu. Used by `wgpu_port.py` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlxweb.gpu.buffer_mapping import (
    BufferMapper,
    ByteArray,
    SubmitFunction,
    writable_view,
)

MAX_STAGE_BYTES = 16 << 20
"""Maximum size of one staging buffer in bytes."""
MAX_STAGES = 4
"""Maximum number of staging buffers: enough for one batch of a large job while the
batch before is computed.
"""


@dataclass(slots=True)
class _UploadStage:
    """Staging buffer of an upload.

    map_promise  of its next map; None for the first, which it was made with
    is_reusable  False while it is in use, and for good where that broke off
    """

    native: Any
    map_promise: Any = None
    is_reusable: bool = False


class BufferUploader:
    """Writes to buffers of one device. `submit` queues a command buffer."""

    def __init__(
        self, device: Any, mapper: BufferMapper, submit: SubmitFunction
    ) -> None:
        self._device = device
        self._mapper = mapper
        self._submit = submit
        self._ring: list[_UploadStage] = []
        self._next_index = 0

    def write_through_staging(self, native: Any, offset: int, data: ByteArray) -> None:
        """Queue a copy of whole words into any buffer. Returns when `data` has been
        read.
        """
        count = -(-data.size // MAX_STAGE_BYTES)
        for low in range(0, data.size, MAX_STAGE_BYTES):
            chunk = data[low : low + MAX_STAGE_BYTES]
            stage = self._next_stage(chunk.size, min(count, MAX_STAGES))
            with self._mapper.map_buffer(stage.native, stage.map_promise):
                self._mapper.copy(writable_view(stage.native, 0, chunk.size), chunk)
            encoder = self._device.create_command_encoder()
            encoder.copy_buffer_to_buffer(
                stage.native, 0, native, offset + low, chunk.size
            )
            self._submit(encoder.finish())
            stage.map_promise = stage.native.map_async("WRITE")
            stage.is_reusable = True

    def write_in_place(self, native: Any, offset: int, data: ByteArray) -> None:
        """Write into a mappable buffer once no submitted work uses it any more."""
        # A map starts on a multiple of 8 and is a multiple of 4 long.
        low = offset // 8 * 8
        size = offset - low + data.size
        with self._mapper.map_buffer(native, native.map_async("WRITE", low, size)):
            self._mapper.copy(writable_view(native, low, size)[offset - low :], data)

    def free(self) -> None:
        """Destroy the staging buffers; the next write creates new ones."""
        self._next_index = 0
        while self._ring:
            self._ring.pop().native.destroy()

    def _next_stage(self, size: int, max_stages: int) -> _UploadStage:
        """Return the next buffer of the ring, which may grow to `max_stages`."""
        index = self._next_index % max(max_stages, len(self._ring))
        self._next_index = index + 1
        if index >= len(self._ring):
            self._ring.append(self._create_stage(size))
            return self._ring[-1]
        stage = self._ring[index]
        if not stage.is_reusable or stage.native.size < size:
            stage.native.destroy()
            stage = self._ring[index] = self._create_stage(size)
        stage.is_reusable = False
        return stage

    def _create_stage(self, size: int) -> _UploadStage:
        """Create a mapped staging buffer of at least `size` bytes."""
        capacity = 1 << (size - 1).bit_length()
        usage = "MAP_WRITE|COPY_SRC"
        return _UploadStage(
            self._device.create_buffer(
                size=capacity, usage=usage, mapped_at_creation=True
            )
        )
