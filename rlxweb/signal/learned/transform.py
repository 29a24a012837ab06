"""Learned transforms: the trained model, the check that it fits an estimate, and its
arithmetic.

The arithmetic has two forms, of which either is the faster for some shapes: NumPy, with
the segments of all rows in blocks on a few threads, and a graph for any engine. Both
take a program and the estimate's spec alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rlxweb.core.errors import UsageError
from rlxweb.core.fork_safety import cached_property
from rlxweb.core.message_text import Advice, Blank
from rlxweb.core.thread_tasks import run_tasks
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.welch.cpu.segment_fft_workspace import welch_tables
from rlxweb.ops.welch.cpu.spectrum import segment_view
from rlxweb.ops.welch.spec import Detrend, WelchSpec
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.learned.gated_fft import (
    Gates,
    PrunedFftProgram,
    count_active_gates,
    exact_program,
)

_RATE_TOLERANCE: Final = 1e-6
_BLOCK_SAMPLES: Final = 1 << 16
"""Samples of segments that are transformed at a time, so that they stay in the cache.
"""
_MIN_THREADED_SAMPLES: Final = 1 << 19


@dataclass(frozen=True, slots=False, eq=False)
class LearnedTransform:
    """Trained transform that computes the bins of a band from segments of n real
    samples with fewer butterflies.

    n        samples of a segment and length of the transform, a power of two
    fs       rate of the recordings it was trained on, in Hz
    window   n float64 samples as bytes, as in WelchSpec
    detrend  what is removed from a segment before: None or "constant"
    band     the bins that it computes
    gates    (stages, n / 2) of its network, True where a butterfly is open
    program  what runs
    error    of the power of a bin, relative, on recordings it was not trained on
    worst    the largest error of a few segments of one row there
    recall   the part of the true peaks that it finds there, 0 to 1
    asked    the error that it was trained for
    k        number of peaks it was trained for
    """

    n: int
    fs: float
    window: bytes
    detrend: Detrend | None
    band: BinRange
    gates: Gates
    program: PrunedFftProgram
    error: float
    worst: float
    recall: float
    asked: float
    k: int

    def __repr__(self) -> str:
        return (
            f"LearnedTransform({len(self.band)} of {self.n // 2 + 1} bins, segments"
            f" of {self.n} samples at {self.fs:g} Hz, {self.active:,} of"
            f" {self.total:,} gates, error {self.error:.2g})"
        )

    @property
    def total(self) -> int:
        """Number of butterflies of the full network."""
        return int(self.gates.size)

    @cached_property
    def active(self) -> int:
        """Number of open gates that the bins depend on."""
        return count_active_gates(self.gates, self.band)

    @cached_property
    def exact(self) -> PrunedFftProgram:
        """Program of the exact transform for the same bins."""
        return exact_program(self.n, self.band)

    @property
    def share(self) -> float:
        """Arithmetic cost relative to that of the full transform."""
        return self.program.relative_cost

    @property
    def hz(self) -> npt.NDArray[np.float64]:
        """Frequencies of the bins of the band, in Hz."""
        return np.arange(self.band.first, self.band.stop) * self.fs / self.n

    def check_fits(self, spec: WelchSpec, fs: float, band: BinRange | None) -> None:
        """Raise UsageError for an estimate that the transform was not trained for."""

        def require(fits: bool, problem: str, rule: str, hint: str = "") -> None:
            if not fits:
                context = "welch_peaks with a learned transform"
                raise UsageError(context, problem, rule, hint)

        is_real = not spec.is_complex and spec.one_sided
        require(
            is_real,
            "the samples are complex",
            "the transform supports only real samples",
        )
        require(
            abs(fs - self.fs) <= _RATE_TOLERANCE * self.fs,
            f"the sampling rate is {fs:g} Hz",
            f"the transform was trained at {self.fs:g} Hz",
            f"train a transform for {fs:g} Hz with `rlxweb learn`",
        )
        rule = f"must be {self.n}, the segment length of the training"
        require(
            spec.nperseg == self.n,
            f"nperseg is {spec.nperseg}",
            rule,
            Advice("pass {}", nperseg=self.n),
        )
        require(spec.nfft == self.n, f"nfft is {spec.nfft}", rule, "leave nfft out")
        require(
            spec.detrend == self.detrend,
            f"detrend is {spec.detrend}",
            f"the transform was trained with detrend {self.detrend}",
            Advice("pass {}", detrend=self.detrend),
        )
        window = np.frombuffer(self.window)
        require(
            np.allclose(spec.window_array, window, atol=1e-9),
            "the window differs from the training window",
            "a transform supports only the window that it was trained with",
            "train a transform for the requested window with `rlxweb learn`",
        )
        requested_bins = "all bins"
        hint = "train a transform for the requested bins with `rlxweb learn`"
        if band is None:
            hint = Advice("pass {} and {}", fmin=Blank("HZ"), fmax=Blank("HZ"))
        else:
            requested_bins = f"bins {band.first} to {band.stop - 1}"
        first, last = self.band.first, self.band.stop - 1
        require(
            band is not None and first <= band.first and band.stop - 1 <= last,
            f"{requested_bins} are requested",
            f"the transform computes bins {first} to {last} ({self.hz[0]:g} to "
            f"{self.hz[-1]:g} Hz)",
            hint,
        )


def band_power_by_numpy(
    x: npt.NDArray[Any], spec: WelchSpec, program: PrunedFftProgram, band: BinRange
) -> npt.NDArray[np.float64]:
    """Return the average power (B, bins) of a band of rows x (B, T), float32 or
    float64, computed in NumPy.

    The arithmetic is in the samples' precision, the sums of power are in float64.
    """
    count = spec.segments_per_row(x.shape[1])
    view = segment_view(x, spec.nperseg, spec.hop, count)
    value_index, is_mirrored, weights = program.bin_sources(band)
    # A conjugated sum has the same power: the weights are conjugated once, instead of
    # each value of a mirrored bin.
    weights = np.where(is_mirrored[:, None], weights.conj(), weights)
    sample_slices = [slice(p, None, program.stride) for p in program.phases]
    windows = [
        spec.window_array[sample_slice].astype(x.dtype)
        for sample_slice in sample_slices
    ]
    factors = weights.T.astype(np.result_type(x.dtype, np.complex64))

    def summed_power(segments: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the power (R, bins) summed over the segments of rows (R, S, n)."""
        mean: Any = None
        if spec.detrend:
            mean = segments.mean(axis=2, dtype=np.float64, keepdims=True)
            mean = mean.astype(x.dtype)
        total: Any = None
        for sample_slice, window, factor in zip(
            sample_slices, windows, factors, strict=True
        ):
            samples = segments[..., sample_slice]
            samples = samples * window if mean is None else (samples - mean) * window
            term = np.fft.rfft(samples, axis=2)[..., value_index] * factor
            total = term if total is None else np.add(total, term, out=total)
        squares = np.square(total.real) + np.square(total.imag)
        return np.asarray(squares.sum(axis=1, dtype=np.float64))

    max_segments = max(1, _BLOCK_SAMPLES // spec.nperseg)
    block_rows = max(1, max_segments // count)
    blocks = [
        (slice(row, row + block_rows), slice(first, first + max_segments))
        for row in range(0, len(x), block_rows)
        for first in range(0, count, max_segments)
    ]
    sums: list[Any] = [None] * len(blocks)

    def compute_block(block_index: int) -> None:
        sums[block_index] = summed_power(view[blocks[block_index]])

    threads = 1 if view.size < _MIN_THREADED_SAMPLES else None
    run_tasks(len(blocks), lambda: compute_block, threads=threads)
    out = np.zeros((len(x), len(band)))
    # The blocks of a row are added in their order, whichever thread computed them.
    for (row_slice, _), block_sums in zip(blocks, sums, strict=True):
        out[row_slice] += block_sums
    out *= welch_tables(spec).weights[band.bins] / count
    return out


def band_power_graph(
    shape: tuple[int, int], spec: WelchSpec, program: PrunedFftProgram, band: BinRange
) -> Graph:
    """Build the graph from rows x [B, T] f32 to the average power [B, bins] of a
    band.
    """
    count, stride = spec.segments_per_row(shape[1]), program.stride
    graph = Graph("learned_welch")
    x = graph.input("x", shape, "f32")
    used = graph.narrow(x, 1, 0, spec.nperseg + (count - 1) * spec.hop)
    segments = graph.frame(used, spec.nperseg, spec.hop)
    if spec.detrend:
        segments = segments - graph.mean(segments, (2,), keep_dim=True)
    value_index, is_mirrored, weights = program.bin_sources(band)
    sign = graph.constant(np.where(is_mirrored, -1.0, 1.0), "f32")
    is_consecutive = bool((np.diff(value_index) == 1).all())
    index_tensor = None if is_consecutive else graph.constant(value_index, "i32")

    def select_bin_values(values: Tensor) -> Tensor:
        """Return the values that the bins need; a view where they are consecutive."""
        if index_tensor is None:
            return graph.narrow(values, 2, int(value_index[0]), len(value_index))
        return graph.gather(values, index_tensor, 2)

    sums: list[Tensor] = []
    for phase, weight in zip(program.phases, weights.T, strict=True):
        window = graph.constant(spec.window_array[phase::stride], "f32")
        re, im = graph.rfft(segments[:, :, phase::stride] * window)
        re, im = select_bin_values(re), select_bin_values(im) * sign
        w_re, w_im = (
            graph.constant(part, "f32") for part in (weight.real, weight.imag)
        )
        terms = [re * w_re - im * w_im, re * w_im + im * w_re]
        sums = [a + b for a, b in zip(sums, terms, strict=True)] if sums else terms
    power = graph.mean(sums[0] * sums[0] + sums[1] * sums[1], (1,))
    scale = graph.constant(welch_tables(spec).weights[band.bins], "f32")
    graph.set_outputs([power * scale])
    return graph
