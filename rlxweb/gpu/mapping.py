"""Buffers of a wgpu device in the host's memory: waited for, and copied to and from.

Nothing is unmapped while a thread may still touch it: a copy that Ctrl-C breaks off is
waited for before the port's next verb. Works on wgpu objects it is handed and never
imports wgpu. Used by `readback.py` and `staging.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.gpu.waiting import Waits
from rlxweb.host.row_blocks import run_tasks

Bytes = npt.NDArray[np.uint8]

_NOW = threading.Event()
_NOW.set()
# What one thread copies at a time; less than two of these are not shared out.
_PIECE = 4 << 20
_THREADS = 4


class Mapper:
    """Maps buffers of one device.

    is_polled   a map of the library ends by itself; else only while it is waited for
    """

    def __init__(self, waits: Waits, is_polled: bool) -> None:
        self._waits = waits
        self._is_polled = is_polled

    @contextmanager
    def mapped(self, native: Any, promise: Any = None) -> Iterator[None]:
        """Wait for a promised map, and unmap after the block.

        What breaks off in here is unmapped by `Waits.finish`.
        Errors   GpuTimeout; RuntimeError where the device refuses.
        """

        def undo() -> None:
            if promise is not None:
                promise.sync_wait()
            if native.map_state == "mapped":
                native.unmap()

        with self._waits.after(self._settled(promise), undo):
            if promise is not None:
                promise.sync_wait()
            yield
            native.unmap()

    def copy(self, target: Bytes, source: Bytes) -> None:
        """Copy from or to a mapped buffer."""
        if target.size < 2 * _PIECE:
            target[:] = source
            return

        def piece(number: int) -> None:
            part = slice(number * _PIECE, (number + 1) * _PIECE)
            target[part] = source[part]

        def work() -> None:
            count = -(-target.size // _PIECE)
            run_tasks(count, lambda: piece, threads=_THREADS)

        # On that thread no Ctrl-C ends the wait for the others.
        self._waits.call(work)

    def _settled(self, promise: Any) -> threading.Event:
        """Set once the promise has an end, whichever; asking it says which."""
        if promise is None:
            return _NOW
        if not self._is_polled:
            return self._waits.begin(promise.sync_wait)
        event: threading.Event = promise._thread_event
        return event


def writable(native: Any, low: int, size: int) -> Bytes:
    """Mapped bytes of a buffer. Used after it was unmapped, they end the process."""
    # wgpu-py's own `write_mapped` copies while it holds the interpreter.
    view = native._experimental_get_mapped_range(low, size)
    return np.frombuffer(view, np.uint8)


def readable(native: Any, low: int, size: int) -> Bytes:
    """Mapped bytes of a buffer, as `writable`. Errors  RuntimeError for too few."""
    view = native.read_mapped(low, size, copy=False)
    if view.nbytes != size:
        raise RuntimeError(f"mapped {view.nbytes} bytes of {size}")
    return np.frombuffer(view, np.uint8)


Submit = Callable[[Any], None]
"""Queues one command buffer, under the deadline."""
