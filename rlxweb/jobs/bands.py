"""Power in bands of recordings that were analysed, group by group.

Owns what is asked of bands beside their power: ratios, the 1/f part and what rises
above it, the values that are shown; and the row of a table for each channel and band.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.advice import Advice, Blank
from rlxweb.errors import RlxError, UsageError
from rlxweb.io.writers import finite
from rlxweb.jobs.entries import Entry, text_of
from rlxweb.jobs.epoching import COLUMNS as OF_EPOCHS
from rlxweb.jobs.results import FileResult, GroupResult
from rlxweb.signal.bands import BandPower, Bands, bands_in
from rlxweb.signal.spectrum import Density

if TYPE_CHECKING:
    from rlxweb.signal.aperiodic import Mode
    from rlxweb.signal.aperiodic_fit import AperiodicFit

SLOWEST_HZ: Final = 1.0
"""Where the fit of the 1/f part begins, unless it is said: below, EEG drifts."""


@dataclass(frozen=True, slots=True)
class BandsAsked:
    """What is asked of a density.

    relative, log  what `values` are, as `rlxweb.band_power` has them
    ratios         pairs of names: the power of one over that of the other
    fit            mode of the fit of the 1/f part; None: there is none
    fit_hz         where it is fitted; None: from 1 Hz, or the lowest edge if that is
                   above, to the highest edge
    """

    bands: Bands
    relative: bool = False
    log: bool = False
    ratios: tuple[tuple[str, str], ...] = ()
    fit: Mode | None = None
    fit_hz: tuple[float, float] | None = None

    @property
    def shows_values(self) -> bool:
        """Is something else than power and share asked for?"""
        return self.relative or self.log

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        del own["bands"]
        return own | {"ratios": [f"{a}/{b}" for a, b in self.ratios]}


@dataclass(frozen=True, slots=True)
class GroupBands:
    """The channels of one rate, and their power in bands.

    ratios  (C,) of each, by name: "theta/beta"
    fit     of each channel, NaN for one without a level; None where none was asked for
    """

    group: GroupResult
    bands: BandPower
    asked: BandsAsked
    ratios: Mapping[str, NDArray[Any]]
    fit: AperiodicFit | None

    def rows(self) -> Iterator[dict[str, Any]]:
        """One for each channel and band: plain numbers, None for what is not finite.

        Of epochs with their condition, and how many are averaged and dropped.
        """
        epochs = self.group.epochs
        of = {} if epochs is None else dict(zip(OF_EPOCHS, epochs.cells, strict=True))
        for at, channel in enumerate(self.group.names):
            of_channel = {
                "channel": channel,
                "unit": self.group.units[at],
                "fs": float(self.group.fs),
                "device": self.group.device,
                **of,
                **{name: finite(own[at]) for name, own in self.ratios.items()},
                **self._line(at),
            }
            for k, name in enumerate(self.bands.names):
                low, high = self.bands.edges[k].tolist()
                yield of_channel | {
                    "band": name,
                    "low_hz": low,
                    "high_hz": high,
                    "power": finite(self.bands.absolute[at, k]),
                    "share": finite(self.bands.relative[at, k]),
                    "peak_hz": finite(self.bands.peak_hz[at, k]),
                    "value": finite(self.bands.values[at, k]),
                    **self._rhythm(at, low, high),
                }

    def peaks_above(self, at: int) -> list[dict[str, float | None]]:
        """What rises above the 1/f part of a channel, by rising frequency."""
        if self.fit is None:
            return []
        return [
            {
                "hz": finite(self.fit.peak_hz[at, n]),
                "height": finite(self.fit.peak_height[at, n]),
                "width": finite(self.fit.peak_width[at, n]),
            }
            for n in range(int(self.fit.count[at]))
        ]

    def as_json(self) -> Entry:
        """Edges of the bands, and a row for each channel."""
        told = self.bands.as_json(self.group.names)
        for at, row in enumerate(told["rows"]):
            for k, name in enumerate(self.bands.names):
                if self.asked.shows_values:
                    row[name]["value"] = finite(self.bands.values[at, k])
            if self.ratios:
                row["ratios"] = {n: finite(own[at]) for n, own in self.ratios.items()}
            if self.fit is not None:
                peaks = self.peaks_above(at)
                row["aperiodic"] = {**self._line(at), "peaks": peaks}
        if self.fit is not None:
            told["fit_hz"] = [float(self.fit.f[0]), float(self.fit.f[-1])]
        return told

    def _line(self, at: int) -> dict[str, float | None]:
        if self.fit is None:
            return {}
        names = ("exponent", "offset", "knee", "r_squared")
        return {name: finite(getattr(self.fit, name)[at]) for name in names}

    def _rhythm(self, at: int, low: float, high: float) -> dict[str, float | None]:
        """The highest peak above the 1/f part whose middle lies in the band."""
        if self.fit is None:
            return {}
        inside = [p for p in self.peaks_above(at) if low <= (p["hz"] or 0.0) < high]
        best = max(inside, key=lambda peak: peak["height"] or 0.0, default={})
        return {f"above_{n}": best.get(n) for n in ("hz", "height", "width")}


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


def bands_of(result: FileResult, asked: BandsAsked) -> tuple[GroupBands, ...]:
    """Of every group of a recording.

    Errors   UsageError for a band that its rate does not hold, naming the recording;
             UnknownName for a ratio of a band there is not; those of `aperiodic`
    """
    return tuple(_bands_of(result, group, asked) for group in result.groups)


def _bands_of(result: FileResult, group: GroupResult, asked: BandsAsked) -> GroupBands:
    doing = f"{result.path!r}, channels at {group.fs:g} Hz"
    try:
        flat = np.array([state == "flat" for state in group.states], np.bool_)
        density = Density(group.hz, group.power, fs=group.fs)
        own = bands_in(density, asked.bands, asked.relative, asked.log, flat)
        ratios = {f"{a}/{b}": own.ratio(a, b) for a, b in asked.ratios}
    except RlxError as error:
        if isinstance(error.hint, Advice):
            error.hint = _longer(group)
        error.doing = f"bands of {doing}"
        raise
    try:
        fit = None if asked.fit is None else _fit(group, own, asked)
    except RlxError as error:
        if isinstance(error.hint, Advice):
            within = Advice("give {} within it", fit=Blank("LOW:HIGH"))
            error.hint = within if asked.fit_hz else ""
        error.doing = f"the 1/f part of {doing}"
        raise
    return GroupBands(group, own, asked, ratios, fit)


def _longer(group: GroupResult) -> str:
    """What makes the bins of a group lie closer."""
    epochs = group.epochs
    if epochs is not None and group.n_segments == epochs.n:
        return "give longer epochs"
    if group.spec.nperseg >= group.n_samples:
        return f"its {group.n_samples} samples are too few for it"
    return Advice("give a longer {}", segment_s=Blank("S"))


def _fit(group: GroupResult, own: BandPower, asked: BandsAsked) -> AperiodicFit:
    """Fit the channels that have a level everywhere; NaN for the others."""
    low, high = asked.fit_hz or usual_fit(own.edges)
    assert asked.fit is not None
    inside = (group.hz >= low) & (group.hz <= high) & (group.hz > 0)
    power = group.power[:, inside]
    known = (np.isfinite(power) & (power > 0)).all(axis=1)
    known &= [not state for state in group.states]
    from rlxweb.signal.aperiodic import fitted  # which most runs do not ask for

    density = Density(group.hz, group.power, fs=group.fs)
    return fitted(density, ~known, fmin=low, fmax=high, mode=asked.fit)


def usual_fit(edges: NDArray[np.float64]) -> tuple[float, float]:
    """Where the 1/f part under bands with these edges (K, 2) is fitted, in Hz.

    Errors   UsageError for bands so slow that no peak is looked for
    """
    low, high = float(edges.min()), float(edges.max())
    if high <= SLOWEST_HZ:
        raise UsageError(
            "the 1/f part of bands",
            f"the bands end at {high:g} Hz",
            f"it is fitted from {SLOWEST_HZ:g} Hz on",
            Advice("give faster bands, or the stretch: {}", fit=Blank("LOW:HIGH")),
        )
    return max(SLOWEST_HZ, low), high


def lowest_edge(bands: Mapping[str, Sequence[float]]) -> float:
    """The lowest edge that is not 0, in Hz; infinite where there is none."""
    return min((low for low, _ in bands.values() if low > 0), default=math.inf)
