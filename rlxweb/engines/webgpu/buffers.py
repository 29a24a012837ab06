"""Buffers on a GPU port: their sizes, writing and freeing; the buffers of params."""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from rlxweb.codegen.kernel_launch_records import element_nbytes
from rlxweb.core.errors import LimitExceeded
from rlxweb.core.limits import Limits
from rlxweb.core.message_text import Advice
from rlxweb.engines.protocol import Array, as_bytes
from rlxweb.engines.webgpu.dtype_demotion import demoted_dtype
from rlxweb.gpu.port_protocol import GpuPort
from rlxweb.ir.op import TensorType


def as_stored(array: Array) -> Array:
    """Return the array as it lies in a buffer: bools take a word each."""
    return array.astype(np.uint32) if array.dtype == np.bool_ else array


def write_buffer(port: GpuPort, handle: int, array: Array) -> None:
    """Write an array into a buffer, from the beginning."""
    if array.size:
        port.write(handle, 0, as_bytes(as_stored(array)))


def free_handles(port: GpuPort, handles: list[int]) -> None:
    """Free the buffers of a list and empty the list."""
    while handles:
        port.destroy(handles.pop())


def checked_buffer_bytes(nbytes: int, limits: Limits, purpose: object) -> int:
    """Return the size of a buffer for that many bytes.

    purpose  what the buffer is for; its text stands in the error
    Errors   LimitExceeded
    """
    nbytes = max(16, -(-nbytes // 4) * 4)
    if nbytes > limits.max_buffer_size:
        raise LimitExceeded(
            f"buffer for {purpose}",
            f"it needs {nbytes:,} bytes",
            f"this device allows {limits.max_buffer_size:,} per buffer",
            Advice("split the batch, or use {}", device="cpu"),
        )
    return nbytes


def stored_bytes(tensor_type: TensorType) -> int:
    """Bytes of an array of that type in a buffer."""
    return tensor_type.numel * element_nbytes(demoted_dtype(tensor_type.dtype))


@dataclass(slots=True, weakref_slot=True, eq=False)
class ParamBuffers:
    """Buffers of params by name, for all programs that share them.

    buffer_sizes  bytes of each buffer
    owned_handles  those to free, when the last program has gone
    user_count  programs that are not closed
    """

    handles: dict[str, int] = field(default_factory=dict)
    buffer_sizes: dict[int, int] = field(default_factory=dict)
    owned_handles: list[int] = field(default_factory=list)
    user_count: int = 0


def free_when_collected(
    owner: object, handles: list[int], dropped_handles: deque[list[int]]
) -> None:
    """Note the buffers of an object that is collected without being closed, to free
    them later.
    """
    finalizer = weakref.finalize(owner, dropped_handles.append, handles)
    finalizer.atexit = False
