"""Band power of analysed recordings, group by group: powers, ratios and the aperiodic
fit.

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

from rlxweb.batch.epoch_options import EPOCH_COLUMNS as OF_EPOCHS
from rlxweb.batch.results import FileResult, GroupResult
from rlxweb.batch.run_record_entries import RecordEntry, path_text
from rlxweb.core.errors import RlxError, UsageError
from rlxweb.core.message_text import Advice, Blank
from rlxweb.io.csv_json_npz import finite_or_none
from rlxweb.signal.band_power import BandPower, BandsLike, integrate_bands
from rlxweb.signal.spectrum_result import PowerDensity

if TYPE_CHECKING:
    from rlxweb.signal.aperiodic import AperiodicMode
    from rlxweb.signal.aperiodic_result import AperiodicFit

MIN_FIT_HZ: Final = 1.0
"""Default lower limit of the fit of the 1/f part; EEG drifts below it."""


@dataclass(frozen=True, slots=True)
class BandRequest:
    """Options of the band powers of a spectrum.

    relative, log  what `values` are, as `rlxweb.band_power` has them
    ratios         pairs of names: the power of one over that of the other
    fit            mode of the fit of the 1/f part; None: there is none
    fit_hz         where it is fitted; None: from 1 Hz, or the lowest edge if that is
                   above, to the highest edge
    """

    bands: BandsLike
    relative: bool = False
    log: bool = False
    ratios: tuple[tuple[str, str], ...] = ()
    fit: AperiodicMode | None = None
    fit_hz: tuple[float, float] | None = None

    @property
    def shows_values(self) -> bool:
        """Return whether values other than power and share are requested."""
        return self.relative or self.log

    def as_json(self) -> dict[str, Any]:
        """Return the options as plain data, without the bands."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        del options["bands"]
        return options | {"ratios": [f"{a}/{b}" for a, b in self.ratios]}


@dataclass(frozen=True, slots=True)
class GroupBands:
    """Channels of one rate, and their power in bands.

    ratios  (C,) of each, by name: "theta/beta"
    fit     of each channel, NaN for one without a level; None where none was asked for
    """

    group: GroupResult
    bands: BandPower
    request: BandRequest
    ratios: Mapping[str, NDArray[Any]]
    fit: AperiodicFit | None

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each channel and band: plain numbers, None for what is not
        finite.

        Of epochs with their condition, and how many are averaged and dropped.
        """
        epochs = self.group.epochs
        epoch_cells = (
            {}
            if epochs is None
            else dict(zip(OF_EPOCHS, epochs.table_cells, strict=True))
        )
        for index, channel in enumerate(self.group.names):
            channel_cells = {
                "channel": channel,
                "unit": self.group.units[index],
                "fs": float(self.group.fs),
                "device": self.group.device,
                **epoch_cells,
                **{
                    name: finite_or_none(values[index])
                    for name, values in self.ratios.items()
                },
                **self._aperiodic_values(index),
            }
            for k, name in enumerate(self.bands.names):
                low, high = self.bands.edges[k].tolist()
                yield channel_cells | {
                    "band": name,
                    "low_hz": low,
                    "high_hz": high,
                    "power": finite_or_none(self.bands.absolute[index, k]),
                    "share": finite_or_none(self.bands.relative[index, k]),
                    "peak_hz": finite_or_none(self.bands.peak_hz[index, k]),
                    "value": finite_or_none(self.bands.values[index, k]),
                    **self._highest_peak_in_band(index, low, high),
                }

    def peaks_above_fit(self, channel: int) -> list[dict[str, float | None]]:
        """Return the peaks above the 1/f part of a channel, by rising frequency."""
        if self.fit is None:
            return []
        return [
            {
                "hz": finite_or_none(self.fit.peak_hz[channel, n]),
                "height": finite_or_none(self.fit.peak_height[channel, n]),
                "width": finite_or_none(self.fit.peak_width[channel, n]),
            }
            for n in range(int(self.fit.count[channel]))
        ]

    def as_json(self) -> RecordEntry:
        """Return the edges of the bands, and a row for each channel, as plain data."""
        document = self.bands.as_json(self.group.names)
        for channel, row in enumerate(document["rows"]):
            for k, name in enumerate(self.bands.names):
                if self.request.shows_values:
                    row[name]["value"] = finite_or_none(self.bands.values[channel, k])
            if self.ratios:
                row["ratios"] = {
                    n: finite_or_none(values[channel])
                    for n, values in self.ratios.items()
                }
            if self.fit is not None:
                peaks = self.peaks_above_fit(channel)
                row["aperiodic"] = {**self._aperiodic_values(channel), "peaks": peaks}
        if self.fit is not None:
            document["fit_hz"] = [float(self.fit.f[0]), float(self.fit.f[-1])]
        return document

    def _aperiodic_values(self, channel: int) -> dict[str, float | None]:
        if self.fit is None:
            return {}
        names = ("exponent", "offset", "knee", "r_squared")
        return {
            name: finite_or_none(getattr(self.fit, name)[channel]) for name in names
        }

    def _highest_peak_in_band(
        self, channel: int, low: float, high: float
    ) -> dict[str, float | None]:
        """Return the highest peak above the 1/f part whose centre lies in the band."""
        if self.fit is None:
            return {}
        inside = [
            p for p in self.peaks_above_fit(channel) if low <= (p["hz"] or 0.0) < high
        ]
        best = max(inside, key=lambda peak: peak["height"] or 0.0, default={})
        return {f"above_{n}": best.get(n) for n in ("hz", "height", "width")}


@dataclass(frozen=True, slots=True)
class FileBands:
    """Band powers of all groups of a recording."""

    result: FileResult
    groups: tuple[GroupBands, ...]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of all its groups, with the name of the file."""
        for group in self.groups:
            for row in group.rows():
                yield {"file": path_text(self.result.path), **row}


def compute_bands(result: FileResult, request: BandRequest) -> tuple[GroupBands, ...]:
    """Compute the band powers of every group of a recording.

    Errors   UsageError for a band that its rate does not hold, naming the recording;
             UnknownName for a ratio of a band there is not; those of `aperiodic`
    """
    return tuple(
        _compute_group_bands(result, group, request) for group in result.groups
    )


def _compute_group_bands(
    result: FileResult, group: GroupResult, request: BandRequest
) -> GroupBands:
    context = f"{result.path!r}, channels at {group.fs:g} Hz"
    try:
        is_flat = np.array([state == "flat" for state in group.states], np.bool_)
        density = PowerDensity(group.hz, group.power, fs=group.fs)
        band_power = integrate_bands(
            density, request.bands, request.relative, request.log, is_flat
        )
        ratios = {f"{a}/{b}": band_power.ratio(a, b) for a, b in request.ratios}
    except RlxError as error:
        if isinstance(error.hint, Advice):
            error.hint = _finer_bins_hint(group)
        error.doing = f"bands of {context}"
        raise
    try:
        fit = (
            None if request.fit is None else _fit_aperiodic(group, band_power, request)
        )
    except RlxError as error:
        if isinstance(error.hint, Advice):
            within = Advice("choose {} within this range", fit=Blank("LOW:HIGH"))
            error.hint = within if request.fit_hz else ""
        error.doing = f"fit the 1/f part of {context}"
        raise
    return GroupBands(group, band_power, request, ratios, fit)


def _finer_bins_hint(group: GroupResult) -> str:
    """Return a hint on how to get narrower bins for a group."""
    epochs = group.epochs
    if epochs is not None and group.n_segments == epochs.n_averaged:
        return "use longer epochs"
    if group.spec.nperseg >= group.n_samples:
        return f"use a recording of more than {group.n_samples} samples"
    return Advice("use a longer {}", segment_s=Blank("S"))


def _fit_aperiodic(
    group: GroupResult, band_power: BandPower, request: BandRequest
) -> AperiodicFit:
    """Fit the 1/f part of the channels that have a level everywhere; NaN for the
    others.
    """
    low, high = request.fit_hz or default_fit_range(band_power.edges)
    assert request.fit is not None
    in_range = (group.hz >= low) & (group.hz <= high) & (group.hz > 0)
    power = group.power[:, in_range]
    is_valid = (np.isfinite(power) & (power > 0)).all(axis=1)
    is_valid &= [not state for state in group.states]
    from rlxweb.signal.aperiodic import fit_density  # which most runs do not ask for

    density = PowerDensity(group.hz, group.power, fs=group.fs)
    return fit_density(density, ~is_valid, fmin=low, fmax=high, mode=request.fit)


def default_fit_range(edges: NDArray[np.float64]) -> tuple[float, float]:
    """Return the range in Hz in which the 1/f part is fitted by default, for bands with
    these edges (K, 2).

    Errors   UsageError for bands so slow that no peak is looked for
    """
    low, high = float(edges.min()), float(edges.max())
    if high <= MIN_FIT_HZ:
        raise UsageError(
            "fit the 1/f part of the bands",
            f"the bands end at {high:g} Hz",
            f"the fit starts at {MIN_FIT_HZ:g} Hz",
            Advice(
                f"use bands above {MIN_FIT_HZ:g} Hz, or set the fit range: {{}}",
                fit=Blank("LOW:HIGH"),
            ),
        )
    return max(MIN_FIT_HZ, low), high


def lowest_edge(bands: Mapping[str, Sequence[float]]) -> float:
    """Return the lowest edge that is not 0, in Hz; infinite where there is none."""
    return min((low for low, _ in bands.values() if low > 0), default=math.inf)
