"""Spectra as colours: a line of a heatmap for each row."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from rlxweb.plot.curves import Later, mark_strongest, tell_nothing
from rlxweb.plot.frequencies import frequency_axis
from rlxweb.plot.naming import name_rows
from rlxweb.plot.rows import Floats, Rows, columns, level_range
from rlxweb.plot.theme import MAP, hairline

_NAMES: Final = 150
"""More names beside the rows cannot be read."""


def height_of(rows: int) -> float:
    """Inches that so many rows want."""
    return min(17.0, max(3.6, 1.4 + 0.115 * rows))


def heatmap(axis: Any, rows: Rows, log: bool, places: int = 1) -> Later:
    """Rows × frequency, the first row on top.

    places   how many peaks of each row are marked
    """
    cells, edges = columns(rows.level, rows.f, rows.step, log)
    low, high = level_range(rows.level, rows.skip)
    high = max(high, low + 1.0)
    cells = np.maximum(cells, low)  # zero has a place on the scale: below its end
    cells[[bool(rows.state(at)) for at in range(len(rows))]] = np.nan
    ends = np.arange(len(rows) + 1) - 0.5
    image = axis.pcolormesh(
        edges, ends, cells, vmin=low, vmax=high, cmap=_colours(axis), rasterized=True
    )
    frequency_axis(axis, rows.f, log)
    first = edges[0] if not log else max(edges[0], rows.f[0] * 0.75)
    axis.set_xlim(first, edges[-1])
    axis.set_ylim(ends[-1], ends[0])
    axis.grid(visible=False)
    mark_strongest(axis, rows, places)
    every = -(-len(rows) // _NAMES)
    names = [rows.named(at) for at in range(len(rows))]
    name_rows(axis, names, every, 6 if len(rows) > 40 else 8)
    bar = axis.figure.colorbar(
        image,
        ax=axis,
        pad=0.01,
        fraction=0.04,
        aspect=5 * height_of(len(rows)),
        extend=_extend(rows.level, low, high),
        extendfrac=0.015,
    )
    bar.set_label(rows.label)
    bar.outline.set_visible(False)
    tell_nothing(axis, bar, rows)
    if axis.get_legend_handles_labels()[1]:
        axis.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
    return lambda: None


def _colours(axis: Any) -> Any:
    """Those of values over two axes, and a grey for what has none."""
    import matplotlib

    return matplotlib.colormaps[MAP].with_extremes(bad=hairline(axis))


def _extend(level: Floats, low: float, high: float) -> str:
    """Which ends of the colour bar stand for values beyond it."""
    finite = level[np.isfinite(level)]
    beyond = bool((finite < low).any()), bool((finite > high).any())
    names = {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}
    return names[beyond]
