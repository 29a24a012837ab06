"""Stacked bars of the band shares of each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.plot.row_labels import fonts_for_names, label_rows
from rlxweb.plot.theme import background_colour, get_or_make_axes, with_rlxweb_style
from rlxweb.results.svg_charts import distinct_colours

if TYPE_CHECKING:
    from rlxweb.signal.band_power import BandPower

_MIN_LABELLED_SHARE: Final = 0.06
_LEGEND_LINE_INCHES: Final = 0.185
"""Height of a line of the legend."""
_MAX_LEGEND_LINES: Final = 16
"""Bands in one column of the legend before a second column begins."""
_MAX_LEGEND_COLUMNS: Final = 3
SHARE_AXIS_LABEL: Final = "share of the power in these bands"


@with_rlxweb_style
def bands(result: BandPower, ax: Any = None) -> Any:
    """Draw one stacked bar for each row, divided into the shares of its bands.

    → the axes
    Errors   Unsupported without matplotlib
    """
    shares = result.relative.reshape(-1, len(result.names))
    batch = result.total.shape
    names = result.labels.fitted(batch).rows(batch)
    height = bars_height(len(names), len(result.names))
    axes = get_or_make_axes(ax, "rlxweb.plot.bands", height=height)
    with fonts_for_names([*names, *result.names]) as drawable:
        labels = band_labels(drawable[len(names) :], result.edges)
        draw_stacked_bars(axes, drawable[: len(names)], shares, labels)
    return axes


def bars_height(n_rows: int, n_bands: int = 0) -> float:
    """Return the height in inches for this many bars and a legend of this many
    bands.
    """
    legend_height = 0.3 + _LEGEND_LINE_INCHES * -(
        -n_bands // legend_column_count(n_bands)
    )
    return max(min(16.0, max(1.6, 1.0 + 0.24 * n_rows)), legend_height)


def legend_column_count(n_bands: int) -> int:
    """Return the number of legend columns for this many bands."""
    return min(_MAX_LEGEND_COLUMNS, max(1, -(-n_bands // _MAX_LEGEND_LINES)))


def band_labels(names: Sequence[str], edges: NDArray[Any]) -> list[str]:
    """Return a label with the frequency range for each band, such as "alpha 8–13
    Hz".
    """
    pairs = zip(names, edges, strict=True)
    return [f"{name} {low:g}–{high:g} Hz" for name, (low, high) in pairs]


def draw_stacked_bars(
    axis: Any, names: Sequence[str], shares: NDArray[Any], labels: Sequence[str]
) -> None:
    """Draw stacked bars of shares (C, K), with percentages where they fit; names are
    used as given.
    """
    shares = np.nan_to_num(np.asarray(shares, np.float64))
    # What lies between bands that do not touch, or overlap, makes no whole.
    shares = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)
    rows = np.arange(len(shares))
    left = np.zeros(len(shares))
    for k, (label, colour) in enumerate(
        zip(labels, distinct_colours(len(labels)), strict=True)
    ):
        widths = shares[:, k]
        axis.barh(
            *(rows, widths),
            left=left,
            height=0.8,
            color=colour,
            label=label,
            edgecolor=background_colour(axis),
            linewidth=0.8,
        )
        for row in np.flatnonzero(widths >= _MIN_LABELLED_SHARE):
            axis.text(
                *(left[row] + widths[row] / 2, row, f"{widths[row]:.0%}"),
                ha="center",
                va="center_baseline",
                fontsize=7,
                color=_contrasting_text_colour(colour),
            )
        left += widths
    label_rows(axis, names, 1, 8)
    axis.set_ylim(len(shares) - 0.4, -0.6)
    axis.set_xlim(0, 1)
    axis.spines["left"].set_visible(False)
    axis.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axis.set_xlabel(SHARE_AXIS_LABEL)
    axis.legend(
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        borderaxespad=0.2,
        ncols=legend_column_count(len(labels)),
        columnspacing=1.0,
    )


def _contrasting_text_colour(colour: str) -> str:
    """Return "white" or "black", whichever has the higher contrast on a colour."""
    channels = (
        np.array([int(colour[start : start + 2], 16) for start in (1, 3, 5)]) / 255
    )
    # As sRGB is defined: its numbers are no amounts of light.
    linear = np.where(
        channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
    )
    luminance = float(linear @ (0.2126, 0.7152, 0.0722))
    return (
        "white" if 1.05 / (luminance + 0.05) >= (luminance + 0.05) / 0.05 else "black"
    )
