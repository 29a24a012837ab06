"""Averaged power spectra of signals that arrive in pieces.

Owns the overlap between pieces and the running sums; the arithmetic is the one of
`segment_power.py`. It must not know files, presets or devices. Memory is bounded by the
number of channels and the segment length, not by the length of the signal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.errors import DTypeError, UsageError
from rlxweb.signal.row_blocks import Task, run_tasks
from rlxweb.signal.segment_power import SegmentPower, half_bins
from rlxweb.signal.segments import frames, samples_needed, segment_count
from rlxweb.signal.spec import WelchSpec, sample_dtype
from rlxweb.signal.spectrum import (
    BLOCK_SAMPLES,
    THREADED_SAMPLES,
    segments_per_block,
)

_DOING = "welch over a stream"


class WelchAccumulator:
    """`welch_power` for blocks fed in order; equal to it but for rounding.

    Resolve the spec with n_samples=None to average every segment the stream gives. A
    spec with a segment count stops at that count and ignores what comes later.
    """

    def __init__(self, spec: WelchSpec, n_channels: int) -> None:
        if spec.average != "mean":
            raise UsageError(
                _DOING,
                f"the average is {spec.average!r}",
                "a stream keeps running sums, which give a mean only",
                "use average='mean', or welch_power on the whole signal",
            )
        if n_channels < 1:
            raise UsageError(
                _DOING, f"n_channels is {n_channels}", "it must be at least 1"
            )
        self._spec = spec
        per_pass = max(1, THREADED_SAMPLES // (spec.nfft * n_channels))
        self._block = min(per_pass, segments_per_block(spec))
        self._rows = min(n_channels, max(1, BLOCK_SAMPLES // (spec.nfft * self._block)))
        span = samples_needed(per_pass, spec.nperseg, spec.hop)
        self._waiting = np.empty((n_channels, span), spec.dtype)
        self._filled = 0
        # Samples between the end of one segment and the next, when hops leave gaps.
        self._skip = 0
        self._sums = np.zeros((n_channels, 2 * half_bins(spec)))
        self._n_segments = 0

    @property
    def n_segments(self) -> int:
        """Segments summed so far."""
        return self._n_segments

    def feed(self, block: NDArray[Any]) -> None:
        """Take the next samples, (C, t) with any t, in the order of time."""
        self._check(block)
        taken, available = 0, block.shape[1]
        while taken < available and not self._complete():
            jump = min(self._skip, available - taken)
            self._skip -= jump
            taken += jump
            room = min(self._waiting.shape[1] - self._filled, available - taken)
            end = self._filled + room
            self._waiting[:, self._filled : end] = block[:, taken : taken + room]
            self._filled = end
            taken += room
            if self._filled == self._waiting.shape[1]:
                self._sum_up()

    def result(self) -> tuple[NDArray[Any], int]:
        """Mean power (C, F) of every whole segment so far, and how many there were.

        More samples may be fed afterwards.
        """
        self._sum_up()
        if not self._n_segments:
            raise UsageError(
                _DOING,
                f"the stream ended after {self._filled} samples",
                f"one segment needs {self._spec.nperseg}",
                "give a longer signal or a smaller nperseg",
            )
        power = np.empty((len(self._sums), self._spec.n_freqs), self._spec.power_dtype)
        scratch = SegmentPower(self._spec, len(power), 0)
        scratch.finish(self._sums, self._n_segments, power)
        return power, self._n_segments

    def _complete(self) -> bool:
        return 0 < self._spec.n_segments <= self._n_segments

    def _sum_up(self) -> None:
        """Sum the whole segments that wait, and keep what the next one shares."""
        spec = self._spec
        count = segment_count(self._filled, spec.nperseg, spec.hop)
        if spec.n_segments:
            count = min(count, spec.n_segments - self._n_segments)
        if count < 1:
            return
        n_tasks = -(-len(self._sums) // self._rows)
        enough = len(self._sums) * count * spec.nfft * 2 > THREADED_SAMPLES
        run_tasks(n_tasks, lambda: self._adder(count), threads=None if enough else 1)
        self._n_segments += count
        used = count * spec.hop
        kept = max(0, self._filled - used)
        self._skip = max(0, used - self._filled)
        self._waiting[:, :kept] = self._waiting[:, self._filled - kept : self._filled]
        self._filled = kept

    def _adder(self, count: int) -> Task:
        """One thread's way to add `count` waiting segments of some channels."""
        spec, rows, block = self._spec, self._rows, self._block
        view = frames(self._waiting, spec.nperseg, spec.hop, count)
        scratch = SegmentPower(spec, rows, min(block, count))

        def work(task: int) -> None:
            mine = slice(task * rows, (task + 1) * rows)
            for first in range(0, count, block):
                self._sums[mine] += scratch.summed(view[mine, first : first + block])

        return work

    def _check(self, block: NDArray[Any]) -> None:
        if block.ndim != 2 or len(block) != len(self._sums):
            raise UsageError(
                _DOING,
                f"the block has shape {block.shape}",
                f"({len(self._sums)}, any number of samples) is wanted",
            )
        if not np.can_cast(sample_dtype(block.dtype), self._spec.dtype, "same_kind"):
            raise DTypeError(
                _DOING,
                f"the block is {block.dtype}",
                f"the estimate was resolved for {self._spec.dtype}",
                "resolve it with the samples' dtype",
            )
