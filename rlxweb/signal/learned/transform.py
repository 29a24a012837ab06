"""A trained transform: its record, what it may be used for, and its arithmetic.

The arithmetic has two forms, of which either is the faster for some shapes: NumPy, with
the segments of all rows in blocks on a few threads, and a graph for any engine. Both
take a program and the estimate's spec alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rlxweb.advice import Advice, Blank
from rlxweb.errors import UsageError
from rlxweb.forked import cached_property
from rlxweb.host.row_blocks import run_tasks
from rlxweb.host.segment_power import tables
from rlxweb.host.spec import Detrend, WelchSpec
from rlxweb.host.spectrum import frames
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.learned.network import Gates, Program, active, exact

_CLOSE: Final = 1e-6
_BLOCK: Final = 1 << 16
"""Samples of segments that are transformed at a time, so that they stay in cache."""
_THREADED: Final = 1 << 19


@dataclass(frozen=True, slots=False, eq=False)
class LearnedTransform:
    """The bins of a band from segments of n real samples, by fewer butterflies.

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
    band: Band
    gates: Gates
    program: Program
    error: float
    worst: float
    recall: float
    asked: float
    k: int

    def __repr__(self) -> str:
        return (
            f"LearnedTransform({len(self.band)} of {self.n // 2 + 1} bins of {self.n}"
            f" samples at {self.fs:g} Hz, {self.active:,} of {self.total:,} gates,"
            f" error {self.error:.2g})"
        )

    @property
    def total(self) -> int:
        """Number of butterflies of the whole network."""
        return int(self.gates.size)

    @cached_property
    def active(self) -> int:
        """Number of open gates that its bins depend on."""
        return active(self.gates, self.band)

    @cached_property
    def exact(self) -> Program:
        """The program of the exact transform, for the same bins."""
        return exact(self.n, self.band)

    @property
    def share(self) -> float:
        """Its arithmetic relative to that of the whole transform."""
        return self.program.share

    @property
    def hz(self) -> npt.NDArray[np.float64]:
        """Frequencies of its bins."""
        return np.arange(self.band.first, self.band.stop) * self.fs / self.n

    def check_fits(self, spec: WelchSpec, fs: float, band: Band | None) -> None:
        """Refuse an estimate it was not trained for. Errors  UsageError."""

        def check(fits: bool, problem: str, rule: str, hint: str = "") -> None:
            if not fits:
                doing = "welch_peaks with a learned transform"
                raise UsageError(doing, problem, rule, hint)

        is_real = not spec.is_complex and spec.one_sided
        check(is_real, "the samples are complex", "it is one of real samples")
        check(
            abs(fs - self.fs) <= _CLOSE * self.fs,
            f"the rate is {fs:g} Hz",
            f"it was trained at {self.fs:g} Hz",
            "train one for this rate: rlxweb learn",
        )
        check(
            spec.nperseg == spec.nfft == self.n,
            f"segments of {spec.nperseg}, transformed at {spec.nfft}",
            f"it was trained for {self.n} samples",
            Advice("give {}", nperseg=self.n),
        )
        check(
            spec.detrend == self.detrend,
            f"detrend is {spec.detrend}",
            f"it was trained with {self.detrend}",
            Advice("give {}", detrend=self.detrend),
        )
        window = np.frombuffer(self.window)
        check(
            np.allclose(spec.window_array, window, atol=1e-9),
            "the window is another",
            "it is part of what was trained",
            "train anew",
        )
        asked, hint = "all bins", "train one for this band: rlxweb learn"
        if band is None:
            hint = Advice("give {} and {}", fmin=Blank("HZ"), fmax=Blank("HZ"))
        else:
            asked = f"bins {band.first} to {band.stop - 1}"
        first, last = self.band.first, self.band.stop - 1
        check(
            band is not None and first <= band.first and band.stop - 1 <= last,
            f"{asked} are asked for",
            f"it gives bins {first} to {last}, that is "
            f"{self.hz[0]:g} to {self.hz[-1]:g} Hz",
            hint,
        )


def power_in_numpy(
    x: npt.NDArray[Any], spec: WelchSpec, program: Program, band: Band
) -> npt.NDArray[np.float64]:
    """Average power (B, bins) of a band of rows x (B, T), float32 or float64.

    The arithmetic is in the samples' precision, the sums of power are in float64.
    """
    count = spec.segments_of(x.shape[1])
    view = frames(x, spec.nperseg, spec.hop, count)
    at, is_mirrored, weights = program.sources(band)
    # A conjugated sum has the same power: the weights are conjugated once, instead of
    # each value of a mirrored bin.
    weights = np.where(is_mirrored[:, None], weights.conj(), weights)
    parts = [slice(p, None, program.stride) for p in program.phases]
    windows = [spec.window_array[part].astype(x.dtype) for part in parts]
    factors = weights.T.astype(np.result_type(x.dtype, np.complex64))

    def power(segments: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The sum (R, bins) over the segments of rows (R, S, n)."""
        mean: Any = None
        if spec.detrend:
            mean = segments.mean(axis=2, dtype=np.float64, keepdims=True)
            mean = mean.astype(x.dtype)
        total: Any = None
        for part, window, factor in zip(parts, windows, factors, strict=True):
            samples = segments[..., part]
            samples = samples * window if mean is None else (samples - mean) * window
            term = np.fft.rfft(samples, axis=2)[..., at] * factor
            total = term if total is None else np.add(total, term, out=total)
        squares = np.square(total.real) + np.square(total.imag)
        return np.asarray(squares.sum(axis=1, dtype=np.float64))

    most = max(1, _BLOCK // spec.nperseg)
    rows = max(1, most // count)
    blocks = [
        (slice(row, row + rows), slice(first, first + most))
        for row in range(0, len(x), rows)
        for first in range(0, count, most)
    ]
    sums: list[Any] = [None] * len(blocks)

    def task(number: int) -> None:
        sums[number] = power(view[blocks[number]])

    threads = 1 if view.size < _THREADED else None
    run_tasks(len(blocks), lambda: task, threads=threads)
    out = np.zeros((len(x), len(band)))
    # The blocks of a row are added in their order, whichever thread computed them.
    for (some, _), block_sums in zip(blocks, sums, strict=True):
        out[some] += block_sums
    out *= tables(spec).weights[band.bins] / count
    return out


def power_graph(
    shape: tuple[int, int], spec: WelchSpec, program: Program, band: Band
) -> Graph:
    """Rows x [B, T] f32 → average power [B, bins] of a band."""
    count, stride = spec.segments_of(shape[1]), program.stride
    graph = Graph("learned_welch")
    x = graph.input("x", shape, "f32")
    used = graph.narrow(x, 1, 0, spec.nperseg + (count - 1) * spec.hop)
    segments = graph.frame(used, spec.nperseg, spec.hop)
    if spec.detrend:
        segments = segments - graph.mean(segments, (2,), keep_dim=True)
    at, is_mirrored, weights = program.sources(band)
    sign = graph.constant(np.where(is_mirrored, -1.0, 1.0), "f32")
    is_run = bool((np.diff(at) == 1).all())
    places = None if is_run else graph.constant(at, "i32")

    def chosen(values: Tensor) -> Tensor:
        """The values that bins need; where they are consecutive, a view."""
        if places is None:
            return graph.narrow(values, 2, int(at[0]), len(at))
        return graph.gather(values, places, 2)

    sums: list[Tensor] = []
    for phase, weight in zip(program.phases, weights.T, strict=True):
        window = graph.constant(spec.window_array[phase::stride], "f32")
        re, im = graph.rfft(segments[:, :, phase::stride] * window)
        re, im = chosen(re), chosen(im) * sign
        w_re, w_im = (
            graph.constant(part, "f32") for part in (weight.real, weight.imag)
        )
        terms = [re * w_re - im * w_im, re * w_im + im * w_re]
        sums = [a + b for a, b in zip(sums, terms, strict=True)] if sums else terms
    power = graph.mean(sums[0] * sums[0] + sums[1] * sums[1], (1,))
    scale = graph.constant(tables(spec).weights[band.bins], "f32")
    graph.set_outputs([power * scale])
    return graph
