"""The power of a group of channels, walked in blocks however long the recording is.

Owns how much of a recording is held at once: blocks of samples, and fewer channels at a
time where one segment of all of them would not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.spec import WelchSpec
from rlxweb.io import Group, check_finite
from rlxweb.jobs.settings import Settings
from rlxweb.signal.engine import Engine
from rlxweb.signal.rounding import RoundingFloor
from rlxweb.signal.stream import WelchStream

# Bytes of float64 samples in one block. Reading, widening and framing hold a few
# blocks at a time.
BLOCK_BYTES = 8 << 20

Progress = Callable[[int], object]
"""Is told after each block how many samples it had, all channels counted."""


def group_power(
    group: Group,
    spec: WelchSpec,
    engine: Engine,
    settings: Settings,
    progress: Progress | None,
) -> tuple[NDArray[Any], RoundingFloor, int]:
    """Power (C, F) of the whole group, its floor, and the segments averaged."""
    power = np.empty((len(group.channels), spec.n_freqs), spec.power_dtype)
    floors, n_segments = [], 0
    streamed = replace(spec, n_segments=settings.nsegments or 0)
    # As many channels at a time as one block can hold.
    most = max(1, BLOCK_BYTES // (8 * spec.nperseg))
    for at in range(0, len(group.channels), most):
        part = replace(group, channels=group.channels[at : at + most])
        # `check_finite` has looked already, and knows the channels' names.
        stream = WelchStream(
            streamed,
            len(part.channels),
            engine,
            strict=True,  # the engine does it again itself, elsewhere if need be
            nan="propagate",
            names=part.names,
            doing=f"welch of {group.recording!r}",
        )
        wide = max(1, BLOCK_BYTES // (8 * len(part.channels)))
        # Whole hops per block keep every block but the last the same shape on a device.
        size = max(spec.nperseg, wide // spec.hop * spec.hop)
        for block in part.stored_blocks(min(size, group.n_samples)):
            if settings.nan == "raise":
                check_finite(block.data, part, block.start)
            stream.feed(block.data)
            if progress is not None:
                progress(math.prod(block.data.shape))
            if stream.is_full:
                break
        power[at : at + most] = stream.result()
        floors.append(stream.floor())
        n_segments = stream.n_segments
    return power, RoundingFloor.joined(floors), n_segments
