"""Reads from a wgpu device to the host, through mapped and staging buffers.

Owns the staging buffers of reads. Every byte handed out comes from a successful map.
Works on wgpu objects it is handed and never imports wgpu. Used by `wgpu_port.py` only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.gpu.buffer_mapping import (
    BufferMapper,
    ByteArray,
    SubmitFunction,
    readable_view,
)
from rlxweb.gpu.wgpu_ffi import WgpuFfi

# Staging buffers serve every read of a storage buffer, a slice at a time.
_STAGE_BYTES = 32 << 20
# With two, a slice is fetched while the one before is read.
_STAGE_COUNT = 2
_MIN_STAGE_BYTES = 64 << 10


class BufferReader:
    """Maps buffers of one device and copies out of them.

    submit   queues one command buffer, under the deadline
    wgpu_ffi  maps by the library's own calls, where there are such
    """

    def __init__(
        self,
        device: Any,
        mapper: BufferMapper,
        submit: SubmitFunction,
        wgpu_ffi: WgpuFfi | None,
    ) -> None:
        self._device = device
        self._wgpu_ffi = wgpu_ffi
        self._mapper = mapper
        self._submit = submit
        self._stages: list[Any] = [None] * _STAGE_COUNT

    def read_mappable(self, native: Any, offset: int, out: ByteArray) -> None:
        """Copy from a mappable buffer straight into `out`."""
        # A map starts on a multiple of 8 and is a multiple of 4 long; buffers are
        # padded to 4, so rounding outwards stays inside.
        low = offset // 8 * 8
        high = (offset + out.size + 3) // 4 * 4
        self._copy_mapped(native, low, high - low, offset - low, out)

    def read_through_staging(self, native: Any, offset: int, out: ByteArray) -> None:
        """Copy from any buffer through staging buffers, slice by slice."""
        stop = offset + out.size
        lows = range(offset // 4 * 4, stop, _STAGE_BYTES)
        ahead = len(self._stages) - 1
        for step in range(len(lows) + ahead):
            if step < len(lows):
                self._copy_to_stage(native, lows[step], stop, step)
            if step >= ahead:
                low = lows[step - ahead]
                first, last = max(low, offset), min(low + _STAGE_BYTES, stop)
                stage = self._stages[(step - ahead) % len(self._stages)]
                chunk = out[first - offset : last - offset]
                size = (last - low + 3) // 4 * 4
                self._copy_mapped(stage, 0, size, first - low, chunk)

    def _copy_to_stage(self, native: Any, low: int, stop: int, step: int) -> None:
        """Queue a copy of one slice into a staging buffer."""
        size = (min(_STAGE_BYTES, stop - low) + 3) // 4 * 4
        stage = self._stage_for(size, step % len(self._stages))
        encoder = self._device.create_command_encoder()
        encoder.copy_buffer_to_buffer(native, low, stage, 0, size)
        self._submit(encoder.finish())

    def drain(self) -> None:
        """Wait until everything submitted so far is done."""
        # wgpu-py 0.32 cannot make its on_submitted_work_done promise (a C type does
        # not match), so a last command touches the stage, and mapping waits for it.
        stage = self._stage_for(4)
        encoder = self._device.create_command_encoder()
        encoder.clear_buffer(stage, 0, 4)
        self._submit(encoder.finish())
        self._copy_mapped(stage, 0, 4, 0, np.empty(4, np.uint8))

    def free(self) -> None:
        """Destroy the staging buffers; the next read creates new ones."""
        for index, stage in enumerate(self._stages):
            if stage is not None:
                self._stages[index] = None
                stage.destroy()

    def _stage_for(self, size: int, index: int = 0) -> Any:
        """Return a staging buffer of at least `size` bytes."""
        stage = self._stages[index]
        if stage is None or stage.size < size:
            if stage is not None:
                stage.destroy()
            capacity = max(_MIN_STAGE_BYTES, 1 << (size - 1).bit_length())
            stage = self._device.create_buffer(size=capacity, usage="MAP_READ|COPY_DST")
            self._stages[index] = stage
        return stage

    def _copy_mapped(
        self, native: Any, low: int, size: int, skip: int, out: ByteArray
    ) -> None:
        """Map a range of a buffer and copy a part of it into `out`."""
        if self._wgpu_ffi is not None:
            with self._wgpu_ffi.map_buffer(native, low, size) as view:
                self._mapper.copy(out, view[skip : skip + out.size])
            return
        # Plain "READ" submits once more before it maps, and that may block (see
        # deadline_waits.py); everything a map must wait for has been submitted already.
        promise = native.map_async("READ_NOSYNC", low, size)
        with self._mapper.map_buffer(native, promise):
            view = readable_view(native, low, size)
            self._mapper.copy(out, view[skip : skip + out.size])
