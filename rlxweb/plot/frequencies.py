"""The frequency axis, linear or logarithmic as it was asked for; and which row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.arguments import whole
from rlxweb.errors import UsageError
from rlxweb.results.svg import ticks


def frequency_axis(ax: Any, f: NDArray[np.float64], log: bool) -> None:
    """Set the x axis up for frequencies (F,) that rise, above 0 if logarithmic."""
    low, high = float(f[0]), float(f[-1])
    if log:
        ax.set_xscale("log")
        log_ticks(ax.xaxis, low, high)
    ax.set_xlim(low, high if high > low else low + 1.0)
    ax.set_xlabel(said_axis(log))


def said_axis(log: bool) -> str:
    """The label of an axis of frequencies: it says which it is."""
    return f"frequency (Hz, {'logarithmic' if log else 'linear'})"


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
    """1, 2 and 5 times powers of ten from low to high; round numbers where few are."""
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    found = [lead * 10.0**decade for decade in decades for lead in (1, 2, 5)]
    found = [tick for tick in found if low <= tick <= high]
    return found if len(found) > 2 else ticks(low, high, 6)
