"""Segments in, sums of |FFT|² out: one thread's scratch and the arithmetic on it.

Owns the inner loop that the whole-array and the stream form share. It must not know how
rows are shared out among threads, where samples come from, or what peaks are.

Everything is computed in float64, also for float32 samples: the scratch stays in the
cache, NumPy's float64 FFT was measured 1.4 to 3 times as fast as its float32 one, and
the answer is rounded once, at the end.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.spec import WelchSpec
from rlxweb.kept import SMALL, lru_of_small
from rlxweb.recipes.fft_plan import MAX_PRIME, prime_factors
from rlxweb.recipes.welch_plan import centred_ramp, doubled_bins

# Up to here whole-array additions beat one reduction over the segments.
_FEW_SEGMENTS = 3
# Scratch up to this size (1.5 MiB) is kept by its thread from one call to the next.
KEPT_SAMPLES = 65_536
# The window is repeated for every row of a block up to this size (128 KiB).
TILED_SAMPLES = 16_384


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """What a spec's arithmetic needs beside the samples.

    weights turn a sum of |X|² into power, before the division by the segment count.
    """

    window: NDArray[np.float64]
    ramp: NDArray[np.float64]
    weights: NDArray[np.float64]


@lru_of_small(32, lambda spec: spec.nfft <= SMALL)
def tables(spec: WelchSpec) -> Tables:
    """The tables of a spec, made once."""
    weights = np.full(half_bins(spec), spec.scale)
    if spec.one_sided:
        weights[doubled_bins(spec.nfft)] *= 2.0
    linear = spec.detrend == "linear"
    return Tables(
        window=spec.window_array,
        ramp=centred_ramp(spec.nperseg if linear else 0),
        weights=weights,
    )


def half_bins(spec: WelchSpec) -> int:
    """Bins the FFT gives: real samples need only the first half of them."""
    return spec.nfft if spec.is_complex else spec.nfft // 2 + 1


def remove_constant(segments: NDArray[Any]) -> None:
    """Subtract from each segment of (..., nperseg) its own mean."""
    means = np.add.reduce(segments, axis=-1, keepdims=True)
    means /= segments.shape[-1]
    np.subtract(segments, means, out=segments)


def remove_linear(
    segments: NDArray[Any], ramp: NDArray[np.float64], scratch: NDArray[Any]
) -> None:
    """Subtract from each segment its least-squares line.

    `ramp` is `centred_ramp(nperseg)`; `scratch` has the shape and dtype of `segments`.
    """
    remove_constant(segments)
    np.multiply(segments, ramp, out=scratch)
    slopes = np.add.reduce(scratch, axis=-1, keepdims=True)
    np.multiply(ramp, slopes, out=scratch)
    np.subtract(segments, scratch, out=segments)


def _sum(squared: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum over the first axis, which may be written into what it is of."""
    total: NDArray[np.float64]
    if len(squared) > _FEW_SEGMENTS:
        total = np.add.reduce(squared, axis=0)
        return total
    total = squared[0]
    for another in squared[1:]:
        np.add(total, another, out=total)
    return total


class _Kept(threading.local):
    """The scratch a thread used last: fresh memory costs small batches page faults."""

    def __init__(self) -> None:
        self.key: object = None
        self.scratch: SegmentPower | None = None


_kept = _Kept()


def scratch_for(spec: WelchSpec, rows: int, segments: int) -> SegmentPower:
    """The calling thread's scratch for this work, the last one again if it fits."""
    if rows * segments * spec.nfft > KEPT_SAMPLES:
        return SegmentPower(spec, rows, segments)
    key = (spec, rows, segments)
    if _kept.scratch is None or _kept.key != key:
        _kept.scratch, _kept.key = SegmentPower(spec, rows, segments), key
    return _kept.scratch


class SegmentPower:
    """Scratch for `rows` rows of `segments` segments, and what is computed on it.

    The scratch is laid out segments first, so that summing over them runs through
    memory in one sweep.
    """

    def __init__(self, spec: WelchSpec, rows: int, segments: int) -> None:
        bins = half_bins(spec)
        work = np.complex128 if spec.is_complex else np.float64
        make = np.zeros if spec.nfft > spec.nperseg else np.empty
        self._spec = spec
        self._tables = tables(spec)
        self._fft = np.fft.fft if spec.is_complex else np.fft.rfft
        # The tail beyond nperseg is zeroed here, once, and never written again.
        self._windowed = make((segments, rows, spec.nfft), work)
        self._spectrum = np.empty((segments, rows, bins), np.complex128)
        self._power = np.empty((rows, bins))
        # Of a length with a large prime factor NumPy transforms real values as complex
        # ones: two segments at a time cost it no more than one.
        large = max(prime_factors(spec.nfft), default=1) > MAX_PRIME
        pairs = segments // 2 if large and not spec.is_complex else 0
        self._pairs = np.empty((pairs, rows, spec.nfft), np.complex128)
        # One window per row lets NumPy run through memory in one long loop.
        each = rows if rows * spec.nperseg <= TILED_SAMPLES else 1
        self._window = np.tile(self._tables.window, (each, 1))

    def squares(self, frames: NDArray[Any]) -> NDArray[np.float64]:
        """re² and im², interleaved, of each segment: (r, q, nperseg) → (q, r, 2·bins).

        The answer is scratch: the next call overwrites it.
        """
        return self._squares_of(self._prepared(frames))

    def spectra(self, frames: NDArray[Any]) -> NDArray[np.complex128]:
        """The transform of each segment: (r, q, nperseg) → (q, r, bins), scratch."""
        return self._spectra_of(self._prepared(frames))

    def _spectra_of(self, padded: NDArray[Any]) -> NDArray[np.complex128]:
        segments, rows, _ = padded.shape
        spectrum = self._spectrum[:segments, :rows]
        self._fft(padded, out=spectrum)
        return spectrum

    def _squares_of(self, padded: NDArray[Any]) -> NDArray[np.float64]:
        """`squares` of segments (q, r, nfft) that are detrended and windowed."""
        squared = self._spectra_of(padded).view(np.float64)
        return np.multiply(squared, squared, out=squared)

    def _prepared(self, frames: NDArray[Any]) -> NDArray[Any]:
        """Segments (r, q, nperseg) detrended and windowed: (q, r, nfft), scratch."""
        rows, segments, nperseg = frames.shape
        padded = self._windowed[:segments, :rows]
        windowed = padded[..., :nperseg]
        # Copying first and multiplying in place is the faster order even where both
        # could be one call.
        np.copyto(windowed, frames.transpose(1, 0, 2))
        if self._spec.detrend == "constant":
            remove_constant(windowed)
        elif self._spec.detrend == "linear":
            spectrum = self._spectrum[:segments, :rows]
            spare = spectrum.view(windowed.dtype)[..., :nperseg]
            remove_linear(windowed, self._tables.ramp, spare)
        np.multiply(windowed, self._window[:rows], out=windowed)
        return padded

    def summed(self, frames: NDArray[Any]) -> NDArray[np.float64]:
        """`squares` summed over the segments: (r, 2·bins), scratch again."""
        if len(self._pairs) and frames.shape[1] > 1:
            return self._summed_by_pairs(self._prepared(frames))
        return _sum(self.squares(frames))

    def _summed_by_pairs(self, padded: NDArray[Any]) -> NDArray[np.float64]:
        """`summed` of prepared segments, two of them as one complex transform.

        With Z = A + iB of real a and b, |A|² + |B|² at bin k is half of |Z|² there and
        at -k: a sum over segments needs nothing else to be told apart.
        """
        segments, rows, nfft = padded.shape
        paired = segments // 2
        z = self._pairs[:paired, :rows]
        z.real = padded[0 : 2 * paired : 2]
        z.imag = padded[1 : 2 * paired : 2]
        np.fft.fft(z, out=z)
        squared = z.view(np.float64)
        total = _sum(np.multiply(squared, squared, out=squared))
        both = np.add(total[:, 0::2], total[:, 1::2])
        # Whoever adds up re² and im² finds the sum in the one and nothing in the other.
        folded = np.zeros((rows, 2 * (nfft // 2 + 1)))
        half = folded[:, 0::2]
        half[:, 0] = both[:, 0]
        np.add(both[:, 1 : nfft // 2 + 1], both[:, : (nfft - 1) // 2 : -1], half[:, 1:])
        half[:, 1:] *= 0.5
        if segments % 2:
            folded += self._squares_of(padded[-1:])[0]
        return folded

    def finish(
        self, sums: NDArray[np.float64], n_segments: int, out: NDArray[Any]
    ) -> None:
        """Sums of squares (r, 2·bins) over n_segments → mean power, into out (r, F)."""
        power = np.add(sums[:, 0::2], sums[:, 1::2], out=self._power[: len(sums)])
        self.weigh(power, 1.0 / n_segments, out)

    def weigh(
        self, power: NDArray[np.float64], factor: float, out: NDArray[Any]
    ) -> None:
        """Weights and factor onto power (r, bins), in place, then into out (r, F)."""
        weights = self._tables.weights * factor
        bins = len(weights)
        np.multiply(power, weights, out=out[:, :bins], casting="same_kind")
        if out.shape[1] > bins:
            # Real samples, both sides wanted: the other half is the mirror image.
            out[:, bins:] = out[:, (self._spec.nfft - 1) // 2 : 0 : -1]
