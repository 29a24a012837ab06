"""Prominence of many maxima on many rows, without a loop over maxima.

Owns the walk from a maximum down its two sides, done for all maxima together in steps
of powers of two. Definition: scipy.signal.peak_prominences with no window length.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

_Index: TypeAlias = NDArray[np.int64]

# A table of log2(F) levels is built for some rows at a time; this many values keep it
# in the cache.
_TABLE_VALUES = 1 << 17


def prominences(power: NDArray[Any], rows: _Index, bins: _Index) -> NDArray[Any]:
    """Prominence of the maximum at each (row, bin); rows in ascending order.

    From the maximum one walks left and right as far as nothing is higher; the higher
    of the lowest points met on the two sides is the base.
    """
    out = np.empty(len(rows), power.dtype)
    if not len(rows):
        return out
    n_bins = power.shape[1]
    per_pass = max(1, _TABLE_VALUES // (n_bins * n_bins.bit_length()))
    for start in range(0, len(power), per_pass):
        part = slice(*np.searchsorted(rows, (start, start + per_pass)))
        if part.start == part.stop:
            continue
        some = np.ascontiguousarray(power[start : start + per_pass])
        row, column = rows[part] - start, bins[part]
        first, last = _reach(some, row, column)
        out[part] = some[row, column] - np.maximum(
            _lowest(some, row, first, column), _lowest(some, row, column, last)
        )
    return out


def _reach(power: NDArray[Any], row: _Index, column: _Index) -> tuple[_Index, _Index]:
    """First and last bin of the stretch around each point with nothing higher in it.

    highest[j][r, c] is the maximum of the 2^j bins that end at c. The longest steps are
    tried first; a step is taken if nothing under it is higher.
    """
    n_bins = power.shape[1]
    highest = [power]
    while 1 << len(highest) <= n_bins:
        half = 1 << (len(highest) - 1)
        wider = highest[-1].copy()
        np.maximum(wider[:, half:], highest[-1][:, :-half], out=wider[:, half:])
        highest.append(wider)
    here = power[row, column]
    first, last = column.copy(), column.copy()
    for j in reversed(range(len(highest))):
        step = 1 << j
        # A negative index reads some other bin; the bound beside it rules that out.
        fits = (first >= step) & (highest[j][row, first - 1] <= here)
        first -= fits * step
        ahead = np.minimum(last + step, n_bins - 1)
        fits = (last + step < n_bins) & (highest[j][row, ahead] <= here)
        last += fits * step
    return first, last


def _lowest(
    power: NDArray[Any], row: _Index, first: _Index, last: _Index
) -> NDArray[Any]:
    """The lowest value of each stretch first … last of a row, both included."""
    flat = np.append(power.ravel(), power.dtype.type(0))
    ends = np.stack((first, last + 1), axis=1) + row[:, None] * power.shape[1]
    lowest: NDArray[Any] = np.minimum.reduceat(flat, ends.ravel())[::2]
    return lowest
