"""Rounding floor of a spectrum: the power that rounding alone may leave, below which
nothing is a peak.

Samples and arithmetic end at some last digit. What they leave behind is spread over
the bins of a row or, where a mean or a line was removed, lies at the lowest of them. A
power is told from that when it is above the floor here; a maximum, when it also stands
out by more than rounding moves the power under it. Knows no engine: the floor is a
matter of the samples' type, so that a row has the same peaks wherever it was computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.lru_cache import SMALL_TABLE_SAMPLES, lru_cache_if_small
from rlxweb.ops.welch.cpu.segment_fft_workspace import welch_tables
from rlxweb.ops.welch.parameters import centred_ramp, doubled_bin_slice
from rlxweb.ops.welch.spec import WelchSpec

# The amplitude of a line that counts, in root mean squares of its row. Double precision
# is hardly ever right to its last digits: the phase of sin(2πft) after a thousand turns
# is off by a thousand of them.
_LINE_AMPLITUDE: Final = {
    np.dtype(np.float32): 2.0**-22,
    np.dtype(np.float64): 2.0**-40,
}
# Roundings of a mean or a slope over a segment, in units of the last digit.
_MEAN_ROUNDINGS: Final = 16.0
# And of a power, in its own last digit: a device's transform was seen to take half.
_POWER_ROUNDINGS: Final = 64.0
# A row is flat when its power sums up to no more than so many times what rounding adds.
# Rows without a signal were seen at half of it at most, on every engine.
_FLAT_POWER_FACTOR: Final = 4.0


class RoundingShares(NamedTuple):
    """Rounding floor and rounding error per bin of a row whose mean |x|² is 1.

    line     (F,) the power of a line that rounding may draw at a bin
    ripple   (F,) the square of what rounding adds to |X| at a bin
    max_line  the largest of `line`
    """

    line: NDArray[np.float64]
    ripple: NDArray[np.float64]
    max_line: float


class RoundingFloor(NamedTuple):
    """Power that rounding may leave at each bin of each row.

    shares   that of a row of energy 1
    energy   (B,) mean |x|² of the rows, as far as the estimate reads them
    max_value  no bin of any row has a higher floor; NaN where a row has no energy
    """

    shares: RoundingShares
    energy: NDArray[Any]
    max_value: float

    @classmethod
    def from_energies(
        cls, shares: RoundingShares, energy: NDArray[Any], loudest: float
    ) -> RoundingFloor:
        """Return the rounding floor of rows with these mean squares; `loudest` is their
        maximum.
        """
        return cls(shares, energy, loudest * shares.max_line)

    @classmethod
    def concatenate(cls, floors: Sequence[RoundingFloor]) -> RoundingFloor:
        """Concatenate the floors of several groups of rows of one estimate."""
        energy = np.concatenate([floor.energy for floor in floors])
        return cls(floors[0].shares, energy, max(floor.max_value for floor in floors))

    def values_at(self, rows: NDArray[Any], bins: NDArray[Any]) -> NDArray[np.float64]:
        """Return the floor at these rows and bins, which broadcast."""
        floor: NDArray[np.float64] = self.energy[rows] * self.shares.line[bins]
        return floor

    def power_uncertainty(
        self, power: NDArray[Any], rows: NDArray[Any], bins: NDArray[Any]
    ) -> NDArray[np.float64]:
        """Return the amount by which rounding may change the power at these rows and
        bins.
        """
        ripple = self.energy[rows] * self.shares.ripple[bins]
        power_rounding = _POWER_ROUNDINGS * np.finfo(power.dtype).eps * power
        uncertainty: NDArray[np.float64] = 2.0 * np.sqrt(power) * np.sqrt(ripple)
        uncertainty += ripple + power_rounding
        return uncertainty

    def select_bins(self, bins: slice | NDArray[Any]) -> RoundingFloor:
        """Return the floor of a part of the spectrum."""
        line, ripple = self.shares.line[bins], self.shares.ripple[bins]
        return self._replace(shares=self.shares._replace(line=line, ripple=ripple))

    def scale(self, factor: float) -> RoundingFloor:
        """Return the floor of the power times a factor."""
        line, ripple = self.shares.line * factor, self.shares.ripple * factor
        shares = RoundingShares(line, ripple, self.shares.max_line * factor)
        return RoundingFloor(shares, self.energy, self.max_value * factor)

    def is_flat(self, power: NDArray[Any]) -> NDArray[np.bool_]:
        """Tell which rows (B,) of power (B, F) hold nothing but rounding.

        No bin has a line, and all bins together have no more than rounding adds: noise
        that a long segment spreads below the floor of each bin is a signal still.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            is_below = power <= self.energy[:, None] * self.shares.line
            total = power.sum(axis=1, dtype=np.float64)
            max_total = _FLAT_POWER_FACTOR * float(self.shares.ripple.sum())
            is_flat = is_below.all(axis=1) & (
                total <= self.energy.astype(np.float64) * max_total
            )
        return np.asarray(is_flat)


@lru_cache_if_small(32, lambda spec, arithmetic="": spec.nfft <= SMALL_TABLE_SAMPLES)
def rounding_shares(spec: WelchSpec, arithmetic: str = "") -> RoundingShares:
    """Return the rounding shares of rows of energy 1; the arrays are read-only.

    arithmetic   the dtype that rounds; "": that of the power
    """
    dtype = np.dtype(arithmetic or spec.power_dtype)
    epsilon = float(np.finfo(dtype).eps)
    window = spec.window_array
    residue = np.zeros(spec.nfft)
    if spec.detrend is not None:
        residue += np.abs(np.fft.fft(window, spec.nfft)) ** 2
    if spec.detrend == "linear":
        ramp = centred_ramp(spec.nperseg) * np.sqrt(spec.nperseg)
        residue += np.abs(np.fft.fft(window * ramp, spec.nfft)) ** 2
    spread = epsilon**2 * np.log2(2 * spec.nfft) * float(window @ window)
    ripple = (spread + (_MEAN_ROUNDINGS * epsilon) ** 2 * residue)[: spec.n_freqs]
    line = ripple + (_LINE_AMPLITUDE[dtype] * np.abs(window).sum()) ** 2
    weights = welch_tables(spec).weights
    for values in (line, ripple):
        values[: len(weights)] *= weights
        values[len(weights) :] *= spec.scale
        values.setflags(write=False)
    return RoundingShares(line, ripple, float(line.max()))


def taper_shares(
    n_samples: int, nw: float, ratios: NDArray[np.float64], remove_mean: bool, kind: str
) -> RoundingShares:
    """Return the rounding shares of rows of energy 1 under unit-energy Slepian tapers,
    averaged.

    n_samples  length of a row and of a taper
    nw         half the bandwidth in bins, within which a taper has its energy
    ratios     (K,) share of a taper's energy within it
    kind       dtype that rounds
    """
    dtype = np.dtype(kind)
    epsilon = float(np.finfo(dtype).eps)
    bins = np.arange(n_samples // 2 + 1)
    ripple = np.full(len(bins), epsilon**2 * np.log2(2 * n_samples))
    if remove_mean:
        # A mean's rounding is a constant: the tapers put it within the bandwidth, and
        # the rest of their energy beyond it, falling with the square of the frequency.
        mean_ratio = float(ratios.mean())
        beyond = (1.0 - mean_ratio) * (nw / np.maximum(bins, nw)) ** 2
        spread = np.where(bins <= nw + 1.0, 1.0, beyond)
        ripple += (
            (_MEAN_ROUNDINGS * epsilon) ** 2 * spread * n_samples / max(2.0 * nw, 1.0)
        )
    # By Cauchy and Schwarz no taper's sum is above the root of its length.
    line = ripple + _LINE_AMPLITUDE[dtype] ** 2 * n_samples
    double = np.ones(len(bins))
    double[doubled_bin_slice(n_samples)] = 2.0
    for values in (line, ripple):
        values *= double
        values.setflags(write=False)
    return RoundingShares(line, ripple, float(line.max()))
