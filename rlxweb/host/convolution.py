"""Convolutions by NumPy: windows side by side in blocks, times the weights by BLAS.

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

from rlxweb.host.arrays import pool
from rlxweb.host.boxes import SHARE, for_each
from rlxweb.host.row_blocks import usable_cpus
from rlxweb.host.wasm_products import into, matmul
from rlxweb.host.wasm_windows import Windows as Gathered
from rlxweb.ir.layout import row_major
from rlxweb.recipes.conv_calls import Convolution
from rlxweb.recipes.windows import Windows

_BLOCK: Final = 1 << 17
"""Elements of the windows that are laid side by side at once."""
_WINDOWS: Final = 256
"""Windows of a block at least, however large: fewer leave BLAS waiting for weights."""
_FEW: Final = 1 << 14
"""Elements of all windows whose places are kept with the node."""
_UPRIGHT = (1, 2, 3, 4, 0, 5, 6, 7)
_LYING = (0, 5, 6, 7, 1, 2, 3, 4)
"""Axes of windows [images, C, kernel, some positions] with terms or windows as rows."""


Multiply = Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], None]


def _matmul(x: NDArray[Any], y: NDArray[Any], out: NDArray[Any]) -> None:
    if not into(x, y, out):
        np.matmul(x, y, out=out)


class Products:
    """A convolution by products, with all that its sizes tell worked out.

    multiply   two matrices into a third
    windows    the code for float32 in a browser's Python, where it is one for that
    """

    def __init__(self, one: Convolution, multiply: Multiply = _matmul) -> None:
        self.one, self._multiply = one, multiply
        w, (c, m) = one.windows, one.channels
        self.result = (one.batch, one.groups, m, *w.out)
        self.is_plain = w.is_inside and w.reach == w.size == w.out
        self.by_taps = c == 1 and m * 8 <= one.groups
        self.held = (one.batch, one.groups, c, *w.reach)
        steps = row_major(self.held)
        self._shape = (*self.held[:3], *w.kernel, *w.out)
        taps = (d * s for d, s in zip(w.dilations, steps[3:], strict=True))
        moves = (n * s for n, s in zip(w.strides, steps[3:], strict=True))
        self._steps = (*steps[:3], *taps, *moves)
        self._terms = terms = c * prod(w.kernel)
        self._each = _cut(one, terms)
        self._room = terms * prod(self._each) * w.out[2]
        self._order = _UPRIGHT if w.kernel[2] <= w.out[2] else _LYING
        self._is_upright = self._order is _UPRIGHT
        alone = one.batch == one.groups == 1 and not (self.is_plain or self.by_taps)
        few = alone and terms * prod(w.out) <= _FEW
        plain = self.is_plain or self.by_taps
        self.windows = None if plain or not Gathered.fit(one) else Gathered(one)
        self._places = None
        if few and self.windows is None:
            count = c * prod(w.size)
            numbers = np.arange(count, dtype=np.intp).reshape(c, *w.size)
            self._places = side_by_side(w, numbers, count)

    def __call__(self, x: NDArray[Any], w: NDArray[Any]) -> NDArray[Any]:
        """[N, groups, M / groups, three axes] of [N, C, three axes] and the weights.

        Floats of 32 or 64 bits; C / groups is at least 1.
        """
        if self.windows is not None and x.dtype == w.dtype == np.float32:
            return self.windows(x, w)
        if self._places is not None:
            return self._of_few(self._places, x, w)
        one, out = self.one, pool.empty(self.result, x.dtype)
        batch, groups, c, *_ = self.held
        weights = w.reshape(groups, one.channels[1], -1)
        if self.is_plain:
            flat = x.reshape(batch, groups, c, -1)
            there = out.reshape(*self.result[:3], -1)
            for n, g in product(range(batch), range(groups)):
                self._multiply(weights[g], flat[n, g], there[n, g])
            return out
        padded = with_padding(x, one.windows).reshape(self.held)
        if self.by_taps:
            _by_taps(one.windows, padded[:, :, 0], weights, out)
        else:
            self._in_blocks(padded, weights, out)
        return out

    def _of_few(
        self, places: NDArray[np.intp], x: NDArray[Any], w: NDArray[Any]
    ) -> NDArray[Any]:
        whole = x.reshape(-1)
        if not self.one.windows.is_inside:
            whole = np.empty(x.size + 1, x.dtype)
            whole[:-1], whole[-1] = x.reshape(-1), 0
        made = np.empty((w.shape[0], places.shape[1]), x.dtype)
        self._multiply(w.reshape(-1, self._terms), whole.take(places), made)
        return made.reshape(self.result)

    def _in_blocks(
        self, x: NDArray[Any], weights: NDArray[Any], out: NDArray[Any]
    ) -> None:
        """Some images, or some lines of one, at a time, of each group."""
        steps = tuple(x.itemsize * one for one in self._steps)
        cut = np.ndarray(self._shape, x.dtype, x, strides=steps)
        room = np.empty(self._room, x.dtype)
        images, planes, lines = self._each
        batch, groups, _, o0, o1, _ = self.result
        ranges = (range(0, batch, images), range(groups))
        for n, g in product(*ranges):
            own, there = cut[n : n + images, g], out[n : n + images, g]
            for i, j in product(range(0, o0, planes), range(0, o1, lines)):
                some = (..., slice(i, i + planes), slice(j, j + lines), slice(None))
                self._block(own[some], room, weights[g], there[some])

    def _block(
        self,
        windows: NDArray[Any],
        room: NDArray[Any],
        weights: NDArray[Any],
        out: NDArray[Any],
    ) -> None:
        """Of windows [images, C, kernel, positions] into [images, M, positions]."""
        ordered = windows.transpose(self._order)
        side = room[: ordered.size].reshape(ordered.shape)
        _put(side, ordered)
        images, m, *positions = out.shape
        if not self._is_upright:
            made = matmul(side.reshape(-1, self._terms), weights.T)
            out[...] = made.reshape(images, *positions, m).transpose(0, 4, 1, 2, 3)
        elif images == 1 and out.flags.c_contiguous:
            flat = side.reshape(self._terms, -1)
            self._multiply(weights, flat, out.reshape(m, -1))
        else:
            flat = side.reshape(self._terms, -1)
            made = np.empty((m, flat.shape[1]), out.dtype)
            self._multiply(weights, flat, made)
            out[...] = made.reshape(m, images, *positions).swapaxes(0, 1)


def _cut(one: Convolution, terms: int) -> tuple[int, int, int]:
    """Images, planes and lines of a block; only all of one make room for more."""
    most = max(_BLOCK, terms * _WINDOWS)
    o0, o1, o2 = one.windows.out
    lines = max(1, min(o1, most // max(1, terms * o2)))
    if lines < o1:
        return 1, 1, lines
    planes = max(1, min(o0, most // max(1, terms * o1 * o2)))
    if planes < o0 or o0 * o1 * o2 >= _WINDOWS:  # enough of one, in its own place
        return 1, planes, lines
    images = max(1, min(one.batch, most // max(1, terms * o0 * o1 * o2)))
    return images, planes, lines


def _put(side: NDArray[Any], windows: NDArray[Any]) -> None:
    """A copy, by all threads where it is large."""
    width = usable_cpus()
    if side.size < 2 * SHARE or width == 1 or side.shape[0] < width:
        side[...] = windows
        return
    share = -(-side.shape[0] // width)

    def body(at: int) -> None:
        some = slice(at * share, (at + 1) * share)
        side[some] = windows[some]

    for_each(width, body, threaded=True)


def with_padding(x: NDArray[Any], w: Windows, fill: float = 0) -> NDArray[Any]:
    """What the windows read of [N, C, three spatial axes], `fill` around it."""
    is_inside, reach, inside, given = _places(w)
    if is_inside:
        return np.ascontiguousarray(x[given])
    made = pool.empty((*x.shape[:2], *reach), x.dtype)
    made[...] = fill
    made[inside] = x[given]
    return made


def side_by_side(w: Windows, numbers: NDArray[Any], fill: int) -> NDArray[Any]:
    """What the windows read of [C, three spatial axes], `fill` in the padding.

    returns  [C · kernel, windows]
    """
    padded = with_padding(numbers[None], w, fill).reshape(-1, *w.reach)
    steps = padded.strides
    taps = (d * s for d, s in zip(w.dilations, steps[1:], strict=True))
    moves = (n * s for n, s in zip(w.strides, steps[1:], strict=True))
    shape = (padded.shape[0], *w.kernel, *w.out)
    cut = np.ndarray(shape, padded.dtype, padded, strides=(steps[0], *taps, *moves))
    return cut.reshape(shape[0] * prod(w.kernel), -1)


Places = tuple[Any, ...]


@lru_cache(maxsize=256)
def _places(w: Windows) -> tuple[bool, tuple[int, ...], Places, Places]:
    """Whether there is no padding, the sizes with it; what is written, and read."""
    inside: list[Any] = [...]
    given: list[Any] = [...]
    for before, n, reach in zip(w.before, w.size, w.reach, strict=True):
        kept = max(0, min(n, reach - before))
        inside.append(slice(before, before + kept))
        given.append(slice(0, kept))
    return w.is_inside, w.reach, tuple(inside), tuple(given)


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
