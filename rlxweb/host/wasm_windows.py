"""Convolutions in a browser's Python: the weights times windows where they lie.

The code of `machine/wasm_products.py` gathers windows of an array as it needs them, by
tables of where each begins and where each term of the sum lies from there: nothing is
laid side by side before. Few channels meet lines of windows by `machine/wasm_lines.py`.
Where windows are some elements apart, each of so many phases of a line is laid side by
side, in which they are neighbours.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.wasm_products import LEAST, functions
from rlxweb.ir.layout import row_major
from rlxweb.machine.wasm_lines import SHORTEST
from rlxweb.machine.wasm_products import COLUMNS, PANELS, PLACE, room_of
from rlxweb.recipes.conv_calls import Convolution

Array = NDArray[Any]
_BYTES: Final = 4
_LEAST_PLACES: Final = 4
"""Windows on one of several images: fewer leave most of a panel empty."""
_FEW_ROWS: Final = 12
"""Channels up to which to gather a window takes longer than to meet it where it is."""
_MOST_PHASES: Final = 4


class Windows:
    """The tables of a convolution, and its products.

    Tables are of one image where that has panels enough, else of all.
    """

    def __init__(self, one: Convolution) -> None:
        w, (c, m) = one.windows, one.channels
        self._groups = one.groups
        self._terms, places = c * prod(w.kernel), prod(w.out)
        long, step = w.out[2] >= SHORTEST, w.strides[2]
        self._phases = step if long and step <= _MOST_PHASES else 1
        self._each = -(-w.reach[2] // self._phases)
        held = one.batch, one.groups, c, *w.reach[:2], self._each * self._phases
        self._held = *held[:-1], self._phases, self._each
        self._x = _in_bytes(held)
        self._out = _in_bytes((one.batch, one.groups, m, *w.out))
        side = [_along(w.kernel[at], w.dilations[at], self._x[3 + at]) for at in (0, 1)]
        far = _along(w.kernel[2], w.dilations[2], 1)
        place, phase = far // self._phases, far % self._phases
        side.append((phase * self._each + place) * _BYTES)
        channels = _along(c, 1, self._x[2])
        self._taps = _every(channels, *side)
        moves = [_along(w.out[at], w.strides[at], self._x[3 + at]) for at in (0, 1)]
        next_to = step // self._phases
        self._by_lines = long and next_to == 1 and m <= _FEW_ROWS
        if self._by_lines:
            each, self._places = 1, _every(*moves)
        else:
            each = 1 if places >= COLUMNS * PANELS else one.batch
            begins = _every(*moves, _along(w.out[2], next_to, _BYTES))
            self._places = _panels(begins, each, self._x[0], self._out[0])
        self._images = range(0, one.batch, max(1, each))
        a_row, out_row = self._terms * _BYTES, self._out[2]
        self._a_group, self._sizes = m * a_row, (m, self._terms, len(self._places))
        # No threads there, and nothing of a call is left in it.
        self._room = np.empty(room_of(self._terms), np.float32)
        # A small network would feel what is asked for in every call.
        self._tables = self._taps.ctypes.data, self._places.ctypes.data
        self._rest = a_row, out_row, self._room.ctypes.data
        if self._by_lines:
            self._rest = w.out[2], a_row, out_row

    @staticmethod
    def fit(one: Convolution) -> bool:
        """Is there work for it?"""
        windows = prod(one.windows.out)
        work = one.batch * one.channels[1] * windows * one.channels[0]
        enough = work * prod(one.windows.kernel) >= LEAST
        many = windows >= _LEAST_PLACES or one.batch == 1
        return enough and many and functions() is not None

    def into(self, x: Array, weights: Array, out: Array) -> bool:
        """The products of weights [groups, M, terms] with the windows of x [N, groups,
        C, three axes], float32, into [N, groups, M, three axes]: were they made?
        """
        known = functions()
        if known is None:
            return False
        x = self._in_phases(x)
        a, b, c = weights.ctypes.data, x.ctypes.data, out.ctypes.data
        run = known.of_lines if self._by_lines else known.of_windows
        for n in self._images:
            for g in range(self._groups):
                read = b + n * self._x[0] + g * self._x[1]
                written = c + n * self._out[0] + g * self._out[1]
                at = a + g * self._a_group
                run(at, read, *self._tables, written, *self._sizes, *self._rest)
        return True

    def _in_phases(self, x: Array) -> Array:
        """Every so manieth element of a line side by side, and those after them."""
        if self._phases == 1:
            return x
        made = np.empty(self._held, x.dtype)
        for phase in range(self._phases):
            own = x[..., phase :: self._phases]
            made[..., phase, : own.shape[-1]] = own
        return made


def _in_bytes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(step * _BYTES for step in row_major(shape))


def _along(size: int, stride: int, step: int) -> NDArray[np.int64]:
    return np.arange(size, dtype=np.int64) * stride * step


def _every(*axes: NDArray[np.int64]) -> NDArray[np.int32]:
    """Where each element of a box lies, in order, by what is on each axis."""
    made = np.zeros((), np.int64)
    for one in axes:
        made = made[..., None] + one
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
