"""Execution times of command lists by a wgpu device's own clock.

Each list gets a pass of its own, with a time stamp before and one behind it, so that
lists of one submission are told apart without a wait between them. Works on wgpu
objects it is handed and never imports wgpu. Used by `wgpu_port.py` only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlxweb.core.limits import Limits
from rlxweb.gpu.command_list_encoding import CommandBinder
from rlxweb.gpu.port_protocol import Command
from rlxweb.gpu.readback import BufferReader

QueueFunction = Callable[[Any, frozenset[int]], None]
"""Function that queues one command buffer that uses these handles."""


def time_lists_on_device(
    device: Any,
    binder: CommandBinder,
    reader: BufferReader,
    queue: QueueFunction,
    lists: Sequence[Sequence[Command]],
    limits: Limits,
) -> tuple[int, ...]:
    """Run the lists and return the nanoseconds of each, in order."""
    count = 2 * len(lists)
    if not count:
        return ()
    queries = device.create_query_set(type="timestamp", count=count)
    resolve_buffer = device.create_buffer(
        size=8 * count, usage="QUERY_RESOLVE|COPY_SRC"
    )
    try:
        encoded, handles = binder.timestamped_command_buffer(
            lists, limits, (queries, resolve_buffer)
        )
        queue(encoded, handles)
        stamp_bytes = np.empty(8 * count, np.uint8)
        reader.read_through_staging(resolve_buffer, 0, stamp_bytes)
    finally:
        resolve_buffer.destroy()
        queries.destroy()
    ticks, period = stamp_bytes.view(np.int64), _ns_per_tick(device)
    # A stamp may be taken by another core's clock: never less than nothing.
    return tuple(max(0, round(period * int(t))) for t in ticks[1::2] - ticks[0::2])


def _ns_per_tick(device: Any) -> float:
    """Return the nanoseconds per timestamp tick; 1 for Dawn, which reports
    nanoseconds.
    """
    # The library that made the device, whichever that is: nothing is imported here.
    library = getattr(sys.modules[type(device).__module__], "libf", None)
    period = getattr(library, "wgpuQueueGetTimestampPeriod", None)
    return 1.0 if period is None else float(period(device.queue._internal))
