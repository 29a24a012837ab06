"""The picture of `rlxweb learn`: the prunings by error and cost, and the training.

matplotlib is loaded here, only when a picture is asked for.
"""

from __future__ import annotations

from typing import IO, Any, Final

import numpy as np

from rlxweb.cli.plot import new_figure, put_figure
from rlxweb.plot.theme import hairline, quiet_ink
from rlxweb.results.svg import COLOURS
from rlxweb.signal.learned.learn import Learned
from rlxweb.signal.learned.prunings import front

_LEAST_ERROR: Final = 1e-7
"""The least that is drawn, unless less is asked for: below it is rounding alone."""
_MEAN_OVER: Final = 9
"""Steps whose mean loss is the line over them."""


def put_picture(file: IO[bytes], learned: Learned, how: str, dark: bool) -> None:
    """Two panels, in the format `how`. Errors  NotWritten."""

    def draw() -> Any:
        model = learned.transform
        figure = new_figure(11, 4.4)
        title = (
            f"{len(model.band)} of {model.n // 2 + 1} bins of {model.n:,} samples at "
            f"{model.fs:g} Hz: {model.active:,} of {model.total:,} gates"
        )
        figure.suptitle(title, x=0.008, ha="left")
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        _draw_prunings(left, learned)
        _draw_losses(right, np.asarray(learned.trained.run.losses))
        return figure

    put_figure(file, draw, how, doing="drawing what was learned", dark=dark)


def _draw_prunings(axis: Any, learned: Learned) -> None:
    """Error over open gates; the colour is the arithmetic that is left."""
    tried, asked = learned.tried, learned.transform.asked
    exact, chosen = tried[0], learned.chosen
    ink, mark = quiet_ink(axis), COLOURS[4]
    least = min(_LEAST_ERROR, 0.1 * asked)
    drawn = [one for one in tried[1:] if one.error < 1.0]

    def spots(some: Any) -> tuple[list[int], list[float]]:
        return [one.active for one in some], [max(least, one.error) for one in some]

    edge = [one for one in front(tried) if one in drawn]
    axis.plot(*spots(edge), color=hairline(axis), lw=1.0, zorder=1)
    dots = axis.scatter(
        *spots(drawn),
        c=[100.0 * one.program.share for one in drawn],
        vmin=0.0,
        vmax=100.0,
        s=26,
        linewidths=0,
        zorder=2,
    )
    axis.scatter(*spots([exact]), s=46, marker="s", color=ink, zorder=3)
    ring = axis.scatter(*spots([chosen]), s=110, marker="o", zorder=4)
    ring.set(facecolor="none", edgecolor=mark, linewidth=1.8)
    axis.axhline(asked, color=ink, lw=0.9, ls="--", zorder=1)
    axis.set(yscale="log", xlabel="gates that are open", ylabel="error of the power")
    axis.margins(0.09, 0.12)
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.grid(visible=True)
    more = len(tried) - 1 - len(drawn)
    left_out = f"; not drawn: {more}, off by all of the power" if more else ""
    axis.set_title(f"prunings that were tested{left_out}")
    bar = axis.figure.colorbar(dots, ax=axis, pad=0.02, aspect=28)
    bar.set_label("arithmetic of the whole transform (%)")
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)

    def note(text: str, at: Any, offset: tuple[int, int], **look: Any) -> None:
        side = "right" if offset[0] < 0 else "left"
        axis.annotate(
            text, at, offset, textcoords="offset points", fontsize=8, ha=side, **look
        )

    width = axis.get_xlim()[1]
    note(f"asked for: {asked:g}", (width, asked), (-2, 3), color=ink)
    (x,), (y,) = spots([exact])
    if exact is not chosen:
        share = f"{exact.program.share:.0%}"
        note(f"exact but for rounding, {share}", (x, y), (-8, 6))
    (x,), (y,) = spots([chosen])
    name = "chosen: exact" if exact is chosen else "chosen"
    offset = (-10 if x > 0.6 * width else 10, -12)
    share = f"{chosen.program.share:.0%}"
    note(f"{name}, {share}", (x, y), offset, color=mark, fontweight="bold")


def _draw_losses(axis: Any, losses: Any) -> None:
    """The loss of every step, and its mean over some."""
    if not len(losses):
        axis.set_axis_off()
        said = "no steps of training were made"
        axis.text(0.5, 0.5, said, transform=axis.transAxes, ha="center")
        return
    steps = np.arange(1, len(losses) + 1)
    axis.plot(steps, losses, color=hairline(axis), lw=1.0)
    if len(losses) > _MEAN_OVER:
        means = np.convolve(losses, np.full(_MEAN_OVER, 1 / _MEAN_OVER), "valid")
        half = _MEAN_OVER // 2
        axis.plot(steps[half:-half], means, color=COLOURS[0], lw=1.6)
    axis.set(xlabel="step", ylabel="loss", yscale="log")
    # The first loss is that of the exact transform, next to nothing.
    later = losses[1:] if len(losses) > 1 else losses
    axis.set_ylim(bottom=0.5 * max(later.min(), _LEAST_ERROR))
    axis.grid(visible=True)
    axis.set_title("training; all gates are open at its first step")
