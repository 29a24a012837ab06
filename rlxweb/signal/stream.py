"""Welch over a stream: blocks in, one average spectrum out, memory bounded.

Feeds any engine with whole segments and keeps the tail that the next block's first
segment needs. The average is weighted by segments, so the answer is that of the whole
array at once (up to the order of summation).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.digital import Digital
from rlxweb.errors import UsageError
from rlxweb.gpu.drive import drive
from rlxweb.host.spec import WelchSpec
from rlxweb.recipes.welch_plan import samples_needed, segment_count
from rlxweb.signal.engine import NUMPY, Engine

DOING = "welch over a stream"


class WelchStream:
    """Average power of C channels over blocks of any length, fed in order.

    spec     made for a stream (`WelchRequest.spec(None)`); average="median" needs all
             segments at once and is refused
    engine   where blocks are transformed; NumPy by default
    """

    def __init__(self, spec: WelchSpec, n_rows: int, engine: Engine = NUMPY) -> None:
        if spec.average != "mean":
            raise UsageError(
                DOING,
                f"average='{spec.average}'",
                "a stream can only be averaged by its mean",
                "read the recording whole and call welch",
            )
        if n_rows < 1:
            raise UsageError(DOING, f"{n_rows} channels", "at least 1")
        self.spec = spec
        self.engine = engine
        self.n_segments = 0
        self._wanted = spec.n_segments
        self._sum = np.zeros((n_rows, spec.n_freqs))
        self._tail = np.empty((n_rows, 0), np.int8 if spec.is_digital else spec.dtype)
        # Gain and offset of each channel of integers.
        self._scale: tuple[NDArray[Any], NDArray[Any]] | None = None
        self._skip = 0

    @property
    def is_full(self) -> bool:
        """The segments asked for (`nsegments`) have all been seen."""
        return bool(self._wanted) and self.n_segments >= self._wanted

    def feed(self, block: NDArray[Any] | Digital) -> None:
        """The next samples [C, t] of every channel, t >= 0.

        What comes after the segments asked for is ignored.

        Errors   UsageError when the block has another number of channels, or digital
        samples another gain or offset than before; DTypeError for complex samples in a
        stream of real ones, and for others than integers in a stream of these.
        """
        if block.ndim != 2 or block.shape[0] != self._sum.shape[0]:
            raise UsageError(
                DOING,
                f"a block of shape {block.shape}",
                f"{self._sum.shape[0]} channels were announced",
            )
        if self.is_full:
            return
        own = self._taken(block)
        # A hop longer than a segment leaves gaps: samples nobody will read.
        skipped = min(self._skip, block.shape[1])
        self._skip -= skipped
        rows = np.concatenate([self._tail, own[:, skipped:]], axis=1)
        spec = self.spec
        count = segment_count(rows.shape[1], spec.nperseg, spec.hop)
        if self._wanted:
            count = min(count, self._wanted - self.n_segments)
        if count > 0:
            self._add(rows, count)
        used = count * spec.hop
        self._skip += max(0, used - rows.shape[1])
        # A copy, or the tail would keep the whole block alive.
        self._tail = rows[:, min(used, rows.shape[1]) :].copy()

    def _taken(self, block: NDArray[Any] | Digital) -> NDArray[Any]:
        """The block as the spec takes it; what its integers stand for is kept apart."""
        spec = self.spec
        if not spec.is_digital:
            samples = np.asarray(block)
            spec.must_cover(samples.dtype, DOING)
            return samples.astype(spec.dtype, copy=False)
        own = block if isinstance(block, Digital) else Digital(block)
        scale = own.gain, own.offset
        if self._scale is None:
            self._scale = scale
        elif not all(map(np.array_equal, scale, self._scale)):
            raise UsageError(
                DOING,
                "the gain or the offset of a channel changed",
                "an average is of one scale",
                "feed the physical values, in float64",
            )
        return own.counts

    def _add(self, rows: NDArray[Any], count: int) -> None:
        spec, scale = self.spec, self._scale
        part: NDArray[Any] | Digital = np.ascontiguousarray(
            rows[:, : samples_needed(count, spec.nperseg, spec.hop)]
        )
        if scale is not None:
            part = Digital(part, *scale)
        power = drive(self.engine.power(part, replace(spec, n_segments=count)))
        self._sum += power.astype(np.float64) * count
        self.n_segments += count

    def result(self) -> NDArray[Any]:
        """Average power [C, F] of all segments so far.

        Errors   UsageError when not even one segment was complete, or fewer than
        `nsegments`.
        """
        need = max(1, self._wanted)
        if self.n_segments < need:
            spec = self.spec
            raise UsageError(
                DOING,
                f"{need} segments of {spec.nperseg} samples were asked for",
                f"the signal gave {self.n_segments}",
                "use a smaller nperseg or fewer nsegments",
            )
        return (self._sum / self.n_segments).astype(self.spec.power_dtype)
