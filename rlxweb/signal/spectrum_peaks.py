"""Peaks of finished spectra in one format, by either search: strongest bins or local
maxima.

What the command line, `welch_peaks` and any stream ask; the searches themselves are in
`ops/welch/cpu/strongest_bins.py` and `local_maxima.py`. It must not know devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isnan, nan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.argument_validation import (
    check_choice,
    coerce_float,
    coerce_integer,
)
from rlxweb.core.errors import UsageError, shown
from rlxweb.core.message_text import Advice, Blank
from rlxweb.ops.welch.cpu.strongest_bins import PeaksOfPower, strongest_bins, to_peaks
from rlxweb.signal.local_maxima import local_maxima
from rlxweb.signal.rounding_floor import RoundingFloor

_CONTEXT = "peaks"
PEAK_MODES = ("bins", "peaks")
_MAX_SMALL_COUNT = 8


class PeakSearch(NamedTuple):
    """Peaks to look for in every row of a spectrum, and the one way to find them.

    k           how many, strongest first
    mode        "peaks": true local maxima, refined; "bins": the strongest bins, ties to
                the smaller bin
    prominence  minimum prominence of a local maximum
    """

    k: int
    mode: str = "peaks"
    prominence: float | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> PeakSearch:
        """Return the search that is described by the options of its names; others are
        ignored.
        """
        return cls(*(options[name] for name in cls._fields))

    def checked(self, context: str, n_bins: int) -> PeakSearch:
        """Return the search with all of its fields checked, so that it can be refused
        before a spectrum of `n_bins` is computed for it.

        Raises UsageError for an unknown mode, for k outside 1 … n_bins, and for a
        prominence that is negative, not finite, or given for bins.
        """
        mode = check_choice("mode", self.mode, PEAK_MODES, context)
        return PeakSearch(
            k=_check_count(self.k, n_bins, context),
            mode=mode,
            prominence=_check_prominence(self.prominence, mode, context),
        )

    def in_spectrum(
        self,
        power: NDArray[Any],
        hz: NDArray[np.float64],
        floor: RoundingFloor | None = None,
    ) -> PeaksOfPower:
        """Return the peaks of every row of a spectrum.

        Shapes   power (B, F), hz (F,) rising → (B, k) each
        floor    what rounding may leave at each bin: what is not above it is no peak,
                 and `count` leaves it out. None takes every power as it is
        Errors   those of `checked`
        """
        search = self.checked(_CONTEXT, power.shape[-1])
        if search.mode == "bins":
            return search.of_bins(*strongest_bins(power, search.k), hz, floor)
        return local_maxima(
            power, hz, search.k, prominence=search.prominence, floor=floor
        )

    def of_bins(
        self,
        bins: NDArray[np.int64],
        power: NDArray[Any],
        hz: NDArray[np.float64],
        floor: RoundingFloor | None = None,
    ) -> PeaksOfPower:
        """Return the strongest bins (B, k) and their power, found here or on a device,
        as peaks.

        Those that are not above the floor are left out, as local maxima that a row has
        not: bin -1, NaN Hz, NaN power, behind the others.
        """
        peaks = to_peaks(bins, power, hz)
        # Mostly the weakest bin of all rows is above every floor: nothing to look up.
        # A floor may lie beyond float32, which NumPy would warn of: numbers of Python.
        if floor is not None and not _min_value(power[:, -1]) > floor.max_value:
            values = floor.values_at(np.arange(len(bins))[:, None], bins)
            peaks = peaks.select(power > values)
        return peaks


def _min_value(values: NDArray[Any]) -> float:
    """Return the smallest value, NaN if one is NaN, infinity if there is none; a few
    values are compared in pure Python, which is faster.
    """
    if len(values) > _MAX_SMALL_COUNT:
        return float(np.minimum.reduce(values))
    numbers = values.tolist()
    return nan if isnan(sum(numbers)) else float(min(numbers, default=inf))


def _check_count(k: object, n_bins: int, context: str) -> int:
    """Return k as an int within its domain. Raises UsageError with both numbers."""
    count = coerce_integer("k", k, context)
    if not 1 <= count <= n_bins:
        rule = f"must be 1 to {n_bins}, the number of bins"
        hint = Advice("request fewer peaks, or use a larger {}", nperseg=Blank("N"))
        raise UsageError(context, f"k is {count}", rule, hint if count > 0 else "")
    return count


def _check_prominence(prominence: object, mode: str, context: str) -> float | None:
    """Return the prominence as a number, or None. Raises UsageError."""
    if prominence is None:
        return None
    if mode == "bins":
        raise UsageError(
            context,
            Advice(
                "{} does not apply to {}",
                prominence=Blank(shown(prominence)),
                mode="bins",
            ),
            "bins have no prominence",
            Advice("use {}", mode="peaks"),
        )
    number = coerce_float("prominence", prominence, context)
    if number < 0:
        rule = "must be finite and at least 0"
        raise UsageError(context, f"prominence is {number:g}", rule)
    return number
