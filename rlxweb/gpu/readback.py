"""Bytes from a wgpu device back to the host.

Owns the staging buffers of reads. Every byte handed out comes from a successful map.
Works on wgpu objects it is handed and never imports wgpu. Used by `native.py` only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.gpu.mapping import Bytes, Mapper, Submit, readable
from rlxweb.gpu.quick import Quick

# Staging buffers serve every read of a storage buffer, a slice at a time.
_STAGE_BYTES = 32 << 20
# With two, a slice is fetched while the one before is read.
_STAGES = 2
_SMALLEST_STAGE = 64 << 10


class Reader:
    """Maps buffers of one device and copies out of them.

    submit   queues one command buffer, under the deadline
    quick    maps by the library's own calls, where there are such
    """

    def __init__(
        self,
        device: Any,
        mapper: Mapper,
        submit: Submit,
        quick: Quick | None,
    ) -> None:
        self._device = device
        self._quick = quick
        self._mapper = mapper
        self._submit = submit
        self._stages: list[Any] = [None] * _STAGES

    def from_readback(self, native: Any, offset: int, out: Bytes) -> None:
        """Copy from a mappable buffer straight into `out`."""
        # A map starts on a multiple of 8 and is a multiple of 4 long; buffers are
        # padded to 4, so rounding outwards stays inside.
        low = offset // 8 * 8
        high = (offset + out.size + 3) // 4 * 4
        self._copy_mapped(native, low, high - low, offset - low, out)

    def from_storage(self, native: Any, offset: int, out: Bytes) -> None:
        """Copy from any buffer through the staging buffer, slice by slice."""
        stop = offset + out.size
        lows = range(offset // 4 * 4, stop, _STAGE_BYTES)
        ahead = len(self._stages) - 1
        for turn in range(len(lows) + ahead):
            if turn < len(lows):
                self._fetch(native, lows[turn], stop, turn)
            if turn >= ahead:
                low = lows[turn - ahead]
                first, last = max(low, offset), min(low + _STAGE_BYTES, stop)
                stage = self._stages[(turn - ahead) % len(self._stages)]
                part = out[first - offset : last - offset]
                size = (last - low + 3) // 4 * 4
                self._copy_mapped(stage, 0, size, first - low, part)

    def _fetch(self, native: Any, low: int, stop: int, turn: int) -> None:
        size = (min(_STAGE_BYTES, stop - low) + 3) // 4 * 4
        stage = self._stage_of(size, turn % len(self._stages))
        encoder = self._device.create_command_encoder()
        encoder.copy_buffer_to_buffer(native, low, stage, 0, size)
        self._submit(encoder.finish())

    def drain(self) -> None:
        """Wait until everything submitted so far is done."""
        # wgpu-py 0.32 cannot make its on_submitted_work_done promise (a C type does
        # not match), so a last command touches the stage, and mapping waits for it.
        stage = self._stage_of(4)
        encoder = self._device.create_command_encoder()
        encoder.clear_buffer(stage, 0, 4)
        self._submit(encoder.finish())
        self._copy_mapped(stage, 0, 4, 0, np.empty(4, np.uint8))

    def free(self) -> None:
        """Give the staging buffers back; the next read makes new ones."""
        for at, stage in enumerate(self._stages):
            if stage is not None:
                self._stages[at] = None
                stage.destroy()

    def _stage_of(self, size: int, at: int = 0) -> Any:
        stage = self._stages[at]
        if stage is None or stage.size < size:
            if stage is not None:
                stage.destroy()
            room = max(_SMALLEST_STAGE, 1 << (size - 1).bit_length())
            stage = self._device.create_buffer(size=room, usage="MAP_READ|COPY_DST")
            self._stages[at] = stage
        return stage

    def _copy_mapped(
        self, native: Any, low: int, size: int, skip: int, out: Bytes
    ) -> None:
        if self._quick is not None:
            with self._quick.mapped(native, low, size) as view:
                self._mapper.copy(out, view[skip : skip + out.size])
            return
        # Plain "READ" submits once more before it maps, and that may block (see
        # waiting.py); everything a map must wait for has been submitted already.
        promise = native.map_async("READ_NOSYNC", low, size)
        with self._mapper.mapped(native, promise):
            view = readable(native, low, size)
            self._mapper.copy(out, view[skip : skip + out.size])
