"""Windows of pools over [N, C, …]: those of `ops/conv/windows.py`, by a kernel that is
an attribute, and how many of their elements lie in the array. Arithmetic alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlxweb.ir.op import Attr, Attrs
from rlxweb.ir.shape_arithmetic import Shape, bad_shape
from rlxweb.ops.conv.windows import (
    DILATIONS_ATTR,
    PADS_ATTR,
    STRIDES_ATTR,
    SlidingWindows,
    sliding_windows,
    split_pads,
)

WINDOW_ATTRS = (
    Attr("kernel", "ints"),
    STRIDES_ATTR,
    DILATIONS_ATTR,
    PADS_ATTR,
    Attr("ceil_mode", "bool", False),
)


def pool_windows(shape: Shape, attrs: Attrs) -> SlidingWindows:
    """Return the windows of a pool over [N, C, …]. Errors  ShapeError,
    AttributeRefused.
    """
    if len(shape) < 3:
        raise bad_shape(
            f"got an array of rank {len(shape)}",
            "expected [N, C, spatial axes…]",
            "reshape a single image to [1, C, …]",
        )
    kernel, rank = attrs["kernel"], len(shape) - 2
    kernel = kernel * rank if len(kernel) == 1 else kernel
    return sliding_windows(shape[2:], kernel, attrs)


def lowest_value(dtype: np.dtype[Any]) -> float:
    """Return the value that no element of a dtype is below."""
    return -math.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


def has_empty_window(windows: SlidingWindows) -> bool:
    """Return whether some window holds no element of the array."""
    for axis, n in enumerate(windows.spatial_shape):
        step = windows.dilations[axis]
        extent = (windows.kernel[axis] - 1) * step + 1
        last = (windows.out_shape[axis] - 1) * windows.strides[
            axis
        ] - windows.pads_before[axis]
        if windows.pads_before[axis] >= extent or last >= n:
            return True
        # A short array may lie between two elements of a window.
        if step > n and not _elements_per_window(windows, axis, 0, n).all():
            return True
    return False


def average_divisors(shape: Shape, attrs: Attrs) -> np.ndarray[Any, Any]:
    """Return the divisors of an average pool's sums over [N, C, …], over the spatial
    axes.

    With count_include_pad padding counts, but not what ceil_mode reaches beyond it.
    """
    windows = pool_windows(shape, attrs)
    ends = split_pads(attrs["pads"], len(windows.spatial_shape))
    pads_before, pads_after = (
        ends if attrs["count_include_pad"] else ((0,) * len(shape),) * 2
    )
    counts = np.ones((), np.int64)
    for axis, n in enumerate(windows.spatial_shape):
        axis_counts = _elements_per_window(
            windows, axis, -pads_before[axis], n + pads_after[axis]
        )
        counts = counts[..., None] * axis_counts
    return counts


def _elements_per_window(
    windows: SlidingWindows, axis: int, low: int, high: int
) -> np.ndarray[Any, Any]:
    """Return how many elements of each window along an axis lie at low … high - 1."""
    start = (
        np.arange(windows.out_shape[axis]) * windows.strides[axis]
        - windows.pads_before[axis]
    )
    step = windows.dilations[axis]
    first = np.maximum(0, -((start - low) // step))
    last = np.minimum(windows.kernel[axis] - 1, (high - 1 - start) // step)
    return np.asarray(np.maximum(0, last - first + 1))


def is_uniform(values: np.ndarray[Any, Any]) -> bool:
    """Return whether all divisors are the same number."""
    return bool(values.size) and bool((values == values.flat[0]).all())


def window_volume(windows: SlidingWindows) -> int:
    """Return the number of elements of a window."""
    return math.prod(windows.kernel)
