"""Average power spectrum of one group of channels, computed block by block in bounded
memory.

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

from rlxweb.batch.settings import Settings
from rlxweb.batch.stage_timing import StageTimer
from rlxweb.core.adc_samples import Digital
from rlxweb.io import Group, check_finite
from rlxweb.io.recording import Block
from rlxweb.ops.welch.parameters import segment_flops
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.signal.rounding_floor import RoundingFloor
from rlxweb.signal.welch_blockwise_average import WelchAverage
from rlxweb.signal.welch_engine import WelchEngine

# Bytes of float64 samples in one block. Reading, widening and framing hold a few
# blocks at a time.
BLOCK_NBYTES = 8 << 20

BlockProgress = Callable[[int], object]
"""Callback that receives, after each block, its number of samples, all channels
counted.
"""


def group_power(
    group: Group,
    spec: WelchSpec,
    engine: WelchEngine,
    settings: Settings,
    progress: BlockProgress | None,
    stages: StageTimer,
) -> tuple[NDArray[Any], RoundingFloor, int]:
    """Return the power (C, F) of the whole group, its rounding floor, and the number of
    segments averaged.
    """
    power = np.empty((len(group.channels), spec.n_freqs), spec.power_dtype)
    floors, n_segments = [], 0
    stream_spec = replace(spec, n_segments=settings.nsegments or 0)
    # As many channels at a time as one block can hold.
    max_channels = max(1, BLOCK_NBYTES // (8 * spec.nperseg))
    for first_channel in range(0, len(group.channels), max_channels):
        channel_group = replace(
            group, channels=group.channels[first_channel : first_channel + max_channels]
        )
        # `check_finite` has looked already, and knows the channels' names.
        stream = WelchAverage(
            stream_spec,
            len(channel_group.channels),
            engine,
            strict=True,  # the engine does it again itself, elsewhere if need be
            nan="propagate",
            names=channel_group.names,
            context=f"welch of {group.recording!r}",
        )
        end = channel_group.first
        for piece in channel_group.pieces:
            if stream.is_full:
                break
            stream.start_new_stretch(n_missing=piece.first - end)
            end = piece.first + piece.n_samples
            _feed_blocks(stream, piece, settings, progress, stages)
        with stages.stage(
            "average",
            "average",
            power[first_channel : first_channel + max_channels].nbytes,
        ):
            power[first_channel : first_channel + max_channels] = stream.result()
        floors.append(stream.floor())
        n_segments = stream.n_segments
    return power, RoundingFloor.concatenate(floors), n_segments


def _feed_blocks(
    stream: WelchAverage,
    piece: Group,
    settings: Settings,
    progress: BlockProgress | None,
    stages: StageTimer,
) -> None:
    """Feed all blocks of a piece without a gap to the stream, until it is full."""
    spec, rows = stream.spec, len(piece.channels)
    blocks = piece.stored_blocks(samples_per_block(spec, rows, piece.n_samples))
    for block in stages.time_items("read", "read", blocks, _block_nbytes):
        nbytes, n_before = _block_nbytes(block), stream.n_segments
        if settings.nan == "raise":
            with stages.stage("check for non-finite samples", "check", nbytes):
                check_finite(block.data, piece, block.start)
        with stages.stage("estimate", "welch", nbytes) as stage:
            stream.feed(block.data)
            new = (stream.n_segments - n_before) * rows
            stage.flops = new * segment_flops(spec.nperseg, spec.nfft)
        if progress is not None:
            progress(math.prod(block.data.shape))
        if stream.is_full:
            break


def samples_per_block(spec: WelchSpec, n_channels: int, n_samples: int) -> int:
    """Return the samples per channel that are held at once, for so many channels."""
    max_samples = max(1, BLOCK_NBYTES // (8 * n_channels))
    # Whole hops per block keep every block but the last the same shape on a device.
    return min(max(spec.nperseg, max_samples // spec.hop * spec.hop), n_samples)


def _block_nbytes(block: Block[Any]) -> int:
    data = block.data
    return (data.counts if isinstance(data, Digital) else data).nbytes
