"""The picture: spectra with their peaks marked, or a channels × frequency heatmap.

Owns panels, axes and colours; what they should show is decided in `scales.py`.
matplotlib is loaded here, only when a picture is asked for, and its global state is
never touched.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.cli.job import FileResult, GroupResult
from rlxweb.cli.scales import (
    Ticks,
    columns,
    decibels,
    level_range,
    offset_bins,
    peaks_to_name,
    ticks_of,
    wants_log,
)
from rlxweb.cli.screen import counted
from rlxweb.cli.table import decimals
from rlxweb.errors import Unsupported, UsageError
from rlxweb.streams import is_stream

# More lines than this cannot be told apart in one panel; it is also how many colours
# the default cycle has.
LINES = 10
FORMATS = (".png", ".svg", ".pdf")
DPI = 130
_PEAK = "#ff2d55"


def check_plot(path: str) -> None:
    """Refuse what could not be drawn.

    Errors   UsageError for an unknown suffix; Unsupported when matplotlib is missing.
    """
    picture_format(path)
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
    """One panel per group of equal rate, in the format `how`."""
    with warnings.catch_warnings():
        # A letter that no font has is written out; the warning helps nobody here.
        warnings.simplefilter("ignore")
        put_figure(file, _figure(result), how)


def new_figure(width: float, height: float) -> Any:
    """An empty picture, in inches, outside matplotlib's global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def put_figure(file: IO[bytes], figure: Any, how: str) -> None:
    """The picture into an open file, in the format `how`."""
    figure.savefig(file, dpi=DPI, format=how)


def _figure(result: FileResult) -> Any:
    tall = [_height(group) for group in result.groups]
    figure = new_figure(11, sum(tall))
    axes = figure.subplots(len(tall), 1, squeeze=False, height_ratios=tall)
    for axis, group in zip(axes[:, 0], result.groups, strict=True):
        draw = _heatmap if len(group.names) > LINES else _spectra
        draw(figure, axis, group)
        axis.set_title(_title(result, group), fontsize=10, loc="left", parse_math=False)
    return figure


def _title(result: FileResult, group: GroupResult) -> str:
    channels = counted(len(group.names), "channel")
    return (
        f"{Path(result.path).name} · {channels} at {group.fs:g} Hz · "
        f"{group.n_segments} × {group.spec.nperseg} samples, "
        f"{group.resolution:.3g} Hz per bin · {group.engine}"
    )


def _height(group: GroupResult) -> float:
    if len(group.names) <= LINES:
        return 5.5
    return min(17.0, max(4.5, 1.6 + 0.115 * len(group.names)))


def _level_label(group: GroupResult) -> str:
    units = {group.power_unit(u) for u in group.units}
    unit = units.pop() if len(units) == 1 else ""
    one = "" if unit.startswith("1") else "1 "
    return f"power (dB re {one}{unit})" if unit else "power (dB)"


def _frequency_axis(axis: Any, group: GroupResult, is_log: bool, low: float) -> None:
    """`low` is where a logarithmic axis begins, in bins."""
    step = group.resolution
    if is_log:
        from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

        axis.set_xscale("log")
        axis.set_xlim(low * step, group.hz.max() + step / 2)
        ticks: Ticks = ticks_of(step, float(group.hz.max()))
        axis.xaxis.set_major_locator(FixedLocator(ticks))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(lambda hz, _: f"{hz:g}"))
    else:
        axis.set_xlim(-step / 2, group.hz.max() + step / 2)
    axis.set_xlabel("frequency (Hz)" + (", log scale" if is_log else ""))


def _spectra(figure: Any, axis: Any, group: GroupResult) -> None:
    level = decibels(group.power)
    is_log = wants_log(group)
    _frequency_axis(axis, group, is_log, 0.9)
    first = 1 if is_log else 0
    for at, name in enumerate(group.names):
        # A label that begins with "_" would be left out of the legend.
        label = f" {name}" if name.startswith("_") else name
        (line,) = axis.plot(
            group.hz[first:], level[at, first:], lw=1, label=_plain(label)
        )
        n = int(group.peaks.count[at])
        places = group.peaks.hz[at, :n], decibels(group.peaks.power[at, :n])
        axis.plot(*places, "o", ms=3.5, color=line.get_color())
    low, high = level_range(level, offset_bins(group))
    limits = low - 0.05 * (high - low), high + 0.12 * (high - low)
    axis.set_ylim(limits)
    _name_peaks(axis, group, is_log, limits)
    axis.set_ylabel(_level_label(group), parse_math=False)
    axis.grid(alpha=0.25)
    axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))


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
            ha="center" if 0.03 < peak.across < 0.97 else "left",
            fontsize=8,
            bbox={"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.5},
        )


def _heatmap(figure: Any, axis: Any, group: GroupResult) -> None:
    is_log = wants_log(group)
    level = decibels(group.power)
    cells, edges = columns(level, group.resolution, is_log)
    low, high = level_range(level, offset_bins(group))
    rows = np.arange(len(group.names) + 1) - 0.5
    image = axis.pcolormesh(
        edges, rows, cells, vmin=low, vmax=high, cmap="viridis", rasterized=True
    )
    _frequency_axis(axis, group, is_log, 0.5)
    axis.set_ylim(rows[-1], rows[0])
    _mark_peaks(axis, group)
    every = -(-len(group.names) // 150)
    axis.set_yticks(
        range(0, len(group.names), every),
        [_plain(name) for name in group.names[::every]],
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
    bar.set_label(_level_label(group), parse_math=False)
    axis.legend(
        fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, ncols=2
    )


def _mark_peaks(axis: Any, group: GroupResult) -> None:
    """The strongest of each row; in mode "peaks" also the next two."""
    peaks = group.peaks
    places = min(3 if group.mode == "peaks" else 1, peaks.bins.shape[1])
    noun = "peak" if group.mode == "peaks" else "bin"
    for rank in range(places):
        found = np.flatnonzero(peaks.count > rank)
        axis.plot(
            peaks.hz[found, rank],
            found,
            "o" if rank == 0 else "x",
            ms=2.6,
            mew=0.7,
            color=_PEAK,
            label={0: f"strongest {noun}", 1: "next two"}.get(rank),
        )


def _extend(level: NDArray[Any], low: float, high: float) -> str:
    """Which ends of the colour bar stand for values beyond it."""
    finite = level[np.isfinite(level)]
    beyond = bool((finite < low).any()), bool((finite > high).any())
    names = {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}
    return names[beyond]


def _plain(name: str) -> str:
    """A name as text, where matplotlib would take dollar signs for a formula."""
    return name.replace("$", r"\$")
