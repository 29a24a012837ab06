"""Recording metadata in the attributes of an array and of its group.

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

from rlxweb.core.errors import shown
from rlxweb.io.byte_source import RecordingSource

RATE_ATTRIBUTES = (
    "fs",
    "sampling_frequency",
    "sampling_rate",
    "sample_rate",
    "srate",
    "sfreq",
)
CHANNEL_ATTRIBUTES = ("channels", "channel_names", "ch_names")
UNIT_ATTRIBUTES = ("units", "unit")
METADATA_NAMES = (*RATE_ATTRIBUTES, *CHANNEL_ATTRIBUTES, *UNIT_ATTRIBUTES)
"""Names of metadata arrays; an array of a group with such a name is no recording."""


@dataclass(frozen=True, slots=True)
class RecordingAttributes:
    """Sampling rate, channel names, units and scale of a recording; the rate is None if
    unknown.

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
        """Tell whether samples have a gain or an offset."""
        return (self.gain, self.offset) != (1.0, 0.0)


def read_recording_attributes(
    source: RecordingSource,
    attributes: Sequence[Mapping[str, Any]],
    n_channels: int,
    is_digital: bool,
) -> RecordingAttributes:
    """Read the metadata of an array; its own attributes take precedence over its
    group's.

    Errors   RecordingError for rates that contradict each other, names that do not fit
             the channels, and a scale of samples that are no integers of 24 bits.
    """
    gain, offset = _gain_and_offset(source, attributes[0], is_digital)
    fs = read_rate(source, dict(zip(("array", "group"), attributes, strict=True)))
    note = (
        ""
        if fs
        else (
            f"no attribute {', '.join(RATE_ATTRIBUTES[:-1])} or {RATE_ATTRIBUTES[-1]} "
            "contains a rate"
        )
    )
    names = _channel_texts(source, attributes, CHANNEL_ATTRIBUTES, n_channels)
    units = _channel_texts(
        source, attributes, UNIT_ATTRIBUTES, n_channels, is_shared=True
    )
    return RecordingAttributes(fs, note, names, units, gain, offset)


def read_rate(
    source: RecordingSource, attributes: Mapping[str, Mapping[str, Any]]
) -> float | None:
    """Return the sampling rate in the attributes, or None; `attributes` is keyed by
    location.

    Errors   RecordingError for rates that contradict each other
    """
    rates: dict[str, float] = {}
    for location, entries in attributes.items():
        for name in RATE_ATTRIBUTES:
            if name not in entries:
                continue
            rate = _number_or_none(entries[name])
            if rate is None or rate <= 0:
                source.warn(f"attribute {name!r} is not a valid rate and is ignored")
            else:
                rates[f"{name} of the {location}"] = rate
    if not rates:
        return None
    first, *others = rates.values()
    if any(not math.isclose(first, other, rel_tol=1e-9) for other in others):
        rate_list = ", ".join(f"{name}: {rate:.10g} Hz" for name, rate in rates.items())
        raise source.error(
            "the file declares conflicting sampling rates",
            rate_list,
            "remove the wrong ones",
        )
    return first


def _number_or_none(value: object) -> float | None:
    """Return a finite number, possibly in a list of one, as float; else None."""
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _channel_texts(
    source: RecordingSource,
    attributes: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    n_channels: int,
    *,
    is_shared: bool = False,
) -> tuple[str, ...]:
    """Return one text per channel; "" where there is none.

    is_shared  a single text is all channels'
    """
    for entries in attributes:
        for name in names:
            if name not in entries:
                continue
            value = entries[name]
            if is_shared and isinstance(value, str):
                return (value,) * n_channels
            if isinstance(value, str):
                value = [value]
            if not (
                isinstance(value, list) and all(isinstance(item, str) for item in value)
            ):
                source.warn(
                    f"attribute {name!r} does not contain valid text and is ignored"
                )
                continue
            if len(value) != n_channels:
                noun = "entry" if len(value) == 1 else "entries"
                raise source.error(
                    f"attribute {name!r} does not match the array",
                    f"got {len(value)} {noun} for {n_channels} channels",
                    "write one entry per channel",
                )
            return tuple(value)
    return ("",) * n_channels


def _gain_and_offset(
    source: RecordingSource, entries: Mapping[str, Any], is_digital: bool
) -> tuple[float, float]:
    """Return the gain and the offset in counts, from scale_factor and add_offset of the
    CF conventions.
    """
    gain = _number_or_none(entries.get("scale_factor", 1.0))
    add_offset = _number_or_none(entries.get("add_offset", 0.0))
    if gain is None or add_offset is None or gain == 0:
        raise source.error(
            f"scale_factor is {shown(entries.get('scale_factor', 1.0))}, "
            f"add_offset is {shown(entries.get('add_offset', 0.0))}",
            "scale_factor and add_offset must be numbers, and scale_factor must not "
            "be 0",
        )
    if (gain, add_offset) != (1.0, 0.0) and not is_digital:
        raise source.error(
            "the array has a scale_factor or an add_offset",
            "scaling is supported only for 8-bit and 16-bit integers",
            "save the scaled samples",
        )
    return gain, add_offset / gain
