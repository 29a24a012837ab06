"""Roofline plot of a profile: the steps of a run and the limits of their engine.

matplotlib is loaded here, only when a picture is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

from rlxweb.cli.welch_plot import new_figure, write_figure
from rlxweb.core.message_text import abbreviate
from rlxweb.cost.decision import format_ns
from rlxweb.cost.roofline import ProfileEntry, Roofline
from rlxweb.plot.frequency_axis import set_log_ticks
from rlxweb.results.svg_charts import COLOURS

_MAX_NAME_LENGTH = 32
_MAX_LABELS = 12
"""Maximum number of labels; more would overlap."""


def write_roofline_picture(
    file: IO[bytes],
    title: str,
    entries: Sequence[ProfileEntry],
    roofline: Roofline | None,
    file_format: str,
) -> None:
    """Write two panels: the time of each step, and its distance from the roofline."""

    def draw() -> Any:
        figure = new_figure(13, 5.6)
        left, right = figure.subplots(1, 2)
        _draw_time_bars(left, title, entries)
        _draw_roofline(right, entries, roofline)
        return figure

    write_figure(file, draw, file_format)


def _draw_time_bars(axis: Any, title: str, entries: Sequence[ProfileEntry]) -> None:
    longest_entries = sorted(entries, key=lambda entry: entry.ns)[-2 * _MAX_LABELS :]
    names = [abbreviate(entry.label, _MAX_NAME_LENGTH) for entry in longest_entries]
    bars = axis.barh(
        range(len(longest_entries)),
        [entry.ns / 1e6 for entry in longest_entries],
        color=COLOURS[0],
    )
    axis.set_yticks(range(len(longest_entries)), names, fontsize=8)
    axis.bar_label(
        bars, [format_ns(entry.ns) for entry in longest_entries], padding=3, fontsize=8
    )
    axis.margins(x=0.18)
    axis.set_xlabel("ms")
    axis.set_title(abbreviate(title, 64), loc="left", fontsize=10)


def _draw_roofline(
    axis: Any, entries: Sequence[ProfileEntry], roofline: Roofline | None
) -> None:
    drawn_entries = [
        entry for entry in entries if entry.flops and entry.nbytes and entry.ns
    ]
    axis.set(xscale="log", yscale="log")
    axis.set(xlabel="operations per byte", ylabel="GFLOP/s")
    axis.grid(visible=True)
    xs = [entry.intensity for entry in drawn_entries]
    if roofline is not None:
        low = min([roofline.ridge, *xs]) / 4
        high = max([roofline.ridge, *xs]) * 4
        ends = [low, roofline.ridge, high]
        axis.plot(
            ends, [roofline.attainable_gflops(x) for x in ends], color="0.3", lw=1.5
        )
        text = (
            f"{roofline.gbs:.3g} GB/s up to {roofline.gflops:.3g} GFLOP/s "
            f"({roofline.source})"
        )
        axis.set_title(text, loc="left", fontsize=10)
    else:
        axis.set_title("roofline unknown", loc="left", fontsize=10)
    total_ns = sum(entry.ns for entry in entries) or 1.0
    sizes = [30 + 600 * entry.ns / total_ns for entry in drawn_entries]
    ys = [entry.gflops for entry in drawn_entries]
    axis.scatter(xs, ys, s=sizes, color=COLOURS[0], alpha=0.6)
    for entry in sorted(drawn_entries, key=lambda entry: -entry.ns)[:_MAX_LABELS]:
        point = entry.intensity, entry.gflops
        name = abbreviate(entry.label, _MAX_NAME_LENGTH)
        axis.annotate(name, point, (6, 4), textcoords="offset points", fontsize=8)
    for scaled_axis, ends in (
        (axis.xaxis, axis.get_xlim()),
        (axis.yaxis, axis.get_ylim()),
    ):
        set_log_ticks(scaled_axis, *ends)
