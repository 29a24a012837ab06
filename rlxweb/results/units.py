"""Units of power, by the unit of the samples."""

from __future__ import annotations

from typing import Final

OF: Final = {
    "density": "²/Hz",
    "spectrum": "²",
    "length": "²",
    "squares": "²",
    "energy": "²",
}


def power_unit(unit: str, quantity: str) -> str:
    """Such as "µV²/Hz" of "uV" and "density"; "" where either is not known."""
    if not unit or quantity not in OF:
        return ""
    own = "µ" + unit[1:] if unit.startswith("u") else unit
    return f"{own}{OF[quantity]}"


def beside(quantity: str, unit: str) -> str:
    """Such as "density (V²/Hz)", or the quantity alone."""
    return f"{quantity} ({unit})" if unit else quantity
