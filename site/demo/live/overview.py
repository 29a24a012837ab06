"""Spectrogram of a whole recording, computed a few columns at a time.

Runs in the Worker of the live page beside `live.py`, which knows the open recording.
Between two calls the page draws and computes its frames, so a file of hours costs no
picture. Nothing is kept from one call to the next.
"""

from dataclasses import replace
from math import ceil
from time import perf_counter

import numpy as np

import rlxweb as rlx

COLUMNS = 480  # about as many pixels as a picture has across
BUDGET_S = 0.06
SAMPLES = 1 << 19  # of one channel that are held at once


def columns_of(group, at, nperseg, window, first):
    """Return columns `first` … of the spectrogram of channel number `at` of a group.

    As many as fit into the budget, at least one. → facts, and the density (N, F) in the
    channel's unit squared per Hz; NaN where nothing was recorded.
    """
    channel = replace(group, channels=(group.channels[at],))
    nperseg = min(nperseg, channel.longest)
    min_hop = max(nperseg // 16, (channel.n_samples - nperseg) // COLUMNS)
    hop = max(1, min(nperseg // 2, min_hop))
    count = 1 + (channel.n_samples - nperseg) // hop
    merged = ceil(count / COLUMNS)
    columns = ceil(count / merged)
    columns_per_step = max(1, 64 // merged)
    started, parts, last = perf_counter(), [], first
    while last < columns and (not parts or perf_counter() - started < BUDGET_S):
        end = min(last + columns_per_step, columns)
        segments = range(last * merged, min(end * merged, count))
        parts.append(_segment_means(channel, segments, merged, nperseg, hop, window))
        last = end
    facts = {
        "columns": columns,
        "next": last,
        "begin_s": nperseg / 2 / channel.fs,  # the middle of the first segment
        "column_s": merged * hop / channel.fs,
        "bins": nperseg // 2 + 1,
        "step": channel.fs / nperseg,
    }
    return facts, np.concatenate(parts).astype(np.float32)


def _segment_means(channel, segments, merged, nperseg, hop, window):
    """Return the mean of each `merged` segments, without those over gaps: (N, F)."""
    n = ceil(len(segments) / merged)
    sums, counts = np.zeros((n, nperseg // 2 + 1)), np.zeros(n)
    max_segments = max(1, (SAMPLES - nperseg) // hop)
    for start, stop in channel.spans:
        begin = max(ceil(start / hop), segments.start)
        end = min((stop - nperseg) // hop + 1, segments.stop)
        for first_segment in range(begin, end, max_segments):
            end_segment = min(first_segment + max_segments, end)
            x = channel.read(first_segment * hop, (end_segment - 1) * hop + nperseg)
            overlap = nperseg - hop
            options = {"device": "cpu", "nan": "propagate"}
            _, _, power = rlx.spectrogram(
                x[0], channel.fs, window, nperseg, overlap, **options
            )
            column = (
                np.arange(first_segment, end_segment) // merged
                - segments.start // merged
            )
            np.add.at(sums, column, power.T)
            np.add.at(counts, column, 1.0)
    with np.errstate(invalid="ignore"):
        return sums / counts[:, None]
