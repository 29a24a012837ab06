"""What each row is made of, as bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.plot.naming import lettered, name_rows
from rlxweb.plot.theme import axes_of, ground, in_our_look
from rlxweb.results.svg import colours_of

if TYPE_CHECKING:
    from rlxweb.signal.bands import BandPower

_WORTH_A_NUMBER: Final = 0.06
_ENTRY_INCHES: Final = 0.185
"""Height of a line of the legend."""
_LEGEND_LINES: Final = 16
"""Bands in a column of the legend, before there is a second."""
_LEGEND_COLUMNS: Final = 3
SHARE: Final = "share of the power in these bands"


@in_our_look
def bands(result: BandPower, ax: Any = None) -> Any:
    """A bar for each row, cut into the shares of its bands.

    → the axes
    Errors   Unsupported without matplotlib
    """
    shares = result.relative.reshape(-1, len(result.names))
    batch = result.total.shape
    names = result.labels.fitted(batch).rows(batch)
    tall = height_of(len(names), len(result.names))
    own = axes_of(ax, "rlxweb.plot.bands", tall=tall)
    with lettered([*names, *result.names]) as shown:
        spans = spans_of(shown[len(names) :], result.edges)
        stacked(own, shown[: len(names)], shares, spans)
    return own


def height_of(rows: int, bands: int = 0) -> float:
    """Inches that so many bars want, and the legend of so many bands."""
    legend = 0.3 + _ENTRY_INCHES * -(-bands // legend_columns(bands))
    return max(min(16.0, max(1.6, 1.0 + 0.24 * rows)), legend)


def legend_columns(bands: int) -> int:
    """Columns of the legend of so many bands."""
    return min(_LEGEND_COLUMNS, max(1, -(-bands // _LEGEND_LINES)))


def spans_of(names: Sequence[str], edges: NDArray[Any]) -> list[str]:
    """Such as "alpha 8–13 Hz"."""
    pairs = zip(names, edges, strict=True)
    return [f"{name} {low:g}–{high:g} Hz" for name, (low, high) in pairs]


def stacked(
    axis: Any, names: Sequence[str], shares: NDArray[Any], spans: Sequence[str]
) -> None:
    """Bars of shares (C, K), with per cent where there is room, names as drawn."""
    shares = np.nan_to_num(np.asarray(shares, np.float64))
    # What lies between bands that do not touch, or overlap, makes no whole.
    shares = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)
    rows = np.arange(len(shares))
    left = np.zeros(len(shares))
    for k, (span, colour) in enumerate(zip(spans, colours_of(len(spans)), strict=True)):
        own = shares[:, k]
        axis.barh(
            *(rows, own),
            left=left,
            height=0.8,
            color=colour,
            label=span,
            edgecolor=ground(axis),
            linewidth=0.8,
        )
        for at in np.flatnonzero(own >= _WORTH_A_NUMBER):
            axis.text(
                *(left[at] + own[at] / 2, at, f"{own[at]:.0%}"),
                ha="center",
                va="center_baseline",
                fontsize=7,
                color=_on(colour),
            )
        left += own
    name_rows(axis, names, 1, 8)
    axis.set_ylim(len(shares) - 0.4, -0.6)
    axis.set_xlim(0, 1)
    axis.spines["left"].set_visible(False)
    axis.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axis.set_xlabel(SHARE)
    axis.legend(
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        borderaxespad=0.2,
        ncols=legend_columns(len(spans)),
        columnspacing=1.0,
    )


def _on(colour: str) -> str:
    """White or black, whichever is read better on it."""
    share = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    # As sRGB is defined: its numbers are no amounts of light.
    light = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    own = float(light @ (0.2126, 0.7152, 0.0722))
    return "white" if 1.05 / (own + 0.05) >= (own + 0.05) / 0.05 else "black"
