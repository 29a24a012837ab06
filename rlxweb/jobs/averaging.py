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

from rlxweb.digital import Digital
from rlxweb.host.spec import WelchSpec
from rlxweb.io import Group, check_finite
from rlxweb.io.recording import Block
from rlxweb.jobs.settings import Settings
from rlxweb.jobs.stages import Stages
from rlxweb.recipes.welch_plan import segment_flops
from rlxweb.signal.engine import Engine
from rlxweb.signal.rounding import RoundingFloor
from rlxweb.signal.stream import WelchAverage

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
    stages: Stages,
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
        stream = WelchAverage(
            streamed,
            len(part.channels),
            engine,
            strict=True,  # the engine does it again itself, elsewhere if need be
            nan="propagate",
            names=part.names,
            doing=f"welch of {group.recording!r}",
        )
        end = part.first
        for piece in part.pieces:
            if stream.is_full:
                break
            stream.cut(missing=piece.first - end)
            end = piece.first + piece.n_samples
            _feed(stream, piece, settings, progress, stages)
        with stages.stage("average", "average", power[at : at + most].nbytes):
            power[at : at + most] = stream.result()
        floors.append(stream.floor())
        n_segments = stream.n_segments
    return power, RoundingFloor.joined(floors), n_segments


def _feed(
    stream: WelchAverage,
    piece: Group,
    settings: Settings,
    progress: Progress | None,
    stages: Stages,
) -> None:
    """All blocks of a piece without a gap, until the stream is full."""
    spec, rows = stream.spec, len(piece.channels)
    blocks = piece.stored_blocks(block_samples(spec, rows, piece.n_samples))
    for block in stages.each("read", "read", blocks, _nbytes):
        held, done = _nbytes(block), stream.n_segments
        if settings.nan == "raise":
            with stages.stage("look for gaps", "check", held):
                check_finite(block.data, piece, block.start)
        with stages.stage("estimate", "welch", held) as doing:
            stream.feed(block.data)
            new = (stream.n_segments - done) * rows
            doing.flops = new * segment_flops(spec.nperseg, spec.nfft)
        if progress is not None:
            progress(math.prod(block.data.shape))
        if stream.is_full:
            break


def block_samples(spec: WelchSpec, n_channels: int, n_samples: int) -> int:
    """Samples of each of so many channels that are held at once."""
    wide = max(1, BLOCK_BYTES // (8 * n_channels))
    # Whole hops per block keep every block but the last the same shape on a device.
    return min(max(spec.nperseg, wide // spec.hop * spec.hop), n_samples)


def _nbytes(block: Block[Any]) -> int:
    held = block.data
    return (held.counts if isinstance(held, Digital) else held).nbytes
