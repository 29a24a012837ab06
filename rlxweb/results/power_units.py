"""Units of power derived from the unit of the samples, and decibels."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

POWER_UNIT_SUFFIXES: Final = {
    "density": "²/Hz",
    "csd": "²/Hz",
    "spectrum": "²",
    "length": "²",
    "squares": "²",
    "energy": "²",
}


def power_unit(unit: str, quantity: str) -> str:
    """Return the unit of a power, such as "µV²/Hz" for "uV" and "density"; "" if either
    is unknown.
    """
    if not unit or quantity not in POWER_UNIT_SUFFIXES:
        return ""
    return f"{display_unit(unit)}{POWER_UNIT_SUFFIXES[quantity]}"


def display_unit(unit: str) -> str:
    """Return a unit in its printed form: "µV" for "uV"."""
    return "µ" + unit[1:] if unit.startswith("u") else unit


def label_with_unit(quantity: str, unit: str) -> str:
    """Return a label such as "density (V²/Hz)", or the quantity alone if the unit is
    unknown.
    """
    return f"{quantity} ({unit})" if unit else quantity


def power_to_decibels(power: NDArray[Any]) -> NDArray[np.float64]:
    """Return 10 log10 of the power in float64; NaN where it is not above 0."""
    power_f64 = np.asarray(power, np.float64)
    out = np.full(power_f64.shape, np.nan)
    np.log10(power_f64, out=out, where=power_f64 > 0)
    level: NDArray[np.float64] = 10.0 * out
    return level


def frequency_decimals(resolution: float) -> int:
    """Return how many decimals a frequency of this resolution is written with."""
    return max(1, min(6, math.ceil(-math.log10(resolution)) + 1))
