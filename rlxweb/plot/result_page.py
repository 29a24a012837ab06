"""Interactive HTML page of a result."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from rlxweb.core.argument_validation import coerce_bool
from rlxweb.core.atomic_file import atomic_path
from rlxweb.core.errors import UsageError, shown
from rlxweb.plot.html_page import (
    PanelData,
    render_page,
    shorten_name,
    spectra_panel,
    surface_panel,
)
from rlxweb.plot.html_page_bands import bands_panel
from rlxweb.plot.spectrum_plot_data import MAX_SPAN_DB, SpectrumRows
from rlxweb.plot.spectrum_plots import decibel_label, peak_spectrum_rows, spectrum_rows
from rlxweb.plot.time_frequency_plot import colour_limits, decibel_levels
from rlxweb.results.power_units import power_unit
from rlxweb.signal.band_power import BandPower
from rlxweb.signal.spectrum_result import Spectrum
from rlxweb.signal.time_frequency_result import TimeFrequency
from rlxweb.signal.welch_peaks_result import WelchPeaks

CONTEXT: Final = "rlxweb.plot.html"
_MAX_SURFACES: Final = 16


def html(
    result: Any,
    path: str | os.PathLike[str],
    *,
    title: str = "",
    log: bool = False,
    dark: bool = False,
) -> None:
    """Write an interactive page of a result as one HTML file that loads nothing else.

    It is zoomed and moved by wheel, drag, pinch and keys; rows are switched on and off,
    and what lies under the pointer is told. matplotlib is not needed.

    result   Spectrum, WelchPeaks that kept its spectrum, TimeFrequency (its first 16
             rows) or BandPower
    title    above the picture
    log      its axis of frequencies begins logarithmic; the page has a switch
    dark     it is dark whatever the reader's system is
    Errors   UsageError for another result; RecordingError where it cannot be written
    """
    kind = next((kind for kind in _PANEL_BUILDERS if isinstance(result, kind)), None)
    if kind is None:
        known_names = ", ".join(known_kind.__name__ for known_kind in _PANEL_BUILDERS)
        raise UsageError(
            CONTEXT, f"got {shown(result)}", f"expected one of {known_names}"
        )
    panel = _PANEL_BUILDERS[kind](result)
    log, dark = coerce_bool("log", log, CONTEXT), coerce_bool("dark", dark, CONTEXT)
    text = render_page(str(title) or kind.__name__, "", [panel], log, dark)
    with atomic_path(path) as temporary:
        temporary.write_text(text, "utf-8")


def _short_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names short enough for a page; rows without a name are numbered."""
    return tuple(
        shorten_name(name or f"row {index}") for index, name in enumerate(names)
    )


def _rows_panel(rows: SpectrumRows) -> PanelData:
    """Return the page panel of spectrum rows."""
    return spectra_panel(replace(rows, names=_short_names(rows.names)), "", None)


def _spectrum_panel(result: Spectrum) -> PanelData:
    """Return the page panel of a spectrum."""
    return _rows_panel(spectrum_rows(result, CONTEXT))


def _peaks_panel(result: WelchPeaks) -> PanelData:
    """Return the page panel of a spectrum with its peaks; raise UsageError if the
    spectrum was not kept.
    """
    if result.spectrum is None:
        raise UsageError(
            CONTEXT,
            "the peaks were computed without their spectrum",
            hint="call welch_peaks(…, spectrum=True)",
        )
    return _rows_panel(peak_spectrum_rows(result, CONTEXT))


def _time_frequency_panel(result: TimeFrequency) -> PanelData:
    """Return the page panel of power or phase over time and frequency."""
    names, values = result.by_rows()
    is_angle = result.quantity in ("phase", "angle")
    if is_angle:
        levels = [
            np.asarray(row_values, np.float64) for row_values in values[:_MAX_SURFACES]
        ]
        limits, label = (-np.pi, np.pi), "phase (rad)"
    else:
        levels = [
            decibel_levels(row_values, result.quantity)
            for row_values in values[:_MAX_SURFACES]
        ]
        limits = colour_limits(np.array(levels), MAX_SPAN_DB)
        label = decibel_label(result.unit)
    omission_note = (
        f"{_MAX_SURFACES} of {len(names)} rows shown"
        if len(names) > _MAX_SURFACES
        else ""
    )
    f, t = np.asarray(result.f, np.float64), np.asarray(result.t, np.float64)
    shown_names = _short_names(names[:_MAX_SURFACES])
    scale = "cycle" if is_angle else "values"
    return surface_panel(
        shown_names, f, t, levels, limits, label, omission_note, scale=scale
    )


def _bands_panel(result: BandPower) -> PanelData:
    """Return the page panel of the power in bands."""
    batch = result.total.shape
    names = _short_names(result.labels.fitted(batch).rows(batch))
    unit = power_unit(result.labels.unit, "spectrum")
    return bands_panel(result, names, [unit] * len(names), "")


_PANEL_BUILDERS: Final[dict[type, Callable[[Any], PanelData]]] = {
    Spectrum: _spectrum_panel,
    WelchPeaks: _peaks_panel,
    TimeFrequency: _time_frequency_panel,
    BandPower: _bands_panel,
}
