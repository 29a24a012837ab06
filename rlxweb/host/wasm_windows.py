"""Convolutions in a browser's Python: the weights times windows where they lie.

The code of `machine/wasm_products.py` gathers windows of an array as it needs them, by
tables of where each begins and where each term of the sum lies from there: nothing is
laid side by side before. Few channels meet lines of windows by `machine/wasm_runs.py`.
Where windows are some elements apart, each of so many phases of a line is laid side by
side, in which they are neighbours.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.wasm_products import LEAST, ROOM, functions
from rlxweb.ir.layout import row_major
from rlxweb.machine.wasm_products import COLUMNS, PANELS, PLACE, room_of
from rlxweb.machine.wasm_runs import SHORTEST
from rlxweb.recipes.conv_calls import Convolution
from rlxweb.recipes.windows import Windows as Reached

Array = NDArray[Any]
_BYTES: Final = 4
_LEAST_PLACES: Final = 4
"""Windows on one of several images: fewer leave most of a panel empty."""
_FEW_ROWS: Final = 12
"""Channels up to which windows are met where they lie. On paper: to gather one costs as
much as to meet it with twelve.
"""
_MOST_PHASES: Final = 4
_MOST_KEPT: Final = 1 << 16
"""Elements of an array in its padding that is kept from call to call."""


class Windows:
    """The tables of a convolution, and its products.

    Tables are of one image where that has panels enough, else of all.
    """

    def __init__(self, one: Convolution) -> None:
        known = functions()
        assert known is not None  # `fit` asked
        self._known, self._groups = known, one.groups
        w, (c, m) = one.windows, one.channels
        long, step = w.out[2] >= SHORTEST, w.strides[2]
        phases = step if long and step <= _MOST_PHASES else 1
        each = -(-w.reach[2] // phases)
        self._laid = _Laid(one, phases, each)
        self._x = _in_bytes((one.batch, one.groups, c, *w.reach[:2], each * phases))
        self._made = one.batch, one.groups, m, *w.out
        self._out = _in_bytes(self._made)
        self._taps = self._taps_of(one, phases, each)
        self._by_runs = long and step == phases and m <= _FEW_ROWS
        terms = len(self._taps)
        moves = [_along(w.out[at], w.strides[at], self._x[3 + at]) for at in (0, 1)]
        together = 1
        if self._by_runs:
            self._places = _every(*moves)
        else:
            few = prod(w.out) < COLUMNS * PANELS
            together = max(1, one.batch) if few else 1
            begins = _every(*moves, _along(w.out[2], step // phases, _BYTES))
            self._places = _panels(begins, together, self._x[0], self._out[0])
        self._images = range(0, one.batch, together)
        a_row, out_row = terms * _BYTES, self._out[2]
        self._a_group, self._sizes = m * a_row, (m, terms, len(self._places))
        # A small network would feel what is asked for in every call.
        self._tables = self._taps.ctypes.data, self._places.ctypes.data
        self._steps = (w.out[2], a_row, out_row) if self._by_runs else (a_row, out_row)
        self._room = room_of(terms)
        self._w: Array | None = None
        self._a = 0

    def _taps_of(self, one: Convolution, phases: int, each: int) -> NDArray[np.int32]:
        """Where each term lies from its window's first element, in bytes."""
        w = one.windows
        first = [
            _along(w.kernel[at], w.dilations[at], self._x[3 + at]) for at in (0, 1)
        ]
        far = _along(w.kernel[2], w.dilations[2], 1)
        last = (far % phases * each + far // phases) * _BYTES
        return _every(_along(one.channels[0], 1, self._x[2]), *first, last)

    @staticmethod
    def fit(one: Convolution) -> bool:
        """Is there work for it?"""
        windows = prod(one.windows.out)
        work = one.batch * one.channels[1] * windows * one.channels[0]
        enough = work * prod(one.windows.kernel) >= LEAST
        many = windows >= _LEAST_PLACES or one.batch == 1
        return enough and many and functions() is not None

    def __call__(self, x: Array, w: Array) -> Array:
        """[N, groups, M / groups, three axes] of [N, C, …] and the weights, float32."""
        if w is not self._w:
            own = np.ascontiguousarray(w)
            # What was laid out anew goes with the call.
            self._w = w if own is w else None
            self._a = own.ctypes.data
        out, x = np.empty(self._made, np.float32), self._laid(x)
        run, rest = self._known.of_runs, self._steps
        if not self._by_runs:
            run, rest = self._known.of_windows, (*rest, ROOM.of(self._room))
        b, c = x.ctypes.data, out.ctypes.data
        for n in self._images:
            for g in range(self._groups):
                read = b + n * self._x[0] + g * self._x[1]
                written = c + n * self._out[0] + g * self._out[1]
                at = self._a + g * self._a_group
                run(at, read, *self._tables, written, *self._sizes, *rest)
        return out


class _Laid:
    """What windows read of an array [N, C, three axes], zeros around it; of a line
    every so manieth element side by side, and those after them.
    """

    def __init__(self, one: Convolution, phases: int, each: int) -> None:
        w = one.windows
        self._given = one.batch, one.groups, one.channels[0], *w.size
        self._is_there = w.is_inside and w.reach == w.size and phases == 1
        self._shape = *self._given[:3], *w.reach[:2], phases, each
        self._kept: Array | None = None
        # (where, from where) of each phase.
        self._moves: list[tuple[Any, Any]] = []
        first, second = (_kept(w, at) for at in (0, 1))
        for phase in range(phases):
            begin = (phase - w.before[2]) % phases
            end = min(w.size[2], w.reach[2] - w.before[2])
            at = (w.before[2] + begin) // phases
            count = max(0, -(-(end - begin) // phases))
            there = ..., first[0], second[0], phase, slice(at, at + count)
            here = ..., first[1], second[1], slice(begin, max(begin, end), phases)
            self._moves.append((there, here))

    def __call__(self, x: Array) -> Array:
        """The array, or one of the zeros' size."""
        if self._is_there:
            return np.ascontiguousarray(x)
        made = self._kept
        if made is None:
            made = np.zeros(self._shape, np.float32)
            # What is around the array stays: no threads there, and no call inside one.
            if made.size <= _MOST_KEPT:
                self._kept = made
        x = x.reshape(self._given)
        for there, here in self._moves:
            made[there] = x[here]
        return made


def _kept(w: Reached, at: int) -> tuple[slice, slice]:
    """Of an axis: where its elements go, and which of them do."""
    count = max(0, min(w.size[at], w.reach[at] - w.before[at]))
    return slice(w.before[at], w.before[at] + count), slice(0, count)


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
