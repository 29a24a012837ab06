"""Power over time and frequency as colours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.arguments import switch
from rlxweb.plot.frequencies import log_ticks, row_of
from rlxweb.plot.naming import name_panel
from rlxweb.plot.theme import MAP, axes_of
from rlxweb.results.units import decibels

if TYPE_CHECKING:
    from rlxweb.signal.time_frequency import TimeFrequency


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
    values = rows[at] if is_angle else decibels(_power(rows[at], result.quantity))
    f, cmap = result.f, "twilight" if is_angle else MAP
    first = 1 if switch("log", log, doing) and f[0] == 0 else 0
    f, values = f[first:], values[first:]
    known = values[np.isfinite(values)]
    low, high = np.percentile(known, [2.0, 99.8]) if known.size else (0.0, 1.0)
    low = low if is_angle else max(low, high - span_db)
    image = own.pcolormesh(
        result.t,
        f,
        values,
        vmin=low,
        vmax=max(high, low + 1e-9),
        cmap=cmap,
        shading="nearest",
        rasterized=True,
    )
    if log:
        own.set_yscale("log")
        log_ticks(own.yaxis, float(f[0]), float(f[-1]))
    own.set_xlabel("time (s)")
    own.set_ylabel("frequency (Hz)")
    name_panel(own, names[at])
    unit = result.unit
    said = "phase (rad)" if is_angle else f"power (dB re 1 {unit})" if unit else ""
    own.figure.colorbar(image, ax=own, pad=0.01).set_label(said or "power (dB)")
    return own


def _power(values: Any, quantity: str) -> Any:
    wide = np.abs(values).astype(np.float64)
    return wide**2 if quantity in ("complex", "magnitude") else wide
