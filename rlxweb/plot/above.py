"""The 1/f part of each row: how steep it is, and what rises above it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.plot.theme import ground, hairline, quiet_ink
from rlxweb.results.svg import colours_of

_LARGEST: Final = 180.0
"""Square points of the dot of the highest peak, if that is ten times the 1/f part."""
_LEAST: Final = 8.0


def peaks_above(
    axis: Any,
    hz: NDArray[np.float64],
    height: NDArray[np.float64],
    edges: NDArray[np.float64],
    span: tuple[float, float],
) -> None:
    """A dot for each peak of each row, as large as it is high.

    Shapes   hz, height (C, P): log10 above the 1/f part, NaN where a row has fewer;
             edges (K, 2) of bands, whose colours the dots have
    span     that was fitted, in Hz
    """
    _rows(axis, len(hz))
    at = np.broadcast_to(np.arange(len(hz))[:, None], hz.shape)
    colours = np.full(hz.shape, None, dtype=object)
    colours[...] = [quiet_ink(axis)]
    of_bands = colours_of(len(edges))
    for k in reversed(range(len(edges))):
        low, high = edges[k]
        colours[(hz >= low) & (hz < high)] = of_bands[k]
    known = np.isfinite(hz) & np.isfinite(height)
    highest = max(1.0, height[known].max(initial=1.0))
    axis.scatter(
        hz[known],
        at[known],
        s=np.maximum(_LARGEST * height[known] / highest, _LEAST),
        c=list(colours[known]),
        edgecolors=ground(axis),
        linewidths=0.8,
        zorder=3,
    )
    axis.set_xlim(*span)
    axis.locator_params(axis="x", nbins=5)
    axis.set_xlabel("peaks above 1/f (Hz), larger is higher")


def exponents(axis: Any, values: NDArray[np.float64]) -> None:
    """How steeply the 1/f part of each row (C,) falls, with its number."""
    _rows(axis, len(values))
    known = np.flatnonzero(np.isfinite(values))
    axis.plot(values[known], known, "o", ms=5, color=quiet_ink(axis), zorder=3)
    for at in known:
        axis.annotate(
            f"{values[at]:.2f}",
            (values[at], at),
            xytext=(6, 0),
            textcoords="offset points",
            va="center_baseline",
            fontsize=7,
            bbox={"facecolor": ground(axis), "edgecolor": "none", "pad": 0.8},
        )
    low, high = (values[known].min(), values[known].max()) if known.size else (0, 1)
    room = max(0.5, high - low)
    axis.set_xlim(min(0.0, low) - 0.05 * room, high + 0.35 * room)
    axis.set_xlabel("1/f exponent")


def _rows(axis: Any, count: int) -> None:
    """As the bars beside have them, without their names."""
    for at in range(count):
        axis.axhline(at, color=hairline(axis), lw=0.6)
    axis.set_ylim(count - 0.4, -0.6)
    axis.set_yticks([])
    axis.spines["left"].set_visible(False)
