"""Spectra as lines: of rows, with their peaks, with what lies under them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.arguments import check_options, number, one_of, switch
from rlxweb.callers import outside
from rlxweb.errors import PictureWarning, UsageError
from rlxweb.plot.curves import offset as offset_lines
from rlxweb.plot.curves import overlaid, panels
from rlxweb.plot.frequencies import frequency_axis, row_of
from rlxweb.plot.heat import heatmap, height_of
from rlxweb.plot.naming import lettered
from rlxweb.plot.rows import LINES, WAYS, Rows, quantity_levels, way_of
from rlxweb.plot.theme import axes_of, figure_of, in_our_look
from rlxweb.results.units import beside, decibels, power_unit
from rlxweb.signal.result import quantity_of

if TYPE_CHECKING:
    from rlxweb.signal.aperiodic_fit import AperiodicFit
    from rlxweb.signal.result import WelchPeaks
    from rlxweb.signal.spectrum import Spectrum


@in_our_look
def spectrum(
    result: Spectrum,
    ax: Any = None,
    *,
    log: bool = False,
    lines: str | None = None,
    offset: float | None = None,
    fmin: float | None = None,
    fmax: float | None = None,
) -> Any:
    """A line for each row, power in decibels; from 11 rows on a heatmap.

    log      the frequency axis is logarithmic
    lines    "overlaid": all on one scale; "offset": each above the next, none covering
             another; "panels": each in its own, on one scale; "heatmap". None: offset
             where that is given, else overlaid. More than ten are always a heatmap
    offset   dB by which every row stands above the next
    fmin, fmax  the part of the axis that is shown, in Hz
    → the axes; an array of them of panels
    Errors   Unsupported without matplotlib; UsageError for a result that holds nothing,
             and for panels in axes that are given
    """
    doing = "rlxweb.plot.spectrum"
    rows = rows_of(result, doing)
    return _drawn(rows, ax, doing, log, lines, offset, fmin, fmax)


def rows_of(result: Spectrum, doing: str) -> Rows:
    """What is drawn of a spectrum. Errors  UsageError for one that holds nothing."""
    names, values = result.by_rows()
    if not values.size:
        raise UsageError(doing, "the spectrum holds nothing", "give samples")
    plain = result.quantity == "coherence"
    values = np.abs(values)
    level = values.astype(np.float64) if plain else quantity_levels(values)
    label = beside(result.quantity, "") if plain else decibel_label(result.unit)
    order = np.argsort(result.f)
    f = np.asarray(result.f[order], np.float64)
    step = float(f[1] - f[0]) if len(f) > 1 else max(float(f[0]), 1.0)
    states = tuple("" if np.isfinite(row).any() else "no level" for row in level)
    skip = 1 if len(f) > 8 and f[0] == 0 and not plain else 0
    return Rows(names, f, level[:, order], label, step, states=states, skip=skip)


def _drawn(
    rows: Rows,
    ax: Any,
    doing: str,
    log: bool = False,
    lines: str | None = None,
    offset: float | None = None,
    fmin: float | None = None,
    fmax: float | None = None,
) -> Any:
    log = switch("log", log, doing)
    rows = rows.within(fmin, fmax, log, doing)
    apart = None if offset is None else number("offset", offset, doing)
    if lines is None:
        lines = "overlaid" if offset is None else "offset"
    way = way_of(len(rows), one_of("lines", lines, WAYS, doing))
    if way == "panels":
        return _panels(rows, ax, doing, log)
    tall = height_of(len(rows)) if way == "heatmap" else 3.6
    tall = 1.4 + 0.6 * len(rows) if way == "offset" else tall
    own = axes_of(ax, doing, tall=max(3.6, tall))
    with lettered(rows.names) as names:
        shown = replace(rows, names=names)
        if way == "heatmap":
            heatmap(own, shown, log, 1 if rows.marks else 0)
            return own
        if way == "offset":
            later = offset_lines(own, shown, log, apart)
        else:
            later = overlaid(own, shown, log)
        _settled(own, rows)
        later()
    return own


def _panels(rows: Rows, ax: Any, doing: str, log: bool) -> Any:
    if ax is not None:
        raise UsageError(
            doing,
            "axes are given, and each panel has its own",
            hint="leave ax out, or take lines='offset'",
        )
    across = 1 if len(rows) < 4 else 2
    down = -(-len(rows) // across)
    figure = figure_of(doing, wide=8.0, tall=0.8 + 1.25 * down)
    axes = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    flat = axes.reshape(-1)
    for unused in flat[len(rows) :]:
        unused.set_visible(False)
    with lettered(rows.names) as names:
        later = panels(flat[: len(rows)], replace(rows, names=names), log, across)
        _settled(flat[0], rows)
        later()
    return flat[: len(rows)]


def _settled(axis: Any, rows: Rows) -> None:
    """Let the axes have their size, if words depend on it."""
    if rows.marks:
        axis.get_figure(root=True).draw_without_rendering()


@in_our_look
def peaks(result: WelchPeaks, ax: Any = None, **options: Any) -> Any:
    """The peaks of each row: on its spectrum where that was kept, as stems else.

    options  those of `spectrum`; of stems `log` alone
    → the axes
    Errors   Unsupported without matplotlib
    """
    doing = "rlxweb.plot.peaks"
    of_spectra = list(signature(spectrum).parameters)[2:]
    known = ["log"] if result.spectrum is None else of_spectra
    check_options("peaks", options, known)
    if result.spectrum is None:
        return _stems(result, ax, doing, **options)
    return _drawn(marked_rows(result, doing), ax, doing, **options)


def marked_rows(result: WelchPeaks, doing: str) -> Rows:
    """The spectrum that was kept, with its peaks."""
    assert result.spectrum is not None
    hz, level = _hz_and_level(result)
    count = result.count.reshape(-1)
    marks = tuple((h[:n], p[:n]) for h, p, n in zip(hz, level, count, strict=True))
    noun = "peak" if result.mode == "peaks" else "bin"
    return replace(rows_of(result.spectrum, doing), marks=marks, noun=noun)


def _hz_and_level(result: WelchPeaks) -> tuple[Any, Any]:
    """(B, k) of each."""
    hz = result.hz.reshape(-1, result.k)
    return hz, decibels(result.power).reshape(hz.shape)


def _stems(result: WelchPeaks, ax: Any, doing: str, log: bool = False) -> Any:
    hz, level = _hz_and_level(result)
    batch = result.count.shape
    names = result.labels.fitted(batch).rows(batch)
    own = axes_of(ax, doing)
    known = level[np.isfinite(level)]
    floor = float(known.min()) - 3.0 if known.size else 0.0
    log = switch("log", log, doing)
    first = result.fs / result.spec.nfft if log else 0.0
    frequency_axis(own, np.array([first, result.fs / 2]), log)
    if len(names) > LINES:
        said = f"{doing}: {len(names) - LINES} of {len(names)} rows are left out"
        why = "keep the spectrum (spectrum=True) and they are a heatmap"
        warnings.warn(PictureWarning(said, why), stacklevel=outside())
    with lettered(names[:LINES]) as shown:
        for at, name in enumerate(shown):
            (line,) = own.plot(hz[at], level[at], "o", ms=4.6, label=name)
            own.vlines(hz[at], floor, level[at], color=line.get_color(), lw=1.2)
        unit = power_unit(result.labels.unit, quantity_of(result.spec, result.fs))
        own.set_ylabel(decibel_label(unit))
        own.grid(visible=True)
        if any(names):
            own.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return own


@in_our_look
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
                fontsize=7.5,
            )
    own.margins(y=0.15)
    own.set_ylabel("power (dB)")
    own.grid(visible=True)
    own.legend()
    return own


def decibel_label(unit: str) -> str:
    """Such as "power (dB re 1 µV²/Hz)"."""
    one = "" if unit.startswith("1") else "1 "
    return f"power (dB re {one}{unit})" if unit else "power (dB)"
