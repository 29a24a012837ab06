"""What the attributes of an array, and of its group, say about a recording.

Of Zarr and of HDF5, and in part of the schema of Parquet.

Few names are known and no others are guessed at: the rate, the channels, their units,
and the scale that NetCDF and xarray write. Where two contradict each other nothing is
read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlxweb.errors import shown
from rlxweb.io.source import Source

RATES = (
    "fs",
    "sampling_frequency",
    "sampling_rate",
    "sample_rate",
    "srate",
    "sfreq",
)
NAMES = ("channels", "channel_names", "ch_names")
UNITS = ("units", "unit")
BESIDE = (*RATES, *NAMES, *UNITS)
"""Arrays of a group that go by these names are no recordings."""


@dataclass(frozen=True, slots=True)
class Notes:
    """One name and one unit per channel; the rate is None where nothing tells it.

    gain, offset  a sample stands for gain · (sample + offset)
    """

    fs: float | None
    rate_note: str
    channels: tuple[str, ...]
    units: tuple[str, ...]
    gain: float = 1.0
    offset: float = 0.0

    @property
    def is_scaled(self) -> bool:
        return (self.gain, self.offset) != (1.0, 0.0)


def notes_of(
    source: Source,
    attributes: Sequence[Mapping[str, Any]],
    n_channels: int,
    is_digital: bool,
) -> Notes:
    """What is said: the array's attributes come first, then its group's.

    Errors   RecordingError for rates that contradict each other, names that do not fit
             the channels, and a scale of samples that are no integers of 24 bits.
    """
    gain, offset = _scale(source, attributes[0], is_digital)
    fs = rate_of(source, dict(zip(("array", "group"), attributes, strict=True)))
    note = (
        "" if fs else f"no attribute {', '.join(RATES[:-1])} or {RATES[-1]} is a rate"
    )
    names = _texts(source, attributes, NAMES, n_channels)
    units = _texts(source, attributes, UNITS, n_channels, is_shared=True)
    return Notes(fs, note, names, units, gain, offset)


def rate_of(
    source: Source, attributes: Mapping[str, Mapping[str, Any]]
) -> float | None:
    """The rate that is said, None where none is; attributes by where they stand.

    Errors   RecordingError for rates that contradict each other
    """
    found: dict[str, float] = {}
    for where, own in attributes.items():
        for name in RATES:
            if name not in own:
                continue
            rate = _number(own[name])
            if rate is None or rate <= 0:
                source.warn(f"its {name!r} is no rate and is passed over")
            else:
                found[f"{name} of the {where}"] = rate
    if not found:
        return None
    first, *others = found.values()
    if any(not math.isclose(first, other, rel_tol=1e-9) for other in others):
        said = ", ".join(f"{name}: {rate:.10g} Hz" for name, rate in found.items())
        raise source.error("its rates contradict each other", said, "leave one")
    return first


def _number(value: object) -> float | None:
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _texts(
    source: Source,
    attributes: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    n_channels: int,
    *,
    is_shared: bool = False,
) -> tuple[str, ...]:
    """One text per channel; "" where nothing is said.

    is_shared  a single text is all channels'
    """
    for own in attributes:
        for name in names:
            if name not in own:
                continue
            value = own[name]
            if is_shared and isinstance(value, str):
                return (value,) * n_channels
            if isinstance(value, str):
                value = [value]
            if not (
                isinstance(value, list) and all(isinstance(one, str) for one in value)
            ):
                source.warn(f"its {name!r} are no names and are passed over")
                continue
            if len(value) != n_channels:
                raise source.error(
                    f"its {name!r} do not fit its array",
                    f"{len(value)} for {n_channels} channels",
                    "write as many as there are channels",
                )
            return tuple(value)
    return ("",) * n_channels


def _scale(
    source: Source, own: Mapping[str, Any], is_digital: bool
) -> tuple[float, float]:
    """Gain and offset in counts, of scale_factor and add_offset as CF has them."""
    gain = _number(own.get("scale_factor", 1.0))
    added = _number(own.get("add_offset", 0.0))
    if gain is None or added is None or gain == 0:
        raise source.error(
            f"its scale_factor is {shown(own.get('scale_factor', 1.0))}, its "
            f"add_offset {shown(own.get('add_offset', 0.0))}",
            "both are numbers, and the factor is not 0",
        )
    if (gain, added) != (1.0, 0.0) and not is_digital:
        raise source.error(
            "it has a scale_factor or an add_offset",
            "that is read of integers of 8 and 16 bits",
            "save the samples as they are meant",
        )
    return gain, added / gain
