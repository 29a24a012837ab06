"""Spectra as lines: over each other, each above the next, or each in its own panel.

One piece draws them for results in Python and for the command line. What lies between
is `Rows`; colours and letters are those of matplotlib's settings at the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from rlxweb.plot.frequencies import frequency_axis
from rlxweb.plot.peak_names import NAMED, Box, Label, Scale, labels_of
from rlxweb.plot.rows import Floats, Rows, limits_of, spacing
from rlxweb.plot.theme import ground, hairline, quiet_ink
from rlxweb.results.units import decimals

Later = Callable[[], None]
"""What is done when the axes have their size: words at peaks, where there is room."""
Limits = tuple[float, float]
_OF_A_PANEL: Final = 3
"""Peaks that are named in a panel."""
_OF_A_LINE: Final = 2
"""Peaks that are named of one of many lines."""
_LEAST_GAP: Final = 0.16
"""Inches between names at the ends of lines."""


def overlaid(axis: Any, rows: Rows, log: bool) -> Later:
    """All on one scale, a legend beside them.

    Axes that have lines already keep these in sight, and their colours go on.
    """
    limits = limits_of(rows)
    before = (axis.get_xlim(), axis.get_ylim()) if axis.lines else None
    frequency_axis(axis, rows.f, log)
    if before is not None:
        (left, right), (low, high) = before
        begin, end = axis.get_xlim()
        axis.set_xlim(min(left, begin), max(right, end))
        limits = min(low, limits[0]), max(high, limits[1])
    axis.set_ylim(limits)
    axis.set_ylabel(rows.label)
    axis.grid(visible=True)
    for at in range(len(rows)):
        _line(axis, rows, at, limits)
    _tell_beyond(axis, rows, limits[1])
    tell_nothing(axis, axis.yaxis, rows)
    if len(rows) > 1 or rows.named(0):
        axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
    return partial(_name_peaks, axis, rows, range(len(rows)), log)


def offset(axis: Any, rows: Rows, log: bool, apart: float | None = None) -> Later:
    """Each line above the next, its name at its end.

    apart   dB from one to the next; None: so that none covers another
    """
    frequency_axis(axis, rows.f, log)
    apart = spacing(rows) if apart is None else apart
    low, high = limits_of(rows)
    shifts = [apart * (len(rows) - 1 - at) for at in range(len(rows))]
    axis.set_ylim(low, high + max(shifts, default=0.0))
    grid = 10.0 if high - low + shifts[0] < 250 else 20.0
    axis.yaxis.set_major_locator(_every(grid))
    axis.yaxis.set_ticklabels([])
    axis.tick_params(axis="y", length=0)
    axis.grid(visible=True)
    said = f"rows {apart:g} dB apart, grid every {grid:g} dB"
    axis.set_ylabel(f"{rows.label}\n{said}")
    ends, colours = [], []
    for at, shift in enumerate(shifts):
        colours.append(_line(axis, rows, at, (low, high), shift))
        level = rows.level[at]
        known = level[np.isfinite(level)]
        ends.append((float(known[-1]) if known.size else low) + shift)
    _name_ends(axis, rows, ends, colours)
    tell_nothing(axis, axis.yaxis, rows)
    return partial(_name_peaks, axis, rows, range(len(rows)), log, shifts)


def panels(axes: Sequence[Any], rows: Rows, log: bool, across: int = 1) -> Later:
    """A panel for each row, the others faint behind it, all on one scale.

    across   panels side by side; the axes come row by row
    """
    limits = limits_of(rows, 0.34)
    for at, axis in enumerate(axes):
        frequency_axis(axis, rows.f, log)
        axis.set_ylim(limits)
        axis.grid(visible=True)
        for other in range(len(rows)):
            if other != at and not rows.state(other):
                x, y = rows.curve(other)
                axis.plot(x, y, "-", color=hairline(axis), lw=0.7, zorder=1.5)
        _line(axis, rows, at, limits, look=_look(at))
        _tell_beyond(axis, rows, limits[1], [at])
        axis.set_title(rows.named(at), loc="left", fontsize=8.5, pad=3)
        if at + across < len(axes):
            axis.set_xlabel("")
            axis.tick_params(axis="x", labelbottom=False)
        if at % across:
            axis.tick_params(axis="y", labelleft=False)
    axes[0].figure.supylabel(rows.label, fontsize=9, color=quiet_ink(axes[0]))

    def later() -> None:
        for at, axis in enumerate(axes):
            _name_peaks(axis, rows, [at], log, most=_OF_A_PANEL)

    return later


def tell_nothing(axis: Any, levels: Any, rows: Rows) -> None:
    """Where nothing is drawn, that; and no number stands at the axis of the levels."""
    if np.isfinite(rows.level).any():
        return
    levels.set_ticks([])
    axis.text(0.5, 0.5, "no channel has a level", transform=axis.transAxes, ha="center")


def _line(
    axis: Any,
    rows: Rows,
    at: int,
    limits: Limits,
    shift: float = 0.0,
    look: tuple[str, str] | None = None,
) -> Any:
    """Draw a row and its peaks; returns its colour.

    look   colour and dashes; None: the next of the axes' cycle
    """
    # A label that begins with "_" would be left out of the legend.
    name = rows.named(at)
    label = f" {name}" if name.startswith("_") else name
    own = {} if look is None else {"color": look[0], "linestyle": look[1]}
    x, y = rows.curve(at)
    none = slice(0, 0) if rows.state(at) else slice(None)
    (line,) = axis.plot(x[none], y[none] + shift, label=label, **own)
    if rows.state(at):
        line.set(linestyle=":", linewidth=1, color=quiet_ink(axis))
    else:
        _mark(axis, rows, at, limits, line.get_color(), shift)
    return line.get_color()


def _look(at: int) -> tuple[str, str]:
    """Colour and dashes of a row that is alone in its axes."""
    import matplotlib

    cycle = list(matplotlib.rcParams["axes.prop_cycle"])
    own = cycle[at % len(cycle)]
    return own["color"], own.get("linestyle", "-")


def _mark(
    axis: Any, rows: Rows, at: int, limits: Limits, colour: str, shift: float
) -> None:
    """The peaks of a row: dots, or arrows at the edge where they lie beyond it."""
    hz, level = rows.peaks(at)
    hz = np.maximum(hz, axis.get_xlim()[0])
    low, high = limits
    beyond = {
        "o": (level >= low) & (level <= high),
        "^": level > high,
        "v": level < low,
    }
    for marker, which in beyond.items():
        if which.any():
            axis.plot(
                hz[which],
                np.clip(level[which], low, high) + shift,
                marker,
                ms=4.6,
                color=colour,
                mec=ground(axis),
                mew=0.7,
                clip_on=False,
                zorder=3,
            )


def _name_peaks(
    axis: Any,
    rows: Rows,
    which: Sequence[int],
    log: bool,
    shifts: Sequence[float] | None = None,
    most: int = NAMED,
) -> None:
    wide, tall = axis.bbox.size / axis.figure.dpi
    scale = Scale(axis.get_xlim(), axis.get_ylim(), wide, tall, log)
    if shifts is None:
        found = labels_of(rows, which, scale, most=most)
    else:
        # Each is on a scale of its own, and all lines are in the way of all labels.
        found, taken = [], list[Box]()
        for at in which:
            found += labels_of(rows, [at], scale, shifts, _OF_A_LINE, taken, which)
    for one in found:
        up = 0.0 if shifts is None else shifts[one.peak.rows[0]]
        _write(axis, one, up)


def _write(axis: Any, one: Label, shift: float) -> None:
    from matplotlib.patheffects import withStroke

    axis.annotate(
        one.text,
        (one.peak.hz, one.peak.level + shift),
        textcoords="offset points",
        xytext=(72 * one.across, 72 * one.up),
        ha=one.side,
        va="bottom",
        fontsize=7.5,
        linespacing=1.05,
        path_effects=[withStroke(linewidth=2.0, foreground=ground(axis))],
        zorder=4,
    )


def _tell_beyond(
    axis: Any, rows: Rows, high: float, which: Sequence[int] | None = None
) -> None:
    """How far the strongest peak rises over the edge of the axis, if one does."""
    pairs = [rows.peaks(at) for at in (range(len(rows)) if which is None else which)]
    hz = np.concatenate([one[0] for one in pairs])
    level = np.concatenate([one[1] for one in pairs])
    if not level.size or not np.nanmax(level) > high:
        return
    at = int(np.nanargmax(level))
    axis.annotate(
        f"{hz[at]:.{decimals(rows.step)}f} Hz: {level[at]:.0f} dB",
        (max(hz[at], axis.get_xlim()[0]), high),
        textcoords="offset points",
        xytext=(8, -4),
        ha="left" if hz[at] < np.mean(axis.get_xlim()) else "right",
        va="top",
        fontsize=7.5,
    )


def _name_ends(
    axis: Any, rows: Rows, ends: Sequence[float], colours: Sequence[Any]
) -> None:
    """Names at the right ends of the lines, moved apart where they would touch."""
    low, high = axis.get_ylim()
    tall = axis.bbox.size[1] / axis.figure.dpi
    gap = _LEAST_GAP / tall * (high - low)
    place = high
    for at, end in enumerate(ends):  # from the highest row down
        place = min(end, place - gap if at else high)
        axis.annotate(
            rows.named(at),
            (1.0, max(place, low)),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            xytext=(6, 0),
            va="center",
            fontsize=8,
            color=colours[at],
            annotation_clip=False,
        )


def _every(step: float) -> Any:
    from matplotlib.ticker import MultipleLocator

    return MultipleLocator(step)


def mark_strongest(axis: Any, rows: Rows, places: int) -> None:
    """On a heatmap: the strongest peak of each row, and the next ones smaller."""
    found = [rows.peaks(at) for at in range(len(rows))]
    for rank in range(places):
        which = [at for at, (hz, _) in enumerate(found) if len(hz) > rank]
        if not which:
            continue
        hz: Floats = np.array([found[at][0][rank] for at in which])
        axis.plot(
            np.maximum(hz, axis.get_xlim()[0]),
            which,
            "o" if rank == 0 else ".",
            ms=3.6 if rank == 0 else 3.2,
            mew=0.6 if rank == 0 else 0.4,
            mfc="white",
            mec="black",
            clip_on=False,
            label={0: f"strongest {rows.noun}", 1: "next two"}.get(rank),
        )
