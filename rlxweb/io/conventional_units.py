"""Conventional units in place of SI units, which some formats require.

FIF and NWB know volts and teslas alone, and MNE hands everything in them; EDF says uV.
So that one recording gives the same numbers in every format, voltages are given in uV,
magnetic fields in fT and their gradients in fT/cm, as MNE itself draws them.
"""

from __future__ import annotations

from typing import Final

_CONVENTIONAL_UNITS: Final = {
    "V": (1e6, "uV"),
    "volt": (1e6, "uV"),
    "volts": (1e6, "uV"),
    "T": (1e15, "fT"),
    "tesla": (1e15, "fT"),
    "T/m": (1e13, "fT/cm"),
}


def conventional_unit(unit: str) -> tuple[float, str]:
    """Return the factor to the conventional unit of a number in this unit, and the name
    of that unit.
    """
    return _CONVENTIONAL_UNITS.get(
        unit.strip(), _CONVENTIONAL_UNITS.get(unit.strip().lower(), (1.0, unit))
    )
