"""Line plots of spectra, of their peaks, and of aperiodic fits."""

from __future__ import annotations

import warnings
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.core.argument_validation import (
    check_choice,
    check_option_names,
    coerce_bool,
    coerce_float,
)
from rlxweb.core.errors import PictureWarning, UsageError
from rlxweb.core.warning_stacklevel import caller_stacklevel
from rlxweb.plot.frequency_axis import check_row, set_frequency_axis
from rlxweb.plot.heatmap import draw_heatmap, heatmap_height
from rlxweb.plot.row_labels import fonts_for_names
from rlxweb.plot.spectrum_line_drawing import draw_offset as offset_lines
from rlxweb.plot.spectrum_line_drawing import draw_overlaid, draw_panels
from rlxweb.plot.spectrum_plot_data import (
    LINE_LAYOUTS,
    MAX_LINES,
    SpectrumRows,
    choose_line_layout,
    power_levels,
)
from rlxweb.plot.theme import get_or_make_axes, make_figure, with_rlxweb_style
from rlxweb.results.power_units import label_with_unit, power_to_decibels, power_unit
from rlxweb.signal.welch_peaks_result import power_quantity

if TYPE_CHECKING:
    from rlxweb.signal.aperiodic_result import AperiodicFit
    from rlxweb.signal.spectrum_result import Spectrum
    from rlxweb.signal.welch_peaks_result import WelchPeaks


@with_rlxweb_style
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
    """Draw a line for each row, power in decibels; from 11 rows on a heatmap.

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
    context = "rlxweb.plot.spectrum"
    rows = spectrum_rows(result, context)
    return _draw_rows(rows, ax, context, log, lines, offset, fmin, fmax)


def spectrum_rows(result: Spectrum, context: str) -> SpectrumRows:
    """Return the rows to draw of a spectrum; raise UsageError if it is empty."""
    names, values = result.by_rows()
    if not values.size:
        raise UsageError(
            context, "the spectrum is empty", "pass at least one channel and one sample"
        )
    is_coherence = result.quantity == "coherence"
    values = np.abs(values)
    level = values.astype(np.float64) if is_coherence else power_levels(values)
    label = (
        label_with_unit(result.quantity, "")
        if is_coherence
        else decibel_label(result.unit)
    )
    order = np.argsort(result.f)
    f = np.asarray(result.f[order], np.float64)
    step = float(f[1] - f[0]) if len(f) > 1 else max(float(f[0]), 1.0)
    states = tuple("" if np.isfinite(row).any() else "no finite level" for row in level)
    skip = 1 if len(f) > 8 and f[0] == 0 and not is_coherence else 0
    return SpectrumRows(
        names,
        f,
        level[:, order],
        label,
        step,
        missing_reasons=states,
        n_offset_bins=skip,
    )


def _draw_rows(
    rows: SpectrumRows,
    ax: Any,
    context: str,
    log: bool = False,
    lines: str | None = None,
    offset: float | None = None,
    fmin: float | None = None,
    fmax: float | None = None,
) -> Any:
    """Draw rows in the requested layout and return the axes."""
    log = coerce_bool("log", log, context)
    rows = rows.crop_frequencies(fmin, fmax, log, context)
    spacing_db = None if offset is None else coerce_float("offset", offset, context)
    if lines is None:
        lines = "overlaid" if offset is None else "offset"
    layout = choose_line_layout(
        len(rows), check_choice("lines", lines, LINE_LAYOUTS, context)
    )
    if layout == "panels":
        return _draw_panel_figure(rows, ax, context, log)
    height = heatmap_height(len(rows)) if layout == "heatmap" else 3.6
    height = 1.4 + 0.6 * len(rows) if layout == "offset" else height
    axes = get_or_make_axes(ax, context, height=max(3.6, height))
    with fonts_for_names(rows.names) as names:
        drawable_rows = replace(rows, names=names)
        if layout == "heatmap":
            draw_heatmap(axes, drawable_rows, log, 1 if rows.peak_marks else 0)
            return axes
        if layout == "offset":
            label_peaks = offset_lines(axes, drawable_rows, log, spacing_db)
        else:
            label_peaks = draw_overlaid(axes, drawable_rows, log)
        _fix_axes_size(axes, rows)
        label_peaks()
    return axes


def _draw_panel_figure(rows: SpectrumRows, ax: Any, context: str, log: bool) -> Any:
    """Draw the rows into a new figure of panels and return the panels' axes."""
    if ax is not None:
        raise UsageError(
            context,
            "ax was passed, but each panel needs its own axes",
            hint="omit ax, or use lines='offset'",
        )
    n_columns = 1 if len(rows) < 4 else 2
    n_rows = -(-len(rows) // n_columns)
    figure = make_figure(context, width=8.0, height=0.8 + 1.25 * n_rows)
    axes = figure.subplots(n_rows, n_columns, squeeze=False, sharex=True, sharey=True)
    flat = axes.reshape(-1)
    for unused in flat[len(rows) :]:
        unused.set_visible(False)
    with fonts_for_names(rows.names) as names:
        label_peaks = draw_panels(
            flat[: len(rows)], replace(rows, names=names), log, n_columns
        )
        _fix_axes_size(flat[0], rows)
        label_peaks()
    return flat[: len(rows)]


def _fix_axes_size(axis: Any, rows: SpectrumRows) -> None:
    """Lay out the figure so that the axes have their final size, if labels depend on
    it.
    """
    if rows.peak_marks:
        axis.get_figure(root=True).draw_without_rendering()


@with_rlxweb_style
def peaks(result: WelchPeaks, ax: Any = None, **options: Any) -> Any:
    """Draw the peaks of each row: on its spectrum if that was kept, otherwise as stems.

    options  those of `spectrum`; of stems `log` alone
    → the axes
    Errors   Unsupported without matplotlib
    """
    context = "rlxweb.plot.peaks"
    spectrum_options = list(signature(spectrum).parameters)[2:]
    known = ["log"] if result.spectrum is None else spectrum_options
    check_option_names("peaks", options, known)
    if result.spectrum is None:
        return _draw_stems(result, ax, context, **options)
    return _draw_rows(peak_spectrum_rows(result, context), ax, context, **options)


def peak_spectrum_rows(result: WelchPeaks, context: str) -> SpectrumRows:
    """Return the rows of the kept spectrum, marked with its peaks."""
    assert result.spectrum is not None
    hz, level = _peak_hz_and_level(result)
    count = result.count.reshape(-1)
    marks = tuple((h[:n], p[:n]) for h, p, n in zip(hz, level, count, strict=True))
    noun = "peak" if result.mode == "peaks" else "bin"
    return replace(
        spectrum_rows(result.spectrum, context), peak_marks=marks, mark_noun=noun
    )


def _peak_hz_and_level(result: WelchPeaks) -> tuple[Any, Any]:
    """Return frequencies in Hz and levels in dB of the peaks, each (B, k)."""
    hz = result.hz.reshape(-1, result.k)
    return hz, power_to_decibels(result.power).reshape(hz.shape)


def _draw_stems(result: WelchPeaks, ax: Any, context: str, log: bool = False) -> Any:
    """Draw the peaks of a result without a spectrum as stems."""
    hz, level = _peak_hz_and_level(result)
    batch = result.count.shape
    names = result.labels.fitted(batch).rows(batch)
    axes = get_or_make_axes(ax, context)
    finite_levels = level[np.isfinite(level)]
    floor = float(finite_levels.min()) - 3.0 if finite_levels.size else 0.0
    log = coerce_bool("log", log, context)
    low = result.fs / result.spec.nfft if log else 0.0
    set_frequency_axis(axes, np.array([low, result.fs / 2]), log)
    if len(names) > MAX_LINES:
        message = (
            f"{context}: {len(names) - MAX_LINES} of {len(names)} rows are not drawn"
        )
        hint = "compute the peaks with spectrum=True to draw all rows as a heatmap"
        warnings.warn(PictureWarning(message, hint), stacklevel=caller_stacklevel())
    with fonts_for_names(names[:MAX_LINES]) as drawn_names:
        for row, name in enumerate(drawn_names):
            (line,) = axes.plot(hz[row], level[row], "o", ms=4.6, label=name)
            axes.vlines(hz[row], floor, level[row], color=line.get_color(), lw=1.2)
        unit = power_unit(result.labels.unit, power_quantity(result.spec, result.fs))
        axes.set_ylabel(decibel_label(unit))
        axes.grid(visible=True)
        if any(names):
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return axes


@with_rlxweb_style
def aperiodic(
    fit: AperiodicFit, ax: Any = None, *, row: int = 0, log: bool = True
) -> Any:
    """Draw one row's model: the 1/f part, the fitted spectrum above it, and its peaks.

    row      of the batch, flattened
    → the axes
    Errors   UsageError for a row there is not
    """
    context = "rlxweb.plot.aperiodic"
    n_rows = fit.offset.size
    index = check_row(row, n_rows, context)
    axes = get_or_make_axes(ax, context)
    set_frequency_axis(axes, fit.f, log)
    aperiodic_level, fitted_level = (
        power_to_decibels(curve.reshape(n_rows, -1)[index])
        for curve in (fit.aperiodic, fit.fitted)
    )
    axes.plot(fit.f, fitted_level, lw=1.6, label="fitted")
    exponent = float(fit.exponent.reshape(-1)[index])
    axes.plot(
        fit.f, aperiodic_level, "--", lw=1.4, label=f"1/f, exponent {exponent:.2f}"
    )
    axes.fill_between(fit.f, aperiodic_level, fitted_level, alpha=0.25, lw=0)
    for hz in fit.peak_hz.reshape(n_rows, -1)[index]:
        if np.isfinite(hz):
            height = float(np.interp(hz, fit.f, fitted_level))
            axes.annotate(
                f"{hz:.1f} Hz",
                (hz, height),
                textcoords="offset points",
                xytext=(0, 5),
                ha="center",
                fontsize=7.5,
            )
    axes.margins(y=0.15)
    axes.set_ylabel("power (dB)")
    axes.grid(visible=True)
    axes.legend()
    return axes


def decibel_label(unit: str) -> str:
    """Return an axis label such as "power (dB re 1 µV²/Hz)"."""
    factor = "" if unit.startswith("1") else "1 "
    return f"power (dB re {factor}{unit})" if unit else "power (dB)"
