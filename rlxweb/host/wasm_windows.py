"""Convolutions in a browser's Python: the weights times windows where they lie.

The code of `machine/wasm_products.py` gathers windows of an array as it needs them, by
tables of where each begins and where each term of the sum lies from there: nothing is
laid side by side before.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.wasm_products import LEAST, functions
from rlxweb.ir.layout import row_major
from rlxweb.machine.wasm_products import COLUMNS, PANELS, PLACE, room_of
from rlxweb.recipes.conv_calls import Convolution

Array = NDArray[Any]
_BYTES: Final = 4
_LEAST_PLACES: Final = 4
"""Windows on an image: fewer leave most of a panel empty."""


class Windows:
    """The tables of a convolution, and its products.

    Tables are of one image where that has panels enough, else of all.
    """

    def __init__(self, one: Convolution) -> None:
        w, (c, m) = one.windows, one.channels
        self._groups, self._rows = one.groups, m
        self._terms, places = c * prod(w.kernel), prod(w.out)
        held = one.batch, one.groups, c, *w.reach
        made = one.batch, one.groups, m, *w.out
        self._x, self._out = (_in_bytes(shape) for shape in (held, made))
        each = 1 if places >= COLUMNS * PANELS else one.batch
        self._images = range(0, one.batch, max(1, each))
        taps = (d * s for d, s in zip(w.dilations, self._x[3:], strict=True))
        moves = (n * s for n, s in zip(w.strides, self._x[3:], strict=True))
        self._taps = _walked((c, *w.kernel), (self._x[2], *taps))
        self._places = _panels(
            _walked(w.out, tuple(moves)), each, self._x[0], self._out[0]
        )
        self._room = room_of(self._terms)

    @staticmethod
    def fit(one: Convolution) -> bool:
        """Is there work for it?"""
        windows = prod(one.windows.out)
        work = one.batch * one.channels[1] * windows * one.channels[0]
        enough = work * prod(one.windows.kernel) >= LEAST
        return enough and windows >= _LEAST_PLACES and functions() is not None

    def into(self, x: Array, weights: Array, out: Array) -> bool:
        """The products of weights [groups, M, terms] with the windows of x [N, groups,
        C, three axes], float32, into [N, groups, M, three axes]: were they made?
        """
        known = functions()
        if known is None:
            return False
        room = np.empty(self._room, np.float32)
        tables = self._taps.ctypes.data, self._places.ctypes.data
        a_row, out_row = self._terms * _BYTES, self._out[2]
        sizes = self._rows, self._terms, len(self._places)
        a, b, c = weights.ctypes.data, x.ctypes.data, out.ctypes.data
        for n in self._images:
            for g in range(self._groups):
                read = b + n * self._x[0] + g * self._x[1]
                written = c + n * self._out[0] + g * self._out[1]
                known.of_windows(
                    *(a + g * self._rows * a_row, read, *tables, written),
                    *(*sizes, a_row, out_row, room.ctypes.data),
                )
        return True


def _in_bytes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(step * _BYTES for step in row_major(shape))


def _walked(sizes: tuple[int, ...], steps: tuple[int, ...]) -> NDArray[np.int32]:
    """Where each element of such a box lies, in order."""
    made = np.zeros((), np.int64)
    for size, step in zip(sizes, steps, strict=True):
        made = made[..., None] + np.arange(size) * step
    return made.reshape(-1).astype(np.int32)


def _panels(
    begins: NDArray[np.int32], images: int, x_step: int, out_step: int
) -> NDArray[np.int32]:
    """The records of the panels of so many images; none is of two."""
    starts = np.arange(0, len(begins), COLUMNS)
    at = np.minimum(starts[:, None] + np.arange(COLUMNS), len(begins) - 1)
    count = np.minimum(COLUMNS, len(begins) - starts)
    made = np.empty((images, len(starts), PLACE), np.int32)
    every = np.arange(images)[:, None]
    made[..., :COLUMNS] = begins[at] + every[..., None] * x_step
    made[..., COLUMNS] = starts * _BYTES + every * out_step
    made[..., COLUMNS + 1] = count
    return made.reshape(-1, PLACE)
