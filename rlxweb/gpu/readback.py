"""Bytes from a wgpu device back to the host, with the deadline wgpu-py does not have.

Owns mapping, the one staging buffer and waiting. Every byte handed out comes from a
successful map. Works on wgpu objects it is handed and never imports wgpu. Used by
`native.py` only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

# One staging buffer serves every read of a storage buffer, a slice at a time.
_STAGE_BYTES = 32 << 20
_SMALLEST_STAGE = 64 << 10


def settled(promise: Any, deadline_s: float) -> bool:
    """True once the promise has an outcome, False when the deadline passed first."""
    end = time.monotonic() + deadline_s
    while True:
        # Slices keep Ctrl-C alive where a timed wait cannot be interrupted (Windows).
        left = end - time.monotonic()
        if promise._thread_event.wait(min(max(left, 0.0), 0.25)):
            return True
        if left <= 0:
            return False


class Reader:
    """Maps buffers of one device and copies out of them.

    `wait(promise)` returns once a promise is fulfilled and raises otherwise.
    """

    def __init__(self, device: Any, wait: Callable[[Any], None]) -> None:
        self._device = device
        self._wait = wait
        self._stage: Any = None
        # Maps that an exception (Ctrl-C) left open, to be ended before anything else.
        self._open: list[tuple[Any, Any]] = []

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
            self._device.queue.submit([encoder.finish()])
            part = out[first - offset : last - offset]
            self._copy_mapped(stage, 0, size, first - low, part)

    def drain(self) -> None:
        """Wait until the queue is empty."""
        self._wait(self._device.queue.on_submitted_work_done_async())

    @property
    def has_open_maps(self) -> bool:
        return bool(self._open)

    def end_open_maps(self) -> None:
        """Finish and undo maps that an exception left open."""
        while self._open:
            native, promise = self._open[-1]
            self._wait(promise)
            if native.map_state == "mapped":
                native.unmap()
            self._open.pop()

    def free(self) -> None:
        """Give the staging buffer back."""
        if self._stage is not None:
            self._stage.destroy()
            self._stage = None

    def _stage_of(self, size: int) -> Any:
        if self._stage is None or self._stage.size < size:
            self.free()
            room = max(_SMALLEST_STAGE, 1 << (size - 1).bit_length())
            self._stage = self._device.create_buffer(
                size=room, usage="MAP_READ|COPY_DST"
            )
        return self._stage

    def _copy_mapped(
        self, native: Any, low: int, size: int, skip: int, out: Bytes
    ) -> None:
        promise = native.map_async("READ", low, size)
        self._open.append((native, promise))
        self._wait(promise)
        view = native.read_mapped(low, size, copy=False)
        if view.nbytes != size:
            raise RuntimeError(f"mapped {view.nbytes} bytes of {size}")
        out[:] = np.frombuffer(view, np.uint8)[skip : skip + out.size]
        del view
        native.unmap()
        self._open.pop()
