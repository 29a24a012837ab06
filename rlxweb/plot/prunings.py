"""What training a transform came to: prunings by error and cost, and the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rlxweb.learn.pruning import front
from rlxweb.plot.theme import hairline, quiet_ink
from rlxweb.results.svg import COLOURS

if TYPE_CHECKING:
    from rlxweb.learn.learned import Learned
    from rlxweb.learn.pruning import Tried

_LEAST_ERROR: Final = 1e-7
"""That is drawn, unless less is asked for: the exact one's own is rounding alone."""
_MOST_ERROR: Final = 1.0
"""That is drawn: what is off by more than all of the power interests nobody."""
_OVER: Final = 9
"""Steps whose mean loss is the line over them."""


def draw_prunings(axis: Any, learned: Learned) -> None:
    """Error over the gates that are left; the colour is the arithmetic that is left."""
    tried, chosen = learned.tried, learned.chosen
    exact, asked = tried[0], learned.transform.asked
    drawn = [one for one in tried[1:] if one.error < _MOST_ERROR]
    others = [one for one in drawn if one is not chosen]
    edge = [one for one in front(tried) if one in drawn]
    axis.plot(*_spots(learned, edge), color=hairline(axis), lw=1.0, zorder=1)
    every = axis.scatter(
        *_spots(learned, others),
        c=[_share(learned, one) for one in others],
        vmin=0.0,
        vmax=100.0,
        s=26,
        linewidths=0,
        zorder=2,
    )
    axis.scatter(
        *_spots(learned, [exact]), s=46, marker="s", color=quiet_ink(axis), zorder=3
    )
    marked = axis.scatter(*_spots(learned, [chosen]), s=110, marker="o", zorder=4)
    marked.set(facecolor="none", edgecolor=COLOURS[4], linewidth=1.8)
    if chosen is not exact:
        axis.scatter(
            *_spots(learned, [chosen]),
            c=[_share(learned, chosen)],
            vmin=0.0,
            vmax=100.0,
            s=26,
            linewidths=0,
            zorder=3,
        )
    axis.set(yscale="log", xlabel="gates that are open", ylabel="error of the power")
    axis.axhline(asked, color=quiet_ink(axis), lw=0.9, ls="--", zorder=1)
    axis.margins(0.09, 0.12)
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.grid(visible=True)
    more = len(tried) - 1 - len(drawn)
    left = f"; not drawn: {more}, off by all of the power" if more else ""
    axis.set_title(f"prunings that were tested{left}")
    _name(axis, learned)
    bar = axis.figure.colorbar(every, ax=axis, pad=0.02, aspect=28)
    bar.set_label("arithmetic of the whole transform (%)")
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)


def _name(axis: Any, learned: Learned) -> None:
    """Words for what is marked: the exact one, the chosen one, what was asked for."""
    exact, chosen = learned.tried[0], learned.chosen
    near: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8}
    right = axis.get_xlim()[1]
    axis.annotate(
        f"asked for: {learned.transform.asked:g}",
        (right, learned.transform.asked),
        **near,
        xytext=(-2, 3),
        ha="right",
        color=quiet_ink(axis),
    )
    (x,), (y,) = _spots(learned, [exact])
    said = f"exact but for rounding, {_share(learned, exact):.0f} %"
    if exact is not chosen:
        axis.annotate(said, (x, y), **near, xytext=(-8, 6), ha="right")
    (x,), (y,) = _spots(learned, [chosen])
    head = "chosen" if exact is not chosen else "chosen: exact"
    said = f"{head}, {_share(learned, chosen):.0f} %"
    is_right = x > 0.6 * right
    axis.annotate(
        said,
        (x, y),
        **near,
        xytext=(-10 if is_right else 10, -12),
        ha="right" if is_right else "left",
        color=COLOURS[4],
        fontweight="bold",
    )


def _spots(learned: Learned, tried: list[Tried]) -> tuple[list[int], list[float]]:
    least = min(_LEAST_ERROR, 0.1 * learned.transform.asked)
    return (
        [one.active for one in tried],
        [max(least, one.error) for one in tried],
    )


def _share(learned: Learned, one: Tried) -> float:
    return 100.0 * one.program.cost / learned.whole_cost


def draw_losses(axis: Any, learned: Learned) -> None:
    """The loss of every step, and its mean over some."""
    losses = np.asarray(learned.trained.run.losses)
    steps = np.arange(1, len(losses) + 1)
    if not len(losses):
        return _say_none(axis)
    axis.plot(steps, losses, color=hairline(axis), lw=1.0)
    if len(losses) > _OVER:
        means = np.convolve(losses, np.full(_OVER, 1 / _OVER), "valid")
        axis.plot(steps[_OVER // 2 : -(_OVER // 2)], means, color=COLOURS[0], lw=1.6)
    axis.set(xlabel="step", ylabel="loss", yscale="log")
    later = losses[1:] if len(losses) > 1 else losses
    # The first is that of the exact transform, which is next to nothing.
    axis.set_ylim(bottom=0.5 * max(later.min(), _LEAST_ERROR))
    axis.grid(visible=True)
    axis.set_title("training; all gates are open at its first step")


def _say_none(axis: Any) -> None:
    axis.set_axis_off()
    axis.text(
        *(0.5, 0.5, "no steps of training were made"),
        transform=axis.transAxes,
        ha="center",
        color=quiet_ink(axis),
    )
