"""Range of bins of a spectrum, and the peaks in it.

A local maximum is told by its neighbours, so one bin beyond either end is looked at; it
is never itself a peak of the band. The offset of a recording, say, stays outside.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.ops.welch.cpu.strongest_bins import PeaksOfPower
from rlxweb.signal.frequency_limits import FrequencyLimit, bins_between
from rlxweb.signal.rounding_floor import RoundingFloor
from rlxweb.signal.spectrum_peaks import find_spectrum_peaks


@dataclass(frozen=True, slots=True)
class BinRange:
    """Range [first, stop) of bins of a spectrum."""

    first: int
    stop: int

    @classmethod
    def from_frequencies(
        cls,
        hz: NDArray[np.float64],
        fs: float,
        fmin: float | None,
        fmax: float | None,
        context: str,
    ) -> BinRange:
        """Return the bins with fmin ≤ f ≤ fmax, of frequencies (F,) that rise from 0.

        Errors   UsageError for a bound that is no number, for an fmax beyond half the
                 rate fs, and where no bin lies.
        """
        low = 0.0 if fmin is None else fmin
        inside = bins_between(hz, low, fmax, context, FrequencyLimit.from_rate(fs))
        if inside is None:
            return cls(0, len(hz))
        return cls(int(inside[0]), int(inside[-1]) + 1)

    @classmethod
    def from_bins(cls, bins: NDArray[Any]) -> BinRange | None:
        """Return the range that rising bin indices (B,) cover; None where they leave
        some out.
        """
        first, stop = int(bins[0]), int(bins[-1]) + 1
        return cls(first, stop) if stop - first == len(bins) else None

    def __len__(self) -> int:
        return self.stop - self.first

    @property
    def bins(self) -> slice:
        """The range as a slice."""
        return slice(self.first, self.stop)

    def find_peaks(
        self,
        power: NDArray[Any],
        hz: NDArray[np.float64],
        k: int,
        prominence: float | None,
        mode: str,
        floor: RoundingFloor,
    ) -> PeaksOfPower:
        """Return the k strongest peaks in the range, of whole spectra (C, F).

        Prominence is height above the valleys of the band.
        """
        widened = self.with_neighbours(len(hz), mode)
        part = power[:, widened.bins]
        return widened.find_peaks_in_part(part, hz, k, prominence, mode, floor)

    def with_neighbours(self, n_bins: int, mode: str) -> BinRange:
        """Return the range with the neighbouring bins that decide about its local
        maxima; `n_bins` is the length of the spectrum.
        """
        if mode != "peaks":
            return self
        return BinRange(max(0, self.first - 1), min(n_bins, self.stop + 1))

    def find_peaks_in_part(
        self,
        part: NDArray[Any],
        hz: NDArray[np.float64],
        k: int,
        prominence: float | None,
        mode: str,
        floor: RoundingFloor,
    ) -> PeaksOfPower:
        """Return the k strongest peaks of the power (C, B) of these bins alone; hz and
        floor are those of the whole spectrum.
        """
        own_bins = self.bins
        peaks = find_spectrum_peaks(
            part, hz[own_bins], k, prominence, mode, floor.select_bins(own_bins)
        )
        bins = np.where(peaks.bins < 0, -1, peaks.bins + self.first)
        return replace(peaks, bins=bins)
