"""Peaks of finished spectra in one shape, whichever of the two searches finds them.

What the command line, `welch_peaks` and any stream ask; the searches themselves are in
`host/strongest.py` and `local_maxima.py`. It must not know devices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.errors import UsageError
from rlxweb.host.strongest import PeaksOfPower, as_peaks, strongest_bins
from rlxweb.signal.local_maxima import local_maxima

_DOING = "peaks"


def peaks_of_power(
    power: NDArray[Any],
    hz: NDArray[np.float64],
    k: int,
    prominence: float | None = None,
    mode: str = "peaks",
) -> PeaksOfPower:
    """The k strongest peaks of every row of a spectrum.

    Shapes   power (B, F), hz (F,) rising → (B, k) each
    mode     "peaks": true local maxima, refined, of at least `prominence`; "bins": the
             k strongest bins, ties to the smaller bin
    Errors   UsageError for k outside 1 … F, an unknown mode, a prominence that is
             negative, not finite, or given for bins
    """
    check_prominence(prominence, mode)
    if mode == "bins":
        return as_peaks(*strongest_bins(power, k), hz)
    return local_maxima(power, hz, k, prominence=prominence)


def check_prominence(prominence: float | None, mode: str) -> None:
    """Refuse what `peaks_of_power` would, before a spectrum is computed for it."""
    check_mode(_DOING, mode)
    if prominence is None:
        return
    if mode == "bins":
        raise UsageError(
            _DOING,
            f"prominence={prominence:g} was given for mode='bins'",
            "bins have no prominence",
            "use mode='peaks'",
        )
    if not 0 <= prominence < np.inf:
        raise UsageError(
            _DOING, f"prominence is {prominence:g}", "it must be finite and at least 0"
        )


def check_mode(doing: str, mode: str) -> None:
    """Refuse a mode there is not."""
    if mode not in ("bins", "peaks"):
        raise UsageError(doing, f"mode={mode!r}", "it is 'bins' or 'peaks'")
