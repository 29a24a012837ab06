"""Checks of the numeric arguments of `welch_peaks`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.argument_validation import coerce_float, coerce_integer
from rlxweb.core.errors import UsageError
from rlxweb.core.message_text import Advice, Blank
from rlxweb.signal.frequency_bins import BinRange

CONTEXT = "welch_peaks"


def validate_band(
    hz: NDArray[np.float64], fs: float, fmin: float, fmax: float | None, k: int
) -> BinRange | None:
    """Return the band of bins that is searched; None for all bins. Raises
    UsageError.
    """
    band = BinRange.from_frequencies(hz, fs, fmin, fmax, CONTEXT)
    if len(band) == len(hz):
        return None
    if k > len(band):
        raise UsageError(
            CONTEXT,
            f"k is {k}",
            f"must be 1 to {len(band)}, the number of bins in the band",
            Advice("request fewer peaks, or use a larger {}", nperseg=Blank("N")),
        )
    return band


def validate_min_segments(min_segments: int | None, segments: int) -> int | None:
    """Return min_segments as an int within its domain, or None.

    Errors   UsageError with both numbers.
    """
    if min_segments is None:
        return None
    count = coerce_integer("min_segments", min_segments, CONTEXT)
    if not 1 <= count <= segments:
        rule = f"must be 1 to {segments}, the number of averaged segments"
        raise UsageError(CONTEXT, f"min_segments is {count}", rule)
    return count


def validate_max_error(max_error: float | None) -> float:
    """Return max_error as a number; 0 if no error is allowed. Raises UsageError."""
    if max_error is None:
        return 0.0
    value = coerce_float("max_error", max_error, CONTEXT)
    if not 0 < value < 1:
        rule = "must be a fraction of the power, above 0 and below 1"
        raise UsageError(
            CONTEXT, f"max_error is {value}", rule, "pass 1e-3 for one part in 1,000"
        )
    return value
