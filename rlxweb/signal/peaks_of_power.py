"""Peaks of finished spectra in one shape, whichever of the two searches finds them.

What the command line, `welch_peaks` and any stream ask; the searches themselves are in
`host/strongest.py` and `local_maxima.py`. It must not know devices.
"""

from __future__ import annotations

from math import isnan, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.advice import Advice, Blank
from rlxweb.arguments import number, one_of
from rlxweb.errors import UsageError, shown
from rlxweb.host.strongest import PeaksOfPower, as_peaks, strongest_bins
from rlxweb.signal.local_maxima import local_maxima
from rlxweb.signal.rounding import RoundingFloor

_DOING = "peaks"
MODES = ("bins", "peaks")
_FEW = 8


def peaks_of_power(
    power: NDArray[Any],
    hz: NDArray[np.float64],
    k: int,
    prominence: float | None = None,
    mode: str = "peaks",
    floor: RoundingFloor | None = None,
) -> PeaksOfPower:
    """The k strongest peaks of every row of a spectrum.

    Shapes   power (B, F), hz (F,) rising → (B, k) each
    mode     "peaks": true local maxima, refined, of at least `prominence`; "bins": the
             k strongest bins, ties to the smaller bin
    floor    what rounding may leave at each bin: what is not above it is no peak, and
             `count` leaves it out. None takes every power as it is
    Errors   UsageError for k outside 1 … F, an unknown mode, a prominence that is
             negative, not finite, or given for bins
    """
    check_prominence(prominence, mode)
    if mode == "bins":
        return peaks_of_bins(*strongest_bins(power, k), hz, floor)
    return local_maxima(power, hz, k, prominence=prominence, floor=floor)


def peaks_of_bins(
    bins: NDArray[np.int64],
    power: NDArray[Any],
    hz: NDArray[np.float64],
    floor: RoundingFloor | None = None,
) -> PeaksOfPower:
    """The strongest bins (B, k) and their power, found here or on a device, as peaks.

    Those that are not above the floor are left out, as local maxima that a row has not:
    bin -1, NaN Hz, NaN power, behind the others.
    """
    if floor is None or not len(bins):
        return as_peaks(bins, power, hz)
    # A floor may lie beyond float32, which NumPy would warn of.
    if _least(power[:, -1]) > floor.highest:
        return as_peaks(bins, power, hz)
    is_peak = power > floor.at(np.arange(len(bins))[:, None], bins)
    order = np.argsort(~is_peak, axis=1, kind="stable")
    is_peak = np.take_along_axis(is_peak, order, axis=1)
    bins = np.where(is_peak, np.take_along_axis(bins, order, axis=1), -1)
    power = np.where(is_peak, np.take_along_axis(power, order, axis=1), np.nan)
    return PeaksOfPower(
        bins=bins,
        hz=np.where(is_peak, hz[bins], np.nan),
        power=power,
        count=np.count_nonzero(is_peak, axis=1).astype(np.int64),
        prominence=None,
    )


def _least(values: NDArray[Any]) -> float:
    """The smallest of them, NaN where one is; a few are told in Python's time."""
    if len(values) > _FEW:
        return float(np.minimum.reduce(values))
    each = values.tolist()
    return nan if isnan(sum(each)) else float(min(each))


def check_prominence(
    prominence: float | None, mode: str, doing: str = _DOING
) -> float | None:
    """The prominence as a number, or refused before a spectrum is computed for it."""
    check_mode(doing, mode)
    if prominence is None:
        return None
    if mode == "bins":
        raise UsageError(
            doing,
            Advice(
                "{} was given for {}", prominence=Blank(shown(prominence)), mode="bins"
            ),
            "bins have no prominence",
            Advice("use {}", mode="peaks"),
        )
    least = number("prominence", prominence, doing)
    if least < 0:
        rule = "it must be finite and at least 0"
        raise UsageError(doing, f"prominence is {least:g}", rule)
    return least


def check_mode(doing: str, mode: str) -> None:
    """Refuse a mode there is not."""
    one_of("mode", mode, MODES, doing)
