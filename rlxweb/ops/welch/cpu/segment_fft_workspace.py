"""Workspace of one thread for the FFTs of segments, and the inner loop that adds up
their |FFT|².

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

from rlxweb.codegen.fft_arithmetic import MAX_PRIME, prime_factors
from rlxweb.core.lru_cache import SMALL_TABLE_SAMPLES, lru_cache_if_small
from rlxweb.ops.welch.parameters import centred_ramp, doubled_bin_slice
from rlxweb.ops.welch.spec import WelchSpec

# Up to here whole-array additions beat one reduction over the segments.
_MAX_ADDED_SEGMENTS = 3
# Scratch up to this size (1.5 MiB) is kept by its thread from one call to the next.
MAX_CACHED_SAMPLES = 65_536
# The window is repeated for every row of a block up to this size (128 KiB).
MAX_TILED_SAMPLES = 16_384


@dataclass(frozen=True, slots=True, eq=False)
class WelchTables:
    """Window, ramp and bin weights that a spec's arithmetic needs beside the samples.

    weights turn a sum of |X|² into power, before the division by the segment count.
    """

    window: NDArray[np.float64]
    ramp: NDArray[np.float64]
    weights: NDArray[np.float64]


@lru_cache_if_small(32, lambda spec: spec.nfft <= SMALL_TABLE_SAMPLES)
def welch_tables(spec: WelchSpec) -> WelchTables:
    """Return the tables of a spec, computed once."""
    weights = np.full(fft_bin_count(spec), spec.scale)
    if spec.one_sided:
        weights[doubled_bin_slice(spec.nfft)] *= 2.0
    is_linear = spec.detrend == "linear"
    return WelchTables(
        window=spec.window_array,
        ramp=centred_ramp(spec.nperseg if is_linear else 0),
        weights=weights,
    )


def fft_bin_count(spec: WelchSpec) -> int:
    """Return the number of bins of the FFT: real samples need only the first half."""
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


def _sum_segments(squared: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum over the first axis; it may overwrite its argument."""
    total: NDArray[np.float64]
    if len(squared) > _MAX_ADDED_SEGMENTS:
        total = np.add.reduce(squared, axis=0)
        return total
    total = squared[0]
    for segment in squared[1:]:
        np.add(total, segment, out=total)
    return total


class _ThreadWorkspace(threading.local):
    """Workspace that a thread used last: fresh memory costs small batches page
    faults.
    """

    def __init__(self) -> None:
        self.key: object = None
        self.workspace: SegmentWorkspace | None = None


_last_workspace = _ThreadWorkspace()


def thread_workspace(spec: WelchSpec, rows: int, segments: int) -> SegmentWorkspace:
    """Return the calling thread's workspace for this work; the last one is reused if it
    fits.
    """
    if rows * segments * spec.nfft > MAX_CACHED_SAMPLES:
        return SegmentWorkspace(spec, rows, segments)
    key = (spec, rows, segments)
    if _last_workspace.workspace is None or _last_workspace.key != key:
        _last_workspace.workspace, _last_workspace.key = (
            SegmentWorkspace(spec, rows, segments),
            key,
        )
    return _last_workspace.workspace


class SegmentWorkspace:
    """Workspace for `rows` rows of `segments` segments, with the arithmetic on it.

    The scratch is laid out segments first, so that summing over them runs through
    memory in one sweep.
    """

    def __init__(self, spec: WelchSpec, rows: int, segments: int) -> None:
        bins = fft_bin_count(spec)
        work_dtype = np.complex128 if spec.is_complex else np.float64
        allocate = np.zeros if spec.nfft > spec.nperseg else np.empty
        self._spec = spec
        self._tables = welch_tables(spec)
        self._fft = np.fft.fft if spec.is_complex else np.fft.rfft
        # The tail beyond nperseg is zeroed here, once, and never written again.
        self._windowed = allocate((segments, rows, spec.nfft), work_dtype)
        self._spectrum = np.empty((segments, rows, bins), np.complex128)
        self._power = np.empty((rows, bins))
        # Of a length with a large prime factor NumPy transforms real values as complex
        # ones: two segments at a time cost it no more than one.
        has_large_prime = max(prime_factors(spec.nfft), default=1) > MAX_PRIME
        pair_count = segments // 2 if has_large_prime and not spec.is_complex else 0
        self._pairs = np.empty((pair_count, rows, spec.nfft), np.complex128)
        # One window per row lets NumPy run through memory in one long loop.
        window_copies = rows if rows * spec.nperseg <= MAX_TILED_SAMPLES else 1
        self._window = np.tile(self._tables.window, (window_copies, 1))

    def squared_parts(self, frames: NDArray[Any]) -> NDArray[np.float64]:
        """Return re² and im², interleaved, of each segment: (r, q, nperseg) → (q, r,
        2·bins).

        The answer is scratch: the next call overwrites it.
        """
        return self._squared_spectra(self._prepare_segments(frames))

    def spectra(self, frames: NDArray[Any]) -> NDArray[np.complex128]:
        """Return the transform of each segment, (r, q, nperseg) → (q, r, bins), in
        scratch memory.
        """
        return self._transform(self._prepare_segments(frames))

    def _transform(self, padded: NDArray[Any]) -> NDArray[np.complex128]:
        """Transform prepared segments (q, r, nfft) into scratch memory."""
        segments, rows, _ = padded.shape
        spectrum = self._spectrum[:segments, :rows]
        self._fft(padded, out=spectrum)
        return spectrum

    def _squared_spectra(self, padded: NDArray[Any]) -> NDArray[np.float64]:
        """Return re² and im² of segments (q, r, nfft) that are detrended and
        windowed.
        """
        squared = self._transform(padded).view(np.float64)
        return np.multiply(squared, squared, out=squared)

    def _prepare_segments(self, frames: NDArray[Any]) -> NDArray[Any]:
        """Detrend and window segments (r, q, nperseg) into (q, r, nfft) scratch
        memory.
        """
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
            scratch = spectrum.view(windowed.dtype)[..., :nperseg]
            remove_linear(windowed, self._tables.ramp, scratch)
        np.multiply(windowed, self._window[:rows], out=windowed)
        return padded

    def sum_squares(self, frames: NDArray[Any]) -> NDArray[np.float64]:
        """Return re² and im² summed over the segments, (r, 2·bins), in scratch
        memory.
        """
        if len(self._pairs) and frames.shape[1] > 1:
            return self._sum_squares_by_pairs(self._prepare_segments(frames))
        return _sum_segments(self.squared_parts(frames))

    def _sum_squares_by_pairs(self, padded: NDArray[Any]) -> NDArray[np.float64]:
        """Sum the squares of prepared segments, two of them as one complex transform.

        With Z = A + iB of real a and b, |A|² + |B|² at bin k is half of |Z|² there and
        at -k: a sum over segments needs nothing else to be told apart.
        """
        segments, rows, nfft = padded.shape
        pair_count = segments // 2
        z = self._pairs[:pair_count, :rows]
        z.real = padded[0 : 2 * pair_count : 2]
        z.imag = padded[1 : 2 * pair_count : 2]
        np.fft.fft(z, out=z)
        squared = z.view(np.float64)
        total = _sum_segments(np.multiply(squared, squared, out=squared))
        two_sided = np.add(total[:, 0::2], total[:, 1::2])
        # Whoever adds up re² and im² finds the sum in the one and nothing in the other.
        folded = np.zeros((rows, 2 * (nfft // 2 + 1)))
        bin_power = folded[:, 0::2]
        bin_power[:, 0] = two_sided[:, 0]
        np.add(
            two_sided[:, 1 : nfft // 2 + 1],
            two_sided[:, : (nfft - 1) // 2 : -1],
            bin_power[:, 1:],
        )
        bin_power[:, 1:] *= 0.5
        if segments % 2:
            folded += self._squared_spectra(padded[-1:])[0]
        return folded

    def write_mean_power(
        self, sums: NDArray[np.float64], n_segments: int, out: NDArray[Any]
    ) -> None:
        """Write the mean power, from sums of squares (r, 2·bins) over n_segments, into
        out (r, F).
        """
        power = np.add(sums[:, 0::2], sums[:, 1::2], out=self._power[: len(sums)])
        self.write_weighted_power(power, 1.0 / n_segments, out)

    def write_weighted_power(
        self, power: NDArray[np.float64], factor: float, out: NDArray[Any]
    ) -> None:
        """Apply weights and factor to power (r, bins), in place, and write it into out
        (r, F).
        """
        weights = self._tables.weights * factor
        bins = len(weights)
        np.multiply(power, weights, out=out[:, :bins], casting="same_kind")
        if out.shape[1] > bins:
            # Real samples, both sides wanted: the other half is the mirror image.
            out[:, bins:] = out[:, (self._spec.nfft - 1) // 2 : 0 : -1]
