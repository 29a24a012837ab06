"""Which bins of a spectrum lie between two frequencies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.advice import Advice, Blank
from rlxweb.arguments import number
from rlxweb.errors import UsageError


def bins_between(
    hz: NDArray[np.float64], fmin: float, fmax: float | None, doing: str
) -> NDArray[Any] | None:
    """Numbers of the bins with fmin ≤ |f| ≤ fmax; None where that is all of them.

    hz       (F,) frequencies of the bins, those of a two-sided spectrum too
    fmax     None, or infinity: no end
    Errors   UsageError for a bound that is no number, for an empty band, and for one
             that lies between two bins
    """
    if fmax is None and isinstance(fmin, float | int) and fmin == 0:
        return None
    low = number("fmin", fmin, doing)
    endless = fmax is None or (isinstance(fmax, float) and fmax == np.inf)
    high = np.inf if endless else number("fmax", fmax, doing)
    if low > high:
        raise UsageError(doing, f"fmin is {low:g} Hz", f"fmax is {high:g} Hz")
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
