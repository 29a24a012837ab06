"""What `welch_peaks` is asked for, as numbers inside their domains."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlxweb.advice import Advice, Blank
from rlxweb.arguments import number, whole
from rlxweb.errors import UsageError
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.peaks_of_power import check_mode

DOING = "welch_peaks"


def checked_band(
    hz: NDArray[np.float64], fs: float, fmin: float, fmax: float | None, k: int
) -> Band | None:
    """The bins that are looked at; None: all. Errors  UsageError."""
    band = Band.of(hz, fs, fmin, fmax, DOING)
    if len(band) == len(hz):
        return None
    if k > len(band):
        raise UsageError(
            DOING,
            f"k is {k}",
            f"it must be 1 to {len(band)}, the number of bins in the band",
            Advice("ask for fewer peaks, or give a larger {}", nperseg=Blank("N")),
        )
    return band


def checked_k(k: int, n_freqs: int, mode: str) -> int:
    """K as an int inside its domain. Errors  UsageError with both numbers."""
    check_mode(DOING, mode)
    hint = Advice("ask for fewer peaks or give a larger {}", nperseg=Blank("N"))
    return _counted("k", k, n_freqs, "the number of bins", hint)


def checked_min_segments(least: int | None, segments: int) -> int | None:
    """min_segments as an int inside its domain, or None.

    Errors   UsageError with both numbers.
    """
    if least is None:
        return None
    return _counted("min_segments", least, segments, "the number of segments asked for")


def checked_error(most: float | None) -> float:
    """max_error as a number; 0 where none is allowed. Errors  UsageError."""
    if most is None:
        return 0.0
    value = number("max_error", most, DOING)
    if not 0 < value < 1:
        rule = "it must be above 0 and below 1: a part of the power"
        raise UsageError(DOING, f"max_error is {value}", rule, "1e-3 is one in 1,000")
    return value


def _counted(name: str, value: int, most: int, why: str, hint: str = "") -> int:
    count = whole(name, value, DOING)
    if not 1 <= count <= most:
        rule = f"it must be 1 to {most}, {why}"
        raise UsageError(DOING, f"{name} is {count}", rule, hint)
    return count
