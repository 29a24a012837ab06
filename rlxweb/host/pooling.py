"""Pools by NumPy: axis by axis, the array shifted by each tap of it.

The largest of a window is the largest of the largest of its lines, and sums are alike:
a window of 3 by 3 is 6 passes, not 9. Some channels at a time stay in a core's cache.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.arrays import pool
from rlxweb.host.boxes import SHARE, for_each
from rlxweb.host.convolution import with_padding
from rlxweb.host.variants import Variant
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.recipes.windows import Windows, divisors, lowest, pool_windows

Array = NDArray[Any]


def pooled(two: Callable[..., Array], w: Windows, x: Array, fill: float) -> Array:
    """[N, C, three axes] of windows of [N, C, three axes], two numbers into one."""
    channels = x.shape[0] * x.shape[1]
    rows = x.reshape(channels, 1, *w.size)
    out = pool.empty((channels, *w.out), x.dtype)
    each = max(1, SHARE // max(1, prod(w.reach)))

    def body(at: int) -> None:
        some = slice(at * each, (at + 1) * each)
        part = with_padding(rows[some], w, fill)[:, 0]
        # The axis that loses most goes first.
        for axis in sorted(range(3), key=lambda a: w.out[a] / max(1, w.reach[a])):
            part = _along(two, part, w, axis)
        out[some] = part

    count = -(-channels // each)
    for_each(count, body, threaded=count > 1 and x.size >= 2 * SHARE)
    return out


def _along(two: Callable[..., Array], x: Array, w: Windows, axis: int) -> Array:
    step, apart, count = w.strides[axis], w.dilations[axis], w.out[axis]
    if w.kernel[axis] == 1 and step == 1:
        return x
    made: Array | None = None
    for k in range(w.kernel[axis]):
        first = k * apart
        own = [slice(None)] * x.ndim
        own[1 + axis] = slice(first, first + (count - 1) * step + 1, step)
        moved = x[tuple(own)]
        made = moved if made is None else two(made, moved, out=made if k > 1 else None)
    assert made is not None
    return made


def _windows(attrs: Attrs, x: Array) -> tuple[Windows, tuple[int, ...]]:
    w = pool_windows(x.shape, attrs)
    return w.in_three(), (*x.shape[:2], *w.out)


def _max(attrs: Attrs, x: Array) -> Array:
    w, shape = _windows(attrs, x)
    return pooled(np.maximum, w, x, lowest(x.dtype)).reshape(shape)


def _wide(x: Array) -> Array:
    """f16 as what it is summed in."""
    return x.astype(np.float32) if x.dtype == np.float16 else x


def _sum(attrs: Attrs, x: Array) -> Array:
    w, shape = _windows(attrs, x)
    return pooled(np.add, w, _wide(x), 0).reshape(shape).astype(x.dtype, copy=False)


def _average(attrs: Attrs, x: Array) -> Array:
    made = _sum(attrs, _wide(x))
    made /= divisors(x.shape, attrs).astype(made.dtype)
    return made.astype(x.dtype, copy=False)


def _norm(attrs: Attrs, x: Array) -> Array:
    p, wide = attrs["p"], _wide(x)
    made = _sum(attrs, wide * wide if p == 2 else np.abs(wide) ** p)
    made = np.sqrt(made) if p == 2 else made ** (1.0 / p)
    return made.astype(x.dtype, copy=False)


def _few(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """No more passes than are quicker than windows laid side by side."""
    kernel = pool_windows(inputs[0].shape, attrs).kernel
    return sum(kernel) <= _MOST and out.numel > 0


_MOST: Final = 1 << 10
"""Passes over an array."""
_POOLS: Final[dict[str, Callable[[Attrs, Array], Array]]] = {
    "max_pool": _max,
    "sum_pool": _sum,
    "avg_pool": _average,
    "lp_pool": _norm,
}
ROWS: Final = tuple(
    Variant(f"{op}, axis by axis", op, _few, run) for op, run in _POOLS.items()
)
"""The rows of the table of variants."""
