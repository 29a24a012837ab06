"""Picture of `rlxweb learn`: prunings by error and cost, and the training losses.

matplotlib is loaded here, only when a picture is asked for.
"""

from __future__ import annotations

from typing import IO, Any, Final

import numpy as np

from rlxweb.cli.welch_plot import new_figure, write_figure
from rlxweb.plot.theme import hairline_colour, label_colour
from rlxweb.results.svg_charts import COLOURS
from rlxweb.signal.learned.learn import Learned
from rlxweb.signal.learned.pruning import pareto_front

_MIN_DRAWN_ERROR: Final = 1e-7
"""Smallest error that is drawn, unless less is requested: below it there is only
rounding.
"""
_MEAN_STEPS: Final = 9
"""Number of steps over which the drawn mean loss is taken."""


def write_learning_picture(
    file: IO[bytes], learned: Learned, file_format: str, dark: bool
) -> None:
    """Write the picture with two panels in an image format. Raises NotWritten."""

    def draw() -> Any:
        model = learned.transform
        figure = new_figure(11, 4.4)
        title = (
            f"segments of {model.n:,} samples at {model.fs:g} Hz: {len(model.band)} of "
            f"{model.n // 2 + 1} bins, {model.active:,} of {model.total:,} gates open"
        )
        figure.suptitle(title, x=0.008, ha="left")
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        _draw_prunings(left, learned)
        _draw_losses(right, np.asarray(learned.trained.run.losses))
        return figure

    write_figure(
        file, draw, file_format, context="drawing the training result", dark=dark
    )


def _draw_prunings(axis: Any, learned: Learned) -> None:
    """Draw error over open gates; the colour shows the remaining share of
    arithmetic.
    """
    prunings, max_error = learned.tried, learned.transform.asked
    exact, chosen = prunings[0], learned.chosen
    ink_colour, accent_colour = label_colour(axis), COLOURS[4]
    min_error = min(_MIN_DRAWN_ERROR, 0.1 * max_error)
    drawn_prunings = [pruning for pruning in prunings[1:] if pruning.error < 1.0]

    def coordinates(selection: Any) -> tuple[list[int], list[float]]:
        return [pruning.active for pruning in selection], [
            max(min_error, pruning.error) for pruning in selection
        ]

    front_prunings = [
        pruning for pruning in pareto_front(prunings) if pruning in drawn_prunings
    ]
    axis.plot(
        *coordinates(front_prunings), color=hairline_colour(axis), lw=1.0, zorder=1
    )
    dots = axis.scatter(
        *coordinates(drawn_prunings),
        c=[100.0 * pruning.program.relative_cost for pruning in drawn_prunings],
        vmin=0.0,
        vmax=100.0,
        s=26,
        linewidths=0,
        zorder=2,
    )
    axis.scatter(*coordinates([exact]), s=46, marker="s", color=ink_colour, zorder=3)
    ring = axis.scatter(*coordinates([chosen]), s=110, marker="o", zorder=4)
    ring.set(facecolor="none", edgecolor=accent_colour, linewidth=1.8)
    axis.axhline(max_error, color=ink_colour, lw=0.9, ls="--", zorder=1)
    axis.set(yscale="log", xlabel="open gates", ylabel="error of the power")
    axis.margins(0.09, 0.12)
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.grid(visible=True)
    n_hidden = len(prunings) - 1 - len(drawn_prunings)
    hidden_text = (
        f"; {n_hidden} with an error of 100 % or more not shown" if n_hidden else ""
    )
    axis.set_title(f"tested prunings{hidden_text}")
    bar = axis.figure.colorbar(dots, ax=axis, pad=0.02, aspect=28)
    bar.set_label("share of the full transform's arithmetic (%)")
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)

    def annotate(
        text: str, position: Any, offset: tuple[int, int], **style: Any
    ) -> None:
        side = "right" if offset[0] < 0 else "left"
        axis.annotate(
            text,
            position,
            offset,
            textcoords="offset points",
            fontsize=8,
            ha=side,
            **style,
        )

    width = axis.get_xlim()[1]
    annotate(f"allowed: {max_error:g}", (width, max_error), (-2, 3), color=ink_colour)
    (x,), (y,) = coordinates([exact])
    if exact is not chosen:
        share = f"{exact.program.relative_cost:.0%}"
        annotate(f"exact up to rounding, {share}", (x, y), (-8, 6))
    (x,), (y,) = coordinates([chosen])
    name = "chosen: exact" if exact is chosen else "chosen"
    offset = (-10 if x > 0.6 * width else 10, -12)
    share = f"{chosen.program.relative_cost:.0%}"
    annotate(f"{name}, {share}", (x, y), offset, color=accent_colour, fontweight="bold")


def _draw_losses(axis: Any, losses: Any) -> None:
    """Draw the loss of every step and its moving mean."""
    if not len(losses):
        axis.set_axis_off()
        message = "no training steps"
        axis.text(0.5, 0.5, message, transform=axis.transAxes, ha="center")
        return
    steps = np.arange(1, len(losses) + 1)
    axis.plot(steps, losses, color=hairline_colour(axis), lw=1.0)
    if len(losses) > _MEAN_STEPS:
        means = np.convolve(losses, np.full(_MEAN_STEPS, 1 / _MEAN_STEPS), "valid")
        half_window = _MEAN_STEPS // 2
        axis.plot(steps[half_window:-half_window], means, color=COLOURS[0], lw=1.6)
    axis.set(xlabel="step", ylabel="loss", yscale="log")
    # The first loss is that of the exact transform, next to nothing.
    later_losses = losses[1:] if len(losses) > 1 else losses
    axis.set_ylim(bottom=0.5 * max(later_losses.min(), _MIN_DRAWN_ERROR))
    axis.grid(visible=True)
    axis.set_title("training; all gates are open at the first step")
