"""Mapping of a wgpu device's buffers into host memory, and copies to and from them.

Nothing is unmapped while a thread may still touch it: a copy that Ctrl-C breaks off is
waited for before the port's next verb. Works on wgpu objects it is handed and never
imports wgpu. Used by `readback.py` and `upload_staging.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.core.thread_tasks import run_tasks
from rlxweb.gpu.deadline_waits import DeadlineWaits

ByteArray = npt.NDArray[np.uint8]

_ALREADY_SET = threading.Event()
_ALREADY_SET.set()
# What one thread copies at a time; less than two of these are not shared out.
_CHUNK_BYTES = 4 << 20
_COPY_THREADS = 4


class BufferMapper:
    """Maps buffers of one device into host memory.

    is_polled   a map of the library ends by itself; else only while it is waited for
    """

    def __init__(self, waits: DeadlineWaits, is_polled: bool) -> None:
        self._waits = waits
        self._is_polled = is_polled

    @contextmanager
    def map_buffer(self, native: Any, promise: Any = None) -> Iterator[None]:
        """Wait for a promised map, and unmap the buffer after the block.

        What breaks off in here is unmapped by `DeadlineWaits.finish`.
        Errors   GpuTimeout; RuntimeError where the device refuses.
        """

        def undo() -> None:
            if promise is not None:
                promise.sync_wait()
            if native.map_state == "mapped":
                native.unmap()

        with self._waits.wait_around(self._completion_event(promise), undo):
            if promise is not None:
                promise.sync_wait()
            yield
            native.unmap()

    def copy(self, target: ByteArray, source: ByteArray) -> None:
        """Copy bytes from or to a mapped buffer, large ones on several threads."""
        if target.size < 2 * _CHUNK_BYTES:
            target[:] = source
            return

        def copy_chunk(number: int) -> None:
            chunk = slice(number * _CHUNK_BYTES, (number + 1) * _CHUNK_BYTES)
            target[chunk] = source[chunk]

        def copy_all() -> None:
            count = -(-target.size // _CHUNK_BYTES)
            run_tasks(count, lambda: copy_chunk, threads=_COPY_THREADS)

        # On that thread no Ctrl-C ends the wait for the others.
        self._waits.call_in_thread(copy_all)

    def _completion_event(self, promise: Any) -> threading.Event:
        """Return an event that is set once the promise has ended, well or not."""
        if promise is None:
            return _ALREADY_SET
        if not self._is_polled:
            return self._waits.start_in_thread(promise.sync_wait)
        event: threading.Event = promise._thread_event
        return event


def writable_view(native: Any, low: int, size: int) -> ByteArray:
    """Return mapped bytes of a buffer for writing. Using them after the unmap crashes
    the process.
    """
    # wgpu-py's own `write_mapped` copies while it holds the interpreter.
    view = native._experimental_get_mapped_range(low, size)
    return np.frombuffer(view, np.uint8)


def readable_view(native: Any, low: int, size: int) -> ByteArray:
    """Return mapped bytes of a buffer for reading. Raise RuntimeError for too few
    bytes.
    """
    view = native.read_mapped(low, size, copy=False)
    if view.nbytes != size:
        raise RuntimeError(f"only {view.nbytes} of {size} bytes were mapped")
    return np.frombuffer(view, np.uint8)


SubmitFunction = Callable[[Any], None]
"""Function that queues one command buffer, under the deadline."""
