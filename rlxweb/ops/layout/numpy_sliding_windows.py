"""Sliding windows of a NumPy array, for the reference implementations of convolutions
and pools.
"""

from __future__ import annotations

from typing import Any

from rlxweb.ops.conv.windows import SlidingWindows
from rlxweb.ops.layout.index_map_op_factory import apply_axis_map, pad_or_crop_axis
from rlxweb.ops.layout.slice_and_windows import take_windows


def extract_windows(xp: Any, x: Any, w: SlidingWindows, fill: float = 0) -> Any:
    """Return the windows [N, C, out…, kernel…] of an array [N, C, size…] padded with
    `fill`.
    """
    axes = range(2, 2 + len(w.spatial_shape))
    for axis, size, before, reach in zip(
        axes, w.spatial_shape, w.pads_before, w.extents, strict=True
    ):
        axis_map = pad_or_crop_axis(size, before, reach)
        x = x if axis_map is None else apply_axis_map(xp, x, axis, axis_map, fill)
    specs = zip(axes, w.out_shape, w.kernel, w.strides, w.dilations, strict=True)
    return take_windows(xp, x, specs)
