"""Colour plots of power over time and frequency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.argument_validation import coerce_bool
from rlxweb.core.errors import UsageError
from rlxweb.plot.frequency_axis import check_row, frequency_axis_label, set_log_ticks
from rlxweb.plot.row_labels import set_panel_title
from rlxweb.plot.spectrum_plot_data import Floats, power_levels
from rlxweb.plot.spectrum_plots import decibel_label
from rlxweb.plot.theme import (
    SEQUENTIAL_COLORMAP,
    get_or_make_axes,
    hairline_colour,
    with_rlxweb_style,
)

if TYPE_CHECKING:
    from rlxweb.signal.time_frequency_result import TimeFrequency


@with_rlxweb_style
def spectrogram(
    result: TimeFrequency,
    ax: Any = None,
    *,
    row: int = 0,
    log: bool = False,
    span_db: float = 60.0,
) -> Any:
    """Draw one row's power over time and frequency in decibels; phases are drawn in
    radians.

    row      of the batch, flattened
    log      the frequency axis is logarithmic
    span_db  from the strongest level down to the end of the scale, at most
    → the axes
    Errors   UsageError for a row there is not; Unsupported without matplotlib
    """
    context = "rlxweb.plot.spectrogram"
    names, rows = result.by_rows()
    index = check_row(row, len(rows), context)
    axes = get_or_make_axes(ax, context)
    is_angle = result.quantity in ("phase", "angle")
    level = rows[index] if is_angle else decibel_levels(rows[index], result.quantity)
    low, high = (-np.pi, np.pi) if is_angle else colour_limits(level, span_db)
    cmap = "twilight" if is_angle else SEQUENTIAL_COLORMAP
    log = coerce_bool("log", log, context)
    f, t = np.asarray(result.f, np.float64), np.asarray(result.t, np.float64)
    image = draw_surface(axes, t, f, level, (low, high), log, cmap)
    axes.set_xlabel("time (s)")
    axes.set_ylabel(frequency_axis_label(log))
    set_panel_title(axes, names[index])
    colorbar = axes.figure.colorbar(image, ax=axes, pad=0.01)
    colorbar.set_label("phase (rad)" if is_angle else decibel_label(result.unit))
    colorbar.outline.set_visible(False)
    return axes


def decibel_levels(values: NDArray[Any], quantity: str = "density") -> Floats:
    """Return decibels of a power, or of an amplitude after squaring it."""
    magnitude = np.abs(values).astype(np.float64)
    return power_levels(
        magnitude**2 if quantity in ("complex", "magnitude") else magnitude
    )


def colour_limits(level: Floats, max_span_db: float) -> tuple[float, float]:
    """Return limits in dB from the faint to the strong levels, at most `max_span_db`
    apart.
    """
    finite = level[np.isfinite(level)]
    if not finite.size:
        return 0.0, 1.0
    low, high = np.percentile(finite, [2.0, 99.8])
    low = max(float(low), float(high) - max_span_db)
    return low, float(max(high, low + 1e-3))


def draw_surface(
    axis: Any,
    t: Floats,
    f: Floats,
    level: Floats,
    limits: tuple[float, float],
    log: bool,
    cmap: str = SEQUENTIAL_COLORMAP,
    steps: tuple[float, float] = (1.0, 1.0),
) -> Any:
    """Draw levels (F, S) as colours; missing values are grey.

    t, f    middles of the cells; where there is one of either, `steps` is its width
    Errors  UsageError where 0 Hz alone is to be drawn on a logarithmic axis
    """
    if log and f[0] <= 0:
        f, level = f[1:], level[1:]
    if not len(f):
        raise UsageError(
            "drawing a logarithmic axis",
            "the only frequency is 0 Hz",
            "a logarithmic axis cannot show 0 Hz",
        )
    low, high = limits
    time_edges, frequency_edges = cell_edges(t, steps[0]), cell_edges(f, steps[1])
    image = axis.pcolormesh(
        time_edges,
        frequency_edges,
        np.where(np.isneginf(level), low, level),
        vmin=low,
        vmax=high,
        cmap=cmap,
        rasterized=True,
    )
    axis.set_facecolor(hairline_colour(axis))
    axis.set_xlim(time_edges[0], time_edges[-1])
    if log:
        axis.set_yscale("log")
        set_log_ticks(axis.yaxis, float(f[0]), float(f[-1]))
        axis.set_ylim(max(frequency_edges[0], f[0] * 0.75), frequency_edges[-1])
    else:
        axis.set_ylim(frequency_edges[0], frequency_edges[-1])
    return image


def cell_edges(centres: Floats, step: float) -> Floats:
    """Return the edges between cell centres; a single cell extends half a step to
    either side.
    """
    if len(centres) < 2:
        return np.array([centres[0] - step / 2, centres[0] + step / 2])
    inner = (centres[1:] + centres[:-1]) / 2
    ends = 2 * centres[0] - inner[0], 2 * centres[-1] - inner[-1]
    return np.concatenate([[ends[0]], inner, [ends[1]]])
