"""Drawing of spectra as lines: overlaid, offset vertically, or in one panel each.

One piece draws them for results in Python and for the command line. What lies between
is `SpectrumRows`; colours and letters are those of matplotlib's settings at the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from rlxweb.plot.frequency_axis import set_frequency_axis
from rlxweb.plot.peak_labels import (
    MAX_LABELS,
    AxesScale,
    LabelBox,
    PeakLabel,
    place_labels,
)
from rlxweb.plot.spectrum_plot_data import (
    Floats,
    SpectrumRows,
    level_axis_limits,
    offset_spacing,
)
from rlxweb.plot.theme import background_colour, hairline_colour, label_colour
from rlxweb.results.power_units import frequency_decimals

DeferredDraw = Callable[[], None]
"""Callback to run once the axes have their size: it places labels at peaks where they
fit.
"""
LevelLimits = tuple[float, float]
_MAX_LABELS_PER_PANEL: Final = 3
"""Maximum number of labelled peaks in a panel."""
_MAX_LABELS_PER_LINE: Final = 2
"""Maximum number of labelled peaks of each line if there are several."""
_MIN_NAME_GAP_INCHES: Final = 0.16
"""Minimum distance in inches between names at the ends of lines."""


def draw_overlaid(axis: Any, rows: SpectrumRows, log: bool) -> DeferredDraw:
    """Draw all rows on one scale, with a legend beside the axes.

    Axes that have lines already keep these in sight, and their colours go on.
    """
    limits = level_axis_limits(rows)
    previous_limits = (axis.get_xlim(), axis.get_ylim()) if axis.lines else None
    set_frequency_axis(axis, rows.f, log)
    if previous_limits is not None:
        (left, right), (low, high) = previous_limits
        first, last = axis.get_xlim()
        axis.set_xlim(min(left, first), max(right, last))
        limits = min(low, limits[0]), max(high, limits[1])
    axis.set_ylim(limits)
    axis.set_ylabel(rows.label)
    axis.grid(visible=True)
    for row in range(len(rows)):
        _draw_line(axis, rows, row, limits)
    _annotate_clipped_peak(axis, rows, limits[1])
    annotate_if_empty(axis, axis.yaxis, rows)
    if len(rows) > 1 or rows.display_name(0):
        axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
    return partial(_label_peaks, axis, rows, range(len(rows)), log)


def draw_offset(
    axis: Any, rows: SpectrumRows, log: bool, spacing_db: float | None = None
) -> DeferredDraw:
    """Draw each line above the next, with its name at its right end.

    spacing_db  dB from one to the next; None: so that none covers another
    """
    set_frequency_axis(axis, rows.f, log)
    spacing_db = offset_spacing(rows) if spacing_db is None else spacing_db
    low, high = level_axis_limits(rows)
    shifts = [spacing_db * (len(rows) - 1 - row) for row in range(len(rows))]
    axis.set_ylim(low, high + max(shifts, default=0.0))
    grid_db = 10.0 if high - low + shifts[0] < 250 else 20.0
    axis.yaxis.set_major_locator(_multiple_locator(grid_db))
    axis.yaxis.set_ticklabels([])
    axis.tick_params(axis="y", length=0)
    axis.grid(visible=True)
    scale_note = f"rows {spacing_db:g} dB apart, grid every {grid_db:g} dB"
    axis.set_ylabel(f"{rows.label}\n{scale_note}")
    ends, colours = [], []
    for row, shift in enumerate(shifts):
        colours.append(_draw_line(axis, rows, row, (low, high), shift))
        level = rows.level[row]
        finite = level[np.isfinite(level)]
        ends.append((float(finite[-1]) if finite.size else low) + shift)
    _label_line_ends(axis, rows, ends, colours)
    annotate_if_empty(axis, axis.yaxis, rows)
    return partial(_label_peaks, axis, rows, range(len(rows)), log, shifts)


def draw_panels(
    axes: Sequence[Any], rows: SpectrumRows, log: bool, columns: int = 1
) -> DeferredDraw:
    """Draw one panel for each row on a common scale, with the other rows faint behind
    it.

    columns  panels side by side; the axes come row by row
    """
    limits = level_axis_limits(rows, 0.34)
    for row, axis in enumerate(axes):
        set_frequency_axis(axis, rows.f, log)
        axis.set_ylim(limits)
        axis.grid(visible=True)
        for other in range(len(rows)):
            if other != row and not rows.missing_reason(other):
                x, y = rows.curve_points(other)
                axis.plot(x, y, "-", color=hairline_colour(axis), lw=0.7, zorder=1.5)
        _draw_line(axis, rows, row, limits, style=_cycle_style(row))
        _annotate_clipped_peak(axis, rows, limits[1], [row])
        axis.set_title(rows.display_name(row), loc="left", fontsize=8.5, pad=3)
        if row + columns < len(axes):
            axis.set_xlabel("")
            axis.tick_params(axis="x", labelbottom=False)
        if row % columns:
            axis.tick_params(axis="y", labelleft=False)
    axes[0].figure.supylabel(rows.label, fontsize=9, color=label_colour(axes[0]))

    def label_all_peaks() -> None:
        """Label the peaks of every panel."""
        for row, axis in enumerate(axes):
            _label_peaks(axis, rows, [row], log, max_labels=_MAX_LABELS_PER_PANEL)

    return label_all_peaks


def annotate_if_empty(axis: Any, level_axis: Any, rows: SpectrumRows) -> None:
    """Write a note and remove the level ticks if no row has a finite level."""
    if np.isfinite(rows.level).any():
        return
    level_axis.set_ticks([])
    axis.text(
        0.5, 0.5, "no channel has a finite level", transform=axis.transAxes, ha="center"
    )


def _draw_line(
    axis: Any,
    rows: SpectrumRows,
    row: int,
    limits: LevelLimits,
    shift: float = 0.0,
    style: tuple[str, str] | None = None,
) -> Any:
    """Draw a row and its peaks; returns its colour.

    style  colour and dashes; None: the next of the axes' cycle
    """
    # A label that begins with "_" would be left out of the legend.
    name = rows.display_name(row)
    label = f" {name}" if name.startswith("_") else name
    style_options = {} if style is None else {"color": style[0], "linestyle": style[1]}
    x, y = rows.curve_points(row)
    points = slice(0, 0) if rows.missing_reason(row) else slice(None)
    (line,) = axis.plot(x[points], y[points] + shift, label=label, **style_options)
    if rows.missing_reason(row):
        line.set(linestyle=":", linewidth=1, color=label_colour(axis))
    else:
        _draw_peak_markers(axis, rows, row, limits, line.get_color(), shift)
    return line.get_color()


def _cycle_style(row: int) -> tuple[str, str]:
    """Return the colour and line style of a row that is alone in its axes."""
    import matplotlib

    cycle = list(matplotlib.rcParams["axes.prop_cycle"])
    entry = cycle[row % len(cycle)]
    return entry["color"], entry.get("linestyle", "-")


def _draw_peak_markers(
    axis: Any,
    rows: SpectrumRows,
    row: int,
    limits: LevelLimits,
    colour: str,
    shift: float,
) -> None:
    """Mark the peaks of a row with dots, or with arrows at the edge if they lie outside
    the limits.
    """
    hz, level = rows.visible_peaks(row)
    hz = np.maximum(hz, axis.get_xlim()[0])
    low, high = limits
    masks = {
        "o": (level >= low) & (level <= high),
        "^": level > high,
        "v": level < low,
    }
    for marker, mask in masks.items():
        if mask.any():
            axis.plot(
                hz[mask],
                np.clip(level[mask], low, high) + shift,
                marker,
                ms=4.6,
                color=colour,
                mec=background_colour(axis),
                mew=0.7,
                clip_on=False,
                zorder=3,
            )


def _label_peaks(
    axis: Any,
    rows: SpectrumRows,
    labelled_rows: Sequence[int],
    log: bool,
    shifts: Sequence[float] | None = None,
    max_labels: int = MAX_LABELS,
) -> None:
    """Draw frequency labels at the strongest peaks where they fit."""
    width, height = axis.bbox.size / axis.figure.dpi
    scale = AxesScale(axis.get_xlim(), axis.get_ylim(), width, height, log)
    if shifts is None:
        labels = place_labels(rows, labelled_rows, scale, max_labels=max_labels)
    else:
        # Each is on a scale of its own, and all lines are in the way of all labels.
        labels, occupied = [], list[LabelBox]()
        for row in labelled_rows:
            labels += place_labels(
                rows,
                [row],
                scale,
                shifts,
                _MAX_LABELS_PER_LINE,
                occupied,
                labelled_rows,
            )
    for label in labels:
        shift = 0.0 if shifts is None else shifts[label.peak.rows[0]]
        _draw_label(axis, label, shift)


def _draw_label(axis: Any, label: PeakLabel, shift: float) -> None:
    """Draw one peak label with an outline in the background colour."""
    from matplotlib.patheffects import withStroke

    axis.annotate(
        label.text,
        (label.peak.hz, label.peak.level + shift),
        textcoords="offset points",
        xytext=(72 * label.dx, 72 * label.dy),
        ha=label.alignment,
        va="bottom",
        fontsize=7.5,
        linespacing=1.05,
        path_effects=[withStroke(linewidth=2.0, foreground=background_colour(axis))],
        zorder=4,
    )


def _annotate_clipped_peak(
    axis: Any,
    rows: SpectrumRows,
    high: float,
    checked_rows: Sequence[int] | None = None,
) -> None:
    """Annotate the level of the strongest peak if it rises above the upper limit of the
    axis.
    """
    row_peaks = [
        rows.visible_peaks(strongest)
        for strongest in (range(len(rows)) if checked_rows is None else checked_rows)
    ]
    hz = np.concatenate([pair[0] for pair in row_peaks])
    level = np.concatenate([pair[1] for pair in row_peaks])
    if not level.size or not np.nanmax(level) > high:
        return
    strongest = int(np.nanargmax(level))
    axis.annotate(
        f"{hz[strongest]:.{frequency_decimals(rows.step)}f} Hz: "
        f"{level[strongest]:.0f} dB",
        (max(hz[strongest], axis.get_xlim()[0]), high),
        textcoords="offset points",
        xytext=(8, -4),
        ha="left" if hz[strongest] < np.mean(axis.get_xlim()) else "right",
        va="top",
        fontsize=7.5,
    )


def _label_line_ends(
    axis: Any, rows: SpectrumRows, ends: Sequence[float], colours: Sequence[Any]
) -> None:
    """Write names at the right ends of the lines, moved apart where they would
    overlap.
    """
    low, high = axis.get_ylim()
    height = axis.bbox.size[1] / axis.figure.dpi
    gap = _MIN_NAME_GAP_INCHES / height * (high - low)
    y = high
    for row, end in enumerate(ends):  # from the highest row down
        y = min(end, y - gap if row else high)
        axis.annotate(
            rows.display_name(row),
            (1.0, max(y, low)),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            xytext=(6, 0),
            va="center",
            fontsize=8,
            color=colours[row],
            annotation_clip=False,
        )


def _multiple_locator(step: float) -> Any:
    """Return a tick locator for multiples of the step."""
    from matplotlib.ticker import MultipleLocator

    return MultipleLocator(step)


def mark_strongest_peaks(axis: Any, rows: SpectrumRows, n_marked: int) -> None:
    """Mark on a heatmap the strongest peak of each row, and the next ones smaller."""
    row_peaks = [rows.visible_peaks(row) for row in range(len(rows))]
    for rank in range(n_marked):
        marked_rows = [row for row, (hz, _) in enumerate(row_peaks) if len(hz) > rank]
        if not marked_rows:
            continue
        hz: Floats = np.array([row_peaks[row][0][rank] for row in marked_rows])
        axis.plot(
            np.maximum(hz, axis.get_xlim()[0]),
            marked_rows,
            "o" if rank == 0 else ".",
            ms=3.6 if rank == 0 else 3.2,
            mew=0.6 if rank == 0 else 0.4,
            mfc="white",
            mec="black",
            clip_on=False,
            label={0: f"strongest {rows.mark_noun}", 1: "next two"}.get(rank),
        )
