"""Heatmaps of spectra, with one line for each row."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from rlxweb.plot.frequency_axis import set_frequency_axis
from rlxweb.plot.row_labels import label_rows
from rlxweb.plot.spectrum_line_drawing import (
    DeferredDraw,
    annotate_if_empty,
    mark_strongest_peaks,
)
from rlxweb.plot.spectrum_plot_data import (
    Floats,
    SpectrumRows,
    level_range,
    merge_into_columns,
)
from rlxweb.plot.theme import SEQUENTIAL_COLORMAP, hairline_colour

_MAX_NAMES: Final = 150
"""Maximum number of row names; more cannot be read."""


def heatmap_height(n_rows: int) -> float:
    """Return the height in inches for this many rows."""
    return min(17.0, max(3.6, 1.4 + 0.115 * n_rows))


def draw_heatmap(
    axis: Any, rows: SpectrumRows, log: bool, n_marked: int = 1
) -> DeferredDraw:
    """Draw rows × frequency as colours, the first row on top.

    n_marked  how many peaks of each row are marked
    """
    cells, edges = merge_into_columns(rows.level, rows.f, rows.step, log)
    low, high = level_range(rows.level, rows.n_offset_bins)
    high = max(high, low + 1.0)
    cells = np.maximum(cells, low)  # zero has a place on the scale: below its end
    cells[[bool(rows.missing_reason(row)) for row in range(len(rows))]] = np.nan
    row_edges = np.arange(len(rows) + 1) - 0.5
    image = axis.pcolormesh(
        edges,
        row_edges,
        cells,
        vmin=low,
        vmax=high,
        cmap=_heatmap_colormap(axis),
        rasterized=True,
    )
    set_frequency_axis(axis, rows.f, log)
    first = edges[0] if not log else max(edges[0], rows.f[0] * 0.75)
    axis.set_xlim(first, edges[-1])
    axis.set_ylim(row_edges[-1], row_edges[0])
    axis.grid(visible=False)
    mark_strongest_peaks(axis, rows, n_marked)
    name_step = -(-len(rows) // _MAX_NAMES)
    names = [rows.display_name(row) for row in range(len(rows))]
    label_rows(axis, names, name_step, 6 if len(rows) > 40 else 8)
    colorbar = axis.figure.colorbar(
        image,
        ax=axis,
        pad=0.01,
        fraction=0.04,
        aspect=5 * heatmap_height(len(rows)),
        extend=_colorbar_extension(rows.level, low, high),
        extendfrac=0.015,
    )
    colorbar.set_label(rows.label)
    colorbar.outline.set_visible(False)
    annotate_if_empty(axis, colorbar, rows)
    if axis.get_legend_handles_labels()[1]:
        axis.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
    return lambda: None


def _heatmap_colormap(axis: Any) -> Any:
    """Return the sequential colour map with grey for missing values."""
    import matplotlib

    return matplotlib.colormaps[SEQUENTIAL_COLORMAP].with_extremes(
        bad=hairline_colour(axis)
    )


def _colorbar_extension(level: Floats, low: float, high: float) -> str:
    """Return which ends of the colour bar stand for values beyond its range."""
    finite = level[np.isfinite(level)]
    is_exceeded = bool((finite < low).any()), bool((finite > high).any())
    names = {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}
    return names[is_exceeded]
