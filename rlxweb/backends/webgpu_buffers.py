"""Buffers on a GPU port: how large they are, filled and freed; those of params."""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from rlxweb.advice import Advice
from rlxweb.backends.protocol import Array, as_bytes
from rlxweb.backends.webgpu_narrow import held_as
from rlxweb.errors import LimitExceeded
from rlxweb.gpu.port import Port
from rlxweb.ir.op import TensorType
from rlxweb.kernels.launch import width_of
from rlxweb.limits import Limits


def as_stored(array: Array) -> Array:
    """The array as it lies in a buffer: bools take a word each."""
    return array.astype(np.uint32) if array.dtype == np.bool_ else array


def write(port: Port, handle: int, array: Array) -> None:
    """Fill a buffer from its beginning."""
    if array.size:
        port.write(handle, 0, as_bytes(as_stored(array)))


def free(port: Port, owned: list[int]) -> None:
    """Free what is listed and empty the list."""
    while owned:
        port.destroy(owned.pop())


def buffer_bytes(nbytes: int, limits: Limits, what: str) -> int:
    """The size of a buffer for so many bytes. Errors  LimitExceeded."""
    nbytes = max(16, -(-nbytes // 4) * 4)
    if nbytes > limits.max_buffer_size:
        raise LimitExceeded(
            f"buffer for {what}",
            f"it needs {nbytes:,} bytes",
            f"this device allows {limits.max_buffer_size:,} per buffer",
            Advice("split the batch, or use {}", device="cpu"),
        )
    return nbytes


def stored_bytes(kind: TensorType) -> int:
    """What an array of that type takes in a buffer."""
    return kind.numel * width_of(held_as(kind.dtype))


@dataclass(slots=True, weakref_slot=True, eq=False)
class Params:
    """The buffers of params by name, for all programs that share them.

    sizes  bytes of each buffer
    owned  those to free, when the last program has gone
    users  programs that were not released
    """

    handles: dict[str, int] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    owned: list[int] = field(default_factory=list)
    users: int = 0


def freed_with(whole: object, owned: list[int], dropped: deque[list[int]]) -> None:
    """Note the buffers of what is dropped without being released."""
    finalizer = weakref.finalize(whole, dropped.append, owned)
    finalizer.atexit = False
