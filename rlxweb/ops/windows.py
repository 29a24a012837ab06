"""The windows of an array, in the words of NumPy: what references of convolutions and
pools are written with. No device is known here.
"""

from __future__ import annotations

from typing import Any

from rlxweb.recipes.windows import Windows


def windows_in(xp: Any, x: Any, w: Windows, fill: float = 0) -> Any:
    """[N, C, out…, kernel…] of an array [N, C, size…] with `fill` in its padding."""
    rank = len(w.size)
    for at, reach in enumerate(w.reach):
        axis = 2 + 2 * at  # those before it have become two each
        x = _with_padding(xp, x, axis, (w.before[at], reach), fill)
        index = xp.arange(w.out[at])[:, None] * w.strides[at]
        index = index + xp.arange(w.kernel[at])[None, :] * w.dilations[at]
        taken = xp.take(x, xp.reshape(index, (-1,)), axis=axis)
        shape = (*x.shape[:axis], w.out[at], w.kernel[at], *x.shape[axis + 1 :])
        x = xp.reshape(taken, shape)
    outs, kernels = range(2, 2 + 2 * rank, 2), range(3, 3 + 2 * rank, 2)
    return xp.permute_dims(x, (0, 1, *outs, *kernels))


def _with_padding(
    xp: Any, x: Any, axis: int, padding: tuple[int, int], fill: float
) -> Any:
    """`before` elements in front of an axis, and behind it what `reach` lacks."""
    before, reach = padding
    parts = [x]
    for count, first in ((before, True), (reach - before - x.shape[axis], False)):
        if count > 0:
            shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
            part = xp.zeros(shape, dtype=x.dtype)
            part = part + fill if fill else part
            parts.insert(0 if first else len(parts), part)
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=axis)
