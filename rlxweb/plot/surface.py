"""Power over time and frequency as colours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.arguments import switch
from rlxweb.errors import UsageError
from rlxweb.plot.frequencies import log_ticks, row_of, said_axis
from rlxweb.plot.lines import decibel_label
from rlxweb.plot.naming import name_panel
from rlxweb.plot.rows import Floats, quantity_levels
from rlxweb.plot.theme import MAP, axes_of, hairline, in_our_look

if TYPE_CHECKING:
    from rlxweb.signal.time_frequency import TimeFrequency


@in_our_look
def spectrogram(
    result: TimeFrequency,
    ax: Any = None,
    *,
    row: int = 0,
    log: bool = False,
    span_db: float = 60.0,
) -> Any:
    """One row's power over time and frequency, in decibels; phases as they are.

    row      of the batch, flattened
    log      the frequency axis is logarithmic
    span_db  from the strongest level down to the end of the scale, at most
    → the axes
    Errors   UsageError for a row there is not; Unsupported without matplotlib
    """
    doing = "rlxweb.plot.spectrogram"
    names, rows = result.by_rows()
    at = row_of(row, len(rows), doing)
    own = axes_of(ax, doing)
    is_angle = result.quantity in ("phase", "angle")
    level = rows[at] if is_angle else levels_of(rows[at], result.quantity)
    low, high = (-np.pi, np.pi) if is_angle else span_of(level, span_db)
    cmap = "twilight" if is_angle else MAP
    log = switch("log", log, doing)
    f, t = np.asarray(result.f, np.float64), np.asarray(result.t, np.float64)
    image = surface(own, t, f, level, (low, high), log, cmap)
    own.set_xlabel("time (s)")
    own.set_ylabel(said_axis(log))
    name_panel(own, names[at])
    bar = own.figure.colorbar(image, ax=own, pad=0.01)
    bar.set_label("phase (rad)" if is_angle else decibel_label(result.unit))
    bar.outline.set_visible(False)
    return own


def levels_of(values: NDArray[Any], quantity: str = "density") -> Floats:
    """Decibels of a power, or of what becomes one when it is squared."""
    wide = np.abs(values).astype(np.float64)
    return quantity_levels(wide**2 if quantity in ("complex", "magnitude") else wide)


def span_of(level: Floats, most: float) -> tuple[float, float]:
    """Decibels from the faint to the strong, `most` of them at most."""
    known = level[np.isfinite(level)]
    if not known.size:
        return 0.0, 1.0
    low, high = np.percentile(known, [2.0, 99.8])
    low = max(float(low), float(high) - most)
    return low, float(max(high, low + 1e-3))


def surface(
    axis: Any,
    t: Floats,
    f: Floats,
    level: Floats,
    limits: tuple[float, float],
    log: bool,
    cmap: str = MAP,
    steps: tuple[float, float] = (1.0, 1.0),
) -> Any:
    """Levels (F, S) as colours; grey where there is none.

    t, f    middles of the cells; where there is one of either, `steps` is its width
    Errors  UsageError where 0 Hz alone is to be drawn on a logarithmic axis
    """
    if log and f[0] <= 0:
        f, level = f[1:], level[1:]
    if not len(f):
        raise UsageError("a logarithmic axis", "0 Hz alone is shown", "it has no place")
    low, high = limits
    moments, edges = edges_of(t, steps[0]), edges_of(f, steps[1])
    image = axis.pcolormesh(
        moments,
        edges,
        np.where(np.isneginf(level), low, level),
        vmin=low,
        vmax=high,
        cmap=cmap,
        rasterized=True,
    )
    axis.set_facecolor(hairline(axis))
    axis.set_xlim(moments[0], moments[-1])
    if log:
        axis.set_yscale("log")
        log_ticks(axis.yaxis, float(f[0]), float(f[-1]))
        axis.set_ylim(max(edges[0], f[0] * 0.75), edges[-1])
    else:
        axis.set_ylim(edges[0], edges[-1])
    return image


def edges_of(middles: Floats, step: float) -> Floats:
    """Edges between middles; where there is one, half a step to either side."""
    if len(middles) < 2:
        return np.array([middles[0] - step / 2, middles[0] + step / 2])
    inner = (middles[1:] + middles[:-1]) / 2
    ends = 2 * middles[0] - inner[0], 2 * middles[-1] - inner[-1]
    return np.concatenate([[ends[0]], inner, [ends[1]]])
