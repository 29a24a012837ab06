"""The units people use in place of those of the SI, which some formats keep to.

FIF and NWB know volts and teslas alone, and MNE hands everything in them; EDF says uV.
So that one recording gives the same numbers in every format, voltages are given in uV,
magnetic fields in fT and their gradients in fT/cm, as MNE itself draws them.
"""

from __future__ import annotations

from typing import Final

_USUAL: Final = {
    "V": (1e6, "uV"),
    "volt": (1e6, "uV"),
    "volts": (1e6, "uV"),
    "T": (1e15, "fT"),
    "tesla": (1e15, "fT"),
    "T/m": (1e13, "fT/cm"),
}


def usual(unit: str) -> tuple[float, str]:
    """By what a number in this unit is multiplied, and the unit it is in then."""
    return _USUAL.get(unit.strip(), _USUAL.get(unit.strip().lower(), (1.0, unit)))
