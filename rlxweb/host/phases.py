"""An array in its padding, sorted by the phases of the strides windows go by.

Of every axis those elements lie side by side that windows which follow each other have
at the same place. A tap of the window is then an offset, the same for all windows.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.arrays import pool
from rlxweb.host.boxes import SHARE, for_each
from rlxweb.host.row_blocks import usable_cpus
from rlxweb.recipes.windows import Windows


def lengths_of(w: Windows) -> tuple[int, ...]:
    """Elements of a phase along each axis."""
    return tuple(
        max(o + (k - 1) * d // s, -(-n // s) if s == 1 and not b else 0)
        for o, k, d, s, b, n in zip(
            w.out, w.kernel, w.dilations, w.strides, w.before, w.size, strict=True
        )
    )


def phases_of(x: NDArray[Any], w: Windows) -> NDArray[Any]:
    """Of an array [N, C, three spatial axes], for windows over these: values
    [N, C, phase0, phase1, phase2, q0, q1, q2].
    """
    lengths = lengths_of(w)
    if w.strides == (1, 1, 1) and lengths == w.size and not any(w.before):
        flat = np.ascontiguousarray(x)
        values = flat.reshape(*x.shape[:2], 1, 1, 1, *w.size)
    else:
        values = pool.empty((*x.shape[:2], *w.strides, *lengths), x.dtype)
        every = list(product(*map(range, w.strides)))
        channels = x.shape[1]
        share = channels if x.size < SHARE else -(-channels // usable_cpus())

        def body(at: int) -> None:
            some = slice(at * share, (at + 1) * share)
            for phase in every:
                own: tuple[Any, ...] = (slice(None), some, *phase)
                _put(values[own], x[:, some], w, phase)

        for_each(-(-channels // share), body, threaded=share < channels)
    return values


def _put(
    target: NDArray[Any], x: NDArray[Any], w: Windows, phase: tuple[int, ...]
) -> None:
    """One phase: what of it lies inside the array, and zeros around that."""
    given, inside = [], []
    for at, first in enumerate(phase):
        stride, before, size = w.strides[at], w.before[at], w.size[at]
        start = max(0, -(-(before - first) // stride))
        begin = start * stride + first - before
        count = max(0, min(target.shape[2 + at] - start, -(-(size - begin) // stride)))
        given.append(
            slice(begin, begin + (count - 1) * stride + 1 if count else begin, stride)
        )
        inside.append(slice(start, start + count))
    around = [slice(None), slice(None)]
    for part in inside:
        for edge in (slice(0, part.start), slice(part.stop, None)):
            target[(*around, edge)] = 0
        around.append(part)
    target[tuple(around)] = x[(slice(None), slice(None), *given)]


def taps_of(w: Windows, lengths: tuple[int, ...]) -> NDArray[np.int64]:
    """Offset of each tap of a channel's window within the channel, kernel order."""
    whole = [*w.strides, *lengths]
    steps = [int(np.prod(whole[at + 1 :])) for at in range(6)]
    made = np.zeros((), np.int64)
    for at in range(3):
        place = np.arange(w.kernel[at]) * w.dilations[at]
        own = place % w.strides[at] * steps[at] + place // w.strides[at] * steps[3 + at]
        made = made[..., None] + own
    return made.reshape(-1)
