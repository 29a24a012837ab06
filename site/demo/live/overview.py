"""The whole of a recording as a spectrogram, made a few columns at a time.

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
    """Columns `first` … of the spectrogram of channel number `at` of a group.

    As many as fit into the budget, at least one. → facts, and the density (N, F) in the
    channel's unit squared per Hz; NaN where nothing was recorded.
    """
    own = replace(group, channels=(group.channels[at],))
    nperseg = min(nperseg, own.longest)
    smooth = max(nperseg // 16, (own.n_samples - nperseg) // COLUMNS)
    hop = max(1, min(nperseg // 2, smooth))
    count = 1 + (own.n_samples - nperseg) // hop
    merged = ceil(count / COLUMNS)
    columns = ceil(count / merged)
    at_once = max(1, 64 // merged)
    begun, parts, last = perf_counter(), [], first
    while last < columns and (not parts or perf_counter() - begun < BUDGET_S):
        end = min(last + at_once, columns)
        segments = range(last * merged, min(end * merged, count))
        parts.append(_means(own, segments, merged, nperseg, hop, window))
        last = end
    facts = {
        "columns": columns,
        "next": last,
        "begin_s": nperseg / 2 / own.fs,  # the middle of the first segment
        "column_s": merged * hop / own.fs,
        "bins": nperseg // 2 + 1,
        "step": own.fs / nperseg,
    }
    return facts, np.concatenate(parts).astype(np.float32)


def _means(own, segments, merged, nperseg, hop, window):
    """The mean of each so many of these segments, without those over gaps: (N, F)."""
    n = ceil(len(segments) / merged)
    sums, held = np.zeros((n, nperseg // 2 + 1)), np.zeros(n)
    most = max(1, (SAMPLES - nperseg) // hop)
    for start, stop in own.spans:
        begin = max(ceil(start / hop), segments.start)
        end = min((stop - nperseg) // hop + 1, segments.stop)
        for one in range(begin, end, most):
            until = min(one + most, end)
            x = own.read(one * hop, (until - 1) * hop + nperseg)
            overlap = nperseg - hop
            how = {"device": "cpu", "nan": "propagate"}
            _, _, power = rlx.spectrogram(x[0], own.fs, window, nperseg, overlap, **how)
            column = np.arange(one, until) // merged - segments.start // merged
            np.add.at(sums, column, power.T)
            np.add.at(held, column, 1.0)
    with np.errstate(invalid="ignore"):
        return sums / held[:, None]
