"""Panels of the 1/f part of each row: its exponent, and the peaks that rise above
it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.plot.theme import background_colour, hairline_colour, label_colour
from rlxweb.results.svg_charts import distinct_colours

_MAX_DOT_AREA: Final = 180.0
"""Area in square points of the highest peak's dot, if that peak is ten times the 1/f
part.
"""
_MIN_DOT_AREA: Final = 8.0


def draw_peaks_above_aperiodic(
    axis: Any,
    hz: NDArray[np.float64],
    height: NDArray[np.float64],
    edges: NDArray[np.float64],
    frequency_range: tuple[float, float],
) -> None:
    """Draw a dot for each peak of each row, as large as the peak is high.

    Shapes   hz, height (C, P): log10 above the 1/f part, NaN where a row has fewer;
             edges (K, 2) of bands, whose colours the dots have
    frequency_range  that was fitted, in Hz
    """
    _draw_row_lines(axis, len(hz))
    row_positions = np.broadcast_to(np.arange(len(hz))[:, None], hz.shape)
    colours = np.full(hz.shape, None, dtype=object)
    colours[...] = [label_colour(axis)]
    band_colours = distinct_colours(len(edges))
    for k in reversed(range(len(edges))):
        low, high = edges[k]
        colours[(hz >= low) & (hz < high)] = band_colours[k]
    is_finite = np.isfinite(hz) & np.isfinite(height)
    max_height = max(1.0, height[is_finite].max(initial=1.0))
    axis.scatter(
        hz[is_finite],
        row_positions[is_finite],
        s=np.maximum(_MAX_DOT_AREA * height[is_finite] / max_height, _MIN_DOT_AREA),
        c=list(colours[is_finite]),
        edgecolors=background_colour(axis),
        linewidths=0.8,
        zorder=3,
    )
    axis.set_xlim(*frequency_range)
    axis.locator_params(axis="x", nbins=5)
    axis.set_xlabel("peaks above 1/f (Hz), larger marker = higher peak")


def draw_exponents(axis: Any, values: NDArray[np.float64]) -> None:
    """Draw the 1/f exponent of each row (C,) as a dot with its number."""
    _draw_row_lines(axis, len(values))
    finite_rows = np.flatnonzero(np.isfinite(values))
    axis.plot(
        values[finite_rows], finite_rows, "o", ms=5, color=label_colour(axis), zorder=3
    )
    for row in finite_rows:
        axis.annotate(
            f"{values[row]:.2f}",
            (values[row], row),
            xytext=(6, 0),
            textcoords="offset points",
            va="center_baseline",
            fontsize=7,
            bbox={
                "facecolor": background_colour(axis),
                "edgecolor": "none",
                "pad": 0.8,
            },
        )
    low, high = (
        (values[finite_rows].min(), values[finite_rows].max())
        if finite_rows.size
        else (0, 1)
    )
    span = max(0.5, high - low)
    axis.set_xlim(min(0.0, low) - 0.05 * span, high + 0.35 * span)
    axis.set_xlabel("1/f exponent")


def _draw_row_lines(axis: Any, count: int) -> None:
    """Draw a line for each row, aligned with the bars next to them, without row
    names.
    """
    for row in range(count):
        axis.axhline(row, color=hairline_colour(axis), lw=0.6)
    axis.set_ylim(count - 0.4, -0.6)
    axis.set_yticks([])
    axis.spines["left"].set_visible(False)
