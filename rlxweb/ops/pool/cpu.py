"""Pooling by NumPy: axis by axis, combining the array shifted by each tap.

The largest of a window is the largest of the largest of its lines, and sums are alike:
a window of 3 by 3 is 6 passes, not 9. Some channels at a time stay in a core's cache.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.array_tiles import TILE_ELEMENTS, parallel_for
from rlxweb.codegen.result_buffer_pool import result_pool
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.ops.conv.cpu.numpy import pad_for_windows
from rlxweb.ops.conv.windows import SlidingWindows
from rlxweb.ops.kernel_variant import KernelVariant, for_every_node
from rlxweb.ops.pool.windows import average_divisors, lowest_value, pool_windows

Array = NDArray[Any]


def pool_by_axis(
    combine: Callable[..., Array], w: SlidingWindows, x: Array, fill: float
) -> Array:
    """Pool windows of [N, C, three axes] to [N, C, three axes], combining two values
    into one.
    """
    channels = x.shape[0] * x.shape[1]
    rows = x.reshape(channels, 1, *w.spatial_shape)
    out = result_pool.empty((channels, *w.out_shape), x.dtype)
    block_channels = max(1, TILE_ELEMENTS // max(1, prod(w.extents)))

    def pool_block(index: int) -> None:
        block = slice(index * block_channels, (index + 1) * block_channels)
        values = pad_for_windows(rows[block], w, fill)[:, 0]
        # The axis that loses most goes first.
        for axis in sorted(
            range(3), key=lambda a: w.out_shape[a] / max(1, w.extents[a])
        ):
            values = _combine_taps(combine, values, w, axis)
        out[block] = values

    block_count = -(-channels // block_channels)
    parallel_for(
        block_count,
        pool_block,
        threaded=block_count > 1 and x.size >= 2 * TILE_ELEMENTS,
    )
    return out


def _combine_taps(
    combine: Callable[..., Array], x: Array, w: SlidingWindows, axis: int
) -> Array:
    """Combine the shifted taps of one axis."""
    stride, dilation, count = w.strides[axis], w.dilations[axis], w.out_shape[axis]
    if w.kernel[axis] == 1 and stride == 1:
        return x
    result: Array | None = None
    for k in range(w.kernel[axis]):
        offset = k * dilation
        index = [slice(None)] * x.ndim
        index[1 + axis] = slice(offset, offset + (count - 1) * stride + 1, stride)
        shifted = x[tuple(index)]
        result = (
            shifted
            if result is None
            else combine(result, shifted, out=result if k > 1 else None)
        )
    assert result is not None
    return result


def _pool_geometry(attrs: Attrs, x: Array) -> tuple[SlidingWindows, tuple[int, ...]]:
    """Return the windows on three axes and the shape of the result."""
    w = pool_windows(x.shape, attrs)
    return w.expand_to_three_axes(), (*x.shape[:2], *w.out_shape)


def _max_pool(attrs: Attrs, x: Array) -> Array:
    """Return the maximum of each window."""
    w, shape = _pool_geometry(attrs, x)
    return pool_by_axis(np.maximum, w, x, lowest_value(x.dtype)).reshape(shape)


def _widen_float16(x: Array) -> Array:
    """Return float16 as float32, in which it is summed."""
    return x.astype(np.float32) if x.dtype == np.float16 else x


def _sum_pool(attrs: Attrs, x: Array) -> Array:
    """Return the sum of each window."""
    w, shape = _pool_geometry(attrs, x)
    return (
        pool_by_axis(np.add, w, _widen_float16(x), 0)
        .reshape(shape)
        .astype(x.dtype, copy=False)
    )


def _average_pool(attrs: Attrs, x: Array) -> Array:
    """Return the mean of each window."""
    result = _sum_pool(attrs, _widen_float16(x))
    result /= average_divisors(x.shape, attrs).astype(result.dtype)
    return result.astype(x.dtype, copy=False)


def _lp_pool(attrs: Attrs, x: Array) -> Array:
    """Return the p-norm of each window."""
    p, widened = attrs["p"], _widen_float16(x)
    result = _sum_pool(attrs, widened * widened if p == 2 else np.abs(widened) ** p)
    result = np.sqrt(result) if p == 2 else result ** (1.0 / p)
    return result.astype(x.dtype, copy=False)


def _has_few_passes(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether the passes over the array are few enough to be quicker than
    im2col.
    """
    kernel = pool_windows(inputs[0].shape, attrs).kernel
    return sum(kernel) <= _MAX_PASSES and out.numel > 0


_MAX_PASSES: Final = 1 << 10
"""Maximum passes over an array."""
_POOL_FUNCTIONS: Final[dict[str, Callable[[Attrs, Array], Array]]] = {
    "max_pool": _max_pool,
    "sum_pool": _sum_pool,
    "avg_pool": _average_pool,
    "lp_pool": _lp_pool,
}
KERNELS = tuple(
    KernelVariant(f"{op}, axis by axis", op, for_every_node(run), _has_few_passes)
    for op, run in _POOL_FUNCTIONS.items()
)
