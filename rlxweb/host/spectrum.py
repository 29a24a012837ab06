"""Averaged power spectra of many rows, in cache-sized blocks on a few threads.

Owns how rows and segments are cut into tasks; the arithmetic is in `segment_power.py`.
It must not know presets, peaks, files or devices. The cut depends on the shapes alone,
so the answer is the same bits for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.errors import UsageError
from rlxweb.host.row_blocks import Task, run_tasks
from rlxweb.host.segment_power import SegmentPower, half_bins, scratch_for
from rlxweb.host.spec import WelchSpec, sample_dtype
from rlxweb.kept import SMALL, lru_of_small

# 32,768 float64 samples and their spectrum are 512 KiB together: they stay in the
# second-level cache of current CPUs, and a NumPy call on them outweighs its overhead.
BLOCK_SAMPLES = 32_768
# About 1 ms of work: below it a second thread may cost more than it gives.
THREADED_SAMPLES = 262_144
# A row of many blocks is summed as this many stretches, then the stretches are summed.
STRETCHES = 16
_STRETCH_BYTES = 32 << 20

# Above this rate, in Hz, a bin's number times the rate may overflow.
_FAST = 1e290

_DOING = "welch"


def frequencies(spec: WelchSpec, fs: float = 1.0) -> NDArray[np.float64]:
    """The bins' frequencies, (F,), in the unit of fs, in the order of the power."""
    steps, rate = _steps(spec.nfft, spec.one_sided), float(fs)
    if rate > _FAST:
        return steps / spec.nfft * rate  # the product of both is past the range
    return steps * rate / spec.nfft


@lru_of_small(64, lambda nfft, one_sided: nfft <= SMALL)
def _steps(nfft: int, one_sided: bool) -> NDArray[np.float64]:
    """Bin numbers, read-only; those past the middle count from the end."""
    steps = np.arange(nfft // 2 + 1 if one_sided else nfft, dtype=np.float64)
    if not one_sided:
        steps[(nfft + 1) // 2 :] -= nfft
    steps.setflags(write=False)
    return steps


def median_bias(n_segments: int) -> float:
    """What the median of n_segments periodogram values is to their mean, on average."""
    pairs = 2.0 * np.arange(1, (n_segments - 1) // 2 + 1)
    return 1.0 + float(np.sum(1.0 / (pairs + 1.0) - 1.0 / pairs))


def frames(x: NDArray[Any], nperseg: int, hop: int, n_segments: int) -> NDArray[Any]:
    """A view of x (..., T) as segments (..., S, nperseg); no sample is copied."""
    along = x.strides[-1]
    shape = (*x.shape[:-1], n_segments, nperseg)
    strides = (*x.strides[:-1], hop * along, along)
    if x.flags.c_contiguous:
        # The constructor costs a tenth of as_strided, which small batches feel, and
        # it checks the bounds.
        view: NDArray[Any] = np.ndarray(shape, x.dtype, x, 0, strides)
        return view
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)


def segments_per_block(spec: WelchSpec) -> int:
    """Segments that one pass over the scratch holds."""
    return max(1, BLOCK_SAMPLES // spec.nfft)


def welch_power(
    x: NDArray[Any], spec: WelchSpec, *, threads: int | None = None
) -> NDArray[Any]:
    """Average power spectrum of every row.

    Shapes   x (B, T), any strides, T ≥ nperseg → (B, F), F = spec.n_freqs
    Units    x in U, fs in Hz → U²/Hz for scaling 'density', U² otherwise
    Numerics float64 inside; the answer is spec.power_dtype; the same bits for any
             number of threads; NaN and infinity spread over their own row only
    Errors   UsageError unless x is 2-D and long enough; DTypeError for a dtype that
             the spec does not cover
    """
    if x.ndim != 2:
        raise UsageError(
            _DOING, f"the samples have shape {x.shape}", "2 axes are wanted: rows, time"
        )
    n_segments, n_freqs, dtype = _answer(spec, x.dtype, x.shape[1])
    power = np.empty((x.shape[0], n_freqs), dtype)
    if not power.size:
        return power
    view = frames(x, spec.nperseg, spec.hop, n_segments)
    if view.shape[0] * n_segments * spec.nfft < THREADED_SAMPLES:
        threads = 1
    if spec.average == "median" and n_segments > 1:
        _median(view, spec, power, threads)
    elif n_segments <= segments_per_block(spec):
        _whole_rows(view, spec, power, threads)
    else:
        _long_rows(view, spec, power, threads)
    return power


@lru_of_small(128, lambda spec, dtype, n_samples: spec.nperseg <= SMALL)
def _answer(
    spec: WelchSpec, dtype: np.dtype[Any], n_samples: int
) -> tuple[int, int, np.dtype[Any]]:
    """Segments of a row, and the answer's bins and dtype; refuses what does not fit."""
    sample_dtype(dtype)  # refuses what nobody takes
    spec.must_cover(dtype)
    return spec.segments_of(n_samples), spec.n_freqs, spec.power_dtype


def _whole_rows(
    view: NDArray[Any], spec: WelchSpec, power: NDArray[Any], threads: int | None
) -> None:
    """Rows so short that a block holds one or more of them entire."""
    n_rows, n_segments, _ = view.shape
    rows = min(n_rows, max(1, BLOCK_SAMPLES // (n_segments * spec.nfft)))

    def make_worker() -> Task:
        scratch = scratch_for(spec, rows, n_segments)

        def work(task: int) -> None:
            mine = slice(task * rows, (task + 1) * rows)
            scratch.finish(scratch.summed(view[mine]), n_segments, power[mine])

        return work

    run_tasks(-(-n_rows // rows), make_worker, threads=threads)


def _long_rows(
    view: NDArray[Any], spec: WelchSpec, power: NDArray[Any], threads: int | None
) -> None:
    """Rows of several blocks: sums per stretch of segments, then over the stretches.

    A few rows are done at a time, so that the partial sums stay small.
    """
    n_rows, n_segments, _ = view.shape
    block = segments_per_block(spec)
    n_blocks = -(-n_segments // block)
    stretch = -(-n_blocks // min(n_blocks, STRETCHES)) * block
    n_stretches = -(-n_segments // stretch)
    width = 2 * half_bins(spec)
    rows = max(1, min(n_rows, STRETCHES, _STRETCH_BYTES // (n_stretches * width * 8)))
    partial = np.empty((rows, n_stretches, width))
    last = SegmentPower(spec, rows, 0)
    for start in range(0, n_rows, rows):
        some = view[start : start + rows]
        make_worker = _stretch_worker(some, spec, block, stretch, partial)
        run_tasks(len(some) * n_stretches, make_worker, threads=threads)
        sums = np.add.reduce(partial[: len(some)], axis=1)
        last.finish(sums, n_segments, power[start : start + rows])


def _stretch_worker(
    view: NDArray[Any],
    spec: WelchSpec,
    block: int,
    stretch: int,
    partial: NDArray[np.float64],
) -> Callable[[], Task]:
    n_segments, n_stretches = view.shape[1], partial.shape[1]

    def make_worker() -> Task:
        scratch = SegmentPower(spec, 1, block)

        def work(task: int) -> None:
            row, part = divmod(task, n_stretches)
            total = partial[row, part]
            total[...] = 0.0
            end = min(n_segments, (part + 1) * stretch)
            for first in range(part * stretch, end, block):
                cut = view[row : row + 1, first : min(first + block, end)]
                total += scratch.summed(cut)[0]

        return work

    return make_worker


def _median(
    view: NDArray[Any], spec: WelchSpec, power: NDArray[Any], threads: int | None
) -> None:
    """Median over the segments; the whole spectrogram of a row is held at a time."""
    n_rows, n_segments, _ = view.shape
    block = min(n_segments, segments_per_block(spec))
    rows = min(n_rows, max(1, BLOCK_SAMPLES // (n_segments * spec.nfft)))
    factor = 1.0 / median_bias(n_segments)

    def make_worker() -> Task:
        scratch = SegmentPower(spec, rows, block)
        each = np.empty((n_segments, rows, half_bins(spec)))

        def work(task: int) -> None:
            mine = slice(task * rows, (task + 1) * rows)
            some = view[mine]
            for first in range(0, n_segments, block):
                parts = scratch.squares(some[:, first : first + block])
                into = each[first : first + block, : len(some)]
                np.add(parts[..., 0::2], parts[..., 1::2], out=into)
            middle = np.median(each[:, : len(some)], axis=0)
            scratch.weigh(middle, factor, power[mine])

        return work

    run_tasks(-(-n_rows // rows), make_worker, threads=threads)
