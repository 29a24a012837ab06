"""Spectrograms of recordings, in bounded memory: segments averaged into columns.

A night at two segments a second has 57,600 of them; a picture has a thousand columns.
Owns how many segments share a column and how a group is walked in blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.advice import Advice, Blank
from rlxweb.errors import UsageError
from rlxweb.io import Block, Group, check_finite
from rlxweb.io.contents import Samples
from rlxweb.jobs.averaging import BLOCK_BYTES
from rlxweb.jobs.epoching import EpochsUsed
from rlxweb.jobs.settings import segment_of
from rlxweb.recipes.welch_plan import segment_count
from rlxweb.signal.band import Reach, no_bin
from rlxweb.signal.rounding import RoundingFloor
from rlxweb.signal.spectrogram import spectrogram
from rlxweb.signal.time_frequency import TimeFrequency

COLUMNS: Final = 1200
"""A picture has no more pixels across."""
ENOUGH: Final = 200
"""Columns that a short recording had better have."""
MOST_VALUES: Final = 1 << 26
"""Of all channels, frequencies and columns that are held: half a gigabyte."""


_MOST_OVERLAPS = 16


@dataclass(frozen=True, slots=True)
class SpectrogramSettings:
    """How a recording is cut and what is kept of it.

    segment_s   seconds per segment
    overlap     share of a segment that the next one has too, 0 … below 1; None: half,
                and more where a recording would have few columns
    columns     moments in time that are kept, at most
    fmin, fmax  in Hz; None: no end
    """

    segment_s: float = 2.0
    overlap: float | None = None
    columns: int = COLUMNS
    fmin: float = 0.0
    fmax: float | None = None
    window: Any = "hann"
    device: str = "auto"
    adapter: str = ""
    precision: Any = "auto"
    nan: Any = "raise"

    def hop(self, nperseg: int, n_samples: int) -> int:
        """Samples from one segment to the next."""
        if self.overlap is not None:
            return max(1, nperseg - round(self.overlap * nperseg))
        # What a short recording says twice as often it says more smoothly.
        smooth = max(nperseg // _MOST_OVERLAPS, (n_samples - nperseg) // ENOUGH)
        return max(1, min(nperseg // 2, smooth))


@dataclass(frozen=True, slots=True)
class GroupSpectrogram:
    """The channels of one rate.

    f      (F,) Hz;  t  (S,) s, the middles of the columns, from the first sample of the
           file whatever stretch was taken: as onsets of annotations
    power  (C, F, S) density in the channels' unit squared per Hz; NaN in gaps
    merged segments that are averaged in a column
    epochs those that are averaged, where there are any: t counts from what they are
           around, and n_samples are those of an epoch
    baseline  seconds: power is a ratio to its mean there; None: it is none
    flat    (C,) channels with nothing but rounding
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    fs: float
    n_samples: int
    nperseg: int
    merged: int
    f: NDArray[np.float64]
    t: NDArray[np.float64]
    power: NDArray[Any]
    epochs: EpochsUsed | None = None
    baseline: tuple[float, float] | None = None
    strongest: tuple[dict[str, Any], ...] = ()
    flat: tuple[bool, ...] = ()

    @property
    def column_s(self) -> float:
        """Seconds from one column to the next."""
        return float(self.t[1] - self.t[0]) if len(self.t) > 1 else self.seconds

    @property
    def seconds(self) -> float:
        """Length of the recording, or of an epoch."""
        return self.n_samples / self.fs


def group_spectrogram(
    group: Group,
    asked: SpectrogramSettings,
    progress: Callable[[int], object] | None = None,
) -> GroupSpectrogram:
    """The spectrogram of a group of channels, block by block.

    progress   is told after each block how many samples it had, all channels counted
    Errors     UsageError for what does not fit; NotFinite naming channel and sample.
    """
    doing = f"spectrogram of {group.recording!r}"
    nperseg = segment_of(group, asked.segment_s, doing)
    hop = asked.hop(nperseg, group.n_samples)
    count = segment_count(group.n_samples, nperseg, hop)
    merged = max(1, math.ceil(count / asked.columns))
    n_channels = len(group.channels)
    sums = _Columns(n_channels, math.ceil(count / merged), merged)
    wide = max(1, BLOCK_BYTES // (8 * n_channels * hop))
    size = min(nperseg + (wide - 1) * hop, group.longest)
    freqs: NDArray[np.float64] = np.arange(nperseg // 2 + 1) * group.fs / nperseg
    check_band(freqs, asked, group)
    floor = FloorOfSegments()
    for block in _blocks(group, size, nperseg, hop):
        if asked.nan == "raise":
            check_finite(block.data, group, block.start)
        found = segments_of_block(block.data, group, asked, nperseg, hop)
        freqs, power = found.f, found.values
        floor.add(found)
        sums.add(block.start // hop, power, group)
        if progress is not None:
            progress(math.prod(block.data.shape))
    starts = np.arange(sums.count, dtype=np.float64) * merged * hop
    own = np.minimum(merged, count - merged * np.arange(sums.count, dtype=np.int64))
    times = (group.first + starts + (own - 1) * hop / 2 + nperseg / 2) / group.fs
    flat = floor.flat()
    return GroupSpectrogram(
        names=group.names,
        units=tuple(c.unit for c in group.channels),
        fs=group.fs,
        n_samples=group.n_samples,
        nperseg=nperseg,
        merged=merged,
        f=freqs,
        t=times,
        power=sums.mean(),
        flat=flat,
    )


def segments_of_block(
    x: NDArray[Any], group: Group, asked: SpectrogramSettings, nperseg: int, hop: int
) -> TimeFrequency:
    """Density (…, F, S) of the segments of samples (…, T)."""
    return spectrogram(
        x,
        group.fs,
        asked.window,
        nperseg,
        nperseg - hop,
        fmin=asked.fmin,
        fmax=asked.fmax,
        device=None if asked.device == "auto" else asked.device,
        adapter=asked.adapter,
        precision=asked.precision,
        nan=asked.nan,
    )


class FloorOfSegments:
    """Power and rounding floor of all segments so far, channel by channel."""

    def __init__(self) -> None:
        self._floor: RoundingFloor | None = None
        self._power: NDArray[Any] | float = 0.0
        self._energy: NDArray[Any] | float = 0.0
        self._count: NDArray[Any] | int = 0

    def add(self, found: TimeFrequency) -> None:
        """Segments (…, C, F, S); those that are not finite are passed over."""
        if found.floor is None:
            return
        self._floor = found.floor
        values = np.moveaxis(found.values, -3, 0)
        known = np.isfinite(values).all(axis=-2, keepdims=True)
        count = known.reshape(len(values), -1).sum(axis=1)
        total = np.where(known, values, 0.0).astype(np.float64)
        axes = tuple(at for at in range(1, total.ndim) if at != total.ndim - 2)
        energy = np.nan_to_num(found.floor.energy)
        self._power = self._power + total.sum(axis=axes)
        self._energy = self._energy + energy.reshape(-1, len(values)).mean(0) * count
        self._count = self._count + count

    def flat(self) -> tuple[bool, ...]:
        """Channels with nothing but rounding; empty where no segment was seen."""
        if self._floor is None:
            return ()
        seen = np.maximum(self._count, 1)
        floor = self._floor._replace(energy=np.asarray(self._energy / seen))
        power = np.asarray(self._power) / seen[:, None]
        flat = floor.is_flat(power) & (np.asarray(self._count) > 0)
        return tuple(flat.tolist())


def averaged(values: NDArray[Any], merged: int) -> NDArray[Any]:
    """The mean of each so many neighbours on the last axis, the last of fewer."""
    if merged == 1:
        return values
    begins = np.arange(0, values.shape[-1], merged)
    held = np.diff(begins, append=values.shape[-1])
    means: NDArray[Any] = np.add.reduceat(values, begins, axis=-1) / held
    return means


def check_size(channels: int, n_freqs: int, columns: int, group: Group) -> None:
    """Errors  UsageError for more values than should be held."""
    if channels * n_freqs * columns > MOST_VALUES:
        raise UsageError(
            f"spectrogram of {group.recording!r}",
            f"{channels} channels × {n_freqs} frequencies × {columns} columns",
            f"{MOST_VALUES} values are held",
            Advice(
                "take fewer {}, a narrower band or fewer {}",
                channels=Blank("NAMES"),
                columns=Blank("N"),
            ),
        )


def _blocks(
    group: Group, size: int, nperseg: int, hop: int
) -> Iterator[Block[Samples]]:
    """Blocks of whole segments that begin at multiples of `hop`, none over a gap."""
    for first, last in group.spans:
        begin = -(-first // hop) * hop
        if last - begin < nperseg:
            continue
        for block in group.between(begin, last).blocks(size, overlap=nperseg - hop):
            if block.data.shape[1] >= nperseg:  # else the rest is no segment
                yield Block(begin + block.start, block.data)


def check_band(
    hz: NDArray[np.float64], asked: SpectrogramSettings, group: Group
) -> int:
    """How many frequencies are shown. Errors  UsageError for none."""
    most = math.inf if asked.fmax is None else asked.fmax
    doing = f"spectrogram of {group.recording!r}"
    if most < math.inf:
        Reach.of_rate(group.fs).check(f"fmax is {most:g} Hz", most, doing)
    count = int(((hz >= asked.fmin) & (hz <= most)).sum())
    if not count:
        if asked.fmin > most:
            said = f"fmin is {asked.fmin:g} Hz"
            raise UsageError(doing, said, f"fmax is {most:g} Hz")
        raise no_bin(hz, asked.fmin, most, doing, segment_s=Blank("S"))
    return count


class _Columns:
    """Sums of segments, so many to a column."""

    def __init__(self, channels: int, count: int, merged: int) -> None:
        self.channels, self.count, self.merged = channels, count, merged
        self.held = np.zeros(count)
        self._sums: NDArray[Any] | None = None

    def add(self, first: int, power: NDArray[Any], group: Group) -> None:
        """Segments first … of power (C, F, S)."""
        if self._sums is None:
            n_freqs = power.shape[1]
            check_size(self.channels, n_freqs, self.count, group)
            self._sums = np.zeros((self.channels, n_freqs, self.count))
        # Of a gap of years there are more segments than 32 bits count.
        segments = first + np.arange(power.shape[2], dtype=np.int64)
        at = (segments // self.merged).astype(np.intp)
        begins = np.flatnonzero(np.diff(at, prepend=-1))
        self._sums[:, :, at[begins]] += np.add.reduceat(power, begins, axis=2)
        np.add.at(self.held, at, 1.0)

    def mean(self) -> NDArray[Any]:
        """(C, F, S); NaN where there was no segment."""
        assert self._sums is not None
        with np.errstate(invalid="ignore"):
            self._sums /= self.held
        return self._sums


def strongest_of(own: GroupSpectrogram) -> tuple[dict[str, Any], ...]:
    """Name and unit of each channel, and where and how large its power is at most,
    beside an offset at 0 Hz; None where there is none.

    A channel with nothing but rounding is of the state "flat", and has none.
    """
    return tuple(_strongest(own, at) for at in range(len(own.names)))


def _strongest(own: GroupSpectrogram, at: int) -> dict[str, Any]:
    first = 1 if len(own.f) > 1 and own.f[0] == 0 else 0
    power = own.power[at, first:]
    is_flat = bool(own.flat) and own.flat[at]
    told: dict[str, Any] = {"name": own.names[at], "unit": own.units[at]}
    told["state"] = "flat" if is_flat else ""
    if is_flat or not np.isfinite(power).any() or not math.prod(power.shape):
        return told | {"hz": None, "s": None, "power": None}
    f, t = np.unravel_index(int(np.nanargmax(power)), power.shape)
    return told | {
        "hz": float(own.f[first + f]),
        "s": float(own.t[t]),
        "power": float(power[f, t]),
    }
