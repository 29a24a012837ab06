"""What of the power in bands goes into a page: shares, powers, maps of the head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.plot.page import Panel, named, packed
from rlxweb.plot.scalp import head_grid
from rlxweb.printable import printable
from rlxweb.signal.bands import BandPower
from rlxweb.signal.electrodes import flat, positions

ELECTRODES: Final = 8
"""So many of the 10-20 system make a map."""
_SIDE: Final = 64


def bands(
    found: BandPower,
    names: Sequence[str],
    units: Sequence[str],
    facts: str,
    states: Sequence[str] = (),
) -> Panel:
    """Of rows with these names.

    units   of their powers
    states  why a row has none; "" where it has
    """
    count = len(found.names)
    share = np.asarray(found.relative, np.float64).reshape(-1, count)
    power = np.asarray(found.absolute, np.float64).reshape(-1, count)
    peaks = np.asarray(found.peak_hz, np.float64).reshape(-1, count)
    edges = zip(found.names, found.edges.tolist(), strict=True)
    return {
        "kind": "bands",
        "facts": printable(facts),
        "bands": [{"name": named(name), "edges": own} for name, own in edges],
        "rows": [
            {
                "name": named(name),
                "state": states[at] if states else "",
                "unit": units[at],
                "share": _plain(share[at], 5),
                "power": _plain(power[at], 12),
                "peak": _plain(peaks[at], 4),
            }
            for at, name in enumerate(names)
        ],
        "heads": _heads(names, share),
    }


def has_heads(names: Sequence[str], share: NDArray[Any]) -> bool:
    """Are there maps of shares (C, K)?"""
    _, which = positions(names)
    return int(np.isfinite(share[which]).all(axis=1).sum()) >= ELECTRODES


def _heads(names: Sequence[str], share: NDArray[np.float64]) -> Panel | None:
    if not has_heads(names, share):
        return None
    places, which = positions(names)
    fine = np.atleast_1d(np.isfinite(share[which]).all(axis=1))
    at, known = flat(places)[fine], share[which][fine]
    cells, ends, reach = [], [], 1.0
    for own in known.T:
        level, reach = head_grid(at, own, _SIDE)
        low, high = float(own.min()), float(own.max())
        part = (level - low) / max(high - low, 1e-300)
        cells.append(
            np.where(np.isnan(part), 0, 1 + np.round(254 * np.nan_to_num(part)))
        )
        ends.append([round(low, 6), round(high, 6)])
    rows = [int(one) for one, ok in zip(which, fine, strict=True) if ok]
    return {
        "side": _SIDE,
        "reach": reach,
        "ends": ends,
        "rows": rows,
        "at": np.round(at, 4).tolist(),
        "cells": packed(np.array(cells, np.uint8)),
    }


def _plain(values: NDArray[np.float64], digits: int) -> list[float | None]:
    """None for what is not finite."""
    return [float(f"{one:.{digits}g}") if np.isfinite(one) else None for one in values]
