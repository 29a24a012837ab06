"""Power in bands of recordings that were analysed, group by group."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlxweb.advice import Advice, Blank
from rlxweb.errors import RlxError
from rlxweb.io.writers import finite
from rlxweb.jobs.entries import text_of
from rlxweb.jobs.epoching import COLUMNS as OF_EPOCHS
from rlxweb.jobs.results import FileResult, GroupResult
from rlxweb.signal.bands import BandPower, Bands, band_power_of


@dataclass(frozen=True, slots=True)
class GroupBands:
    """The channels of one rate, and their power in bands."""

    group: GroupResult
    bands: BandPower

    def rows(self) -> Iterator[dict[str, Any]]:
        """One for each channel and band: plain numbers, None for what is not finite.

        Of epochs with their condition, and how many are averaged and dropped.
        """
        epochs = self.group.epochs
        of = {} if epochs is None else dict(zip(OF_EPOCHS, epochs.cells, strict=True))
        for at, channel in enumerate(self.group.names):
            for k, name in enumerate(self.bands.names):
                low, high = self.bands.edges[k].tolist()
                yield {
                    "channel": channel,
                    "unit": self.group.units[at],
                    "fs": float(self.group.fs),
                    "band": name,
                    "low_hz": low,
                    "high_hz": high,
                    "power": finite(self.bands.absolute[at, k]),
                    "share": finite(self.bands.relative[at, k]),
                    "peak_hz": finite(self.bands.peak_hz[at, k]),
                    "device": self.group.device,
                    **of,
                }


@dataclass(frozen=True, slots=True)
class Banded:
    """A recording and what its groups have in the bands."""

    result: FileResult
    groups: tuple[GroupBands, ...]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Of all its channels, with the name of the file."""
        for group in self.groups:
            for row in group.rows():
                yield {"file": text_of(self.result.path), **row}


def bands_of(result: FileResult, bands: Bands) -> tuple[GroupBands, ...]:
    """Of every group of a recording.

    Errors   UsageError for a band that its rate does not hold, naming the recording.
    """
    found = []
    for group in result.groups:
        try:
            own = band_power_of(group.hz, group.power, bands)
        except RlxError as error:
            if isinstance(error.hint, Advice):
                error.hint = Advice("give a longer {}", segment_s=Blank("S"))
            error.doing = f"bands of {result.path!r}, channels at {group.fs:g} Hz"
            raise
        found.append(GroupBands(group, own))
    return tuple(found)


def lowest_edge(bands: Mapping[str, Sequence[float]]) -> float:
    """The lowest edge that is not 0, in Hz; infinite where there is none."""
    return min((low for low, _ in bands.values() if low > 0), default=math.inf)
