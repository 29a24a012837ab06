"""A learned transform in NumPy: segments of many rows in blocks, on a few threads."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.row_blocks import Task, run_tasks
from rlxweb.host.segment_power import tables
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import frames
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.learned.transform import (
    LearnedTransform,
    places,
    rows_of,
)

_BLOCK: Final = 1 << 16
"""Samples of segments that are transformed at a time: they stay in cache."""
_THREADED: Final = 1 << 19


def learned_power(
    x: NDArray[Any], spec: WelchSpec, transform: LearnedTransform, band: Band
) -> NDArray[np.float64]:
    """Average power (B, bins) of a band of rows x (B, T), float32 or float64.

    The arithmetic is in the samples' precision, the sums of power are in float64.
    """
    count = spec.segments_of(x.shape[1])
    view = frames(x, spec.nperseg, spec.hop, count)
    out = np.zeros((len(x), len(band)))
    each = max(1, _BLOCK // spec.nperseg)
    cuts = [
        (row, at, min(count, at + each))
        for row in range(len(x))
        for at in range(0, count, each)
    ]
    # Parts of one row are added in their order, whoever computes them.
    parts = np.empty((len(cuts), len(band)))
    program = _Program(transform, band, x.dtype)

    def task(at: int) -> None:
        row, first, stop = cuts[at]
        parts[at] = program.power(view[row, first:stop])

    def make_worker() -> Task:
        return task

    threads = 1 if view.size < _THREADED else None
    run_tasks(len(cuts), make_worker, threads=threads)
    np.add.at(out, [row for row, _, _ in cuts], parts)
    out *= tables(spec).weights[band.bins] / count
    return out


class _Program:
    """The tables of a transform for a band, in a precision."""

    def __init__(
        self, transform: LearnedTransform, band: Band, dtype: np.dtype[Any]
    ) -> None:
        own, program = rows_of(band, transform.band), transform.program
        wide = np.result_type(dtype, np.complex64)
        at, turned = places(program, transform.band)
        self.at = at[own]
        self.weights = program.weights[own].T.astype(wide)
        # Of a value that is turned over the sum is, whose power is the same.
        self.weights[:, turned[own]] = self.weights[:, turned[own]].conj()
        window = np.frombuffer(transform.window)
        self.cuts = [slice(p, None, program.stride) for p in program.phases]
        self.windows = [window[cut].astype(dtype) for cut in self.cuts]
        self.detrend = transform.detrend

    def power(self, segments: NDArray[Any]) -> NDArray[np.float64]:
        """The sum over segments (S, n) of the power of each bin."""
        level: Any = None
        if self.detrend:
            level = segments.mean(axis=1, dtype=np.float64, keepdims=True)
            level = level.astype(segments.dtype)
        total: Any = None
        for cut, window, weights in zip(
            self.cuts, self.windows, self.weights, strict=True
        ):
            part = segments[:, cut] if level is None else segments[:, cut] - level
            part = part * window
            made = np.fft.rfft(part, axis=1)[:, self.at] * weights
            total = made if total is None else np.add(total, made, out=total)
        squares = np.square(total.real) + np.square(total.imag)
        found: NDArray[np.float64] = squares.sum(axis=0, dtype=np.float64)
        return found
