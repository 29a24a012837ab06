"""Sound at another rate: a polyphase filter over any stretch, in NumPy alone.

What comes out of a stretch does not hang on where other stretches begin. Ratios of
small numbers are one matrix product for many samples at once; others take the taps of
each sample from a table.

Source   Oppenheim & Schafer, Discrete-Time Signal Processing, 4.6; Kaiser's window
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.forked import cached_property

Array = npt.NDArray[Any]

_REACH = 50
"""Samples of the slower rate that the filter reaches to either side."""
_BETA = 8.96
"""Kaiser's, for 90 dB."""
_EDGE = 0.943
"""Where the filter is at half, as a share of the slower rate's Nyquist frequency."""
_MOST_TERM = 1 << 30
_PHASES = 1 << 11
"""Places between two samples that have taps of their own, where places do not repeat
soon; others lie on the line between two of them.
"""
_MOST_CELLS = 1 << 20
_LEAST_ROWS = 64
_PIECE = 1 << 12


class Resampler:
    """`up` samples for every `down`.

    back   samples before the place of an output that it takes, that place counted
    taps   samples that an output takes
    """

    def __init__(self, fs: float, rate: float) -> None:
        """fs, rate: Hz before and after."""
        ratio = Fraction(rate / fs).limit_denominator(_MOST_TERM)
        self.up, self.down = ratio.numerator, ratio.denominator
        self._slow = max(1.0, self.down / self.up)
        half = int(np.ceil(_REACH * self._slow))
        self.back, self.taps = half - 1, 2 * half

    def length(self, n_samples: int) -> int:
        """How many samples so many become."""
        return -(-n_samples * self.up // self.down)

    def needs(self, start: int, stop: int) -> tuple[int, int]:
        """[first, last) of the samples of which [start, stop) of the outputs are made.

        Both may lie outside the sound, where it is silent.
        """
        first = self._begun(start) * self.down // self.up - self.back
        last = (stop - 1) * self.down // self.up - self.back + self.taps
        return first, last

    def _begun(self, start: int) -> int:
        """The output with which a stretch is begun: one that lies on a sample."""
        return start - start % self.up if self._is_short else start

    @property
    def _is_short(self) -> bool:
        """Do the places of outputs repeat soon?"""
        return self.up * (self.down + self.taps) <= _MOST_CELLS

    def made(self, x: Array, start: int, stop: int) -> Array:
        """Outputs [start, stop), float32.

        x   samples `needs(start, stop)`
        """
        if start >= stop:
            return np.empty(0, np.float32)
        x = np.ascontiguousarray(x, np.float32)
        if not self._is_short:
            return self._each(x, start, stop)
        skip = start - self._begun(start)
        return self._at_once(x, stop - start + skip)[skip : stop - start + skip]

    def _at_once(self, x: Array, count: int) -> Array:
        """A few turns of the filter as one matrix."""
        matrix, step = self._matrix
        blocks = -(-count // matrix.shape[1])
        wide = (blocks - 1) * step + matrix.shape[0]
        x = np.pad(x, (0, max(0, wide - len(x))))
        rows = np.lib.stride_tricks.sliding_window_view(x, matrix.shape[0])[::step]
        made: Array = rows[:blocks] @ matrix
        return made.reshape(-1)

    def _each(self, x: Array, start: int, stop: int) -> Array:
        made = np.empty(stop - start, np.float32)
        windows = np.lib.stride_tricks.sliding_window_view(x, self.taps)
        origin = start * self.down // self.up
        most = len(self._phases) - 1
        for begin in range(start, stop, _PIECE):
            end = min(begin + _PIECE, stop)
            # of 64 bits in a tab too, whose own integers have 32
            place = np.arange(begin, end, dtype=np.int64) * self.down
            phase, rest = np.divmod(place % self.up * most, self.up)
            below, above = self._phases[phase], self._phases[phase + 1]
            share = (rest / self.up).astype(np.float32)[:, None]
            own = windows[place // self.up - origin]
            at = begin - start
            taps = below + share * (above - below)
            made[at : at + len(place)] = np.einsum("ij,ij->i", own, taps)
        return made

    @cached_property
    def _phases(self) -> Array:
        """(phases + 1, taps): what an output takes of its samples, by how far behind
        one of them it lies.
        """
        count = self.up if self._is_short else _PHASES
        behind = np.arange(count + 1)[:, None] / count
        distance = behind - (np.arange(self.taps) - self.back)
        share = distance / (self.taps / 2)
        inside = np.sqrt(np.maximum(0.0, 1.0 - share * share))
        taps = np.sinc(distance * _EDGE / self._slow) * np.i0(_BETA * inside)
        # A steady value stays what it is, wherever an output lies.
        even: Array = taps / taps.sum(axis=1, keepdims=True)
        return even.astype(np.float32)

    @cached_property
    def _matrix(self) -> tuple[Array, int]:
        """(samples, outputs) of one block, and by how many samples blocks differ."""
        turns = max(1, -(-_LEAST_ROWS // self.up))
        outputs, step = self.up * turns, self.down * turns
        place = np.arange(outputs, dtype=np.int64) * self.down
        matrix = np.zeros((place[-1] // self.up + self.taps, outputs), np.float32)
        rows = (place // self.up)[:, None] + np.arange(self.taps)
        matrix[rows, np.arange(outputs)[:, None]] = self._phases[place % self.up]
        return matrix, step


class Running:
    """A sound that still runs, at another rate; what comes out lags 50 samples."""

    def __init__(self, fs: float, rate: float) -> None:
        self._own = Resampler(fs, rate)
        self._first = self._own.needs(0, 1)[0]
        self._x = np.zeros(-self._first, np.float32)
        self._made = 0

    def push(self, x: Array) -> Array:
        """The samples that can be made now, float32."""
        own = self._own
        self._x = np.concatenate([self._x, x.astype(np.float32)])
        latest = self._first + len(self._x) + own.back - own.taps
        start, stop = self._made, ((latest + 1) * own.up - 1) // own.down + 1
        if stop <= start:
            return np.empty(0, np.float32)
        first, last = own.needs(start, stop)
        made = own.made(self._x[first - self._first : last - self._first], start, stop)
        self._made = stop
        keep = max(0, own.needs(stop, stop + 1)[0] - self._first)
        self._x, self._first = self._x[keep:], self._first + keep
        return made
