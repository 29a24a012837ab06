"""Spectra as lines: of rows, with their peaks, with what lies under them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rlxweb.arguments import number, switch
from rlxweb.errors import UsageError
from rlxweb.plot.frequencies import frequency_axis, row_of
from rlxweb.plot.naming import name_lines, name_rows
from rlxweb.plot.theme import MAP, axes_of
from rlxweb.results.units import beside, decibels, power_unit
from rlxweb.signal.result import quantity_of

if TYPE_CHECKING:
    from rlxweb.signal.aperiodic_fit import AperiodicFit
    from rlxweb.signal.result import WelchPeaks
    from rlxweb.signal.spectrum import Spectrum

LINES: Final = 16
"""Rows that are told apart as lines; more are drawn as a heatmap."""


def spectrum(
    result: Spectrum,
    ax: Any = None,
    *,
    log: bool = False,
    offset: float | None = None,
    fmin: float | None = None,
    fmax: float | None = None,
) -> Any:
    """A line for each row, power in decibels; from 17 rows on a heatmap.

    log      the frequency axis is logarithmic
    offset   dB by which every row stands above the next, so that none covers another;
             None: all on one scale
    fmin, fmax  the part of the axis that is shown, in Hz
    → the axes
    Errors   Unsupported without matplotlib; UsageError for a result that holds nothing
    """
    doing = "rlxweb.plot.spectrum"
    names, values = result.by_rows()
    if not values.size:
        raise UsageError(doing, "the spectrum holds nothing", "give samples")
    tall = 3.6 if len(names) <= LINES else min(12.0, 2.0 + 0.16 * len(names))
    own = axes_of(ax, doing, tall=tall)
    plain = result.quantity == "coherence"
    level = np.abs(values) if plain else decibels(np.abs(values))
    label = beside(result.quantity, "") if plain else _decibel_label(result.unit)
    order = np.argsort(result.f)
    f, level = result.f[order], level[:, order]
    shown = frequency_axis(own, f, switch("log", log, doing), fmin, fmax)
    if len(names) > LINES:
        _heatmap(own, names, f[shown], level[:, shown], label)
        return own
    apart = 0.0 if offset is None else number("offset", offset, doing)
    for at, name in enumerate(names):
        shift = apart * (len(names) - 1 - at)
        own.plot(f[shown], level[at, shown] + shift, lw=1.2, label=name)
    own.set_ylabel(f"{label}, {apart:g} dB apart" if apart else label)
    own.grid(alpha=0.5)
    name_lines(own, names)
    return own


def peaks(result: WelchPeaks, ax: Any = None, **options: Any) -> Any:
    """The peaks of each row: on its spectrum where that was kept, as stems else.

    options  of `spectrum`: log, offset, fmin, fmax
    → the axes
    """
    doing = "rlxweb.plot.peaks"
    hz = result.hz.reshape(-1, result.k)
    level = decibels(result.power).reshape(hz.shape)
    batch = result.count.shape
    names = result.labels.fitted(batch).rows(batch)
    if result.spectrum is not None:
        own = spectrum(result.spectrum, ax, **options)
        lines = own.get_lines()[-len(names) :] if len(names) <= LINES else []
        apart = float(options.get("offset") or 0.0)
        low, high = own.get_xlim()
        for at, line in enumerate(lines):
            seen = (hz[at] >= low) & (hz[at] <= high)
            up = level[at][seen] + apart * (len(lines) - 1 - at)
            own.plot(hz[at][seen], up, "o", ms=4, color=line.get_color())
        if not lines:
            own.plot(hz[:, 0], np.arange(len(names)), "o", ms=3, color="#ff2d55")
        return own
    own = axes_of(ax, doing)
    known = level[np.isfinite(level)]
    floor = float(known.min()) - 3.0 if known.size else 0.0
    frequency_axis(own, np.array([0.0, result.fs / 2]), options.get("log", False))
    for at, name in enumerate(names[:LINES]):
        (line,) = own.plot(hz[at], level[at], "o", ms=4, label=name, linestyle="none")
        own.vlines(hz[at], floor, level[at], color=line.get_color(), lw=1.2)
    unit = power_unit(result.labels.unit, quantity_of(result.spec, result.fs))
    own.set_ylabel(_decibel_label(unit))
    own.grid(alpha=0.5)
    name_lines(own, names[:LINES])
    return own


def aperiodic(
    fit: AperiodicFit, ax: Any = None, *, row: int = 0, log: bool = True
) -> Any:
    """One row's model: the 1/f part, what stands above it, its peaks.

    row      of the batch, flattened
    → the axes
    Errors   UsageError for a row there is not
    """
    doing = "rlxweb.plot.aperiodic"
    rows = fit.offset.size
    at = row_of(row, rows, doing)
    own = axes_of(ax, doing)
    frequency_axis(own, fit.f, log)
    line, model = (
        decibels(one.reshape(rows, -1)[at]) for one in (fit.aperiodic, fit.fitted)
    )
    own.plot(fit.f, model, lw=1.6, label="fitted")
    exponent = float(fit.exponent.reshape(-1)[at])
    own.plot(fit.f, line, "--", lw=1.4, label=f"1/f, exponent {exponent:.2f}")
    own.fill_between(fit.f, line, model, alpha=0.25, lw=0)
    for hz in fit.peak_hz.reshape(rows, -1)[at]:
        if np.isfinite(hz):
            height = float(np.interp(hz, fit.f, model))
            own.annotate(
                f"{hz:.1f} Hz",
                (hz, height),
                textcoords="offset points",
                xytext=(0, 5),
                ha="center",
                fontsize=8,
            )
    own.margins(y=0.15)
    own.set_ylabel("power (dB)")
    own.grid(alpha=0.5)
    own.legend(fontsize=8)
    return own


def _heatmap(own: Any, names: Any, f: Any, level: Any, label: str) -> None:
    low, high = np.nanpercentile(level, [1, 99.7])
    image = own.pcolormesh(
        f,
        np.arange(len(names)),
        level,
        vmin=low,
        vmax=max(high, low + 1e-9),
        cmap=MAP,
        shading="nearest",
        rasterized=True,
    )
    every = -(-len(names) // 64)
    name_rows(own, names, every, 7)
    own.invert_yaxis()
    own.figure.colorbar(image, ax=own, pad=0.01).set_label(label)


def _decibel_label(unit: str) -> str:
    return f"power (dB re 1 {unit})" if unit else "power (dB)"
