"""Averaged power spectra of many rows, in cache-sized blocks on a few threads.

Owns how rows and segments are cut into tasks; the arithmetic is in
`segment_fft_workspace.py`. It must not know presets, peaks, files or devices. The cut
depends on the shapes alone, so the answer is the same bits for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.errors import UsageError
from rlxweb.core.lru_cache import SMALL_TABLE_SAMPLES, lru_cache_if_small
from rlxweb.core.thread_tasks import Task, run_tasks
from rlxweb.ops.welch.cpu.segment_fft_workspace import (
    SegmentWorkspace,
    fft_bin_count,
    thread_workspace,
)
from rlxweb.ops.welch.spec import WelchSpec, sample_dtype

# 32,768 float64 samples and their spectrum are 512 KiB together: they stay in the
# second-level cache of current CPUs, and a NumPy call on them outweighs its overhead.
BLOCK_SAMPLES = 32_768
# About 1 ms of work: below it a second thread may cost more than it gives.
THREADED_SAMPLES = 262_144
# A row of many blocks is summed as this many stretches, then the stretches are summed.
STRETCH_COUNT = 16
_STRETCH_BYTES = 32 << 20

# Above this rate, in Hz, a bin's number times the rate may overflow.
_OVERFLOW_RATE_HZ = 1e290

_CONTEXT = "welch"


def frequencies(spec: WelchSpec, fs: float = 1.0) -> NDArray[np.float64]:
    """Return the bins' frequencies, (F,), in the unit of fs, in the order of the
    power.
    """
    bin_numbers, rate = _bin_numbers(spec.nfft, spec.one_sided), float(fs)
    if rate > _OVERFLOW_RATE_HZ:
        return bin_numbers / spec.nfft * rate  # the product of both is past the range
    return bin_numbers * rate / spec.nfft


@lru_cache_if_small(64, lambda nfft, one_sided: nfft <= SMALL_TABLE_SAMPLES)
def _bin_numbers(nfft: int, one_sided: bool) -> NDArray[np.float64]:
    """Return the bin numbers, read-only; those past the middle count from the end."""
    bin_numbers = np.arange(nfft // 2 + 1 if one_sided else nfft, dtype=np.float64)
    if not one_sided:
        bin_numbers[(nfft + 1) // 2 :] -= nfft
    bin_numbers.setflags(write=False)
    return bin_numbers


def median_bias(n_segments: int) -> float:
    """Return the expected ratio of the median of n_segments periodogram values to their
    mean.
    """
    pairs = 2.0 * np.arange(1, (n_segments - 1) // 2 + 1)
    return 1.0 + float(np.sum(1.0 / (pairs + 1.0) - 1.0 / pairs))


def segment_view(
    x: NDArray[Any], nperseg: int, hop: int, n_segments: int
) -> NDArray[Any]:
    """Return x (..., T) as segments (..., S, nperseg), a view; no sample is copied."""
    sample_stride = x.strides[-1]
    shape = (*x.shape[:-1], n_segments, nperseg)
    strides = (*x.strides[:-1], hop * sample_stride, sample_stride)
    if x.flags.c_contiguous:
        # The constructor costs a tenth of as_strided, which small batches feel, and
        # it checks the bounds.
        view: NDArray[Any] = np.ndarray(shape, x.dtype, x, 0, strides)
        return view
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)


def segments_per_block(spec: WelchSpec) -> int:
    """Return the segments that one pass over the workspace holds."""
    return max(1, BLOCK_SAMPLES // spec.nfft)


def welch_power(
    x: NDArray[Any], spec: WelchSpec, *, threads: int | None = None
) -> NDArray[Any]:
    """Return the average power spectrum of every row.

    Shapes   x (B, T), any strides, T ≥ nperseg → (B, F), F = spec.n_freqs
    Units    x in U, fs in Hz → U²/Hz for scaling 'density', U² otherwise
    Numerics float64 inside; the answer is spec.power_dtype; the same bits for any
             number of threads; NaN and infinity spread over their own row only
    Errors   UsageError unless x is 2-D and long enough; DTypeError for a dtype that
             the spec does not cover
    """
    if x.ndim != 2:
        raise UsageError(
            _CONTEXT,
            f"the samples have shape {x.shape}",
            "expected shape (rows, time)",
        )
    n_segments, n_freqs, dtype = _output_layout(spec, x.dtype, x.shape[1])
    power = np.empty((x.shape[0], n_freqs), dtype)
    if not power.size:
        return power
    view = segment_view(x, spec.nperseg, spec.hop, n_segments)
    if view.shape[0] * n_segments * spec.nfft < THREADED_SAMPLES:
        threads = 1
    if spec.average == "median" and n_segments > 1:
        _write_medians(view, spec, power, threads)
    elif n_segments <= segments_per_block(spec):
        _write_short_rows(view, spec, power, threads)
    else:
        _write_long_rows(view, spec, power, threads)
    return power


@lru_cache_if_small(
    128, lambda spec, dtype, n_samples: spec.nperseg <= SMALL_TABLE_SAMPLES
)
def _output_layout(
    spec: WelchSpec, dtype: np.dtype[Any], n_samples: int
) -> tuple[int, int, np.dtype[Any]]:
    """Return the segments of a row, and the result's bins and dtype; reject unsupported
    samples.
    """
    sample_dtype(dtype)  # refuses what nobody takes
    spec.check_dtype(dtype)
    return spec.segments_per_row(n_samples), spec.n_freqs, spec.power_dtype


def _write_short_rows(
    view: NDArray[Any], spec: WelchSpec, power: NDArray[Any], threads: int | None
) -> None:
    """Compute rows so short that a block holds one or more of them entirely."""
    n_rows, n_segments, _ = view.shape
    block_rows = min(n_rows, max(1, BLOCK_SAMPLES // (n_segments * spec.nfft)))

    def make_worker() -> Task:
        workspace = thread_workspace(spec, block_rows, n_segments)

        def run_task(task: int) -> None:
            row_slice = slice(task * block_rows, (task + 1) * block_rows)
            workspace.write_mean_power(
                workspace.sum_squares(view[row_slice]), n_segments, power[row_slice]
            )

        return run_task

    run_tasks(-(-n_rows // block_rows), make_worker, threads=threads)


def _write_long_rows(
    view: NDArray[Any], spec: WelchSpec, power: NDArray[Any], threads: int | None
) -> None:
    """Compute rows of several blocks: sums per stretch of segments, then over the
    stretches.

    A few rows are done at a time, so that the partial sums stay small.
    """
    n_rows, n_segments, _ = view.shape
    block_segments = segments_per_block(spec)
    n_blocks = -(-n_segments // block_segments)
    stretch_segments = -(-n_blocks // min(n_blocks, STRETCH_COUNT)) * block_segments
    n_stretches = -(-n_segments // stretch_segments)
    sums_length = 2 * fft_bin_count(spec)
    block_rows = max(
        1, min(n_rows, STRETCH_COUNT, _STRETCH_BYTES // (n_stretches * sums_length * 8))
    )
    partial = np.empty((block_rows, n_stretches, sums_length))
    workspace = SegmentWorkspace(spec, block_rows, 0)
    for first_row in range(0, n_rows, block_rows):
        row_block = view[first_row : first_row + block_rows]
        make_worker = _stretch_worker_factory(
            row_block, spec, block_segments, stretch_segments, partial
        )
        run_tasks(len(row_block) * n_stretches, make_worker, threads=threads)
        sums = np.add.reduce(partial[: len(row_block)], axis=1)
        workspace.write_mean_power(
            sums, n_segments, power[first_row : first_row + block_rows]
        )


def _stretch_worker_factory(
    view: NDArray[Any],
    spec: WelchSpec,
    block_segments: int,
    stretch_segments: int,
    partial: NDArray[np.float64],
) -> Callable[[], Task]:
    """Return the worker factory that sums one stretch of segments per task."""
    n_segments, n_stretches = view.shape[1], partial.shape[1]

    def make_worker() -> Task:
        workspace = SegmentWorkspace(spec, 1, block_segments)

        def run_task(task: int) -> None:
            row, stretch_index = divmod(task, n_stretches)
            total = partial[row, stretch_index]
            total[...] = 0.0
            stop_segment = min(n_segments, (stretch_index + 1) * stretch_segments)
            for first_segment in range(
                stretch_index * stretch_segments, stop_segment, block_segments
            ):
                segments = view[
                    row : row + 1,
                    first_segment : min(first_segment + block_segments, stop_segment),
                ]
                total += workspace.sum_squares(segments)[0]

        return run_task

    return make_worker


def _write_medians(
    view: NDArray[Any], spec: WelchSpec, power: NDArray[Any], threads: int | None
) -> None:
    """Compute medians over the segments; a row's whole spectrogram is held at a
    time.
    """
    n_rows, n_segments, _ = view.shape
    block_segments = min(n_segments, segments_per_block(spec))
    block_rows = min(n_rows, max(1, BLOCK_SAMPLES // (n_segments * spec.nfft)))
    factor = 1.0 / median_bias(n_segments)

    def make_worker() -> Task:
        workspace = SegmentWorkspace(spec, block_rows, block_segments)
        powers = np.empty((n_segments, block_rows, fft_bin_count(spec)))

        def run_task(task: int) -> None:
            row_slice = slice(task * block_rows, (task + 1) * block_rows)
            segments = view[row_slice]
            for first_segment in range(0, n_segments, block_segments):
                squares = workspace.squared_parts(
                    segments[:, first_segment : first_segment + block_segments]
                )
                target = powers[
                    first_segment : first_segment + block_segments, : len(segments)
                ]
                np.add(squares[..., 0::2], squares[..., 1::2], out=target)
            medians = np.median(powers[:, : len(segments)], axis=0)
            workspace.write_weighted_power(medians, factor, power[row_slice])

        return run_task

    run_tasks(-(-n_rows // block_rows), make_worker, threads=threads)
