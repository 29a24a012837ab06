"""A result as a page one can look around in."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from rlxweb.arguments import switch
from rlxweb.errors import UsageError, shown
from rlxweb.plot.lines import decibel_label, marked_rows, rows_of
from rlxweb.plot.page import Panel, named, picture_page, spectra, surface
from rlxweb.plot.page_bands import bands
from rlxweb.plot.rows import SPAN_DB, Rows
from rlxweb.plot.surface import levels_of, span_of
from rlxweb.results.units import power_unit
from rlxweb.signal.bands import BandPower
from rlxweb.signal.result import WelchPeaks
from rlxweb.signal.spectrum import Spectrum
from rlxweb.signal.time_frequency import TimeFrequency
from rlxweb.whole_file import atomic_path

DOING: Final = "rlxweb.plot.html"
_SURFACES: Final = 16


def html(
    result: Any,
    path: str | os.PathLike[str],
    *,
    title: str = "",
    log: bool = False,
    dark: bool = False,
) -> None:
    """Write a page with the picture of a result: one file that loads nothing else.

    It is zoomed and moved by wheel, drag, pinch and keys; rows are switched on and off,
    and what lies under the pointer is told. matplotlib is not needed.

    result   Spectrum, WelchPeaks that kept its spectrum, TimeFrequency (its first 16
             rows) or BandPower
    title    above the picture
    log      its axis of frequencies begins logarithmic; the page has a switch
    dark     it is dark whatever the reader's system is
    Errors   UsageError for another result; RecordingError where it cannot be written
    """
    kind = next((kind for kind in _OF if isinstance(result, kind)), None)
    if kind is None:
        known = ", ".join(one.__name__ for one in _OF)
        raise UsageError(DOING, f"the result is {shown(result)}", f"known: {known}")
    panel = _OF[kind](result)
    log, dark = switch("log", log, DOING), switch("dark", dark, DOING)
    text = picture_page(str(title) or kind.__name__, "", [panel], log, dark)
    with atomic_path(path) as temporary:
        temporary.write_text(text, "utf-8")


def _names(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(named(name or f"row {at}") for at, name in enumerate(names))


def _of_rows(rows: Rows) -> Panel:
    return spectra(replace(rows, names=_names(rows.names)), "", None)


def _spectrum(result: Spectrum) -> Panel:
    return _of_rows(rows_of(result, DOING))


def _peaks(result: WelchPeaks) -> Panel:
    if result.spectrum is None:
        raise UsageError(
            DOING,
            "these peaks come without their spectrum",
            hint="welch_peaks(…, spectrum=True) keeps it",
        )
    return _of_rows(marked_rows(result, DOING))


def _time_frequency(result: TimeFrequency) -> Panel:
    names, values = result.by_rows()
    is_angle = result.quantity in ("phase", "angle")
    if is_angle:
        levels = [np.asarray(one, np.float64) for one in values[:_SURFACES]]
        limits, label = (-np.pi, np.pi), "phase (rad)"
    else:
        levels = [levels_of(one, result.quantity) for one in values[:_SURFACES]]
        limits = span_of(np.array(levels), SPAN_DB)
        label = decibel_label(result.unit)
    more = f"{_SURFACES} of {len(names)} rows" if len(names) > _SURFACES else ""
    f, t = np.asarray(result.f, np.float64), np.asarray(result.t, np.float64)
    shown_names = _names(names[:_SURFACES])
    scale = "cycle" if is_angle else "values"
    return surface(shown_names, f, t, levels, limits, label, more, scale=scale)


def _bands(result: BandPower) -> Panel:
    batch = result.total.shape
    names = _names(result.labels.fitted(batch).rows(batch))
    unit = power_unit(result.labels.unit, "spectrum")
    return bands(result, names, [unit] * len(names), "")


_OF: Final[dict[type, Callable[[Any], Panel]]] = {
    Spectrum: _spectrum,
    WelchPeaks: _peaks,
    TimeFrequency: _time_frequency,
    BandPower: _bands,
}
