"""Units of power, by the unit of the samples; and its levels."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

OF: Final = {
    "density": "²/Hz",
    "csd": "²/Hz",
    "spectrum": "²",
    "length": "²",
    "squares": "²",
    "energy": "²",
}


def power_unit(unit: str, quantity: str) -> str:
    """Such as "µV²/Hz" of "uV" and "density"; "" where either is not known."""
    if not unit or quantity not in OF:
        return ""
    return f"{unit_of(unit)}{OF[quantity]}"


def unit_of(unit: str) -> str:
    """A unit as people write it: "µV" of "uV"."""
    return "µ" + unit[1:] if unit.startswith("u") else unit


def beside(quantity: str, unit: str) -> str:
    """Such as "density (V²/Hz)", or the quantity alone."""
    return f"{quantity} ({unit})" if unit else quantity


def decibels(power: NDArray[Any]) -> NDArray[np.float64]:
    """10 log10 in float64; NaN of what is not above 0."""
    wide = np.asarray(power, np.float64)
    out = np.full(wide.shape, np.nan)
    np.log10(wide, out=out, where=wide > 0)
    level: NDArray[np.float64] = 10.0 * out
    return level


def decimals(resolution: float) -> int:
    """Digits after the point that frequencies of this resolution deserve."""
    return max(1, min(6, math.ceil(-math.log10(resolution)) + 1))
