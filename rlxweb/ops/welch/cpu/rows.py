"""Rows of samples through a compiled Welch estimate, on a few threads.

Owns how rows, and the segments of long ones, are cut into tasks. The cut depends on the
shapes alone, so the answer is the same bits for any number of threads. What a kernel
leaves unfinished (rows with fewer numbers than bins are wanted) is searched by NumPy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.native_calls import array_address
from rlxweb.core.adc_samples import Digital
from rlxweb.core.errors import DTypeError
from rlxweb.core.thread_tasks import Task, run_tasks
from rlxweb.ops.welch.cpu.kernel import (
    CompiledWelchKernel,
    WelchKernelJob,
    welch_kernel_job,
)
from rlxweb.ops.welch.cpu.strongest_bins import BinsAndPower, strongest_bins
from rlxweb.ops.welch.spec import WelchSpec

TASK_SAMPLES: Final = 1 << 17
"""Samples of one thread's task, transformed in about 0.1 ms."""
THREADED_SAMPLES: Final = 1 << 19
"""Minimum samples for a second thread: below about 0.4 ms it costs more than it gains.
"""
_TYPE_NBYTES: Final = {"float": 4, "double": 8}
_MAX_SUM_BYTES: Final = 8 << 20
_KERNEL_DTYPES: Final = {np.dtype(kind) for kind in ("f4", "f8", "i2", "i4")}


class KernelSamples(NamedTuple):
    """Rows (B, T) with contiguous samples, of a type that kernels read.

    gains, offsets  (B,) float64 of integers: squared factors on the power, and what is
                    added to each sample before
    """

    x: NDArray[Any]
    gains: NDArray[np.float64]
    offsets: NDArray[np.float64]

    @classmethod
    def from_samples(cls, samples: NDArray[Any] | Digital) -> KernelSamples:
        """Return the kernel samples of an array or of a digital recording."""
        if isinstance(samples, Digital):
            x = _as_kernel_input(samples.counts)
            return cls(x, samples.gain**2, np.ascontiguousarray(samples.offset))
        x = _as_kernel_input(np.asarray(samples))
        if x.dtype.kind == "f":
            return cls(x, _NO_FACTORS, _NO_FACTORS)
        return cls(x, np.ones(len(x)), np.zeros(len(x)))

    @classmethod
    def from_float_rows(cls, rows: NDArray[Any]) -> KernelSamples:
        """Return the kernel samples of an array of floats in native byte order."""
        flags = rows.flags
        is_plain = flags.c_contiguous and flags.aligned
        return cls(
            rows if is_plain else _as_kernel_input(rows), _NO_FACTORS, _NO_FACTORS
        )

    def select_rows(self, rows: slice) -> KernelSamples:
        """Return some of the rows."""
        if self.gains is _NO_FACTORS:
            return KernelSamples(self.x[rows], _NO_FACTORS, _NO_FACTORS)
        return KernelSamples(self.x[rows], self.gains[rows], self.offsets[rows])

    @property
    def addresses(self) -> tuple[int, int, int]:
        """Addresses of the rows, their offsets and their gains; 0 where there are
        none.
        """
        if self.gains is _NO_FACTORS:
            return array_address(self.x), 0, 0
        return (
            array_address(self.x),
            array_address(self.offsets),
            array_address(self.gains),
        )


_NO_FACTORS: Final = np.empty(0)


def _as_kernel_input(x: NDArray[Any]) -> NDArray[Any]:
    """Return the rows as a kernel reads them: supported dtype, native byte order,
    aligned, contiguous samples.
    """
    if x.dtype not in _KERNEL_DTYPES:  # which are of this machine's byte order
        x = x.astype(x.dtype.newbyteorder("="))
    if x.dtype not in _KERNEL_DTYPES:
        x = x.astype(np.int16 if x.dtype.itemsize == 1 else np.int32)
    flags = x.flags
    if flags.c_contiguous and flags.aligned:
        return x
    if x.strides[1] != x.itemsize or not flags.aligned:
        x = np.ascontiguousarray(x)
    return x


class RowCheckLimits:
    """Limits within which rows need no second check; see
    `llvm_row_checks.py`.

    min_energy, max_energy  of the sum of squares of a row's `used_samples` first
                            samples
    peak_floor   of its weakest bin found, for each unit of that sum
    row_samples  samples of a row
    """

    __slots__ = ("address", "values")

    def __init__(
        self,
        min_energy: float,
        max_energy: float,
        peak_floor: float,
        used_samples: int,
        row_samples: int,
    ) -> None:
        counts = np.array([used_samples, row_samples], np.int64)
        self.values = np.array(
            [min_energy, max_energy, peak_floor, 0.0, *counts.view(np.float64)]
        )
        self.address = array_address(self.values)

    @classmethod
    def unlimited(cls) -> RowCheckLimits:
        """Return limits that every row passes."""
        limits = cls(-np.inf, np.inf, 0.0, 0, 0)
        limits.values[3] = -1.0
        return limits


_NO_LIMITS: Final = RowCheckLimits.unlimited()


def compiled_power(
    kernel: CompiledWelchKernel, samples: KernelSamples, spec: WelchSpec
) -> NDArray[Any]:
    """Return the average power spectrum of every row (B, F), like `welch_power`."""
    if has_long_rows(samples.x.shape[1], spec):
        return _long_rows_power(kernel, samples, spec)
    return _short_rows_power(kernel, samples, spec)


def compiled_strongest_bins(
    kernel: CompiledWelchKernel, samples: KernelSamples, spec: WelchSpec, k: int
) -> BinsAndPower:
    """Return the k strongest bins of every row, like `strongest_bins` of its power."""
    if kernel.find_peaks is None or has_long_rows(samples.x.shape[1], spec):
        return strongest_bins(compiled_power(kernel, samples, spec), k)
    job = row_job(kernel, samples.x.dtype, samples.x.shape[1], spec, k)
    top_bins, unfinished_blocks = _short_rows_strongest_bins(
        kernel, samples, job, k, _NO_LIMITS
    )
    for block in unfinished_blocks:  # NaN is searched for by NumPy
        power = compiled_power(kernel, samples.select_rows(block), spec)
        top_bins[0][block], top_bins[1][block] = strongest_bins(power, k)
    return top_bins


def strongest_bins_within(
    kernel: CompiledWelchKernel,
    samples: KernelSamples,
    job: RowJob,
    k: int,
    limits: RowCheckLimits,
) -> BinsAndPower | None:
    """Return the strongest bins of short rows like `compiled_strongest_bins`; None
    where a row needs a second check.

    The kernel must have `find_peaks`.
    """
    top_bins, unfinished_blocks = _short_rows_strongest_bins(
        kernel, samples, job, k, limits
    )
    return None if unfinished_blocks else top_bins


def has_long_rows(n_samples: int, spec: WelchSpec) -> bool:
    """Return whether rows must be split into stretches of segments."""
    segments = spec.segments_per_row(n_samples)
    return segments * spec.nfft > TASK_SAMPLES and segments > 2


def _short_rows_power(
    kernel: CompiledWelchKernel, samples: KernelSamples, spec: WelchSpec
) -> NDArray[Any]:
    """Compute the power of short rows, some rows a task."""
    n_rows, n_samples = samples.x.shape
    job = row_job(kernel, samples.x.dtype, n_samples, spec, 0)
    segments, kernel_job = job.segments, job.kernel_job
    out = np.empty((n_rows, kernel.generator.bin_count), kernel.power_dtype)
    output_address, row_nbytes = array_address(out), out.strides[0]
    rows_address, offsets_address, gains_address = samples.addresses
    stride = samples.x.strides[0]

    def run_block(first_row: int, row_count: int, scratch: int) -> int:
        row_arguments = rows_address + first_row * stride, stride, row_count, segments
        scaling_arguments = (
            offsets_address and offsets_address + 8 * first_row,
            gains_address and gains_address + 8 * first_row,
        )
        output_arguments = (
            output_address + first_row * row_nbytes,
            scratch,
            _NO_LIMITS.address,
        )
        return kernel.compute_power(
            kernel_job.address, *row_arguments, *scaling_arguments, *output_arguments
        )

    _run_row_blocks(n_rows, job, run_block)
    return out


def _short_rows_strongest_bins(
    kernel: CompiledWelchKernel,
    samples: KernelSamples,
    job: RowJob,
    k: int,
    limits: RowCheckLimits,
) -> tuple[BinsAndPower, Sequence[slice]]:
    """Search the strongest bins of short rows; return them and the blocks of rows left
    unfinished.
    """
    n_rows, segments, kernel_job = len(samples.x), job.segments, job.kernel_job
    find_peaks = kernel.find_peaks
    assert find_peaks is not None  # the callers asked
    bins = np.empty((n_rows, k), np.int64)
    power = np.empty((n_rows, k), kernel.power_dtype)
    bins_address = array_address(bins)
    power_address = array_address(power)
    row_nbytes = power.strides[0]
    rows_address, offsets_address, gains_address = samples.addresses
    stride = samples.x.strides[0]

    def run_block(first_row: int, row_count: int, scratch: int) -> int:
        row_arguments = rows_address + first_row * stride, stride, row_count, segments
        scaling_arguments = (
            offsets_address and offsets_address + 8 * first_row,
            gains_address and gains_address + 8 * first_row,
        )
        output_arguments = (
            bins_address + 8 * k * first_row,
            power_address + first_row * row_nbytes,
            scratch,
            limits.address,
        )
        return find_peaks(
            kernel_job.address, *row_arguments, *scaling_arguments, *output_arguments
        )

    return (bins, power), _run_row_blocks(n_rows, job, run_block)


class RowJob(NamedTuple):
    """Work of a kernel on each row of a given length.

    segments         of a row
    samples_per_row  samples of its transforms, with overlaps and zero padding
    kernel_job       packed arguments of the kernel, the same for all rows
    """

    segments: int
    samples_per_row: int
    kernel_job: WelchKernelJob


def row_job(
    kernel: CompiledWelchKernel,
    dtype: np.dtype[Any],
    n_samples: int,
    spec: WelchSpec,
    k: int,
) -> RowJob:
    """Check the type of the samples and return the kernel's job for rows of so many, of
    which it searches k bins.
    """
    sample_type = kernel.generator.sample_type
    if dtype.kind == "f" and _TYPE_NBYTES.get(sample_type) != dtype.itemsize:
        raise DTypeError(
            "welch",
            f"the samples are {dtype}",
            f"the compiled code expects {sample_type}",
        )
    segments = spec.segments_per_row(n_samples)
    kernel_job = welch_kernel_job(kernel, spec, segments, k, dtype.itemsize)
    return RowJob(segments, segments * spec.nfft, kernel_job)


class _ThreadScratch(threading.local):
    """Scratch memory that a thread keeps from one call to the next."""

    def __init__(self) -> None:
        self.buffer = np.empty(0, np.uint8)

        self.aligned_address = 0

    def reserve(self, nbytes: int) -> int:
        """Return the cache-line-aligned address of at least `nbytes` bytes."""
        if self.buffer.size < nbytes + 64:
            self.buffer = np.empty(nbytes + 64, np.uint8)
            first = array_address(self.buffer)
            self.aligned_address = first + -first % 64
        return self.aligned_address


_thread_scratch = _ThreadScratch()


def _run_row_blocks(
    n_rows: int, job: RowJob, run_block: Callable[[int, int, int], int]
) -> Sequence[slice]:
    """Run `run_block(first_row, row_count, scratch)` for blocks of rows; return the
    blocks for which it reported a row left unfinished.
    """
    samples_per_row, scratch_nbytes = job.samples_per_row, job.kernel_job.scratch_nbytes
    if n_rows * samples_per_row <= TASK_SAMPLES:
        is_unfinished = (
            run_block(0, n_rows, _thread_scratch.reserve(scratch_nbytes))
            if n_rows
            else 0
        )
        return (slice(0, n_rows),) if is_unfinished else ()
    # Whole lanes of pairs of segments, whatever the estimate takes at once.
    block_rows = max(1, TASK_SAMPLES // samples_per_row)
    block_rows -= block_rows % 8 if block_rows > 8 else 0
    unfinished_blocks: list[slice] = []

    def make_worker() -> Task:
        scratch = _thread_scratch.reserve(scratch_nbytes)

        def run_task(block_index: int) -> None:
            first_row = block_index * block_rows
            row_count = min(block_rows, n_rows - first_row)
            if run_block(first_row, row_count, scratch):
                unfinished_blocks.append(slice(first_row, first_row + row_count))

        return run_task

    threads = 1 if n_rows * samples_per_row < THREADED_SAMPLES else None
    run_tasks(-(-n_rows // block_rows), make_worker, threads=threads)
    return unfinished_blocks


def _long_rows_power(
    kernel: CompiledWelchKernel, samples: KernelSamples, spec: WelchSpec
) -> NDArray[Any]:
    """Compute the power of long rows: sum segments by stretches, then add the stretches
    up.
    """
    n_rows, n_samples = samples.x.shape
    segments, _, kernel_job = row_job(kernel, samples.x.dtype, n_samples, spec, 0)
    out = np.empty((n_rows, kernel.generator.bin_count), kernel.power_dtype)
    segments_per_stretch = max(2, TASK_SAMPLES // spec.nfft // 2 * 2)
    stretch_count = -(-segments // segments_per_stretch)
    sums_length = kernel.generator.power_sums.pitch
    rows_at_once = max(
        1, min(n_rows, _MAX_SUM_BYTES // (16 * sums_length * stretch_count))
    )
    # One row more each: where lanes are left over, what they hold goes behind.
    stretch_sums = np.empty((rows_at_once, stretch_count, 2, sums_length))
    rows_address, offsets_address, _ = samples.addresses
    stride = samples.x.strides[0]
    for first_row in range(0, n_rows, rows_at_once):
        row_count = min(rows_at_once, n_rows - first_row)

        def make_worker(first_row: int = first_row) -> Task:
            scratch = _thread_scratch.reserve(kernel_job.scratch_nbytes)

            def run_task(task_index: int) -> None:
                row, stretch_index = divmod(task_index, stretch_count)
                segments_address = rows_address + (first_row + row) * stride
                first_segment = stretch_index * segments_per_stretch
                segments_address += first_segment * spec.hop * samples.x.itemsize
                offset_address = offsets_address and offsets_address + 8 * (
                    first_row + row
                )
                segment_count = min(segments_per_stretch, segments - first_segment)
                sums_address = (
                    array_address(stretch_sums) + task_index * stretch_sums.strides[1]
                )
                kernel.sum_segments(
                    kernel_job.address,
                    segments_address,
                    0,
                    1,
                    segment_count,
                    offset_address,
                    sums_address,
                    scratch,
                )

            return run_task

        threads = 1 if row_count * segments * spec.nfft < THREADED_SAMPLES else None
        run_tasks(row_count * stretch_count, make_worker, threads=threads)
        row_sums = np.add.reduce(stretch_sums[:row_count, :, 0], axis=1)
        for row in range(row_count):
            gain = (
                1.0
                if samples.gains is _NO_FACTORS
                else float(samples.gains[first_row + row])
            )
            output_address = array_address(out) + (first_row + row) * out.strides[0]
            kernel.fold_sums(
                kernel_job.address,
                array_address(row_sums) + row * row_sums.strides[0],
                gain,
                output_address,
            )
    return out
