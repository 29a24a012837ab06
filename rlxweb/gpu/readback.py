"""Bytes from a wgpu device back to the host.

Owns mapping and the one staging buffer. Every byte handed out comes from a successful
map. Works on wgpu objects it is handed and never imports wgpu. Used by `native.py`
only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.gpu.waiting import Waits

Bytes = npt.NDArray[np.uint8]

# One staging buffer serves every read of a storage buffer, a slice at a time.
_STAGE_BYTES = 32 << 20
_SMALLEST_STAGE = 64 << 10


class Reader:
    """Maps buffers of one device and copies out of them.

    `submit` queues one command buffer, under the deadline.
    """

    def __init__(
        self, device: Any, waits: Waits, submit: Callable[[Any], None]
    ) -> None:
        self._device = device
        self._waits = waits
        self._submit = submit
        self._stage: Any = None

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
        for low in range(offset // 4 * 4, stop, _STAGE_BYTES):
            first, last = max(low, offset), min(low + _STAGE_BYTES, stop)
            size = (last - low + 3) // 4 * 4
            stage = self._stage_of(size)
            encoder = self._device.create_command_encoder()
            encoder.copy_buffer_to_buffer(native, low, stage, 0, size)
            self._submit(encoder.finish())
            part = out[first - offset : last - offset]
            self._copy_mapped(stage, 0, size, first - low, part)

    def drain(self) -> None:
        """Wait until everything submitted so far is done."""
        # wgpu-py 0.32 cannot make its on_submitted_work_done promise (a C type does
        # not match), so a last command touches the stage, and mapping waits for it.
        stage = self._stage_of(4)
        encoder = self._device.create_command_encoder()
        encoder.clear_buffer(stage, 0, 4)
        self._submit(encoder.finish())
        self._copy_mapped(stage, 0, 4, 0, np.empty(4, np.uint8))

    def _stage_of(self, size: int) -> Any:
        if self._stage is None or self._stage.size < size:
            if self._stage is not None:
                self._stage.destroy()
            room = max(_SMALLEST_STAGE, 1 << (size - 1).bit_length())
            self._stage = self._device.create_buffer(
                size=room, usage="MAP_READ|COPY_DST"
            )
        return self._stage

    def _copy_mapped(
        self, native: Any, low: int, size: int, skip: int, out: Bytes
    ) -> None:
        # Plain "READ" submits once more before it maps, and that may block (see
        # waiting.py); everything a map must wait for has been submitted already.
        promise = native.map_async("READ_NOSYNC", low, size)

        def undo() -> None:
            promise.sync_wait()
            if native.map_state == "mapped":
                native.unmap()

        self._waits.until(promise._thread_event, undo)
        promise.sync_wait()
        try:
            view = native.read_mapped(low, size, copy=False)
            if view.nbytes != size:
                raise RuntimeError(f"mapped {view.nbytes} bytes of {size}")
            out[:] = np.frombuffer(view, np.uint8)[skip : skip + out.size]
        finally:
            native.unmap()
