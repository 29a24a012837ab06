"""Panels of band power for HTML pages: shares, powers, head maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.message_text import printable
from rlxweb.plot.html_page import PanelData, encode_array, shorten_name
from rlxweb.plot.scalp_map import interpolate_head
from rlxweb.signal.band_power import BandPower
from rlxweb.signal.electrode_positions import electrode_positions, project_to_plane

MIN_MAP_ELECTRODES: Final = 8
"""Minimum number of 10-20 electrodes for a head map."""
_MAP_SIDE: Final = 64


def bands_panel(
    band_power: BandPower,
    names: Sequence[str],
    units: Sequence[str],
    facts: str,
    states: Sequence[str] = (),
) -> PanelData:
    """Return the panel of the band power of rows with these names.

    units   of their powers
    states  why a row has none; "" where it has
    """
    n_bands = len(band_power.names)
    share = np.asarray(band_power.relative, np.float64).reshape(-1, n_bands)
    power = np.asarray(band_power.absolute, np.float64).reshape(-1, n_bands)
    peaks = np.asarray(band_power.peak_hz, np.float64).reshape(-1, n_bands)
    edges = zip(band_power.names, band_power.edges.tolist(), strict=True)
    return {
        "kind": "bands",
        "facts": printable(facts),
        "bands": [
            {"name": shorten_name(name), "edges": limits} for name, limits in edges
        ],
        "rows": [
            {
                "name": shorten_name(name),
                "state": states[row] if states else "",
                "unit": units[row],
                "share": _finite_or_none(share[row], 5),
                "power": _finite_or_none(power[row], 12),
                "peak": _finite_or_none(peaks[row], 4),
            }
            for row, name in enumerate(names)
        ],
        "heads": _head_maps(names, share),
    }


def has_head_maps(names: Sequence[str], share: NDArray[Any]) -> bool:
    """Return whether enough electrodes have shares (C, K) for head maps."""
    _, map_rows = electrode_positions(names)
    return int(np.isfinite(share[map_rows]).all(axis=1).sum()) >= MIN_MAP_ELECTRODES


def _head_maps(names: Sequence[str], share: NDArray[np.float64]) -> PanelData | None:
    """Return a head map of each band's shares, or None if too few electrodes have a
    value.
    """
    if not has_head_maps(names, share):
        return None
    coordinates, map_rows = electrode_positions(names)
    is_finite = np.atleast_1d(np.isfinite(share[map_rows]).all(axis=1))
    points = project_to_plane(coordinates)[is_finite]
    finite_shares = share[map_rows][is_finite]
    cells, ranges, reach = [], [], 1.0
    for band_shares in finite_shares.T:
        level, reach = interpolate_head(points, band_shares, _MAP_SIDE)
        low, high = float(band_shares.min()), float(band_shares.max())
        fraction = (level - low) / max(high - low, 1e-300)
        cells.append(
            np.where(np.isnan(fraction), 0, 1 + np.round(254 * np.nan_to_num(fraction)))
        )
        ranges.append([round(low, 6), round(high, 6)])
    rows = [
        int(row) for row, is_shown in zip(map_rows, is_finite, strict=True) if is_shown
    ]
    return {
        "side": _MAP_SIDE,
        "reach": reach,
        "ends": ranges,
        "rows": rows,
        "at": np.round(points, 4).tolist(),
        "cells": encode_array(np.array(cells, np.uint8)),
    }


def _finite_or_none(values: NDArray[np.float64], digits: int) -> list[float | None]:
    """Return values rounded to significant digits, None for those that are not
    finite.
    """
    return [
        float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in values
    ]
