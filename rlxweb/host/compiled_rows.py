"""Rows of samples through a compiled Welch estimate, on a few threads.

Owns how rows, and the segments of long ones, are cut into tasks. The cut depends on the
shapes alone, so the answer is the same bits for any number of threads. What a kernel
leaves unfinished (rows with fewer numbers than bins are wanted) is searched by NumPy.
"""

from __future__ import annotations

import threading
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.digital import Digital
from rlxweb.errors import DTypeError
from rlxweb.host.compiled import Job, Kernel, address, job_of
from rlxweb.host.row_blocks import Task, run_tasks
from rlxweb.host.spec import WelchSpec
from rlxweb.host.strongest import Found, strongest_bins
from rlxweb.machine.text import SIZE

TASK_SAMPLES: Final = 1 << 17
"""Transformed in about 0.1 ms: a thread's share at a time."""
THREADED_SAMPLES: Final = 1 << 19
"""Below about 0.4 ms a second thread costs more than it gives."""
_KEPT_BYTES: Final = 8 << 20
_AS_THEY_ARE: Final = ("float32", "float64", "int16", "int32")


class Samples(NamedTuple):
    """Rows (B, T), samples side by side, of a type that kernels read.

    gains, offsets  (B,) float64 of integers: squared factors on the power, and what is
                    added to each sample before
    """

    x: NDArray[Any]
    gains: NDArray[np.float64]
    offsets: NDArray[np.float64]

    @classmethod
    def of(cls, given: NDArray[Any] | Digital) -> Samples:
        """Those of an array, or of a recording."""
        if isinstance(given, Digital):
            x = _readable(given.counts)
            return cls(x, given.gain**2, np.ascontiguousarray(given.offset))
        x = _readable(np.asarray(given))
        if x.dtype.kind == "f":
            return cls(x, _NONE, _NONE)
        return cls(x, np.ones(len(x)), np.zeros(len(x)))

    def where(self, row: int) -> tuple[int, int, int]:
        """Addresses of a row, its offset and its gain."""
        first = address(self.x) + row * self.x.strides[0]
        if self.gains is _NONE:
            return first, 0, 0
        return first, address(self.offsets) + 8 * row, address(self.gains) + 8 * row


_NONE: Final = np.empty(0)


def _readable(x: NDArray[Any]) -> NDArray[Any]:
    if not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    if x.dtype.name not in _AS_THEY_ARE:
        x = x.astype(np.int16 if x.dtype.itemsize == 1 else np.int32)
    if x.strides[1] != x.itemsize or not x.flags.aligned:
        x = np.ascontiguousarray(x)
    return x


def powers(kernel: Kernel, given: Samples, spec: WelchSpec) -> NDArray[Any]:
    """Average power spectrum of every row (B, F): what `welch_power` gives."""
    n_rows, segments, job = _about(kernel, given, spec, 0)
    out = np.empty((n_rows, kernel.estimate.bins), spec.power_dtype)
    if segments * spec.nfft > TASK_SAMPLES and segments > 2:
        _long_rows(kernel, given, spec, job, out)
        return out

    def work(first: int, count: int, scratch: int) -> None:
        x, offsets, gains = given.where(first)
        front = job.address, x, given.x.strides[0], count, segments, offsets, gains
        kernel.power(*front, address(out) + first * out.strides[0], scratch)

    _in_blocks(n_rows, segments * spec.nfft, job, work)
    return out


def strongest(kernel: Kernel, given: Samples, spec: WelchSpec, k: int) -> Found:
    """The k strongest bins of every row: `strongest_bins` of its power."""
    n_rows, segments, job = _about(kernel, given, spec, k)
    search = kernel.peaks
    if search is None or segments * spec.nfft > TASK_SAMPLES:
        return strongest_bins(powers(kernel, given, spec), k)
    bins = np.empty((n_rows, k), np.int64)
    top = np.empty((n_rows, k), spec.power_dtype)

    def work(first: int, count: int, scratch: int) -> None:
        x, offsets, gains = given.where(first)
        front = job.address, x, given.x.strides[0], count, segments, offsets, gains
        places = address(bins) + first * bins.strides[0]
        short = search(*front, places, address(top) + first * top.strides[0], scratch)
        if short:
            mine = slice(first, first + count)
            some = Samples(given.x[mine], given.gains[mine], given.offsets[mine])
            if given.gains is _NONE:
                some = Samples(given.x[mine], _NONE, _NONE)
            bins[mine], top[mine] = strongest_bins(powers(kernel, some, spec), k)

    _in_blocks(n_rows, segments * spec.nfft, job, work)
    return bins, top


def _about(
    kernel: Kernel, given: Samples, spec: WelchSpec, k: int
) -> tuple[int, int, Job]:
    n_rows, n_samples = given.x.shape
    reads, kind = kernel.estimate.sample, given.x.dtype
    if kind.kind == "f" and SIZE.get(reads) != kind.itemsize:
        raise DTypeError("welch", f"the samples are {kind}", f"the code reads {reads}")
    segments = spec.segments_of(n_samples)
    return n_rows, segments, job_of(kernel, spec, segments, k, given.x.itemsize)


class _Scratch(threading.local):
    """Memory that a thread keeps from one call to the next."""

    def __init__(self) -> None:
        self.held = np.empty(0, np.uint8)

    def address(self, nbytes: int) -> int:
        """So many bytes, on a line of the cache."""
        if self.held.size < nbytes + 64:
            self.held = np.empty(nbytes + 64, np.uint8)
        first = address(self.held)
        return first + -first % 64

    def trim(self) -> None:
        if self.held.size > _KEPT_BYTES:
            self.held = np.empty(0, np.uint8)


_scratch = _Scratch()


def _in_blocks(n_rows: int, each: int, job: Job, work: Any) -> None:
    """`work(first, count, scratch)` for blocks of rows, `each` samples a row."""
    if n_rows * each <= TASK_SAMPLES:
        if n_rows:
            work(0, n_rows, _scratch.address(job.scratch))
            _scratch.trim()
        return
    # Whole lanes of pairs of segments, whatever the estimate takes at once.
    rows = max(1, TASK_SAMPLES // each)
    rows -= rows % 8 if rows > 8 else 0

    def make_worker() -> Task:
        scratch = _scratch.address(job.scratch)

        def task(at: int) -> None:
            first = at * rows
            work(first, min(rows, n_rows - first), scratch)

        return task

    threads = 1 if n_rows * each < THREADED_SAMPLES else None
    run_tasks(-(-n_rows // rows), make_worker, threads=threads)
    _scratch.trim()


def _long_rows(
    kernel: Kernel, given: Samples, spec: WelchSpec, job: Job, out: NDArray[Any]
) -> None:
    """Rows whose segments are summed in stretches, and these when all are there."""
    n_rows, n_samples = given.x.shape
    segments = spec.segments_of(n_samples)
    stretch = max(2, TASK_SAMPLES // spec.nfft // 2 * 2)
    stretches = -(-segments // stretch)
    pitch = kernel.estimate.sums.pitch
    some = max(1, min(n_rows, _KEPT_BYTES // (16 * pitch * stretches)))
    # One row more each: where lanes are left over, what they hold goes behind.
    sums = np.empty((some, stretches, 2, pitch))
    for start in range(0, n_rows, some):
        count = min(some, n_rows - start)

        def make_worker(start: int = start) -> Task:
            scratch = _scratch.address(job.scratch)

            def task(at: int) -> None:
                row, part = divmod(at, stretches)
                x, offsets, _ = given.where(start + row)
                first = part * stretch
                x += first * spec.hop * given.x.itemsize
                left = min(stretch, segments - first)
                into = address(sums) + at * sums.strides[1]
                kernel.sums(job.address, x, 0, 1, left, offsets, into, scratch)

            return task

        threads = 1 if count * segments * spec.nfft < THREADED_SAMPLES else None
        run_tasks(count * stretches, make_worker, threads=threads)
        total = np.add.reduce(sums[:count, :, 0], axis=1)
        for row in range(count):
            gain = 1.0 if given.gains is _NONE else float(given.gains[start + row])
            into = address(out) + (start + row) * out.strides[0]
            kernel.fold(
                job.address, address(total) + row * total.strides[0], gain, into
            )
