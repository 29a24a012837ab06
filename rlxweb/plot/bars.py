"""What each row is made of, as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.plot.naming import name_rows
from rlxweb.plot.theme import axes_of
from rlxweb.results.svg import COLOURS

if TYPE_CHECKING:
    from rlxweb.signal.bands import BandPower

_WORTH_A_NUMBER = 0.08


def is_dark(colour: str) -> bool:
    """White letters are read on it better than black ones."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue < 140


def bands(result: BandPower, ax: Any = None) -> Any:
    """A bar for each row, cut into the shares of its bands.

    → the axes
    Errors   Unsupported without matplotlib
    """
    shares = result.relative.reshape(-1, len(result.names))
    batch = result.total.shape
    names = result.labels.fitted(batch).rows(batch)
    tall = max(1.6, 1.0 + 0.26 * len(names))
    own = axes_of(ax, "rlxweb.plot.bands", tall=min(tall, 16.0))
    left = np.zeros(len(names))
    rows = np.arange(len(names))
    for at, band in enumerate(result.names):
        colour = COLOURS[at % len(COLOURS)]
        share = np.nan_to_num(shares[:, at])
        own.barh(rows, share, left=left, height=0.8, color=colour, label=band)
        for row, part in enumerate(share):
            if part >= _WORTH_A_NUMBER:
                middle = left[row] + part / 2
                own.text(
                    middle,
                    row,
                    f"{part:.0%}",
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if is_dark(colour) else "black",
                )
        left += share
    name_rows(own, names, 1, 8)
    own.set_ylim(len(names) - 0.4, -0.6)
    own.set_xlim(0, 1)
    own.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    own.set_xlabel("share of the power in these bands")
    own.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return own
