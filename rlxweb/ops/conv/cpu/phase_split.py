"""Phase split of a padded array for strided windows: elements grouped along each axis
by their position modulo the stride.

Of every axis those elements lie side by side that windows which follow each other have
at the same place. A tap of the window is then an offset, the same for all windows.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.array_tiles import TILE_ELEMENTS, parallel_for
from rlxweb.codegen.result_buffer_pool import result_pool
from rlxweb.core.thread_tasks import usable_cpus
from rlxweb.ops.conv.windows import SlidingWindows


def phase_lengths(w: SlidingWindows) -> tuple[int, ...]:
    """Return the elements of a phase along each axis."""
    return tuple(
        max(o + (k - 1) * d // s, -(-n // s) if s == 1 and not b else 0)
        for o, k, d, s, b, n in zip(
            w.out_shape,
            w.kernel,
            w.dilations,
            w.strides,
            w.pads_before,
            w.spatial_shape,
            strict=True,
        )
    )


def split_phases(x: NDArray[Any], w: SlidingWindows) -> NDArray[Any]:
    """Split an array [N, C, three spatial axes] for windows over these into phases [N,
    C, phase0, phase1, phase2, q0, q1, q2].
    """
    lengths = phase_lengths(w)
    if w.strides == (1, 1, 1) and lengths == w.spatial_shape and not any(w.pads_before):
        flat = np.ascontiguousarray(x)
        values = flat.reshape(*x.shape[:2], 1, 1, 1, *w.spatial_shape)
    else:
        values = result_pool.empty((*x.shape[:2], *w.strides, *lengths), x.dtype)
        phases = list(product(*map(range, w.strides)))
        channels = x.shape[1]
        channels_per_task = (
            channels if x.size < TILE_ELEMENTS else -(-channels // usable_cpus())
        )

        def split_channels(task: int) -> None:
            block = slice(task * channels_per_task, (task + 1) * channels_per_task)
            for phase in phases:
                phase_index: tuple[Any, ...] = (slice(None), block, *phase)
                _copy_phase(values[phase_index], x[:, block], w, phase)

        parallel_for(
            -(-channels // channels_per_task),
            split_channels,
            threaded=channels_per_task < channels,
        )
    return values


def _copy_phase(
    target: NDArray[Any], x: NDArray[Any], w: SlidingWindows, phase: tuple[int, ...]
) -> None:
    """Copy one phase: its elements inside the array, and zeros around them."""
    source, target_slices = [], []
    for axis, phase_offset in enumerate(phase):
        stride = w.strides[axis]
        pad_before = w.pads_before[axis]
        size = w.spatial_shape[axis]
        start = max(0, -(-(pad_before - phase_offset) // stride))
        source_start = start * stride + phase_offset - pad_before
        count = max(
            0, min(target.shape[2 + axis] - start, -(-(size - source_start) // stride))
        )
        source.append(
            slice(
                source_start,
                source_start + (count - 1) * stride + 1 if count else source_start,
                stride,
            )
        )
        target_slices.append(slice(start, start + count))
    index = [slice(None), slice(None)]
    for target_slice in target_slices:
        for margin in (slice(0, target_slice.start), slice(target_slice.stop, None)):
            target[(*index, margin)] = 0
        index.append(target_slice)
    target[tuple(index)] = x[(slice(None), slice(None), *source)]


def tap_offsets(w: SlidingWindows, lengths: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the offset of each tap of a channel's window within the channel, in kernel
    order.
    """
    dims = [*w.strides, *lengths]
    strides = [int(np.prod(dims[axis + 1 :])) for axis in range(6)]
    offsets = np.zeros((), np.int64)
    for axis in range(3):
        positions = np.arange(w.kernel[axis]) * w.dilations[axis]
        axis_offsets = (
            positions % w.strides[axis] * strides[axis]
            + positions // w.strides[axis] * strides[3 + axis]
        )
        offsets = offsets[..., None] + axis_offsets
    return offsets.reshape(-1)
