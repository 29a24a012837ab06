"""Pictures one can look around in: one HTML file that needs nothing else.

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

from rlxweb.pages.inlined import one_file
from rlxweb.pages.parts import site_part
from rlxweb.plot.rows import Floats, Rows, level_range, limits_of
from rlxweb.plot.surface import edges_of
from rlxweb.printable import abridged, printable
from rlxweb.results.image import VIRIDIS
from rlxweb.results.units import decimals

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
"""Each after those that it imports from."""
AROUND: Final = ((33, 102, 172), (247, 247, 247), (178, 24, 43))
"""Of values above and below zero."""
CYCLE: Final = (
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
"""Twilight at thirteen places: of angles, the same at both ends."""
MOST_CELLS: Final = 1 << 21
"""Of colours in a page; more columns are averaged."""
MOST_NAME: Final = 80
_SIDE: Final = 48
Panel = dict[str, Any]


def picture_page(
    title: str, facts: str, panels: Sequence[Panel], log: bool, dark: bool = False
) -> str:
    """The page, as HTML.

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
            "around": AROUND,
            "cycle": CYCLE,
        },
    }
    shown = escape(abridged(title, MOST_NAME))
    frame = _part("page.html")
    theme = ' data-theme="dark"' if dark else ""
    words = {"title": shown, "theme": theme}
    return one_file(frame, STYLES, SCRIPTS, document, _part, **words)


def named(name: str) -> str:
    """A name as a page shows it."""
    return abridged(name, MOST_NAME)


def spectra(rows: Rows, facts: str, lines: str | None) -> Panel:
    """Lines, or a heatmap, of rows whose frequencies are evenly spaced."""
    level = np.where(np.isneginf(rows.level), -np.inf, rows.level)
    # Of quantities from 0 to 1 the third digit is seen too.
    unit = 0.01 if rows.label.startswith("power") else 1e-4
    stored = np.full(level.shape, _NONE, np.int16)
    fine = np.isfinite(level)
    stored[fine] = np.clip(np.round(level[fine] / unit), -32000, 32000)
    low, high = limits_of(rows)
    return {
        "kind": "spectra",
        "facts": printable(facts),
        "label": rows.label,
        "first": float(rows.f[0]),
        "step": rows.step,
        "bins": len(rows.f),
        "digits": decimals(rows.step),
        "unit": unit,
        "limits": [round(low, 3), round(high, 3)],
        "colours": [round(end, 3) for end in level_range(rows.level, rows.skip)],
        "lines": lines,
        "noun": rows.noun,
        "rows": [_row(rows, at) for at in range(len(rows))],
        "levels": packed(stored),
    }


_NONE: Final = -32768


def _row(rows: Rows, at: int) -> dict[str, Any]:
    hz, level = rows.peaks(at)
    pairs = zip(hz.tolist(), level.tolist(), strict=True)
    peaks = [[round(h, 9), round(p, 3)] for h, p in pairs if np.isfinite(p)]
    return {"name": rows.names[at], "state": rows.state(at), "peaks": peaks}


def surface(
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
) -> Panel:
    """Levels (F, S) of each name as colours.

    scale  of colours: "values"; "around" zero; a "cycle" of angles
    since  what time counts from
    steps  width of a cell over time and frequency, where there is one alone
    """
    cells = max(1, sum(one.size for one in levels))
    merged = -(-cells // MOST_CELLS)
    low, high = limits
    of_angles = scale == "cycle"
    stored = [_shares(_fewer(one, merged, of_angles), low, high) for one in levels]
    begins = np.arange(0, len(t), merged)
    moments = edges_of(t, steps[0])[np.append(begins, len(t))]
    return {
        "kind": "surface",
        "facts": printable(facts),
        "label": label,
        "limits": [round(low, 3), round(high, 3)],
        "scale": scale,
        "since": since,
        "merged": merged,
        "f": [float(f"{one:.7g}") for one in edges_of(f, steps[1])],
        "t": [round(float(one), 6) for one in moments],
        "rows": [{"name": name} for name in names],
        "cells": packed(np.array(stored, np.uint8)),
    }


def _fewer(level: Floats, merged: int, of_angles: bool) -> Floats:
    """The strongest of each so many neighbours in time, so that no event is lost; of
    angles the first.
    """
    if merged == 1 or of_angles:
        return level[:, ::merged]
    begins = np.arange(0, level.shape[1], merged)
    found: Floats = np.fmax.reduceat(level, begins, axis=1)
    return found


def _shares(level: Floats, low: float, high: float) -> NDArray[np.uint8]:
    """1 … 255 from low to high; 0 where there is nothing."""
    share = np.clip((level - low) / max(high - low, 1e-300), 0.0, 1.0)
    share = np.where(np.isneginf(level), 0.0, share)
    own = np.where(np.isnan(share), 0.0, 1.0 + np.round(254.0 * np.nan_to_num(share)))
    return own.astype(np.uint8)


def packed(values: NDArray[Any]) -> str:
    """Little-endian numbers, deflated, as text."""
    little = values.astype(values.dtype.newbyteorder("<"))
    return base64.b64encode(zlib.compress(little.tobytes(), 9)).decode()


def _part(name: str) -> str:
    if name.startswith("demo/"):
        return site_part(name, "making a page of a picture").decode("utf-8")
    own = resources.files("rlxweb") / "plot" / "page_parts" / name
    return own.read_text(encoding="utf-8")
