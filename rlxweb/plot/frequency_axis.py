"""Linear and logarithmic frequency axes, and validation of a row number."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.argument_validation import coerce_integer
from rlxweb.core.errors import UsageError
from rlxweb.results.svg_charts import tick_values


def set_frequency_axis(ax: Any, f: NDArray[np.float64], log: bool) -> None:
    """Set up the x axis for ascending frequencies (F,), which must be above 0 if
    logarithmic.
    """
    low, high = float(f[0]), float(f[-1])
    if log:
        ax.set_xscale("log")
        set_log_ticks(ax.xaxis, low, high)
    ax.set_xlim(low, high if high > low else low + 1.0)
    ax.set_xlabel(frequency_axis_label(log))


def frequency_axis_label(log: bool) -> str:
    """Return the label of a frequency axis, which names its scale."""
    return f"frequency (Hz, {'logarithmic' if log else 'linear'})"


def set_log_ticks(axis: Any, low: float, high: float) -> None:
    """Put plain numbers at 1, 2 and 5 of each decade of a logarithmic axis."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis.set_major_locator(FixedLocator(log_tick_values(low, high)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda hz, _: f"{hz:g}"))


def check_row(row: object, n_rows: int, context: str) -> int:
    """Return a valid row number; raise UsageError for a row that does not exist."""
    index = coerce_integer("row", row, context)
    if not 0 <= index < n_rows:
        raise UsageError(
            context,
            f"row is {index}",
            f"row must be at least 0 and below {n_rows}, the number of rows",
        )
    return index


def log_tick_values(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten from low to high, or evenly spaced ticks if
    those are too few.
    """
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    values = [factor * 10.0**decade for decade in decades for factor in (1, 2, 5)]
    values = [tick for tick in values if low <= tick <= high]
    return values if len(values) > 2 else tick_values(low, high, 6)
