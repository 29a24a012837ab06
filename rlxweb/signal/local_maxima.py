"""True local maxima of power spectra, with prominence and refined frequency.

Owns the search on all rows at once, by the definitions of scipy.signal.find_peaks and
peak_prominences (with no window length), without a loop over maxima. It must not know
where power comes from, nor how it is shown.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rlxweb.errors import DTypeError, UsageError
from rlxweb.host.strongest import PeaksOfPower
from rlxweb.signal.rounding import RoundingFloor

_Index: TypeAlias = NDArray[np.int64]

_DOING = "local maxima"
# A table of log2(F) levels is built for some rows at a time; this many values keep it
# in the cache.
_TABLE_VALUES = 1 << 17


def local_maxima(
    power: NDArray[Any],
    freqs: NDArray[Any],
    k: int,
    *,
    prominence: float | None = None,
    floor: RoundingFloor | None = None,
) -> PeaksOfPower:
    """The k strongest local maxima of each row.

    floor    what rounding may leave: what is not above it, or stands out by no more
             than rounding moves it, is no maximum

    Shapes   power (B, F), freqs (F,) ascending and evenly spaced → see PeaksOfPower
    Numerics a maximum is higher than both neighbours; of a flat top the middle counts,
             and an edge never does; those of less prominence than asked for are left
             out. Frequency and power are refined by a parabola through the logarithm of
             three bins (through the power itself where one of them is 0). Bins are
             ranked by power before refinement; ties go to the smaller bin. NaN is never
             a maximum.
    Errors   UsageError for shapes or k < 1; DTypeError unless power is floats
    """
    _check(power, freqs, k)
    rows, bins = _find(power)
    if floor is not None:
        keep = power[rows, bins] > floor.at(rows, bins)
        rows, bins = rows[keep], bins[keep]
    if prominence is not None:
        return _standing_out(power, freqs, k, (rows, bins), prominence, floor)
    chosen, of, places = _strongest(rows, power[rows, bins], k, len(power))
    heights = prominences(power, of, bins[chosen])
    top = power[of, bins[chosen]]
    if floor is not None and (heights <= floor.moves(top, of, bins[chosen])).any():
        # Ripples took places of peaks that stand behind them.
        return _standing_out(power, freqs, k, (rows, bins), 0.0, floor)
    return _laid_out(power, freqs, k, (of, places), bins[chosen], heights)


def _standing_out(
    power: NDArray[Any],
    freqs: NDArray[Any],
    k: int,
    where: tuple[_Index, _Index],
    prominence: float,
    floor: RoundingFloor | None,
) -> PeaksOfPower:
    """The k strongest of the maxima that are prominent enough."""
    rows, bins = where
    heights = prominences(power, rows, bins)
    keep = heights >= prominence
    if floor is not None:
        keep &= heights > floor.moves(power[rows, bins], rows, bins)
    rows, bins, heights = rows[keep], bins[keep], heights[keep]
    chosen, rows, places = _strongest(rows, power[rows, bins], k, len(power))
    return _laid_out(power, freqs, k, (rows, places), bins[chosen], heights[chosen])


def _check(power: NDArray[Any], freqs: NDArray[Any], k: int) -> None:
    if power.ndim != 2 or freqs.shape != power.shape[1:]:
        raise UsageError(
            _DOING,
            f"power has shape {power.shape} and freqs {freqs.shape}",
            "(rows, bins) and (bins,) are wanted",
        )
    if power.dtype.kind != "f":
        raise DTypeError(_DOING, f"the power is {power.dtype}", "floats are wanted")
    if len(freqs) > 1 and not (freqs[1:] > freqs[:-1]).all():
        raise UsageError(
            _DOING,
            "the frequencies do not rise from bin to bin",
            "",
            "put a two-sided spectrum in order with numpy.fft.fftshift",
        )
    if k < 1:
        raise UsageError(_DOING, f"k is {k}", "it must be at least 1")


def _find(power: NDArray[Any]) -> tuple[_Index, _Index]:
    """Row and middle bin of every maximum, in the order of rows, then bins."""
    n_bins = power.shape[1]
    if power.size == 0 or n_bins < 3:
        # as wide as pointers: a tab's have 32 bits, and no wider index is taken there
        return np.empty(0, np.intp), np.empty(0, np.intp)
    peak = np.zeros(power.shape, np.bool_)
    inner = power[:, 1:-1]
    np.greater(inner, power[:, :-2], out=peak[:, 1:-1])
    peak[:, 1:-1] &= inner > power[:, 2:]
    flat = (power[:, 1:] == power[:, :-1]).any(axis=1)
    if flat.any():
        peak[flat] = _peak_runs(power[flat])
    rows, bins = np.divmod(np.flatnonzero(peak), n_bins)
    return rows, bins


def _peak_runs(power: NDArray[Any]) -> NDArray[np.bool_]:
    """Maxima of rows with equal neighbours, marked at the middle of a flat top.

    The power is read as runs of equal values; a run is a maximum if it is higher than
    the run before and the run after it in its own row.
    """
    fresh = np.ones(power.shape, np.bool_)
    np.not_equal(power[:, 1:], power[:, :-1], out=fresh[:, 1:])
    starts = np.flatnonzero(fresh)
    value = power[fresh]
    row = starts // power.shape[1]
    last = np.append(starts[1:], power.size) - 1
    above_left = (value[1:-1] > value[:-2]) & (row[1:-1] == row[:-2])
    above_right = (value[1:-1] > value[2:]) & (row[1:-1] == row[2:])
    tops = 1 + np.flatnonzero(above_left & above_right)
    peak = np.zeros(power.shape, np.bool_)
    peak.ravel()[(starts[tops] + last[tops]) // 2] = True
    return peak


def _strongest(
    rows: _Index, by: NDArray[Any], k: int, n_rows: int
) -> tuple[_Index, _Index, _Index]:
    """Positions of the k strongest maxima of each row, their rows and places.

    rows   in ascending order
    """
    count = np.bincount(rows, minlength=n_rows)
    within = np.arange(len(rows)) - np.searchsorted(rows, rows)
    strength = np.full((n_rows, count.max(initial=0)), np.inf)
    strength[rows, within] = -by
    order = strength.argsort(axis=1, kind="stable")
    some, places = np.nonzero(np.arange(min(k, order.shape[1])) < count[:, None])
    first = np.cumsum(count) - count
    return first[some] + order[some, places], some, places


def _laid_out(
    power: NDArray[Any],
    freqs: NDArray[Any],
    k: int,
    where: tuple[_Index, _Index],
    bins: _Index,
    heights: NDArray[Any],
) -> PeaksOfPower:
    """The lists as (B, k) arrays, the empty places filled in."""
    shape = (len(power), k)
    shift, top = _refined(power, where[0], bins)
    step = (freqs[-1] - freqs[0]) / (len(freqs) - 1) if len(freqs) > 1 else 0.0

    def placed(values: NDArray[Any], empty: float, dtype: DTypeLike) -> NDArray[Any]:
        out = np.full(shape, empty, dtype)
        out[where] = values
        return out

    return PeaksOfPower(
        bins=placed(bins, -1, np.int64),
        hz=placed(freqs[bins] + shift * step, np.nan, np.float64),
        power=placed(top, np.nan, power.dtype),
        count=np.bincount(where[0], minlength=shape[0]).astype(np.int64),
        prominence=placed(heights, np.nan, power.dtype),
    )


def _refined(
    power: NDArray[Any], rows: _Index, bins: _Index
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where in -½ … ½ bins the parabola has its top, and the power there."""
    three = np.stack([power[rows, bins + i] for i in (-1, 0, 1)]).astype(np.float64)
    loggable = (three > 0).all(axis=0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        left, middle, right = np.where(loggable, np.log(three), three)
        bend = left - 2.0 * middle + right
        shift = np.where(bend < 0, 0.5 * (left - right) / bend, 0.0)
        shift = np.clip(shift, -0.5, 0.5)
        top = middle - 0.25 * (left - right) * shift
        top = np.where(loggable, np.exp(top), top)
    # Between two bins the power may lie past the end of its type.
    held = top <= np.finfo(power.dtype).max
    return shift, np.where(held, top, three[1])


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
