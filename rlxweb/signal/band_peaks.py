"""The part of the frequency axis that was asked for, and the peaks that lie in it.

A local maximum is told by its neighbours, so one bin beyond either end is looked at; it
is never itself a peak of the band. The offset of a recording, say, stays outside.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.strongest import PeaksOfPower
from rlxweb.signal.band import Reach, bins_between
from rlxweb.signal.peaks_of_power import peaks_of_power
from rlxweb.signal.rounding import RoundingFloor


@dataclass(frozen=True, slots=True)
class Band:
    """Bins [first, stop) of a spectrum."""

    first: int
    stop: int

    @classmethod
    def of(
        cls,
        hz: NDArray[np.float64],
        fs: float,
        fmin: float | None,
        fmax: float | None,
        doing: str,
    ) -> Band:
        """The bins with fmin ≤ f ≤ fmax, of frequencies (F,) that rise from 0.

        Errors   UsageError for a bound that is no number, for an fmax beyond half the
                 rate fs, and where no bin lies.
        """
        low = 0.0 if fmin is None else fmin
        inside = bins_between(hz, low, fmax, doing, Reach.of_rate(fs))
        if inside is None:
            return cls(0, len(hz))
        return cls(int(inside[0]), int(inside[-1]) + 1)

    @classmethod
    def spanned(cls, bins: NDArray[Any]) -> Band | None:
        """Of numbers (B,) that rise; None where they leave some out."""
        first, stop = int(bins[0]), int(bins[-1]) + 1
        return cls(first, stop) if stop - first == len(bins) else None

    def __len__(self) -> int:
        return self.stop - self.first

    @property
    def bins(self) -> slice:
        return slice(self.first, self.stop)

    def peaks(
        self,
        power: NDArray[Any],
        hz: NDArray[np.float64],
        k: int,
        prominence: float | None,
        mode: str,
        floor: RoundingFloor,
    ) -> PeaksOfPower:
        """The k strongest peaks of whole spectra (C, F) that lie in the band.

        Prominence is height above the valleys of the band.
        """
        near = self.beside(len(hz), mode)
        part = power[:, near.bins]
        return near.searched(part, hz, k, prominence, mode, floor)

    def beside(self, n_bins: int, mode: str) -> Band:
        """The bins that tell its peaks, of so many of the spectrum."""
        if mode != "peaks":
            return self
        return Band(max(0, self.first - 1), min(n_bins, self.stop + 1))

    def searched(
        self,
        part: NDArray[Any],
        hz: NDArray[np.float64],
        k: int,
        prominence: float | None,
        mode: str,
        floor: RoundingFloor,
    ) -> PeaksOfPower:
        """The k strongest peaks of these bins' power (C, B) alone; hz and floor are the
        whole spectrum's.
        """
        own = self.bins
        found = peaks_of_power(part, hz[own], k, prominence, mode, floor.of_bins(own))
        bins = np.where(found.bins < 0, -1, found.bins + self.first)
        return replace(found, bins=bins)
