"""Frequency limits of a spectrum, and the bins between two frequencies."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.argument_hints import Advice, Blank
from rlxweb.core.argument_validation import coerce_float
from rlxweb.core.errors import UsageError

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
