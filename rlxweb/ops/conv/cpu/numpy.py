"""Convolutions by NumPy: im2col in cache-sized blocks, multiplied by BLAS.

A block of windows stays in a core's cache until it is multiplied, and has enough of
them to be worth going through the weights once more; small images come several at a
time. Windows of one element are the array itself. Where a group has one channel there
is nothing for BLAS: the array, shifted by each tap, is added up times its weight. Of
few windows it is known where each of their elements lies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.array_tiles import TILE_ELEMENTS, parallel_for
from rlxweb.codegen.result_buffer_pool import result_pool
from rlxweb.core.thread_tasks import usable_cpus
from rlxweb.ir.layout import row_major_strides
from rlxweb.ops.conv.wgsl.plan import ConvolutionShape
from rlxweb.ops.conv.windows import SlidingWindows
from rlxweb.ops.matmul.cpu.wasm import matmul, try_matmul_into

_BLOCK_ELEMENTS: Final = 1 << 17
"""Elements of the windows that are copied side by side at once."""
_MIN_BLOCK_WINDOWS: Final = 256
"""Minimum windows of a block: fewer leave BLAS waiting for weights."""
_MAX_GATHER_ELEMENTS: Final = 1 << 14
"""Maximum elements of all windows whose gather indices are kept with the node."""
_TERMS_FIRST = (1, 2, 3, 4, 0, 5, 6, 7)
_POSITIONS_FIRST = (0, 5, 6, 7, 1, 2, 3, 4)
"""Axis orders of windows [images, C, kernel, some positions], with terms or with
positions as rows.
"""


MatmulInto = Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], None]


def _matmul_into(x: NDArray[Any], y: NDArray[Any], out: NDArray[Any]) -> None:
    """Multiply two matrices into `out`, by WebAssembly where that applies, else by
    NumPy.
    """
    if not try_matmul_into(x, y, out):
        np.matmul(x, y, out=out)


class NumpyConvolution:
    """Convolution by matrix products, with everything its sizes determine worked out.

    multiply   two matrices into a third
    """

    def __init__(
        self, conv: ConvolutionShape, multiply: MatmulInto = _matmul_into
    ) -> None:
        self.conv, self._multiply = conv, multiply
        w, (c, m) = conv.windows, conv.channels
        self.result_shape = (conv.batch, conv.groups, m, *w.out_shape)
        self.padded_shape = (conv.batch, conv.groups, c, *w.extents)
        strides = row_major_strides(self.padded_shape)
        self._windows_shape = (*self.padded_shape[:3], *w.kernel, *w.out_shape)
        tap_strides = (d * s for d, s in zip(w.dilations, strides[3:], strict=True))
        window_strides = (n * s for n, s in zip(w.strides, strides[3:], strict=True))
        self._window_strides = (*strides[:3], *tap_strides, *window_strides)
        self._term_count = term_count = c * prod(w.kernel)
        self._block_shape = _block_size(conv, term_count)
        self._scratch_size = term_count * prod(self._block_shape) * w.out_shape[2]
        self._axis_order = (
            _TERMS_FIRST if w.kernel[2] <= w.out_shape[2] else _POSITIONS_FIRST
        )
        self._has_term_rows = self._axis_order is _TERMS_FIRST
        is_single = conv.batch == conv.groups == 1 and not (
            conv.is_pointwise or conv.is_depthwise
        )
        self._gather_indices = None
        if is_single and term_count * prod(w.out_shape) <= _MAX_GATHER_ELEMENTS:
            input_size = c * prod(w.spatial_shape)
            positions = np.arange(input_size, dtype=np.intp).reshape(
                c, *w.spatial_shape
            )
            self._gather_indices = im2col(w, positions, input_size)

    def __call__(self, x: NDArray[Any], w: NDArray[Any]) -> NDArray[Any]:
        """Return [N, groups, M / groups, three axes] for input [N, C, three axes] and
        the weights.

        Floats of 32 or 64 bits; C / groups is at least 1.
        """
        if self._gather_indices is not None:
            return self._multiply_gathered(self._gather_indices, x, w)
        conv, out = self.conv, result_pool.empty(self.result_shape, x.dtype)
        batch, groups, c, *_ = self.padded_shape
        weights = w.reshape(groups, conv.channels[1], -1)
        if conv.is_pointwise:
            flat = x.reshape(batch, groups, c, -1)
            flat_out = out.reshape(*self.result_shape[:3], -1)
            for n, g in product(range(batch), range(groups)):
                self._multiply(weights[g], flat[n, g], flat_out[n, g])
            return out
        padded = pad_for_windows(x, conv.windows).reshape(self.padded_shape)
        if conv.is_depthwise:
            _add_shifted_taps(conv.windows, padded[:, :, 0], weights, out)
        else:
            self._run_blocks(padded, weights, out)
        return out

    def _multiply_gathered(
        self, indices: NDArray[np.intp], x: NDArray[Any], w: NDArray[Any]
    ) -> NDArray[Any]:
        """Gather all windows by their stored indices and multiply them by the
        weights.
        """
        flat_input = x.reshape(-1)
        if not self.conv.windows.is_inside:
            flat_input = np.empty(x.size + 1, x.dtype)
            flat_input[:-1], flat_input[-1] = x.reshape(-1), 0
        products = np.empty((w.shape[0], indices.shape[1]), x.dtype)
        self._multiply(
            w.reshape(-1, self._term_count), flat_input.take(indices), products
        )
        return products.reshape(self.result_shape)

    def _run_blocks(
        self, x: NDArray[Any], weights: NDArray[Any], out: NDArray[Any]
    ) -> None:
        """Run block by block in each group: some images, or some lines of one, at a
        time.
        """
        strides = tuple(x.itemsize * stride for stride in self._window_strides)
        windows = np.ndarray(self._windows_shape, x.dtype, x, strides=strides)
        scratch = np.empty(self._scratch_size, x.dtype)
        block_images, block_planes, block_lines = self._block_shape
        batch, groups, _, o0, o1, _ = self.result_shape
        ranges = (range(0, batch, block_images), range(groups))
        for n, g in product(*ranges):
            group_windows = windows[n : n + block_images, g]
            group_out = out[n : n + block_images, g]
            for i, j in product(range(0, o0, block_planes), range(0, o1, block_lines)):
                block = (
                    ...,
                    slice(i, i + block_planes),
                    slice(j, j + block_lines),
                    slice(None),
                )
                self._multiply_block(
                    group_windows[block], scratch, weights[g], group_out[block]
                )

    def _multiply_block(
        self,
        windows: NDArray[Any],
        scratch: NDArray[Any],
        weights: NDArray[Any],
        out: NDArray[Any],
    ) -> None:
        """Multiply windows [images, C, kernel, positions] by the weights into [images,
        M, positions].
        """
        ordered = windows.transpose(self._axis_order)
        matrix = scratch[: ordered.size].reshape(ordered.shape)
        _copy_threaded(matrix, ordered)
        images, m, *positions = out.shape
        if not self._has_term_rows:
            products = matmul(matrix.reshape(-1, self._term_count), weights.T)
            out[...] = products.reshape(images, *positions, m).transpose(0, 4, 1, 2, 3)
        elif images == 1 and out.flags.c_contiguous:
            flat = matrix.reshape(self._term_count, -1)
            self._multiply(weights, flat, out.reshape(m, -1))
        else:
            flat = matrix.reshape(self._term_count, -1)
            products = np.empty((m, flat.shape[1]), out.dtype)
            self._multiply(weights, flat, products)
            out[...] = products.reshape(m, images, *positions).swapaxes(0, 1)


def _block_size(conv: ConvolutionShape, term_count: int) -> tuple[int, int, int]:
    """Return the images, planes and lines of a block; a smaller unit is exhausted
    before the next one grows.
    """
    max_elements = max(_BLOCK_ELEMENTS, term_count * _MIN_BLOCK_WINDOWS)
    o0, o1, o2 = conv.windows.out_shape
    lines = max(1, min(o1, max_elements // max(1, term_count * o2)))
    if lines < o1:
        return 1, 1, lines
    planes = max(1, min(o0, max_elements // max(1, term_count * o1 * o2)))
    if (
        planes < o0 or o0 * o1 * o2 >= _MIN_BLOCK_WINDOWS
    ):  # enough of one, in its own place
        return 1, planes, lines
    images = max(1, min(conv.batch, max_elements // max(1, term_count * o0 * o1 * o2)))
    return images, planes, lines


def _copy_threaded(target: NDArray[Any], windows: NDArray[Any]) -> None:
    """Copy the windows, on all threads where they are large."""
    thread_count = usable_cpus()
    if (
        target.size < 2 * TILE_ELEMENTS
        or thread_count == 1
        or target.shape[0] < thread_count
    ):
        target[...] = windows
        return
    rows_per_thread = -(-target.shape[0] // thread_count)

    def copy_rows(index: int) -> None:
        rows = slice(index * rows_per_thread, (index + 1) * rows_per_thread)
        target[rows] = windows[rows]

    parallel_for(thread_count, copy_rows, threaded=True)


def pad_for_windows(
    x: NDArray[Any], w: SlidingWindows, fill: float = 0
) -> NDArray[Any]:
    """Return the part of [N, C, three spatial axes] that the windows read, padded with
    `fill`.
    """
    is_inside, extents, target, source = _padding_slices(w)
    if is_inside:
        return np.ascontiguousarray(x[source])
    padded = result_pool.empty((*x.shape[:2], *extents), x.dtype)
    padded[...] = fill
    padded[target] = x[source]
    return padded


def im2col(w: SlidingWindows, values: NDArray[Any], fill: int) -> NDArray[Any]:
    """Return the windows of [C, three spatial axes] as columns, `fill` in the padding.

    returns  [C · kernel, windows]
    """
    padded = pad_for_windows(values[None], w, fill).reshape(-1, *w.extents)
    strides = padded.strides
    tap_strides = (d * s for d, s in zip(w.dilations, strides[1:], strict=True))
    window_strides = (n * s for n, s in zip(w.strides, strides[1:], strict=True))
    shape = (padded.shape[0], *w.kernel, *w.out_shape)
    windows = np.ndarray(
        shape, padded.dtype, padded, strides=(strides[0], *tap_strides, *window_strides)
    )
    return windows.reshape(shape[0] * prod(w.kernel), -1)


IndexTuple = tuple[Any, ...]


@lru_cache(maxsize=256)
def _padding_slices(
    w: SlidingWindows,
) -> tuple[bool, tuple[int, ...], IndexTuple, IndexTuple]:
    """Return whether there is no padding, the padded sizes, and the slices that are
    written and read.
    """
    target: list[Any] = [...]
    source: list[Any] = [...]
    for pad_before, n, extent in zip(
        w.pads_before, w.spatial_shape, w.extents, strict=True
    ):
        count = max(0, min(n, extent - pad_before))
        target.append(slice(pad_before, pad_before + count))
        source.append(slice(0, count))
    return w.is_inside, w.extents, tuple(target), tuple(source)


def _add_shifted_taps(
    w: SlidingWindows, x: NDArray[Any], weights: NDArray[Any], out: NDArray[Any]
) -> None:
    """Add up the shifted input times each tap's weight, as many channels at a time as
    stay in cache.
    """
    groups, m = weights.shape[:2]
    block_channels = max(1, TILE_ELEMENTS // max(1, int(np.prod(w.extents))))
    starts = range(0, groups, block_channels)
    tap_slices = []
    for tap in product(*map(range, w.kernel)):
        spans = (
            slice(k * d, k * d + (o - 1) * s + 1, s)
            for k, d, o, s in zip(tap, w.dilations, w.out_shape, w.strides, strict=True)
        )
        tap_slices.append(tuple(spans))

    def process_block(task: int) -> None:
        n, block = divmod(task, len(starts))
        channel_block = slice(starts[block], starts[block] + block_channels)
        channels = x[n, channel_block]
        for channel in range(m):
            channel_out = out[n, channel_block, channel]
            factors = weights[channel_block, channel]
            for tap_index, tap_slice in enumerate(tap_slices):
                shifted = channels[(slice(None), *tap_slice)]
                factor = factors[:, tap_index, None, None, None]
                if tap_index == 0:
                    np.multiply(shifted, factor, out=channel_out)
                else:
                    channel_out += shifted * factor

    task_count = x.shape[0] * len(starts)
    parallel_for(
        task_count, process_block, threaded=task_count > 1 and x.size >= TILE_ELEMENTS
    )
