"""Options for the appearance of plots, shared by every command with `--plot`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from rlxweb.cli import options
from rlxweb.plot.spectrum_plot_data import LINE_LAYOUTS, MAX_LINES, MAX_OVERLAID_LINES


@dataclass(frozen=True, slots=True)
class PlotStyle:
    """Requested appearance of a plot.

    axis    of frequencies, "linear" or "log"
    lines   how spectra are drawn; None: by how many there are
    dark    light on dark
    """

    axis: str = "linear"
    lines: str | None = None
    dark: bool = False

    @property
    def is_log(self) -> bool:
        return self.axis == "log"


DEFAULT_PLOT_STYLE = PlotStyle()
AXIS_OPTION = options.choice_option(
    "--axis", ["linear", "log"], "Scale of the frequency axis.", "linear"
)
LINES_OPTION = options.choice_option(
    "--lines",
    LINE_LAYOUTS,
    "Layout of the spectra: overlaid, stacked with an offset, one panel per spectrum, "
    f"or a heatmap; default: overlaid for up to {MAX_OVERLAID_LINES} spectra, panels "
    f"for up to {MAX_LINES}, a heatmap for more.",
)
DARK_OPTION = click.option(
    "--dark", is_flag=True, help="Draw the plot on a dark background."
)


def pop_plot_style(option_values: dict[str, Any]) -> PlotStyle:
    """Remove the plot options from a command's parameters and return them as a
    PlotStyle.
    """
    names = ("axis", "lines", "dark")
    return PlotStyle(
        **{name: option_values.pop(name) for name in names if name in option_values}
    )
