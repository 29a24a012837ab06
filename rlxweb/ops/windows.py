"""The windows of an array, in the words of NumPy: what references of convolutions and
pools are written with. No device is known here.
"""

from __future__ import annotations

from typing import Any

from rlxweb.ops.mapped import along, within
from rlxweb.ops.slices import windowed
from rlxweb.recipes.windows import Windows


def windows_in(xp: Any, x: Any, w: Windows, fill: float = 0) -> Any:
    """[N, C, out…, kernel…] of an array [N, C, size…] with `fill` in its padding."""
    axes = range(2, 2 + len(w.size))
    for axis, size, before, reach in zip(axes, w.size, w.before, w.reach, strict=True):
        padded = within(size, before, reach)
        x = x if padded is None else along(xp, x, axis, padded, fill)
    every = zip(axes, w.out, w.kernel, w.strides, w.dilations, strict=True)
    return windowed(xp, x, every)
