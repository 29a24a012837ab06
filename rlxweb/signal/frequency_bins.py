"""Frequencies and bins: limits of a band in hertz, and the range of bins that it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.argument_validation import coerce_float
from rlxweb.core.errors import UsageError
from rlxweb.core.message_text import Advice, Blank
from rlxweb.ops.welch.cpu.strongest_bins import PeaksOfPower
from rlxweb.signal.rounding_floor import RoundingFloor
from rlxweb.signal.spectrum_peaks import PeakSearch

# --- Frequency limits of a spectrum, and the bins between two frequencies

_TOLERANCE: Final = 1.0 + 1e-9
"""Factor by which a frequency may pass a limit through rounding alone."""


class FrequencyLimit(NamedTuple):
    """Highest frequency that a caller may request of a spectrum, a description of it,
    and the hint for a higher one.
    """

    max_hz: float
    description: str
    hint: str = "use a lower frequency, or a signal with a higher sampling rate"

    @classmethod
    def from_rate(cls, fs: float) -> FrequencyLimit:
        """Return half the sampling rate as the limit."""
        return cls(fs / 2.0, f"half the sampling rate is {fs / 2.0:g} Hz")

    @classmethod
    def from_bins(cls, hz: NDArray[np.float64], fs: float = 0.0) -> FrequencyLimit:
        """Return the end of rising frequencies (F,) as the limit; half the rate where
        they go up to it.

        The last bin of an odd length lies half a step below half the rate.
        """
        step = float(hz[-1] - hz[-2]) if len(hz) > 1 else 0.0
        end = float(hz[-1]) + step / 2.0
        if fs and fs / 2.0 <= end * _TOLERANCE:
            return cls.from_rate(fs)
        hint = "use a lower frequency, or compute the spectrum up to a higher frequency"
        return cls(end, f"the spectrum ends at {hz[-1]:g} Hz", hint)

    def allows(self, high: float) -> bool:
        """Return whether a frequency is within the limit."""
        return high <= self.max_hz * _TOLERANCE

    def check_frequency(self, problem: str, high: float, context: str) -> None:
        """Raise UsageError for a frequency beyond the limit.

        problem  the sentence that names the frequency
        """
        if not self.allows(high):
            raise UsageError(context, problem, self.description, self.hint)


def bins_between(
    hz: NDArray[np.float64],
    fmin: float,
    fmax: float | None,
    context: str,
    limit: FrequencyLimit,
) -> NDArray[Any] | None:
    """Return the indices of the bins with fmin ≤ |f| ≤ fmax; None where that is all of
    them.

    hz       (F,) frequencies of the bins, those of a two-sided spectrum too
    fmax     None, or infinity: no end
    limit    the highest frequency that may be asked for
    Errors   UsageError for a bound that is no number, for an empty band, for one that
             lies between two bins, and for an fmax beyond the reach
    """
    if fmax is None and isinstance(fmin, float | int) and fmin == 0:
        return None
    low = coerce_float("fmin", fmin, context)
    endless = fmax is None or (isinstance(fmax, float) and fmax == np.inf)
    high = np.inf if endless else coerce_float("fmax", fmax, context)
    if low > high:
        raise UsageError(
            context, f"fmin is {low:g} Hz", f"must be at most fmax, {high:g} Hz"
        )
    if not endless:
        limit.check_frequency(f"fmax is {high:g} Hz", high, context)
    inside = np.flatnonzero((np.abs(hz) >= low) & (np.abs(hz) <= high))
    if inside.size == hz.size:
        return None
    if not inside.size:
        raise empty_band_error(hz, low, high, context, nperseg=Blank("N"))
    return inside


def empty_band_error(
    hz: NDArray[np.float64],
    low: float,
    high: float,
    context: str,
    **hint_arguments: Blank,
) -> UsageError:
    """Return the error for no bin of hz (F,) between two frequencies.

    hint_arguments  the argument that makes a segment longer, and so the bins closer
    """
    step, last = abs(hz[1]) if len(hz) > 1 else 0.0, np.abs(hz).max()
    range_text = (
        f"between {low:g} and {high:g} Hz"
        if high < np.inf
        else f"at or above {low:g} Hz"
    )
    # Beyond the last of them no length of a segment helps.
    hint = Advice("widen the band, or use a larger {}", **hint_arguments)
    if low > last:
        hint = Advice("use a lower {}", fmin=Blank("HZ"))
    return UsageError(
        context,
        f"there is no bin {range_text}",
        f"the bins are {step:g} Hz apart and end at {last:g} Hz",
        hint,
    )


# --- Range of bins of a spectrum, and the peaks in it
#
# A local maximum is told by its neighbours, so one bin beyond either end is looked
# at; it is never itself a peak of the band. The offset of a recording, say, stays
# outside.


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
        search: PeakSearch,
        floor: RoundingFloor,
    ) -> PeaksOfPower:
        """Return the strongest peaks in the range, of whole spectra (C, F).

        Prominence is height above the valleys of the band.
        """
        widened = self.with_neighbours(len(hz), search.mode)
        return widened.find_peaks_in_part(power[:, widened.bins], hz, search, floor)

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
        search: PeakSearch,
        floor: RoundingFloor,
    ) -> PeaksOfPower:
        """Return the strongest peaks of the power (C, B) of these bins alone; hz and
        floor are those of the whole spectrum.
        """
        own_bins = self.bins
        peaks = search.in_spectrum(part, hz[own_bins], floor.select_bins(own_bins))
        bins = np.where(peaks.bins < 0, -1, peaks.bins + self.first)
        return replace(peaks, bins=bins)
