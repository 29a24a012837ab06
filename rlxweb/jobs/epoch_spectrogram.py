"""Spectrograms of epochs, averaged: time counts from their annotations.

Owns how many epochs are held at once, and the baseline that powers are told against.
What a spectrogram of a recording holds is in `jobs/spectrogram.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rlxweb.advice import Advice, Blank
from rlxweb.errors import UsageError
from rlxweb.io import check_finite
from rlxweb.jobs.averaging import BLOCK_BYTES
from rlxweb.jobs.epoching import Condition
from rlxweb.jobs.spectrogram import (
    FloorOfSegments,
    GroupSpectrogram,
    SpectrogramSettings,
    averaged,
    check_band,
    check_size,
    segments_of_block,
)
from rlxweb.recipes.welch_plan import segment_count

QUARTER = 4
"""A segment that is left to us has at most this part of an epoch."""


def epochs_spectrogram(
    one: Condition,
    asked: SpectrogramSettings,
    progress: Callable[[float], object] = bool,
    baseline: tuple[float, float] | None = None,
) -> GroupSpectrogram:
    """The mean over the epochs of a condition, time by time and frequency by frequency.

    progress  is told what share of them was just done
    baseline  seconds from the annotation: powers are told over the mean of their
              frequency between these, both ends included

    Errors    UsageError for segments that are longer than an epoch, a baseline in which
              no segment has its middle, and what else does not fit; NotFinite
    """
    group, length = one.cut.group, one.cut.count
    nperseg = max(1, round(asked.segment_s * group.fs))
    if nperseg > length:
        raise UsageError(
            f"spectrogram of {group.recording!r}",
            f"a segment has {nperseg} samples ({asked.segment_s:g} s)",
            f"an epoch at {group.fs:g} Hz has {length} ({length / group.fs:g} s)",
            Advice("give a shorter {}", segment_s=Blank("S")),
        )
    hop = asked.hop(nperseg, length)
    count = segment_count(length, nperseg, hop)
    freqs: NDArray[np.float64] = np.arange(nperseg // 2 + 1) * group.fs / nperseg
    n_freqs = check_band(freqs, asked, group)
    check_size(len(group.channels), n_freqs, count, group)
    total = np.zeros((len(group.channels), n_freqs, count))
    step = max(1, BLOCK_BYTES // (8 * len(group.channels) * n_freqs * count))
    n_epochs = len(one.cut.events)
    floor = FloorOfSegments()
    for first in range(0, n_epochs, step):
        last = min(first + step, n_epochs)
        x = one.cut.data(first, last)
        for at in range(first, last) if asked.nan == "raise" else ():
            check_finite(x[at - first], group, one.cut.begin(at))
        segments = segments_of_block(x, group, asked, nperseg, hop)
        freqs = segments.f
        floor.add(segments)
        total += segments.values.sum(axis=0)
        progress((last - first) / n_epochs)
    begin = one.cut.first / group.fs
    times = (hop * np.arange(count) + nperseg / 2) / group.fs + begin
    merged = max(1, math.ceil(count / asked.columns))
    found = GroupSpectrogram(
        names=group.names,
        units=tuple(c.unit for c in group.channels),
        fs=group.fs,
        n_samples=length,
        nperseg=nperseg,
        merged=merged,
        f=freqs,
        t=averaged(times, merged),
        power=averaged(total / n_epochs, merged),
        epochs=one.used,
        flat=floor.flat(),
    )
    return found if baseline is None else _over(found, baseline)


def _over(found: GroupSpectrogram, baseline: tuple[float, float]) -> GroupSpectrogram:
    """Powers over those of the baseline."""
    low, high = baseline
    inside = (found.t >= low) & (found.t <= high)
    if not inside.any():
        raise UsageError(
            "the baseline of epochs",
            f"no segment has its middle between {low:g} and {high:g} s",
            f"they lie from {found.t[0]:.3g} to {found.t[-1]:.3g} s",
            Advice("widen it, or give a shorter {}", segment_s=Blank("S")),
        )
    before = found.power[..., inside].mean(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = found.power / before
    if found.flat:
        ratio[np.array(found.flat)] = np.nan
    return replace(found, power=ratio, baseline=baseline)
