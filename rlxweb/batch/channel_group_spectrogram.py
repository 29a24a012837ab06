"""Spectrogram of one group of channels in bounded memory: segments are averaged into
columns.

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

from rlxweb.batch.channel_group_power import BLOCK_NBYTES
from rlxweb.batch.epoch_options import AveragedEpochs
from rlxweb.batch.settings import segment_samples
from rlxweb.core.errors import UsageError
from rlxweb.core.function_options import FROM_SIGNATURE, Option, declare_options
from rlxweb.core.message_text import Advice, Blank
from rlxweb.io import Block, Group, check_finite
from rlxweb.io.format_reader_interface import Samples
from rlxweb.ops.welch.parameters import segment_count
from rlxweb.signal.frequency_bins import FrequencyLimit, empty_band_error
from rlxweb.signal.rounding_floor import RoundingFloor
from rlxweb.signal.shared_options import (
    ADAPTER_OPTION,
    DEVICE_OPTION,
    NAN_OPTION,
    PRECISION_OPTION,
)
from rlxweb.signal.spectrogram import spectrogram
from rlxweb.signal.time_frequency_result import TimeFrequency

MAX_COLUMNS: Final = 1200
"""Default maximum number of columns; a picture has no more pixels across."""
MIN_COLUMNS: Final = 200
"""Number of columns that a short recording should have at least."""
MAX_VALUES: Final = 1 << 26
"""Maximum number of values, over all channels, frequencies and columns, that are held:
half a gigabyte.
"""


_MAX_SEGMENTS_PER_SAMPLE = 16


@declare_options(
    segment_s=Option(
        "Seconds per segment [2, but at most a quarter of an epoch].",
        is_positive=True,
    ),
    overlap=Option(
        "Overlap of adjacent segments, as a fraction of a segment [0.5, more in short "
        "recordings].",
        below=1,
    ),
    columns=Option(
        "Maximum number of time columns.", is_positive=True, default=FROM_SIGNATURE
    ),
    fmin=Option("Lowest frequency shown, in Hz.", default=FROM_SIGNATURE),
    fmax=Option("Highest frequency shown, in Hz."),
    device=DEVICE_OPTION,
    adapter=ADAPTER_OPTION,
    precision=PRECISION_OPTION,
    nan=NAN_OPTION,
)
@dataclass(frozen=True, slots=True)
class SpectrogramSettings:
    """Settings of how a recording is cut into segments and what is kept of it.

    segment_s   seconds per segment
    overlap     share of a segment that the next one has too, 0 … below 1; None: half,
                and more where a recording would have few columns
    columns     moments in time that are kept, at most
    fmin, fmax  in Hz; None: no end
    """

    segment_s: float = 2.0
    overlap: float | None = None
    columns: int = MAX_COLUMNS
    fmin: float = 0.0
    fmax: float | None = None
    window: Any = "hann"
    device: str = "auto"
    adapter: str = ""
    precision: Any = "auto"
    nan: Any = "raise"

    def hop(self, nperseg: int, n_samples: int) -> int:
        """Return the samples from one segment to the next."""
        if self.overlap is not None:
            return max(1, nperseg - round(self.overlap * nperseg))
        # What a short recording says twice as often it says more smoothly.
        short_hop = max(
            nperseg // _MAX_SEGMENTS_PER_SAMPLE, (n_samples - nperseg) // MIN_COLUMNS
        )
        return max(1, min(nperseg // 2, short_hop))


@dataclass(frozen=True, slots=True)
class GroupSpectrogram:
    """Spectrogram of the channels of one rate.

    f      (F,) Hz;  t  (S,) s, the middles of the columns, from the first sample of the
           file whatever stretch was taken: as onsets of annotations
    power  (C, F, S) density in the channels' unit squared per Hz; NaN in gaps
    merged segments that are averaged in a column
    epochs those that are averaged, where there are any: t counts from what they are
           around, and n_samples are those of an epoch
    baseline  seconds: power is a ratio to its mean there; None: it is none
    flat_channels  (C,) channels with nothing but rounding
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    fs: float
    n_samples: int
    nperseg: int
    segments_per_column: int
    f: NDArray[np.float64]
    t: NDArray[np.float64]
    power: NDArray[Any]
    epochs: AveragedEpochs | None = None
    baseline: tuple[float, float] | None = None
    channel_maxima: tuple[dict[str, Any], ...] = ()
    flat_channels: tuple[bool, ...] = ()

    @property
    def column_s(self) -> float:
        """Seconds from one column to the next."""
        return float(self.t[1] - self.t[0]) if len(self.t) > 1 else self.seconds

    @property
    def seconds(self) -> float:
        """Length of the recording, or of an epoch, in seconds."""
        return self.n_samples / self.fs


def group_spectrogram(
    group: Group,
    settings: SpectrogramSettings,
    progress: Callable[[int], object] | None = None,
) -> GroupSpectrogram:
    """Compute the spectrogram of a group of channels, block by block.

    progress   is told after each block how many samples it had, all channels counted
    Errors     UsageError for what does not fit; NotFinite naming channel and sample.
    """
    context = f"spectrogram of {group.recording!r}"
    nperseg = segment_samples(group, settings.segment_s, context)
    hop = settings.hop(nperseg, group.n_samples)
    count = segment_count(group.n_samples, nperseg, hop)
    segments_per_column = max(1, math.ceil(count / settings.columns))
    n_channels = len(group.channels)
    sums = _ColumnSums(
        n_channels, math.ceil(count / segments_per_column), segments_per_column
    )
    segments_per_block = max(1, BLOCK_NBYTES // (8 * n_channels * hop))
    size = min(nperseg + (segments_per_block - 1) * hop, group.longest)
    freqs: NDArray[np.float64] = np.arange(nperseg // 2 + 1) * group.fs / nperseg
    check_band(freqs, settings, group)
    floor = SegmentFloor()
    for block in _segment_blocks(group, size, nperseg, hop):
        if settings.nan == "raise":
            check_finite(block.data, group, block.start)
        block_result = block_spectrogram(block.data, group, settings, nperseg, hop)
        freqs, power = block_result.f, block_result.values
        floor.add(block_result)
        sums.add(block.start // hop, power, group)
        if progress is not None:
            progress(math.prod(block.data.shape))
    starts = np.arange(sums.count, dtype=np.float64) * segments_per_column * hop
    segment_counts = np.minimum(
        segments_per_column,
        count - segments_per_column * np.arange(sums.count, dtype=np.int64),
    )
    times = (
        group.first + starts + (segment_counts - 1) * hop / 2 + nperseg / 2
    ) / group.fs
    flat_channels = floor.flat_channels()
    return GroupSpectrogram(
        names=group.names,
        units=tuple(channel.unit for channel in group.channels),
        fs=group.fs,
        n_samples=group.n_samples,
        nperseg=nperseg,
        segments_per_column=segments_per_column,
        f=freqs,
        t=times,
        power=sums.mean(),
        flat_channels=flat_channels,
    )


def block_spectrogram(
    x: NDArray[Any], group: Group, settings: SpectrogramSettings, nperseg: int, hop: int
) -> TimeFrequency:
    """Compute the density (…, F, S) of the segments of samples (…, T)."""
    return spectrogram(
        x,
        group.fs,
        settings.window,
        nperseg,
        nperseg - hop,
        fmin=settings.fmin,
        fmax=settings.fmax,
        device=None if settings.device == "auto" else settings.device,
        adapter=settings.adapter,
        precision=settings.precision,
        nan=settings.nan,
    )


class SegmentFloor:
    """Accumulator of power and rounding floor over all segments so far, channel by
    channel.
    """

    def __init__(self) -> None:
        self._floor: RoundingFloor | None = None
        self._power: NDArray[Any] | float = 0.0
        self._energy: NDArray[Any] | float = 0.0
        self._count: NDArray[Any] | int = 0

    def add(self, segments: TimeFrequency) -> None:
        """Add segments (…, C, F, S); those that are not finite are skipped."""
        if segments.floor is None:
            return
        self._floor = segments.floor
        values = np.moveaxis(segments.values, -3, 0)
        is_finite = np.isfinite(values).all(axis=-2, keepdims=True)
        count = is_finite.reshape(len(values), -1).sum(axis=1)
        total = np.where(is_finite, values, 0.0).astype(np.float64)
        axes = tuple(axis for axis in range(1, total.ndim) if axis != total.ndim - 2)
        energy = np.nan_to_num(segments.floor.energy)
        self._power = self._power + total.sum(axis=axes)
        self._energy = self._energy + energy.reshape(-1, len(values)).mean(0) * count
        self._count = self._count + count

    def flat_channels(self) -> tuple[bool, ...]:
        """Return for each channel whether it has nothing but rounding; empty where no
        segment was seen.
        """
        if self._floor is None:
            return ()
        counts = np.maximum(self._count, 1)
        floor = self._floor._replace(energy=np.asarray(self._energy / counts))
        power = np.asarray(self._power) / counts[:, None]
        flat = floor.is_flat(power) & (np.asarray(self._count) > 0)
        return tuple(flat.tolist())


def average_columns(values: NDArray[Any], segments_per_column: int) -> NDArray[Any]:
    """Average each so many neighbours on the last axis; the last average may be of
    fewer.
    """
    if segments_per_column == 1:
        return values
    starts = np.arange(0, values.shape[-1], segments_per_column)
    counts = np.diff(starts, append=values.shape[-1])
    means: NDArray[Any] = np.add.reduceat(values, starts, axis=-1) / counts
    return means


def check_value_count(
    n_channels: int, n_freqs: int, n_columns: int, group: Group
) -> None:
    """Refuse a spectrogram with more values than should be held. Errors  UsageError"""
    n_values = n_channels * n_freqs * n_columns
    if n_values > MAX_VALUES:
        raise UsageError(
            f"spectrogram of {group.recording!r}",
            f"{n_channels} channels × {n_freqs} frequencies × {n_columns} columns are "
            f"{n_values} values",
            f"at most {MAX_VALUES} values are supported",
            Advice(
                "use fewer channels ({}), a narrower band or fewer columns ({})",
                channels=Blank("NAMES"),
                columns=Blank("N"),
            ),
        )


def _segment_blocks(
    group: Group, size: int, nperseg: int, hop: int
) -> Iterator[Block[Samples]]:
    """Yield blocks of whole segments that begin at multiples of `hop`, none over a
    gap.
    """
    for first, last in group.spans:
        begin = -(-first // hop) * hop
        if last - begin < nperseg:
            continue
        for block in group.between(begin, last).blocks(size, overlap=nperseg - hop):
            if block.data.shape[1] >= nperseg:  # else the rest is no segment
                yield Block(begin + block.start, block.data)


def check_band(
    hz: NDArray[np.float64], settings: SpectrogramSettings, group: Group
) -> int:
    """Return the number of frequencies shown. Errors  UsageError if there are none."""
    max_hz = math.inf if settings.fmax is None else settings.fmax
    context = f"spectrogram of {group.recording!r}"
    if max_hz < math.inf:
        FrequencyLimit.from_rate(group.fs).check_frequency(
            f"fmax is {max_hz:g} Hz", max_hz, context
        )
    count = int(((hz >= settings.fmin) & (hz <= max_hz)).sum())
    if not count:
        if settings.fmin > max_hz:
            problem = f"fmin is {settings.fmin:g} Hz"
            raise UsageError(context, problem, f"fmax is {max_hz:g} Hz")
        raise empty_band_error(hz, settings.fmin, max_hz, context, segment_s=Blank("S"))
    return count


class _ColumnSums:
    """Sums of segments, so many to a column."""

    def __init__(self, channels: int, count: int, segments_per_column: int) -> None:
        self.channels, self.count, self.segments_per_column = (
            channels,
            count,
            segments_per_column,
        )
        self.segment_counts = np.zeros(count)
        self._sums: NDArray[Any] | None = None

    def add(self, first: int, power: NDArray[Any], group: Group) -> None:
        """Add the segments of power (C, F, S), the first of which has this number."""
        if self._sums is None:
            n_freqs = power.shape[1]
            check_value_count(self.channels, n_freqs, self.count, group)
            self._sums = np.zeros((self.channels, n_freqs, self.count))
        # Of a gap of years there are more segments than 32 bits count.
        segments = first + np.arange(power.shape[2], dtype=np.int64)
        columns = (segments // self.segments_per_column).astype(np.intp)
        starts = np.flatnonzero(np.diff(columns, prepend=-1))
        self._sums[:, :, columns[starts]] += np.add.reduceat(power, starts, axis=2)
        np.add.at(self.segment_counts, columns, 1.0)

    def mean(self) -> NDArray[Any]:
        """Return the means (C, F, S); NaN where there was no segment."""
        assert self._sums is not None
        with np.errstate(invalid="ignore"):
            self._sums /= self.segment_counts
        return self._sums


def channel_maxima(group_result: GroupSpectrogram) -> tuple[dict[str, Any], ...]:
    """Return name and unit of each channel, and frequency, time and value of its
    maximum power, without the bin at 0 Hz; None where there is none.

    A channel with nothing but rounding is of the state "flat", and has none.
    """
    return tuple(
        _channel_maximum(group_result, channel)
        for channel in range(len(group_result.names))
    )


def _channel_maximum(group_result: GroupSpectrogram, channel: int) -> dict[str, Any]:
    first = 1 if len(group_result.f) > 1 and group_result.f[0] == 0 else 0
    power = group_result.power[channel, first:]
    is_flat = bool(group_result.flat_channels) and group_result.flat_channels[channel]
    entry: dict[str, Any] = {
        "name": group_result.names[channel],
        "unit": group_result.units[channel],
    }
    entry["state"] = "flat" if is_flat else ""
    if is_flat or not np.isfinite(power).any() or not math.prod(power.shape):
        return entry | {"hz": None, "s": None, "power": None}
    f, t = np.unravel_index(int(np.nanargmax(power)), power.shape)
    return entry | {
        "hz": float(group_result.f[first + f]),
        "s": float(group_result.t[t]),
        "power": float(power[f, t]),
    }
