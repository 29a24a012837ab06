"""Spectra of every segment, not averaged: spectrograms, and rows compared in pairs.

Owns how rows and segments are cut into tasks that stay in cache, and what is kept of
each segment; the arithmetic on one is `segment_power`'s. It must not know presets,
devices or what the spectra are for. The cut depends on the shapes alone, so the answer
is the same bits for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.row_blocks import Task, run_tasks
from rlxweb.host.segment_power import SegmentPower, half_bins, tables
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import (
    BLOCK_SAMPLES,
    THREADED_SAMPLES,
    frames,
    median_bias,
    segments_per_block,
)

PARTS: Final = 4
"""What a pair of rows gives: the power of each, then the cross power's two parts."""

Put = Callable[[SegmentPower, slice, slice], None]
"""(scratch, rows, segments): computes a block and writes it where it belongs."""


def segment_power(x: NDArray[Any], spec: WelchSpec) -> NDArray[Any]:
    """Power of every segment of every row, as the spec weighs it.

    Shapes   x (B, T) → (B, S, F); complex samples, one- and two-sided as the spec says
    Numerics float64 inside; the answer is spec.power_dtype
    Errors   UsageError for rows too short; DTypeError for samples the spec covers not
    """
    view = _cut(x, spec)
    n_rows, count, _ = view.shape
    out = np.empty((n_rows, count, spec.n_freqs), spec.power_dtype)
    weights = tables(spec).weights
    bins = len(weights)

    def put(scratch: SegmentPower, rows: slice, some: slice) -> None:
        squared = scratch.squares(view[rows, some])
        power = np.add(squared[..., 0::2], squared[..., 1::2]).transpose(1, 0, 2)
        mine = out[rows, some]
        np.multiply(power, weights, out=mine[..., :bins], casting="same_kind")
        if spec.n_freqs > bins:  # real samples: the other half is the mirror image
            mine[..., bins:] = mine[..., (spec.nfft - 1) // 2 : 0 : -1]

    _each_block(n_rows, count, spec, put)
    return out


def segment_spectra(
    x: NDArray[Any], spec: WelchSpec, shift: int = 0, *, doubled: bool = False
) -> NDArray[Any]:
    """Spectrum of every segment of every row, times √scale.

    shift    the sample of the padded segment at which phases are zero
    doubled  bins that stand for their mirror image too are √2 times as large, so that
             |X|² is what `segment_power` gives; else they are as they are
    Shapes   x (B, T) → complex (B, S, F)
    Numerics, errors   as `segment_power`
    """
    view = _cut(x, spec)
    n_rows, count, _ = view.shape
    kind = np.complex64 if spec.power_dtype == np.float32 else np.complex128
    out = np.empty((n_rows, count, spec.n_freqs), kind)
    factors = _factors(spec, shift, doubled)
    bins = half_bins(spec)

    def put(scratch: SegmentPower, rows: slice, some: slice) -> None:
        spectra = scratch.spectra(view[rows, some]).transpose(1, 0, 2)
        mine = out[rows, some]
        np.multiply(spectra, factors[:bins], out=mine[..., :bins], casting="same_kind")
        if spec.n_freqs > bins:
            half = spectra[..., (spec.nfft - 1) // 2 : 0 : -1].conj()
            np.multiply(half, factors[bins:], out=mine[..., bins:], casting="same_kind")

    _each_block(n_rows, count, spec, put)
    return out


def cross_power(x: NDArray[Any], y: NDArray[Any], spec: WelchSpec) -> NDArray[Any]:
    """Powers of x and y and their cross power conj(X) · Y, averaged over the segments.

    Medians, where the spec has them, are of each part by itself, as SciPy's.

    Shapes   x, y (B, T) → (B, 4, F): of x, of y, real and imaginary part of the cross
             power, all weighed as the spec says
    Numerics, errors   as `segment_power`
    """
    if spec.average == "median":
        return _cross_medians(x, y, spec)
    left, right = _cut(x, spec), _cut(y, spec)
    n_rows, count, _ = left.shape
    bins = half_bins(spec)
    block = min(count, segments_per_block(spec))
    rows = _rows_at_once(n_rows, count, spec)
    out = np.empty((n_rows, PARTS, spec.n_freqs), spec.power_dtype)
    weights = tables(spec).weights / count

    def make_worker() -> Task:
        # One scratch keeps the spectra of x while those of y are made.
        own, other = (SegmentPower(spec, rows, block) for _ in range(2))
        squares = np.empty((block, rows, 2 * bins))
        sums = np.empty((rows, PARTS, bins))

        def work(task: int) -> None:
            mine = slice(task * rows, (task + 1) * rows)
            total = sums[: len(left[mine])]
            total[...] = 0.0
            for some in _blocks(count, block):
                a = own.spectra(left[mine, some])
                _add_pair(a, other.spectra(right[mine, some]), squares, total)
            np.multiply(total, weights, out=out[mine, :, :bins], casting="same_kind")

        return work

    threads = 1 if n_rows * count * spec.nfft < THREADED_SAMPLES else None
    run_tasks(-(-n_rows // rows), make_worker, threads=threads)
    if spec.n_freqs > bins:
        out[..., bins:] = out[..., (spec.nfft - 1) // 2 : 0 : -1]
        out[:, 3, bins:] *= -1.0
    return out


def _cross_medians(x: NDArray[Any], y: NDArray[Any], spec: WelchSpec) -> NDArray[Any]:
    """`cross_power` with medians; the spectra of a pair of rows are held at a time."""
    out = np.empty((len(x), PARTS, spec.n_freqs), spec.power_dtype)
    factor = 1.0 / median_bias(spec.segments_of(x.shape[1]))

    def make_worker() -> Task:
        def work(row: int) -> None:
            a, b = (
                segment_spectra(one[row : row + 1], spec, doubled=True)[0]
                for one in (x, y)
            )
            cross = np.conj(a) * b
            parts = np.abs(a) ** 2, np.abs(b) ** 2, cross.real, cross.imag
            for part, values in enumerate(parts):
                out[row, part] = np.median(values, axis=0) * factor

        return work

    run_tasks(len(x), make_worker, threads=1)
    return out


def _add_pair(
    a: NDArray[np.complex128],
    b: NDArray[np.complex128],
    squares: NDArray[np.float64],
    sums: NDArray[np.float64],
) -> None:
    """Powers and cross power of spectra (q, r, bins) onto sums (r, 4, bins).

    Overwrites both.
    """
    room = squares[: a.shape[0], : a.shape[1]]
    for part, spectra in enumerate((a, b)):
        parts = spectra.view(np.float64)
        total = np.add.reduce(np.multiply(parts, parts, out=room), axis=0)
        sums[:, part] += total[:, 0::2]
        sums[:, part] += total[:, 1::2]
    np.conjugate(a, out=a)
    cross = np.add.reduce(np.multiply(a, b, out=a), axis=0)
    sums[:, 2] += cross.real
    sums[:, 3] += cross.imag


def _cut(x: NDArray[Any], spec: WelchSpec) -> NDArray[Any]:
    """The rows' segments as a view (B, S, nperseg)."""
    spec.must_cover(x.dtype)
    return frames(x, spec.nperseg, spec.hop, spec.segments_of(x.shape[1]))


def _factors(spec: WelchSpec, shift: int, doubled: bool) -> NDArray[Any]:
    """(F,) what each bin of a segment's transform is multiplied by."""
    size = np.full(spec.n_freqs, np.sqrt(spec.scale))
    if doubled and spec.one_sided:
        size = np.sqrt(tables(spec).weights)
    if not shift:
        return size
    turns = np.arange(spec.n_freqs) * shift % spec.nfft
    turned: NDArray[Any] = size * np.exp(2j * np.pi / spec.nfft * turns)
    return turned


def _blocks(count: int, block: int) -> Iterator[slice]:
    for first in range(0, count, block):
        yield slice(first, min(first + block, count))


def _rows_at_once(n_rows: int, count: int, spec: WelchSpec) -> int:
    """Rows so short that a block holds several of them entire; else one."""
    return max(1, min(n_rows, BLOCK_SAMPLES // (count * spec.nfft)))


def _each_block(n_rows: int, count: int, spec: WelchSpec, put: Put) -> None:
    """Every block of segments of every row, on a few threads where it is worth it."""
    block = min(count, segments_per_block(spec))
    rows = _rows_at_once(n_rows, count, spec)
    parts = list(_blocks(count, block))

    def make_worker() -> Task:
        scratch = SegmentPower(spec, rows, block)

        def work(task: int) -> None:
            at, part = divmod(task, len(parts))
            put(scratch, slice(at * rows, (at + 1) * rows), parts[part])

        return work

    threads = 1 if n_rows * count * spec.nfft < THREADED_SAMPLES else None
    run_tasks(-(-n_rows // rows) * len(parts), make_worker, threads=threads)
