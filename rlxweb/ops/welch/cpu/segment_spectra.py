"""Spectra of every segment, not averaged: for spectrograms and for rows compared in
pairs.

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

from rlxweb.core.thread_tasks import Task, run_tasks
from rlxweb.ops.welch.cpu.segment_fft_workspace import (
    SegmentWorkspace,
    fft_bin_count,
    welch_tables,
)
from rlxweb.ops.welch.cpu.spectrum import (
    BLOCK_SAMPLES,
    THREADED_SAMPLES,
    median_bias,
    segment_view,
    segments_per_block,
)
from rlxweb.ops.welch.spec import WelchSpec

CROSS_PARTS: Final = 4
"""Number of results of a pair of rows: the power of each, then the cross power's two
parts.
"""

BlockWriter = Callable[[SegmentWorkspace, slice, slice], None]
"""Function (workspace, rows, segments) that computes a block and writes it in its
place.
"""


def segment_power(x: NDArray[Any], spec: WelchSpec) -> NDArray[Any]:
    """Return the power of every segment of every row, weighted as the spec says.

    Shapes   x (B, T) → (B, S, F); complex samples, one- and two-sided as the spec says
    Numerics float64 inside; the answer is spec.power_dtype
    Errors   UsageError for rows too short; DTypeError for samples the spec covers not
    """
    view = _segment_view(x, spec)
    n_rows, segment_count, _ = view.shape
    out = np.empty((n_rows, segment_count, spec.n_freqs), spec.power_dtype)
    weights = welch_tables(spec).weights
    bins = len(weights)

    def write_block(workspace: SegmentWorkspace, rows: slice, segments: slice) -> None:
        squared = workspace.squared_parts(view[rows, segments])
        power = np.add(squared[..., 0::2], squared[..., 1::2]).transpose(1, 0, 2)
        target = out[rows, segments]
        np.multiply(power, weights, out=target[..., :bins], casting="same_kind")
        if spec.n_freqs > bins:  # real samples: the other half is the mirror image
            target[..., bins:] = target[..., (spec.nfft - 1) // 2 : 0 : -1]

    _for_each_block(n_rows, segment_count, spec, write_block)
    return out


def segment_spectra(
    x: NDArray[Any], spec: WelchSpec, shift: int = 0, *, doubled: bool = False
) -> NDArray[Any]:
    """Return the spectrum of every segment of every row, times √scale.

    shift    the sample of the padded segment at which phases are zero
    doubled  bins that stand for their mirror image too are √2 times as large, so that
             |X|² is what `segment_power` gives; else they are as they are
    Shapes   x (B, T) → complex (B, S, F)
    Numerics, errors   as `segment_power`
    """
    view = _segment_view(x, spec)
    n_rows, segment_count, _ = view.shape
    dtype = np.complex64 if spec.power_dtype == np.float32 else np.complex128
    out = np.empty((n_rows, segment_count, spec.n_freqs), dtype)
    factors = _bin_factors(spec, shift, doubled)
    bins = fft_bin_count(spec)

    def write_block(workspace: SegmentWorkspace, rows: slice, segments: slice) -> None:
        spectra = workspace.spectra(view[rows, segments]).transpose(1, 0, 2)
        target = out[rows, segments]
        np.multiply(
            spectra, factors[:bins], out=target[..., :bins], casting="same_kind"
        )
        if spec.n_freqs > bins:
            mirrored = spectra[..., (spec.nfft - 1) // 2 : 0 : -1].conj()
            np.multiply(
                mirrored, factors[bins:], out=target[..., bins:], casting="same_kind"
            )

    _for_each_block(n_rows, segment_count, spec, write_block)
    return out


def cross_power(x: NDArray[Any], y: NDArray[Any], spec: WelchSpec) -> NDArray[Any]:
    """Return the powers of x and y and their cross power conj(X) · Y, averaged over the
    segments.

    Medians, where the spec has them, are of each part by itself, as SciPy's.

    Shapes   x, y (B, T) → (B, 4, F): of x, of y, real and imaginary part of the cross
             power, all weighed as the spec says
    Numerics, errors   as `segment_power`
    """
    if spec.average == "median":
        return _cross_medians(x, y, spec)
    x_segments, y_segments = _segment_view(x, spec), _segment_view(y, spec)
    n_rows, segment_count, _ = x_segments.shape
    bins = fft_bin_count(spec)
    block_segments = min(segment_count, segments_per_block(spec))
    block_rows = _rows_per_block(n_rows, segment_count, spec)
    out = np.empty((n_rows, CROSS_PARTS, spec.n_freqs), spec.power_dtype)
    weights = welch_tables(spec).weights / segment_count

    def make_worker() -> Task:
        # One scratch keeps the spectra of x while those of y are made.
        x_workspace, y_workspace = (
            SegmentWorkspace(spec, block_rows, block_segments) for _ in range(2)
        )
        squares = np.empty((block_segments, block_rows, 2 * bins))
        sums = np.empty((block_rows, CROSS_PARTS, bins))

        def run_task(task: int) -> None:
            row_slice = slice(task * block_rows, (task + 1) * block_rows)
            total = sums[: len(x_segments[row_slice])]
            total[...] = 0.0
            for segments in _segment_blocks(segment_count, block_segments):
                x_spectra = x_workspace.spectra(x_segments[row_slice, segments])
                _add_pair(
                    x_spectra,
                    y_workspace.spectra(y_segments[row_slice, segments]),
                    squares,
                    total,
                )
            np.multiply(
                total, weights, out=out[row_slice, :, :bins], casting="same_kind"
            )

        return run_task

    threads = 1 if n_rows * segment_count * spec.nfft < THREADED_SAMPLES else None
    run_tasks(-(-n_rows // block_rows), make_worker, threads=threads)
    if spec.n_freqs > bins:
        out[..., bins:] = out[..., (spec.nfft - 1) // 2 : 0 : -1]
        out[:, 3, bins:] *= -1.0
    return out


def _cross_medians(x: NDArray[Any], y: NDArray[Any], spec: WelchSpec) -> NDArray[Any]:
    """Compute `cross_power` with medians; the spectra of one pair of rows are held at a
    time.
    """
    out = np.empty((len(x), CROSS_PARTS, spec.n_freqs), spec.power_dtype)
    factor = 1.0 / median_bias(spec.segments_per_row(x.shape[1]))

    def make_worker() -> Task:
        def run_row(row: int) -> None:
            x_spectra, y_spectra = (
                segment_spectra(samples[row : row + 1], spec, doubled=True)[0]
                for samples in (x, y)
            )
            cross = np.conj(x_spectra) * y_spectra
            results = (
                np.abs(x_spectra) ** 2,
                np.abs(y_spectra) ** 2,
                cross.real,
                cross.imag,
            )
            for result_index, values in enumerate(results):
                out[row, result_index] = np.median(values, axis=0) * factor

        return run_row

    run_tasks(len(x), make_worker, threads=1)
    return out


def _add_pair(
    a: NDArray[np.complex128],
    b: NDArray[np.complex128],
    squares: NDArray[np.float64],
    sums: NDArray[np.float64],
) -> None:
    """Add the powers and the cross power of spectra (q, r, bins) to sums (r, 4, bins).

    Overwrites both.
    """
    scratch = squares[: a.shape[0], : a.shape[1]]
    for part, spectra in enumerate((a, b)):
        components = spectra.view(np.float64)
        total = np.add.reduce(np.multiply(components, components, out=scratch), axis=0)
        sums[:, part] += total[:, 0::2]
        sums[:, part] += total[:, 1::2]
    np.conjugate(a, out=a)
    cross = np.add.reduce(np.multiply(a, b, out=a), axis=0)
    sums[:, 2] += cross.real
    sums[:, 3] += cross.imag


def _segment_view(x: NDArray[Any], spec: WelchSpec) -> NDArray[Any]:
    """Return the rows' segments as a view (B, S, nperseg)."""
    spec.check_dtype(x.dtype)
    return segment_view(x, spec.nperseg, spec.hop, spec.segments_per_row(x.shape[1]))


def _bin_factors(spec: WelchSpec, shift: int, doubled: bool) -> NDArray[Any]:
    """Return the factors (F,) of each bin of a segment's transform."""
    magnitude = np.full(spec.n_freqs, np.sqrt(spec.scale))
    if doubled and spec.one_sided:
        magnitude = np.sqrt(welch_tables(spec).weights)
    if not shift:
        return magnitude
    phase_steps = np.arange(spec.n_freqs) * shift % spec.nfft
    factors: NDArray[Any] = magnitude * np.exp(2j * np.pi / spec.nfft * phase_steps)
    return factors


def _segment_blocks(count: int, block: int) -> Iterator[slice]:
    """Yield slices of `block` segments."""
    for first in range(0, count, block):
        yield slice(first, min(first + block, count))


def _rows_per_block(n_rows: int, count: int, spec: WelchSpec) -> int:
    """Return the number of rows a block holds entirely; 1 for longer rows."""
    return max(1, min(n_rows, BLOCK_SAMPLES // (count * spec.nfft)))


def _for_each_block(
    n_rows: int, segment_count: int, spec: WelchSpec, write_block: BlockWriter
) -> None:
    """Process every block of segments of every row, on a few threads where that
    pays.
    """
    block_segments = min(segment_count, segments_per_block(spec))
    block_rows = _rows_per_block(n_rows, segment_count, spec)
    segment_blocks = list(_segment_blocks(segment_count, block_segments))

    def make_worker() -> Task:
        workspace = SegmentWorkspace(spec, block_rows, block_segments)

        def run_task(task: int) -> None:
            row_block, segment_block = divmod(task, len(segment_blocks))
            write_block(
                workspace,
                slice(row_block * block_rows, (row_block + 1) * block_rows),
                segment_blocks[segment_block],
            )

        return run_task

    threads = 1 if n_rows * segment_count * spec.nfft < THREADED_SAMPLES else None
    run_tasks(
        -(-n_rows // block_rows) * len(segment_blocks), make_worker, threads=threads
    )
