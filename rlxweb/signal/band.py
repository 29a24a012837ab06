"""Which bins of a spectrum lie between two frequencies."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.advice import Advice, Blank
from rlxweb.arguments import number
from rlxweb.errors import UsageError

_CLOSE: Final = 1.0 + 1e-9
"""Factor by which a frequency may pass a limit through rounding alone."""


class Reach(NamedTuple):
    """The highest frequency that a caller may ask of a spectrum, and what it is."""

    high: float
    words: str

    @classmethod
    def of_rate(cls, fs: float) -> Reach:
        """Half the sampling rate."""
        return cls(fs / 2.0, f"half the rate is {fs / 2.0:g} Hz")

    @classmethod
    def of_bins(cls, hz: NDArray[np.float64], fs: float = 0.0) -> Reach:
        """End of frequencies (F,) that rise; half the rate where they go up to it.

        The last bin of an odd length lies half a step below half the rate.
        """
        step = float(hz[-1] - hz[-2]) if len(hz) > 1 else 0.0
        end = float(hz[-1]) + step / 2.0
        if fs and fs / 2.0 <= end * _CLOSE:
            return cls.of_rate(fs)
        return cls(end, f"the spectrum ends at {hz[-1]:g} Hz")

    def holds(self, high: float) -> bool:
        """Return whether a frequency is within it."""
        return high <= self.high * _CLOSE

    def check(self, said: str, high: float, doing: str) -> None:
        """Raise UsageError for a frequency beyond it.

        said   the sentence that names the frequency
        """
        if not self.holds(high):
            hint = "ask for less, or give a signal of a higher rate"
            raise UsageError(doing, said, self.words, hint)


def bins_between(
    hz: NDArray[np.float64], fmin: float, fmax: float | None, doing: str, reach: Reach
) -> NDArray[Any] | None:
    """Numbers of the bins with fmin ≤ |f| ≤ fmax; None where that is all of them.

    hz       (F,) frequencies of the bins, those of a two-sided spectrum too
    fmax     None, or infinity: no end
    reach    the highest frequency that may be asked for
    Errors   UsageError for a bound that is no number, for an empty band, for one that
             lies between two bins, and for an fmax beyond the reach
    """
    if fmax is None and isinstance(fmin, float | int) and fmin == 0:
        return None
    low = number("fmin", fmin, doing)
    endless = fmax is None or (isinstance(fmax, float) and fmax == np.inf)
    high = np.inf if endless else number("fmax", fmax, doing)
    if low > high:
        raise UsageError(doing, f"fmin is {low:g} Hz", f"fmax is {high:g} Hz")
    if not endless:
        reach.check(f"fmax is {high:g} Hz", high, doing)
    inside = np.flatnonzero((np.abs(hz) >= low) & (np.abs(hz) <= high))
    if inside.size == hz.size:
        return None
    if not inside.size:
        raise no_bin(hz, low, high, doing, nperseg=Blank("N"))
    return inside


def no_bin(
    hz: NDArray[np.float64], low: float, high: float, doing: str, **longer: Blank
) -> UsageError:
    """That no bin of hz (F,) lies between two frequencies.

    longer   the argument that makes a segment longer, and so the bins closer
    """
    step, last = abs(hz[1]) if len(hz) > 1 else 0.0, np.abs(hz).max()
    lies = (
        f"between {low:g} and {high:g} Hz" if high < np.inf else f"from {low:g} Hz on"
    )
    # Beyond the last of them no length of a segment helps.
    hint = Advice("widen the band, or give a larger {}", **longer)
    if low > last:
        hint = Advice("look lower: {}", fmin=Blank("HZ"))
    return UsageError(
        doing,
        f"no bin lies {lies}",
        f"the bins are {step:g} Hz apart and end at {last:g} Hz",
        hint,
    )
