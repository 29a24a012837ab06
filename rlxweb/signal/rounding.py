"""What rounding alone may leave in a spectrum, and so what is no peak.

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

from rlxweb.host.segment_power import tables
from rlxweb.host.spec import WelchSpec
from rlxweb.kept import SMALL, lru_of_small
from rlxweb.recipes.welch_plan import centred_ramp, doubled_bins

# The amplitude of a line that counts, in root mean squares of its row. Double precision
# is hardly ever right to its last digits: the phase of sin(2πft) after a thousand turns
# is off by a thousand of them.
_LINE: Final = {np.dtype(np.float32): 2.0**-22, np.dtype(np.float64): 2.0**-40}
# Roundings of a mean or a slope over a segment, in units of the last digit.
_OF_MEAN: Final = 16.0
# And of a power, in its own last digit: a device's transform was seen to take half.
_OF_POWER: Final = 64.0
# A row is flat when its power sums up to no more than so many times what rounding adds.
# Rows without a signal were seen at half of it at most, on every engine.
_OF_TOTAL: Final = 4.0


class Shares(NamedTuple):
    """The floor and what moves a power, of a row whose mean |x|² is 1.

    line     (F,) the power of a line that rounding may draw at a bin
    ripple   (F,) the square of what rounding adds to |X| at a bin
    highest  the largest of `line`
    """

    line: NDArray[np.float64]
    ripple: NDArray[np.float64]
    highest: float


class RoundingFloor(NamedTuple):
    """The power that rounding may leave at each bin of each row.

    shares   that of a row of energy 1
    energy   (B,) mean |x|² of the rows, as far as the estimate reads them
    highest  no bin of any row has a higher floor; NaN where a row has no energy
    """

    shares: Shares
    energy: NDArray[Any]
    highest: float

    @classmethod
    def of(cls, shares: Shares, energy: NDArray[Any], loudest: float) -> RoundingFloor:
        """That of rows of so much energy, the loudest of which has so much."""
        return cls(shares, energy, loudest * shares.highest)

    @classmethod
    def joined(cls, floors: Sequence[RoundingFloor]) -> RoundingFloor:
        """That of all rows of several, of one estimate."""
        energy = np.concatenate([floor.energy for floor in floors])
        return cls(floors[0].shares, energy, max(floor.highest for floor in floors))

    def at(self, rows: NDArray[Any], bins: NDArray[Any]) -> NDArray[np.float64]:
        """The floor at these rows and bins, which broadcast."""
        floor: NDArray[np.float64] = self.energy[rows] * self.shares.line[bins]
        return floor

    def moves(
        self, power: NDArray[Any], rows: NDArray[Any], bins: NDArray[Any]
    ) -> NDArray[np.float64]:
        """By how much rounding may change the power at these rows and bins."""
        ripple = self.energy[rows] * self.shares.ripple[bins]
        own = _OF_POWER * np.finfo(power.dtype).eps * power
        moved: NDArray[np.float64] = 2.0 * np.sqrt(power) * np.sqrt(ripple)
        moved += ripple + own
        return moved

    def of_bins(self, bins: slice | NDArray[Any]) -> RoundingFloor:
        """Floor of a part of the spectrum."""
        line, ripple = self.shares.line[bins], self.shares.ripple[bins]
        return self._replace(shares=self.shares._replace(line=line, ripple=ripple))

    def scaled(self, factor: float) -> RoundingFloor:
        """Floor of the power times a factor."""
        line, ripple = self.shares.line * factor, self.shares.ripple * factor
        shares = Shares(line, ripple, self.shares.highest * factor)
        return RoundingFloor(shares, self.energy, self.highest * factor)

    def is_flat(self, power: NDArray[Any]) -> NDArray[np.bool_]:
        """Rows (B,) of power (B, F) that hold nothing but rounding.

        No bin has a line, and all bins together have no more than rounding adds: noise
        that a long segment spreads below the floor of each bin is a signal still.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            below = power <= self.energy[:, None] * self.shares.line
            total = power.sum(axis=1, dtype=np.float64)
            most = _OF_TOTAL * float(self.shares.ripple.sum())
            flat = below.all(axis=1) & (total <= self.energy.astype(np.float64) * most)
        return np.asarray(flat)


@lru_of_small(32, lambda spec, arithmetic="": spec.nfft <= SMALL)
def rounding_shares(spec: WelchSpec, arithmetic: str = "") -> Shares:
    """Of rows of energy 1; the arrays are read-only.

    arithmetic   the dtype that rounds; "": that of the power
    """
    kind = np.dtype(arithmetic or spec.power_dtype)
    last = float(np.finfo(kind).eps)
    window = spec.window_array
    left = np.zeros(spec.nfft)
    if spec.detrend is not None:
        left += np.abs(np.fft.fft(window, spec.nfft)) ** 2
    if spec.detrend == "linear":
        ramp = centred_ramp(spec.nperseg) * np.sqrt(spec.nperseg)
        left += np.abs(np.fft.fft(window * ramp, spec.nfft)) ** 2
    spread = last**2 * np.log2(2 * spec.nfft) * float(window @ window)
    ripple = (spread + (_OF_MEAN * last) ** 2 * left)[: spec.n_freqs]
    line = ripple + (_LINE[kind] * np.abs(window).sum()) ** 2
    weights = tables(spec).weights
    for shares in (line, ripple):
        shares[: len(weights)] *= weights
        shares[len(weights) :] *= spec.scale
        shares.setflags(write=False)
    return Shares(line, ripple, float(line.max()))


def taper_shares(
    n_samples: int, nw: float, ratios: NDArray[np.float64], remove_mean: bool, kind: str
) -> Shares:
    """Shares of rows of energy 1 under unit-energy Slepian tapers, averaged.

    n_samples  length of a row and of a taper
    nw         half the bandwidth in bins, within which a taper has its energy
    ratios     (K,) share of a taper's energy within it
    kind       dtype that rounds
    """
    dtype = np.dtype(kind)
    last = float(np.finfo(dtype).eps)
    bins = np.arange(n_samples // 2 + 1)
    ripple = np.full(len(bins), last**2 * np.log2(2 * n_samples))
    if remove_mean:
        # A mean's rounding is a constant: the tapers put it within the bandwidth, and
        # the rest of their energy beyond it, falling with the square of the frequency.
        mean_ratio = float(ratios.mean())
        beyond = (1.0 - mean_ratio) * (nw / np.maximum(bins, nw)) ** 2
        spread = np.where(bins <= nw + 1.0, 1.0, beyond)
        ripple += (_OF_MEAN * last) ** 2 * spread * n_samples / max(2.0 * nw, 1.0)
    # By Cauchy and Schwarz no taper's sum is above the root of its length.
    line = ripple + _LINE[dtype] ** 2 * n_samples
    double = np.ones(len(bins))
    double[doubled_bins(n_samples)] = 2.0
    for shares in (line, ripple):
        shares *= double
        shares.setflags(write=False)
    return Shares(line, ripple, float(line.max()))
