"""Plot of `rlxweb spectrogram`: one panel per channel with a shared color scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from rlxweb.batch.channel_group_spectrogram import GroupSpectrogram
from rlxweb.cli.console import format_count
from rlxweb.cli.plot_options import DEFAULT_PLOT_STYLE, PlotStyle
from rlxweb.cli.welch_plot import new_figure, warn_missing_glyphs, write_figure
from rlxweb.plot.font_selection import FontSelection
from rlxweb.plot.frequency_axis import frequency_axis_label
from rlxweb.plot.html_page import render_page, shorten_name
from rlxweb.plot.html_page import surface_panel as surface_panel
from rlxweb.plot.spectrum_plot_data import MAX_SPAN_DB
from rlxweb.plot.spectrum_plots import decibel_label
from rlxweb.plot.theme import DIVERGING_COLORMAP, SEQUENTIAL_COLORMAP, muted_text_colour
from rlxweb.plot.time_frequency_plot import colour_limits, decibel_levels, draw_surface
from rlxweb.results.power_units import power_unit

MAX_PANELS = 16
NameFormatter = Callable[[str], str]
"""Function that formats a name for display."""
# Units of a time axis: from how many seconds on, their length, their name.
_TIME_UNITS = ((3 * 3600.0, 3600.0, "h"), (300.0, 60.0, "min"), (0.0, 1.0, "s"))


def write_spectrogram_picture(
    file: IO[bytes],
    path: str,
    groups: Sequence[GroupSpectrogram],
    file_format: str,
    style: PlotStyle = DEFAULT_PLOT_STYLE,
) -> None:
    """Write a plot of the first 16 channels of all groups; raises NotWritten."""
    if file_format == "html":
        file.write(_html_page(path, groups, style).encode())
        return
    texts = [path, *(name for group in groups for name in (*group.names, *group.units))]
    texts += [group.epochs.condition for group in groups if group.epochs is not None]
    fonts = FontSelection.for_texts(texts)
    context = f"drawing {path!r}"
    warn_missing_glyphs(fonts, context)
    draw = partial(_build_figure, path, groups, style, fonts)
    write_figure(file, draw, file_format, fonts, context, style.dark)


def drawn_channels(
    groups: Sequence[GroupSpectrogram],
) -> list[tuple[GroupSpectrogram, int]]:
    """Return the group and channel index of the first 16 channels."""
    channels = [(group, index) for group in groups for index in range(len(group.names))]
    return channels[:MAX_PANELS]


def plot_caption(groups: Sequence[GroupSpectrogram]) -> str:
    """Return the caption above a plot."""
    first = groups[0]
    n_panels = sum(len(group.names) for group in groups)
    details = f", {MAX_PANELS} panels shown" if n_panels > MAX_PANELS else ""
    n_channels = n_panels
    if first.epochs is not None:
        conditions = dict.fromkeys(
            group.epochs.condition for group in groups if group.epochs
        )
        details = f", {format_count(len(conditions), 'condition')}{details}"
        n_channels //= len(conditions)
    return (
        f"{format_count(n_channels, 'channel')} at {first.fs:g} Hz{details} · "
        f"{first.nperseg} samples per segment, {first.fs / first.nperseg:.3g} Hz per "
        "bin"
    )


def colorbar_label(
    groups: Sequence[GroupSpectrogram], format_name: NameFormatter
) -> str:
    """Return the label of the color bar."""
    baseline = groups[0].baseline
    if baseline is not None:
        return "power relative to the mean from {:g} to {:g} s (dB)".format(*baseline)
    units = {unit for group in groups for unit in group.units}
    unit_text = format_name(units.pop()) if len(units) == 1 else ""
    return decibel_label(power_unit(unit_text, "density"))


def decibel_range(groups: Sequence[GroupSpectrogram]) -> tuple[float, float]:
    """Return the range of decibels of everything drawn, without an offset at 0 Hz;
    symmetric if there is a baseline.
    """
    spans = []
    for group in groups:
        skip = 2 if group.f[0] == 0 and len(group.f) > 8 else 0
        spans.append(
            colour_limits(decibel_levels(group.power[:MAX_PANELS, skip:]), MAX_SPAN_DB)
        )
    low, high = min(low for low, _ in spans), max(high for _, high in spans)
    if groups[0].baseline is not None:
        extent = max(abs(low), abs(high), 1.0)
        return -extent, extent
    return low, high


def _html_page(path: str, groups: Sequence[GroupSpectrogram], style: PlotStyle) -> str:
    panels = []
    n_left, limits = MAX_PANELS, decibel_range(groups)
    for group in groups:
        count = min(n_left, len(group.names))
        n_left -= count
        if not count:
            break
        panels.append(
            surface_panel(
                [
                    shorten_name(_panel_title(group, index, str))
                    for index in range(count)
                ],
                group.f,
                group.t,
                [decibel_levels(power) for power in group.power[:count]],
                limits,
                colorbar_label(groups, shorten_name),
                "",
                scale="values" if group.baseline is None else "around",
                since="" if group.epochs is None else "from the annotation",
                steps=(group.column_s, group.fs / group.nperseg),
            )
        )
    return render_page(
        Path(path).name, plot_caption(groups), panels, style.is_log, style.dark
    )


def _build_figure(
    path: str,
    groups: Sequence[GroupSpectrogram],
    style: PlotStyle,
    fonts: FontSelection,
) -> Any:
    panels = drawn_channels(groups)
    panel_height = 2.8 if len(panels) == 1 else 1.4
    figure = new_figure(11, 1.5 + panel_height * len(panels))
    figure.suptitle(fonts.drawable_text(Path(path).name, 48), x=0.008, ha="left")
    subfigure = figure.subfigures()
    subfigure.suptitle(
        plot_caption(groups),
        x=0.008,
        ha="left",
        fontsize=9,
        fontweight="normal",
        color=muted_text_colour(style.dark),
    )
    axes = subfigure.subplots(len(panels), 1, squeeze=False, sharex=len(groups) == 1)[
        :, 0
    ]
    limits = decibel_range(groups)
    seconds = max(group.seconds for group in groups)
    _, unit_s, unit = next(t for t in _TIME_UNITS if seconds >= t[0])
    for axis, (group, index) in zip(axes, panels, strict=True):
        image = draw_surface(
            axis,
            group.t,
            group.f,
            decibel_levels(group.power[index]),
            limits,
            style.is_log,
            SEQUENTIAL_COLORMAP if group.baseline is None else DIVERGING_COLORMAP,
            steps=(group.column_s, group.fs / group.nperseg),
        )
        if group.epochs is not None and group.t[0] < 0 < group.t[-1]:
            axis.axvline(0.0, color=muted_text_colour(style.dark), lw=0.9, ls="--")
        axis.set_title(
            _panel_title(group, index, partial(fonts.drawable_text, max_chars=48)),
            fontsize=8.5,
            pad=3,
        )
        axis.xaxis.set_major_formatter(lambda s, _: f"{s / unit_s:g}")
        axis.tick_params(labelsize=7.5)
    origin = "" if groups[0].epochs is None else " from the annotation"
    axes[-1].set_xlabel(f"time{origin} ({unit})")
    text_color = muted_text_colour(style.dark)
    subfigure.supylabel(
        frequency_axis_label(style.is_log), fontsize=9, color=text_color
    )
    colorbar = subfigure.colorbar(image, ax=axes, pad=0.01, fraction=0.03, aspect=40)
    colorbar.set_label(
        colorbar_label(groups, partial(fonts.drawable_text, max_chars=48))
    )
    colorbar.outline.set_visible(False)
    return figure


def _panel_title(
    group: GroupSpectrogram, index: int, format_name: NameFormatter
) -> str:
    name = format_name(group.names[index])
    return (
        name
        if group.epochs is None
        else f"{name} · {format_name(group.epochs.summary)}"
    )
