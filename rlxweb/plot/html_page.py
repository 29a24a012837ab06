"""Interactive plots as one self-contained HTML file.

Owns what of a picture goes into the page; what the page does with it stands in
page_parts/. No drawing library is needed.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.message_text import abbreviate, printable
from rlxweb.export.single_file_page import inline_page
from rlxweb.export.site_file_reader import read_site_file
from rlxweb.plot.spectrum_plot_data import (
    Floats,
    SpectrumRows,
    level_axis_limits,
    level_range,
)
from rlxweb.plot.time_frequency_plot import cell_edges
from rlxweb.results.power_units import frequency_decimals
from rlxweb.results.svg_time_frequency import VIRIDIS

STYLES: Final = ("demo/shared.css", "page.css")
SCRIPTS: Final = (
    "demo/make.js",
    "demo/theme-button.js",
    "demo/live/axis.js",
    "unpack.js",
    "colours.js",
    "zoom.js",
    "tip.js",
    "tools.js",
    "trace.js",
    "writing.js",
    "spectra.js",
    "surface.js",
    "heads.js",
    "bands.js",
    "page.js",
)
"""Page scripts, each after those that it imports from."""
DIVERGING_COLOURS: Final = ((33, 102, 172), (247, 247, 247), (178, 24, 43))
"""Stops of the diverging colour map for values above and below zero."""
CYCLIC_COLOURS: Final = (
    (226, 217, 226),
    (179, 198, 206),
    (123, 161, 194),
    (98, 118, 186),
    (94, 67, 165),
    (78, 24, 111),
    (47, 20, 54),
    (88, 22, 71),
    (142, 44, 80),
    (178, 86, 82),
    (198, 138, 109),
    (212, 188, 172),
    (226, 217, 226),
)
"""Thirteen stops of the cyclic colour map Twilight for angles; both ends are equal."""
MAX_CELLS: Final = 1 << 21
"""Maximum number of coloured cells in a page; with more, neighbouring columns are
merged.
"""
MAX_NAME_LENGTH: Final = 80
_SIDE: Final = 48
PanelData = dict[str, Any]


def render_page(
    title: str, facts: str, panels: Sequence[PanelData], log: bool, dark: bool = False
) -> str:
    """Return the page as HTML.

    title    above it, and the tab's
    facts    a line below the title
    log      its axes of frequencies begin logarithmic
    dark     it is dark whatever the reader's system is, until its button is used
    """
    document = {
        "facts": printable(facts),
        "log": log,
        "panels": list(panels),
        "colours": {
            "values": VIRIDIS.astype(int).tolist(),
            "around": DIVERGING_COLOURS,
            "cycle": CYCLIC_COLOURS,
        },
    }
    title_html = escape(abbreviate(title, MAX_NAME_LENGTH))
    template = _read_page_part("page.html")
    theme = ' data-theme="dark"' if dark else ""
    placeholders = {"title": title_html, "theme": theme}
    return inline_page(
        template, STYLES, SCRIPTS, document, _read_page_part, **placeholders
    )


def shorten_name(name: str) -> str:
    """Return a name shortened for display in a page."""
    return abbreviate(name, MAX_NAME_LENGTH)


def spectra_panel(rows: SpectrumRows, facts: str, layout: str | None) -> PanelData:
    """Return the panel of rows with evenly spaced frequencies as lines or a heatmap."""
    level = np.where(np.isneginf(rows.level), -np.inf, rows.level)
    # Of quantities from 0 to 1 the third digit is seen too.
    unit = 0.01 if rows.label.startswith("power") else 1e-4
    quantized = np.full(level.shape, _MISSING_LEVEL, np.int16)
    is_finite = np.isfinite(level)
    quantized[is_finite] = np.clip(np.round(level[is_finite] / unit), -32000, 32000)
    low, high = level_axis_limits(rows)
    return {
        "kind": "spectra",
        "facts": printable(facts),
        "label": rows.label,
        "first": float(rows.f[0]),
        "step": rows.step,
        "bins": len(rows.f),
        "digits": frequency_decimals(rows.step),
        "unit": unit,
        "limits": [round(low, 3), round(high, 3)],
        "colours": [
            round(end, 3) for end in level_range(rows.level, rows.n_offset_bins)
        ],
        "lines": layout,
        "noun": rows.mark_noun,
        "rows": [_row_data(rows, row) for row in range(len(rows))],
        "levels": encode_array(quantized),
    }


_MISSING_LEVEL: Final = -32768


def _row_data(rows: SpectrumRows, row: int) -> dict[str, Any]:
    """Return the name, state and peaks of a row as plain data."""
    hz, level = rows.visible_peaks(row)
    pairs = zip(hz.tolist(), level.tolist(), strict=True)
    peaks = [[round(h, 9), round(p, 3)] for h, p in pairs if np.isfinite(p)]
    return {"name": rows.names[row], "state": rows.missing_reason(row), "peaks": peaks}


def surface_panel(
    names: Sequence[str],
    f: Floats,
    t: Floats,
    levels: Sequence[Floats],
    limits: tuple[float, float],
    label: str,
    facts: str,
    *,
    scale: str = "values",
    since: str = "",
    steps: tuple[float, float] = (1.0, 1.0),
) -> PanelData:
    """Return the panel of levels (F, S) of each name as colours.

    scale  of colours: "values"; "around" zero; a "cycle" of angles
    since  what time counts from
    steps  width of a cell over time and frequency, where there is one alone
    """
    n_cells = max(1, sum(value.size for value in levels))
    merge_factor = -(-n_cells // MAX_CELLS)
    low, high = limits
    is_angle = scale == "cycle"
    cell_bytes = [
        _scale_to_bytes(_merge_columns(value, merge_factor, is_angle), low, high)
        for value in levels
    ]
    starts = np.arange(0, len(t), merge_factor)
    time_edges = cell_edges(t, steps[0])[np.append(starts, len(t))]
    return {
        "kind": "surface",
        "facts": printable(facts),
        "label": label,
        "limits": [round(low, 3), round(high, 3)],
        "scale": scale,
        "since": since,
        "merged": merge_factor,
        "f": [float(f"{value:.7g}") for value in cell_edges(f, steps[1])],
        "t": [round(float(value), 6) for value in time_edges],
        "rows": [{"name": name} for name in names],
        "cells": encode_array(np.array(cell_bytes, np.uint8)),
    }


def _merge_columns(level: Floats, merge_factor: int, is_angle: bool) -> Floats:
    """Merge groups of neighbouring columns into their maximum so that no event is lost;
    of angles keep the first column.
    """
    if merge_factor == 1 or is_angle:
        return level[:, ::merge_factor]
    starts = np.arange(0, level.shape[1], merge_factor)
    merged: Floats = np.fmax.reduceat(level, starts, axis=1)
    return merged


def _scale_to_bytes(level: Floats, low: float, high: float) -> NDArray[np.uint8]:
    """Scale levels from low to high to 1 … 255; 0 stands for a missing value."""
    share = np.clip((level - low) / max(high - low, 1e-300), 0.0, 1.0)
    share = np.where(np.isneginf(level), 0.0, share)
    scaled = np.where(
        np.isnan(share), 0.0, 1.0 + np.round(254.0 * np.nan_to_num(share))
    )
    return scaled.astype(np.uint8)


def encode_array(values: NDArray[Any]) -> str:
    """Encode an array as little-endian, deflated base64 text."""
    little = values.astype(values.dtype.newbyteorder("<"))
    return base64.b64encode(zlib.compress(little.tobytes(), 9)).decode()


def _read_page_part(name: str) -> str:
    """Read a text file of the page, from the site's sources or this package."""
    if name.startswith("demo/"):
        return read_site_file(name, "writing a plot as an HTML page").decode("utf-8")
    path = resources.files("rlxweb") / "plot" / "page_parts" / name
    return path.read_text(encoding="utf-8")
