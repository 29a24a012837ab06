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

from rlxweb.digital import Digital
from rlxweb.errors import DTypeError
from rlxweb.host.compiled import Job, Kernel, address, job_of
from rlxweb.host.row_blocks import Task, run_tasks
from rlxweb.host.spec import WelchSpec
from rlxweb.host.strongest import Found, strongest_bins

TASK_SAMPLES: Final = 1 << 17
"""Transformed in about 0.1 ms: a thread's share at a time."""
THREADED_SAMPLES: Final = 1 << 19
"""Below about 0.4 ms a second thread costs more than it gives."""
_BYTES: Final = {"float": 4, "double": 8}
_KEPT_BYTES: Final = 8 << 20
_AS_THEY_ARE: Final = {np.dtype(kind) for kind in ("f4", "f8", "i2", "i4")}


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

    @classmethod
    def plain(cls, rows: NDArray[Any]) -> Samples:
        """Those of an array of floats of this machine's byte order."""
        flags = rows.flags
        is_plain = flags.c_contiguous and flags.aligned
        return cls(rows if is_plain else _readable(rows), _NONE, _NONE)

    def some(self, rows: slice) -> Samples:
        """Some of the rows."""
        if self.gains is _NONE:
            return Samples(self.x[rows], _NONE, _NONE)
        return Samples(self.x[rows], self.gains[rows], self.offsets[rows])

    @property
    def where(self) -> tuple[int, int, int]:
        """Addresses of the rows, their offsets and their gains; 0 for none."""
        if self.gains is _NONE:
            return address(self.x), 0, 0
        return address(self.x), address(self.offsets), address(self.gains)


_NONE: Final = np.empty(0)


def _readable(x: NDArray[Any]) -> NDArray[Any]:
    if x.dtype not in _AS_THEY_ARE:  # which are of this machine's byte order
        x = x.astype(x.dtype.newbyteorder("="))
    if x.dtype not in _AS_THEY_ARE:
        x = x.astype(np.int16 if x.dtype.itemsize == 1 else np.int32)
    flags = x.flags
    if flags.c_contiguous and flags.aligned:
        return x
    if x.strides[1] != x.itemsize or not flags.aligned:
        x = np.ascontiguousarray(x)
    return x


class Limits:
    """What lets rows pass without a second look; see `machine/clearance.py`.

    least, most  of the sum of squares of a row's `used` first samples
    floor        of its weakest bin found, for each unit of that sum
    width        samples of a row
    """

    __slots__ = ("address", "held")

    def __init__(
        self, least: float, most: float, floor: float, used: int, width: int
    ) -> None:
        counts = np.array([used, width], np.int64)
        self.held = np.array([least, most, floor, 0.0, *counts.view(np.float64)])
        self.address = address(self.held)

    @classmethod
    def none(cls) -> Limits:
        """All rows pass."""
        open_ = cls(-np.inf, np.inf, 0.0, 0, 0)
        open_.held[3] = -1.0
        return open_


_ALL_PASS: Final = Limits.none()


def powers(kernel: Kernel, given: Samples, spec: WelchSpec) -> NDArray[Any]:
    """Average power spectrum of every row (B, F): what `welch_power` gives."""
    if _is_long(given, spec):
        return _long_rows(kernel, given, spec)
    return _powers(kernel, given, spec)


def strongest(kernel: Kernel, given: Samples, spec: WelchSpec, k: int) -> Found:
    """The k strongest bins of every row: `strongest_bins` of its power."""
    if kernel.peaks is None or _is_long(given, spec):
        return strongest_bins(powers(kernel, given, spec), k)
    found, odd = _strongest(kernel, given, spec, k, _ALL_PASS)
    for mine in odd:  # NaN is searched for by NumPy
        power = powers(kernel, given.some(mine), spec)
        found[0][mine], found[1][mine] = strongest_bins(power, k)
    return found


def strongest_within(
    kernel: Kernel, given: Samples, spec: WelchSpec, k: int, limits: Limits
) -> Found | None:
    """`strongest`; None where a row needs a second look, or where they are long."""
    if kernel.peaks is None or _is_long(given, spec):
        return None
    found, odd = _strongest(kernel, given, spec, k, limits)
    return None if odd else found


def _is_long(given: Samples, spec: WelchSpec) -> bool:
    segments = spec.segments_of(given.x.shape[1])
    return segments * spec.nfft > TASK_SAMPLES and segments > 2


def _powers(kernel: Kernel, given: Samples, spec: WelchSpec) -> NDArray[Any]:
    n_rows, segments, job = _about(kernel, given, spec, 0)
    out = np.empty((n_rows, kernel.estimate.bins), kernel.answer)
    into, pitch = address(out), out.strides[0]
    x, offsets, gains = given.where
    stride = given.x.strides[0]

    def work(first: int, count: int, scratch: int) -> int:
        rows = x + first * stride, stride, count, segments
        ints = offsets and offsets + 8 * first, gains and gains + 8 * first
        outs = into + first * pitch, scratch, _ALL_PASS.address
        return kernel.power(job.address, *rows, *ints, *outs)

    _in_blocks(n_rows, segments * spec.nfft, job, work)
    return out


def _strongest(
    kernel: Kernel, given: Samples, spec: WelchSpec, k: int, limits: Limits
) -> tuple[Found, Sequence[slice]]:
    n_rows, segments, job = _about(kernel, given, spec, k)
    search = kernel.peaks
    assert search is not None  # the callers asked
    bins = np.empty((n_rows, k), np.int64)
    top = np.empty((n_rows, k), kernel.answer)
    places, tops, pitch = address(bins), address(top), top.strides[0]
    x, offsets, gains = given.where
    stride = given.x.strides[0]

    def work(first: int, count: int, scratch: int) -> int:
        rows = x + first * stride, stride, count, segments
        ints = offsets and offsets + 8 * first, gains and gains + 8 * first
        outs = places + 8 * k * first, tops + first * pitch, scratch, limits.address
        return search(job.address, *rows, *ints, *outs)

    return (bins, top), _in_blocks(n_rows, segments * spec.nfft, job, work)


def _about(
    kernel: Kernel, given: Samples, spec: WelchSpec, k: int
) -> tuple[int, int, Job]:
    n_rows, n_samples = given.x.shape
    reads, kind = kernel.estimate.sample, given.x.dtype
    if kind.kind == "f" and _BYTES.get(reads) != kind.itemsize:
        raise DTypeError("welch", f"the samples are {kind}", f"the code reads {reads}")
    segments = spec.segments_of(n_samples)
    return n_rows, segments, job_of(kernel, spec, segments, k, given.x.itemsize)


class _Scratch(threading.local):
    """Memory that a thread keeps from one call to the next."""

    def __init__(self) -> None:
        self.held = np.empty(0, np.uint8)

        self.first = 0

    def address(self, nbytes: int) -> int:
        """So many bytes, on a line of the cache."""
        if self.held.size < nbytes + 64:
            self.held = np.empty(nbytes + 64, np.uint8)
            first = address(self.held)
            self.first = first + -first % 64
        return self.first


_scratch = _Scratch()


def _in_blocks(
    n_rows: int, each: int, job: Job, work: Callable[[int, int, int], int]
) -> Sequence[slice]:
    """`work(first, count, scratch)` for blocks of rows, `each` samples a row.

    Gives the blocks in which it found something.
    """
    if n_rows * each <= TASK_SAMPLES:
        odd = work(0, n_rows, _scratch.address(job.scratch)) if n_rows else 0
        return (slice(0, n_rows),) if odd else ()
    # Whole lanes of pairs of segments, whatever the estimate takes at once.
    rows = max(1, TASK_SAMPLES // each)
    rows -= rows % 8 if rows > 8 else 0
    found: list[slice] = []

    def make_worker() -> Task:
        scratch = _scratch.address(job.scratch)

        def task(at: int) -> None:
            first = at * rows
            count = min(rows, n_rows - first)
            if work(first, count, scratch):
                found.append(slice(first, first + count))

        return task

    threads = 1 if n_rows * each < THREADED_SAMPLES else None
    run_tasks(-(-n_rows // rows), make_worker, threads=threads)
    return found


def _long_rows(kernel: Kernel, given: Samples, spec: WelchSpec) -> NDArray[Any]:
    """Rows whose segments are summed in stretches, and these when all are there."""
    n_rows, segments, job = _about(kernel, given, spec, 0)
    out = np.empty((n_rows, kernel.estimate.bins), kernel.answer)
    stretch = max(2, TASK_SAMPLES // spec.nfft // 2 * 2)
    stretches = -(-segments // stretch)
    pitch = kernel.estimate.sums.pitch
    some = max(1, min(n_rows, _KEPT_BYTES // (16 * pitch * stretches)))
    # One row more each: where lanes are left over, what they hold goes behind.
    sums = np.empty((some, stretches, 2, pitch))
    x, offsets, _ = given.where
    stride = given.x.strides[0]
    for start in range(0, n_rows, some):
        count = min(some, n_rows - start)

        def make_worker(start: int = start) -> Task:
            scratch = _scratch.address(job.scratch)

            def task(at: int) -> None:
                row, part = divmod(at, stretches)
                own = x + (start + row) * stride
                first = part * stretch
                own += first * spec.hop * given.x.itemsize
                offset = offsets and offsets + 8 * (start + row)
                left = min(stretch, segments - first)
                into = address(sums) + at * sums.strides[1]
                kernel.sums(job.address, own, 0, 1, left, offset, into, scratch)

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
    return out
