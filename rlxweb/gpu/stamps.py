"""How long a wgpu device worked on each of several command lists, by its own clock.

Each list gets a pass of its own, with a time stamp before and one behind it, so that
lists of one submission are told apart without a wait between them. Works on wgpu
objects it is handed and never imports wgpu. Used by `native.py` only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlxweb.gpu.binding import Binder
from rlxweb.gpu.port import Command
from rlxweb.gpu.readback import Reader
from rlxweb.limits import Limits

Queue = Callable[[Any, frozenset[int]], None]
"""Queues one command buffer that uses these handles."""


def device_ns(
    device: Any,
    binder: Binder,
    reader: Reader,
    queue: Queue,
    lists: Sequence[Sequence[Command]],
    limits: Limits,
) -> tuple[int, ...]:
    """Nanoseconds of each list, in order; nothing else runs in between."""
    count = 2 * len(lists)
    if not count:
        return ()
    queries = device.create_query_set(type="timestamp", count=count)
    resolved = device.create_buffer(size=8 * count, usage="QUERY_RESOLVE|COPY_SRC")
    try:
        encoded, handles = binder.stamped(lists, limits, (queries, resolved))
        queue(encoded, handles)
        raw = np.empty(8 * count, np.uint8)
        reader.from_storage(resolved, 0, raw)
    finally:
        resolved.destroy()
        queries.destroy()
    ticks, period = raw.view(np.int64), _ns_per_tick(device)
    # A stamp may be taken by another core's clock: never less than nothing.
    return tuple(max(0, round(period * int(t))) for t in ticks[1::2] - ticks[0::2])


def _ns_per_tick(device: Any) -> float:
    """What a tick is; Dawn hands out nanoseconds, as the standard says."""
    # The library that made the device, whichever that is: nothing is imported here.
    library = getattr(sys.modules[type(device).__module__], "libf", None)
    period = getattr(library, "wgpuQueueGetTimestampPeriod", None)
    return 1.0 if period is None else float(period(device.queue._internal))
