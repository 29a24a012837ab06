"""Average spectrogram of epochs, on a time axis relative to their annotations.

Owns how many epochs are held at once, and the baseline that powers are told against.
What a spectrogram of a recording holds is in `channel_group_spectrogram.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rlxweb.batch.channel_group_power import BLOCK_NBYTES
from rlxweb.batch.channel_group_spectrogram import (
    GroupSpectrogram,
    SegmentFloor,
    SpectrogramSettings,
    average_columns,
    block_spectrogram,
    check_band,
    check_value_count,
)
from rlxweb.batch.epoch_options import EpochCondition
from rlxweb.core.errors import UsageError
from rlxweb.core.message_text import Advice, Blank
from rlxweb.io import check_finite
from rlxweb.ops.welch.parameters import segment_count

DEFAULT_SEGMENT_DIVISOR = 4
"""A segment of default length has at most this part (1/n) of an epoch."""


def epochs_spectrogram(
    condition: EpochCondition,
    settings: SpectrogramSettings,
    progress: Callable[[float], object] = bool,
    baseline: tuple[float, float] | None = None,
) -> GroupSpectrogram:
    """Return the mean spectrogram over the epochs of a condition.

    progress  is told what share of them was just done
    baseline  seconds from the annotation: powers are told over the mean of their
              frequency between these, both ends included

    Errors    UsageError for segments that are longer than an epoch, a baseline in which
              no segment has its middle, and what else does not fit; NotFinite
    """
    group, length = condition.selection.group, condition.selection.n_samples
    nperseg = max(1, round(settings.segment_s * group.fs))
    if nperseg > length:
        raise UsageError(
            f"spectrogram of {group.recording!r}",
            f"a segment has {nperseg} samples ({settings.segment_s:g} s)",
            f"an epoch at {group.fs:g} Hz has {length} samples "
            f"({length / group.fs:g} s)",
            Advice("use a shorter {}", segment_s=Blank("S")),
        )
    hop = settings.hop(nperseg, length)
    count = segment_count(length, nperseg, hop)
    freqs: NDArray[np.float64] = np.arange(nperseg // 2 + 1) * group.fs / nperseg
    n_freqs = check_band(freqs, settings, group)
    check_value_count(len(group.channels), n_freqs, count, group)
    total = np.zeros((len(group.channels), n_freqs, count))
    batch_size = max(1, BLOCK_NBYTES // (8 * len(group.channels) * n_freqs * count))
    n_epochs = len(condition.selection.events)
    floor = SegmentFloor()
    for first in range(0, n_epochs, batch_size):
        last = min(first + batch_size, n_epochs)
        x = condition.selection.read_epochs(first, last)
        for epoch in range(first, last) if settings.nan == "raise" else ():
            check_finite(
                x[epoch - first], group, condition.selection.start_sample(epoch)
            )
        segments = block_spectrogram(x, group, settings, nperseg, hop)
        freqs = segments.f
        floor.add(segments)
        total += segments.values.sum(axis=0)
        progress((last - first) / n_epochs)
    begin = condition.selection.event_offset / group.fs
    times = (hop * np.arange(count) + nperseg / 2) / group.fs + begin
    segments_per_column = max(1, math.ceil(count / settings.columns))
    result = GroupSpectrogram(
        names=group.names,
        units=tuple(channel.unit for channel in group.channels),
        fs=group.fs,
        n_samples=length,
        nperseg=nperseg,
        segments_per_column=segments_per_column,
        f=freqs,
        t=average_columns(times, segments_per_column),
        power=average_columns(total / n_epochs, segments_per_column),
        epochs=condition.averaged,
        flat_channels=floor.flat_channels(),
    )
    return result if baseline is None else _divide_by_baseline(result, baseline)


def _divide_by_baseline(
    result: GroupSpectrogram, baseline: tuple[float, float]
) -> GroupSpectrogram:
    """Divide the power by its mean in the baseline."""
    low, high = baseline
    inside = (result.t >= low) & (result.t <= high)
    if not inside.any():
        raise UsageError(
            "apply the baseline of the epochs",
            f"no segment is centered between {low:g} and {high:g} s",
            f"the segment centers range from {result.t[0]:.3g} to {result.t[-1]:.3g} s",
            Advice("widen the baseline, or use a shorter {}", segment_s=Blank("S")),
        )
    baseline_power = result.power[..., inside].mean(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = result.power / baseline_power
    if result.flat_channels:
        ratio[np.array(result.flat_channels)] = np.nan
    return replace(result, power=ratio, baseline=baseline)
