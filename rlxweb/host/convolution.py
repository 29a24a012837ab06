"""Convolutions by NumPy: windows side by side in blocks, times the weights by BLAS.

A block of windows stays in a core's cache until it is multiplied; windows of one
element are the array itself. Where a group has one channel there is nothing for BLAS:
the array, shifted by each tap, is added up times its weight.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from rlxweb.host.arrays import pool
from rlxweb.host.boxes import SHARE, for_each
from rlxweb.recipes.conv_calls import Convolution
from rlxweb.recipes.windows import Windows

_BLOCK: Final = 1 << 17
"""Elements of the windows that are laid side by side at once."""


def by_products(one: Convolution, x: NDArray[Any], w: NDArray[Any]) -> NDArray[Any]:
    """[N, groups, M / groups, three axes] of [N, C, three axes] and the weights.

    Floats of 32 or 64 bits; C / groups is at least 1.
    """
    windows, (c, m) = one.windows, one.channels
    batch, groups = one.batch, one.groups
    out = pool.empty((batch, groups, m, *windows.out), x.dtype)
    weights = w.reshape(groups, m, -1)
    if windows.is_inside and windows.reach == windows.size == windows.out:
        flat = x.reshape(batch, groups, c, -1)
        np.matmul(weights, flat, out=out.reshape(batch, groups, m, -1))
        return out
    padded = with_padding(x, windows).reshape(batch, groups, c, *windows.reach)
    if c == 1 and m * 8 <= groups:
        _by_taps(windows, padded[:, :, 0], weights, out)
    else:
        _in_blocks(windows, padded, weights, out)
    return out


def with_padding(x: NDArray[Any], w: Windows, fill: float = 0) -> NDArray[Any]:
    """What the windows read of [N, C, three axes], `fill` around it."""
    if w.is_inside:
        read: tuple[Any, ...] = (..., *(slice(0, n) for n in w.reach))
        return np.ascontiguousarray(x[read])
    made = pool.empty((*x.shape[:2], *w.reach), x.dtype)
    made[...] = fill
    inside: list[Any] = [...]
    given: list[Any] = [...]
    for before, n, reach in zip(w.before, w.size, w.reach, strict=True):
        kept = max(0, min(n, reach - before))
        inside.append(slice(before, before + kept))
        given.append(slice(0, kept))
    made[tuple(inside)] = x[tuple(given)]
    return made


def _in_blocks(
    w: Windows, x: NDArray[Any], weights: NDArray[Any], out: NDArray[Any]
) -> None:
    """Some lines of windows at a time, of each group of each image."""
    steps = x.strides[3:]
    taps = tuple(d * s for d, s in zip(w.dilations, steps, strict=True))
    moves = tuple(n * s for n, s in zip(w.strides, steps, strict=True))
    shape = (*x.shape[:3], *w.kernel, *w.out)
    cut = as_strided(x, shape, (*x.strides[:3], *taps, *moves), writeable=False)
    terms, line = weights.shape[-1], max(1, w.out[2])
    each = max(1, min(w.out[1], _BLOCK // (terms * line)))
    room = np.empty(terms * each * line, x.dtype)
    for n, g, i in product(range(x.shape[0]), range(x.shape[1]), range(w.out[0])):
        for j in range(0, w.out[1], each):
            some = cut[n, g, ..., i, j : j + each, :]
            side = room[: some.size].reshape(some.shape)
            side[...] = some
            made = np.matmul(weights[g], side.reshape(terms, -1))
            out[n, g, :, i, j : j + each] = made.reshape(out.shape[2], -1, w.out[2])


def _by_taps(
    w: Windows, x: NDArray[Any], weights: NDArray[Any], out: NDArray[Any]
) -> None:
    """Channel by channel, as many as stay in cache, shifted and added up."""
    groups, m = weights.shape[:2]
    each = max(1, SHARE // max(1, int(np.prod(w.reach))))
    starts = range(0, groups, each)
    parts = []
    for tap in product(*map(range, w.kernel)):
        spans = (
            slice(k * d, k * d + (o - 1) * s + 1, s)
            for k, d, o, s in zip(tap, w.dilations, w.out, w.strides, strict=True)
        )
        parts.append(tuple(spans))

    def body(at: int) -> None:
        n, block = divmod(at, len(starts))
        some = slice(starts[block], starts[block] + each)
        own = x[n, some]
        for channel in range(m):
            made = out[n, some, channel]
            factors = weights[some, channel]
            for t, part in enumerate(parts):
                moved, factor = (
                    own[(slice(None), *part)],
                    factors[:, t, None, None, None],
                )
                if t == 0:
                    np.multiply(moved, factor, out=made)
                else:
                    made += moved * factor

    count = x.shape[0] * len(starts)
    for_each(count, body, threaded=count > 1 and x.size >= SHARE)
