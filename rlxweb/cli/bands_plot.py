"""Picture of `rlxweb bands`: the band shares of each channel, and maps of the head."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from rlxweb.batch.recording_band_power import FileBands, GroupBands
from rlxweb.cli.console import format_count
from rlxweb.cli.plot_options import DEFAULT_PLOT_STYLE, PlotStyle
from rlxweb.cli.welch_plot import (
    MAX_PANELS,
    new_figure,
    select_fonts,
    warn_missing_glyphs,
    write_figure,
)
from rlxweb.plot.aperiodic_panels import draw_exponents, draw_peaks_above_aperiodic
from rlxweb.plot.band_bars import (
    band_labels,
    bars_height,
    draw_stacked_bars,
    legend_column_count,
)
from rlxweb.plot.font_selection import FontSelection
from rlxweb.plot.html_page import render_page, shorten_name
from rlxweb.plot.html_page_bands import bands_panel, has_head_maps
from rlxweb.plot.row_labels import MAX_NAME_LENGTH
from rlxweb.plot.scalp_map import draw_head_map
from rlxweb.plot.theme import muted_text_colour
from rlxweb.results.power_units import power_unit
from rlxweb.signal.electrode_positions import electrode_positions, project_to_plane

_MAX_ROWS: Final = 64
_MAP_HEIGHT_INCHES: Final = 2.2
_MAX_MAPS: Final = 8


def write_bands_picture(
    file: IO[bytes],
    file_bands: FileBands,
    file_format: str,
    style: PlotStyle = DEFAULT_PLOT_STYLE,
) -> None:
    """Write a picture with one panel for each group of equal sampling rate. Raises
    NotWritten.
    """
    if file_format == "html":
        file.write(_html_page(file_bands, style).encode())
        return
    lettering = select_fonts(file_bands.result)
    context = f"drawing {file_bands.result.path!r}"
    warn_missing_glyphs(lettering, context)
    draw = partial(_build_figure, file_bands, lettering, style)
    write_figure(file, draw, file_format, lettering, context, style.dark)


def _html_page(file_bands: FileBands, style: PlotStyle) -> str:
    """Return the picture as an HTML page."""
    panels = []
    for group_bands in file_bands.groups[:MAX_PANELS]:
        group = group_bands.group
        units = [power_unit(unit, "spectrum") for unit in group.units]
        summary = _group_summary(group_bands, shorten_name)
        panels.append(
            bands_panel(group_bands.bands, group.names, units, summary, group.states)
        )
    return render_page(
        Path(file_bands.result.path).name, "", panels, log=False, dark=style.dark
    )


def _build_figure(
    file_bands: FileBands, lettering: FontSelection, style: PlotStyle
) -> Any:
    """Return a matplotlib figure with one row of panels for each group."""
    groups = file_bands.groups[:MAX_PANELS]
    heights = [_panel_height(g) for g in groups]
    is_fitted = any(g.fit is not None for g in groups)
    max_legend_columns = max(legend_column_count(len(g.bands.names)) for g in groups)
    width = (13.0 if is_fitted else 10.0) + 1.8 * (max_legend_columns - 1)
    figure = new_figure(width, sum(heights) + 0.3)
    name = lettering.drawable_text(Path(file_bands.result.path).name, 48)
    figure.suptitle(name, x=0.008, ha="left")
    subfigures = figure.subfigures(
        len(heights), 1, squeeze=False, height_ratios=heights
    )[:, 0]
    for subfigure, group_bands in zip(subfigures, groups, strict=True):
        subfigure.suptitle(
            _group_summary(group_bands, partial(lettering.drawable_text, max_chars=48)),
            x=0.008,
            ha="left",
            fontsize=9,
            fontweight="normal",
            color=muted_text_colour(style.dark),
        )
        _draw_group(subfigure, group_bands, lettering)
    return figure


def _group_summary(group_bands: GroupBands, format_name: Callable[[str], str]) -> str:
    """Return the line above a group's panel: channels, rate, epochs and omissions."""
    count = len(group_bands.group.names)
    n_hidden = max(0, count - _MAX_ROWS)
    hidden_text = (
        f" · {format_count(n_hidden, 'channel')} not shown" if n_hidden else ""
    )
    maps_text = " · scalp maps: share of the power" if _has_maps(group_bands) else ""
    epochs = group_bands.group.epochs
    epochs_text = f" · {format_name(epochs.summary)}" if epochs else ""
    return (
        f"{format_count(count, 'channel')} at {group_bands.group.fs:g} "
        f"Hz{epochs_text}{hidden_text}{maps_text}"
    )


def _panel_height(group_bands: GroupBands) -> float:
    """Return the height of a group's panel in inches."""
    rows = min(_MAX_ROWS, len(group_bands.group.names))
    bars_inches = bars_height(rows, len(group_bands.bands.names))
    return 0.4 + bars_inches + (_MAP_HEIGHT_INCHES if _has_maps(group_bands) else 0.0)


def _has_maps(group_bands: GroupBands) -> bool:
    """Return whether a group gets head maps: few bands, and electrodes with known
    positions.
    """
    has_few_bands = len(group_bands.bands.names) <= _MAX_MAPS
    return has_few_bands and has_head_maps(
        group_bands.group.names, group_bands.bands.relative
    )


def _draw_group(
    subfigure: Any, group_bands: GroupBands, lettering: FontSelection
) -> None:
    """Draw the maps, bars and 1/f panels of one group into a subfigure."""
    lower_figure = subfigure
    if _has_maps(group_bands):
        rows = min(_MAX_ROWS, len(group_bands.group.names))
        ratios = (_MAP_HEIGHT_INCHES, bars_height(rows, len(group_bands.bands.names)))
        maps_figure, lower_figure = subfigure.subfigures(2, 1, height_ratios=ratios)
        _draw_maps(maps_figure, group_bands, lettering)
    states = group_bands.group.states[:_MAX_ROWS]
    names = [
        lettering.drawable_text(name, MAX_NAME_LENGTH)
        + (f" ({state})" if state else "")
        for name, state in zip(group_bands.group.names[:_MAX_ROWS], states, strict=True)
    ]
    band_names = [
        lettering.drawable_text(name, MAX_NAME_LENGTH)
        for name in group_bands.bands.names
    ]
    spans = band_labels(band_names, group_bands.bands.edges)
    shares = group_bands.bands.relative[:_MAX_ROWS]
    if group_bands.fit is None:
        draw_stacked_bars(lower_figure.subplots(), names, shares, spans)
        return
    bars_axis, peaks_axis, exponents_axis = lower_figure.subplots(
        1, 3, width_ratios=(6, 3, 1.5)
    )
    draw_stacked_bars(bars_axis, names, shares, spans)
    hz = group_bands.fit.peak_hz[:_MAX_ROWS]
    height = group_bands.fit.peak_height[:_MAX_ROWS]
    span = float(group_bands.fit.f[0]), float(group_bands.fit.f[-1])
    draw_peaks_above_aperiodic(peaks_axis, hz, height, group_bands.bands.edges, span)
    draw_exponents(exponents_axis, group_bands.fit.exponent[:_MAX_ROWS])


def _draw_maps(
    subfigure: Any, group_bands: GroupBands, lettering: FontSelection
) -> None:
    """Draw a head map for each band: its share of the power at each electrode."""
    coordinates, channel_rows = electrode_positions(group_bands.group.names)
    points = project_to_plane(coordinates)
    axes = subfigure.subplots(1, len(group_bands.bands.names), squeeze=False)[0]
    for k, axis in enumerate(axes):
        share = np.asarray(group_bands.bands.relative[channel_rows, k], np.float64)
        is_finite = np.isfinite(share)
        image = draw_head_map(axis, points[is_finite], share[is_finite], 1.8)
        axis.set_title(
            lettering.drawable_text(group_bands.bands.names[k], MAX_NAME_LENGTH),
            loc="center",
            pad=8,
        )
        bar = subfigure.colorbar(
            image, ax=axis, orientation="horizontal", shrink=0.7, pad=0.02, aspect=18
        )
        low, high = float(share[is_finite].min()), float(share[is_finite].max())
        bar.set_ticks([low, high], labels=[f"{low:.0%}", f"{high:.0%}"])
        bar.ax.tick_params(length=0, labelsize=7.5)
        bar.outline.set_visible(False)
