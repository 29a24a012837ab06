"""The frequency axis, linear or logarithmic as it was asked for; and which row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.arguments import whole
from rlxweb.errors import UsageError


def frequency_axis(
    ax: Any,
    f: NDArray[np.float64],
    log: bool,
    fmin: float | None = None,
    fmax: float | None = None,
) -> NDArray[np.bool_]:
    """Set the x axis up for frequencies (F,) that rise; which of them are shown.

    Errors   UsageError where none is.
    """
    shown = np.ones(len(f), bool)
    shown &= f > 0 if log else shown
    if fmin is not None:
        shown &= f >= fmin
    if fmax is not None:
        shown &= f <= fmax
    if not shown.any():
        raise UsageError(
            "drawing a spectrum",
            f"no frequency lies from {fmin} to {fmax} Hz",
            f"there are {f[0]:g} to {f[-1]:g} Hz",
        )
    low, high = float(f[shown][0]), float(f[shown][-1])
    if log:
        ax.set_xscale("log")
        log_ticks(ax.xaxis, low, high)
    ax.set_xlim(low, high if high > low else low + 1.0)
    ax.set_xlabel("frequency (Hz)")
    return shown


def log_ticks(axis: Any, low: float, high: float) -> None:
    """Plain numbers at 1, 2 and 5 of each decade of an axis that is logarithmic."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis.set_major_locator(FixedLocator(ticks_of(low, high)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda hz, _: f"{hz:g}"))


def row_of(row: object, rows: int, doing: str) -> int:
    """A row's number. Errors  UsageError for one there is not."""
    at = whole("row", row, doing)
    if not 0 <= at < rows:
        raise UsageError(doing, f"row is {at}", f"there are {rows}, from 0")
    return at


def ticks_of(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten from low to high."""
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks = [lead * 10.0**decade for decade in decades for lead in (1, 2, 5)]
    return [tick for tick in ticks if low <= tick <= high]
