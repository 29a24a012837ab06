"""The picture: spectra with their peaks marked, or a channels × frequency heatmap.

Owns panels, axes and colours; what they should show is decided in `scales.py`.
matplotlib is loaded here, only when a picture is asked for, and its settings are left
as they were.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.cli.scales import (
    columns,
    decibels,
    level_range,
    levels_of,
    offset_bins,
    peaks_to_name,
    wants_log,
)
from rlxweb.cli.screen import counted
from rlxweb.cli.table import decimals
from rlxweb.errors import (
    NotWritten,
    PictureWarning,
    RlxError,
    Unsupported,
    UsageError,
)
from rlxweb.jobs.results import FileResult, GroupResult
from rlxweb.plot.frequencies import log_ticks
from rlxweb.plot.lettering import LATIN, Lettering
from rlxweb.streams import is_stream

# More lines than this cannot be told apart in one panel; it is also how many colours
# the default cycle has.
LINES = 10
# Laying out more panels takes minutes, and looking at them no less.
PANELS = 16
FORMATS = (".png", ".svg", ".pdf")
DPI = 130
_PEAK = "#ff2d55"
# The room a name may take beside the axes, and in a title.
_MOST_NAME = 24
_MOST_FILE_NAME = 48
_SILENT = logging.NullHandler()


def check_plot(path: str) -> None:
    """Refuse what could not be drawn.

    Errors   UsageError for an unknown suffix; Unsupported when matplotlib is missing.
    """
    picture_format(path)
    # Where nobody listens it tells of its folders on standard error, in its own lines.
    logging.getLogger("matplotlib").addHandler(_SILENT)
    try:
        import matplotlib.figure  # noqa: F401  loading it is the question
    except ImportError:
        raise Unsupported(
            f"--plot {path!r}",
            "matplotlib is not installed",
            hint="pip install 'rlxweb[plot]'",
        ) from None


def picture_format(path: str) -> str:
    """By the suffix; what goes into a stream without one is PNG.

    Errors   UsageError for an unknown suffix.
    """
    suffix = Path(path).suffix.lower()
    if suffix in FORMATS:
        return suffix[1:]
    if is_stream(path):
        return "png"
    raise UsageError(
        f"--plot {path!r}", f"the suffix is {suffix!r}", "known: " + ", ".join(FORMATS)
    )


def put_plot(file: IO[bytes], result: FileResult, how: str) -> None:
    """One panel per group of equal rate, in the format `how`; the first 16 of them.

    Warns    PictureWarning for letters that no font of this machine has, and for rates
             that are left out
    Errors   NotWritten when the picture cannot be drawn.
    """
    doing = f"drawing {result.path!r}"
    letters = lettering_of(result)
    if letters.missing:
        some = " ".join(sorted(letters.missing)[:8])
        said = f"{doing}: no font here has {some}; they are written as numbers"
        warnings.warn(PictureWarning(said), stacklevel=2)
    more = len(result.groups) - PANELS
    if more > 0:
        said = f"{doing}: {more} of {len(result.groups)} rates are left out of it"
        why = "the channels that are asked for by name (-c) are shown"
        warnings.warn(PictureWarning(said, why), stacklevel=2)
    put_figure(file, partial(_figure, result, letters), how, letters, doing)


def lettering_of(result: FileResult) -> Lettering:
    """Fonts for everything that the file says of itself."""
    texts = [result.path]
    for group in result.groups:
        texts += [*group.names, *map(group.power_unit, group.units), group.engine]
        texts += [] if group.epochs is None else [group.epochs.condition]
    return Lettering.of(texts)


def new_figure(width: float, height: float) -> Any:
    """An empty picture, in inches, outside matplotlib's global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def put_figure(
    file: IO[bytes],
    draw: Callable[[], Any],
    how: str,
    letters: Lettering = LATIN,
    doing: str = "drawing the picture",
) -> None:
    """What `draw` makes into an open file, in the format `how`.

    Errors   NotWritten for whatever the drawing library dies of.
    """
    import matplotlib

    with (
        warnings.catch_warnings(),
        matplotlib.rc_context({"font.family": list(letters.families)}),
    ):
        warnings.simplefilter("ignore")  # about fonts; it would help nobody here
        try:
            draw().savefig(file, dpi=DPI, format=how)
        except (RlxError, OSError, MemoryError):
            raise
        except Exception as error:
            why = f"matplotlib failed ({type(error).__name__}: {error})"
            raise NotWritten(doing, why) from error


def _figure(result: FileResult, letters: Lettering) -> Any:
    groups = result.groups[:PANELS]
    tall = [_height(group) for group in groups]
    figure = new_figure(11, sum(tall))
    axes = figure.subplots(len(tall), 1, squeeze=False, height_ratios=tall)
    for axis, group in zip(axes[:, 0], groups, strict=True):
        draw = _heatmap if len(group.names) > LINES else _spectra
        draw(figure, axis, group, letters)
        title = _title(result, group, letters)
        axis.set_title(title, fontsize=10, loc="left")
    return figure


def _tell_nothing(axis: Any, levels: Any) -> None:
    """Nothing is drawn, and no number stands at the axis of the levels."""
    levels.set_ticks([])
    axis.text(0.5, 0.5, "no channel has a level", transform=axis.transAxes, ha="center")


def _title(result: FileResult, group: GroupResult, letters: Lettering) -> str:
    channels = counted(len(group.names), "channel")
    name = letters.shown(Path(result.path).name, _MOST_FILE_NAME)
    of = ""
    if group.epochs is not None:
        of = f"{letters.shown(group.epochs.short, _MOST_FILE_NAME)} · "
    return (
        f"{name} · {channels} at {group.fs:g} Hz · {of}"
        f"{group.n_segments} × {group.spec.nperseg} samples, "
        f"{group.resolution:.3g} Hz per bin · {letters.shown(group.engine)}"
    )


def _height(group: GroupResult) -> float:
    if len(group.names) <= LINES:
        return 5.5
    return min(17.0, max(4.5, 1.6 + 0.115 * len(group.names)))


def _level_label(group: GroupResult, letters: Lettering) -> str:
    units = {group.power_unit(u) for u in group.units}
    unit = letters.shown(units.pop(), _MOST_NAME) if len(units) == 1 else ""
    one = "" if unit.startswith("1") else "1 "
    return f"power (dB re {one}{unit})" if unit else "power (dB)"


def _frequency_axis(axis: Any, group: GroupResult, is_log: bool, low: float) -> None:
    """`low` is where a logarithmic axis begins, in bins."""
    step = group.resolution
    if is_log:
        axis.set_xscale("log")
        axis.set_xlim(low * step, group.hz.max() + step / 2)
        log_ticks(axis.xaxis, step, float(group.hz.max()))
    else:
        axis.set_xlim(group.hz[0] - step / 2, group.hz[-1] + step / 2)
    axis.set_xlabel("frequency (Hz)" + (", log scale" if is_log else ""))


def _spectra(figure: Any, axis: Any, group: GroupResult, letters: Lettering) -> None:
    level = levels_of(group)
    is_log = wants_log(group)
    _frequency_axis(axis, group, is_log, 0.9)
    first = 1 if is_log else 0
    low, high = level_range(level, offset_bins(group))
    limits = low - 0.05 * (high - low), high + 0.12 * (high - low)
    labels, states = _row_labels(group, letters), group.states
    for at, name in enumerate(group.names):
        label = labels[at]
        # A label that begins with "_" would be left out of the legend.
        label = f" {label}" if name.startswith("_") else label
        if states[at]:
            axis.plot([], [], color="0.7", lw=1, ls=":", label=label)
            continue
        (line,) = axis.plot(group.hz[first:], level[at, first:], lw=1, label=label)
        _mark(axis, group, at, limits, line.get_color())
    axis.set_ylim(limits)
    _name_peaks(axis, group, is_log, limits)
    _name_beyond(axis, group, limits[1])
    axis.set_ylabel(_level_label(group, letters))
    if all(states):
        _tell_nothing(axis, axis.yaxis)
    axis.grid(alpha=0.25)
    axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _row_labels(group: GroupResult, letters: Lettering) -> list[str]:
    """The name of each row, with the reason where nothing is drawn of it."""
    pairs = zip(group.names, group.states, strict=True)
    shown = ((letters.shown(name, _MOST_NAME), state) for name, state in pairs)
    return [f"{name} ({state})" if state else name for name, state in shown]


def _mark(
    axis: Any, group: GroupResult, at: int, limits: tuple[float, float], color: str
) -> None:
    """The peaks of a row: dots, or arrows at the edge where they lie beyond it."""
    n = int(group.peaks.count[at])
    hz = np.maximum(group.peaks.hz[at, :n], axis.get_xlim()[0])
    level = decibels(group.peaks.power[at, :n])
    low, high = limits
    beyond = {
        "o": (level >= low) & (level <= high),
        "^": level > high,
        "v": level < low,
    }
    for marker, which in beyond.items():
        if which.any():
            shown = np.clip(level[which], low, high)
            axis.plot(hz[which], shown, marker, ms=3.5, color=color, clip_on=False)


def _name_peaks(
    axis: Any, group: GroupResult, is_log: bool, limits: tuple[float, float]
) -> None:
    digits = decimals(group.resolution)
    for peak in peaks_to_name(group, is_log, limits):
        axis.annotate(
            f"{peak.hz:.{digits}f} Hz",
            (peak.hz, peak.level),
            textcoords="offset points",
            xytext=(0, 6),
            ha=_side(peak.across),
            fontsize=8,
            bbox={"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.5},
        )


def _side(across: float) -> str:
    """How a label beside its peak stays inside the axes."""
    return "left" if across < 0.05 else "right" if across > 0.95 else "center"


def _name_beyond(axis: Any, group: GroupResult, high: float) -> None:
    """How far the strongest peak rises over the edge of the axis, if one does."""
    peaks = group.peaks
    taken = np.arange(peaks.bins.shape[1]) < peaks.count[:, None]
    level, hz = decibels(peaks.power[taken]), peaks.hz[taken]
    if not level.size or not np.nanmax(level) > high:
        return
    at = int(np.nanargmax(level))
    axis.annotate(
        f"{hz[at]:.{decimals(group.resolution)}f} Hz: {level[at]:.0f} dB",
        (max(hz[at], axis.get_xlim()[0]), high),
        textcoords="offset points",
        xytext=(8, -4),
        ha="left" if hz[at] < np.mean(axis.get_xlim()) else "right",
        va="top",
        fontsize=8,
    )


def _heatmap(figure: Any, axis: Any, group: GroupResult, letters: Lettering) -> None:
    is_log = wants_log(group)
    level = levels_of(group)
    cells, edges = columns(level, group.resolution, is_log, group.first_bin)
    low, high = level_range(level, offset_bins(group))
    rows = np.arange(len(group.names) + 1) - 0.5
    cells = np.maximum(cells, low)  # zero has a place on the scale: below its end
    cells[[bool(state) for state in group.states]] = np.nan
    image = axis.pcolormesh(
        edges, rows, cells, vmin=low, vmax=high, cmap=_colours(), rasterized=True
    )
    _frequency_axis(axis, group, is_log, 0.5)
    axis.set_ylim(rows[-1], rows[0])
    _mark_peaks(axis, group)
    every = -(-len(group.names) // 150)
    axis.set_yticks(
        range(0, len(group.names), every),
        _row_labels(group, letters)[::every],
        fontsize=6 if len(group.names) > 40 else 8,
    )
    bar = figure.colorbar(
        image,
        ax=axis,
        pad=0.01,
        fraction=0.04,
        aspect=5 * _height(group),
        extend=_extend(level, low, high),
        extendfrac=0.015,
    )
    bar.set_label(_level_label(group, letters))
    if all(group.states):
        _tell_nothing(axis, bar)
    axis.legend(
        fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, ncols=2
    )


def _colours() -> Any:
    """Viridis, and grey for what has no level."""
    import matplotlib

    return matplotlib.colormaps["viridis"].with_extremes(bad="0.8")


def _mark_peaks(axis: Any, group: GroupResult) -> None:
    """The strongest of each row; in mode "peaks" also the next two."""
    peaks = group.peaks
    places = min(3 if group.mode == "peaks" else 1, peaks.bins.shape[1])
    noun = "peak" if group.mode == "peaks" else "bin"
    alive = np.array([not state for state in group.states])
    for rank in range(places):
        found = np.flatnonzero((peaks.count > rank) & alive)
        axis.plot(
            np.maximum(peaks.hz[found, rank], axis.get_xlim()[0]),
            found,
            "o" if rank == 0 else "x",
            ms=2.6,
            mew=0.7,
            color=_PEAK,
            clip_on=False,
            label={0: f"strongest {noun}", 1: "next two"}.get(rank),
        )


def _extend(level: NDArray[Any], low: float, high: float) -> str:
    """Which ends of the colour bar stand for values beyond it."""
    finite = level[np.isfinite(level)]
    beyond = bool((finite < low).any()), bool((finite > high).any())
    names = {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}
    return names[beyond]
