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
from rlxweb.signal.band import bins_between
from rlxweb.signal.peaks_of_power import peaks_of_power
from rlxweb.signal.rounding import RoundingFloor


@dataclass(frozen=True, slots=True)
class Band:
    """Bins [first, stop) of a spectrum."""

    first: int
    stop: int

    @classmethod
    def of(
        cls, hz: NDArray[np.float64], fmin: float | None, fmax: float | None, doing: str
    ) -> Band:
        """The bins with fmin ≤ f ≤ fmax, of frequencies (F,) that rise from 0.

        Errors   UsageError for a bound that is no number, and where no bin lies.
        """
        inside = bins_between(hz, 0.0 if fmin is None else fmin, fmax, doing)
        if inside is None:
            return cls(0, len(hz))
        return cls(int(inside[0]), int(inside[-1]) + 1)

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
        first, stop = self.first, self.stop
        if mode == "peaks":
            first, stop = max(0, first - 1), min(len(hz), stop + 1)
        part = slice(first, stop)
        found = peaks_of_power(
            power[:, part], hz[part], k, prominence, mode, floor.of_bins(part)
        )
        return replace(found, bins=np.where(found.bins < 0, -1, found.bins + first))
