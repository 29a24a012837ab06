"""True local maxima of power spectra, with prominence and refined frequency.

Owns the search on all rows at once, by the definitions of scipy.signal.find_peaks and
peak_prominences. It must not know where power comes from, nor how it is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlxweb.errors import DTypeError, UsageError
from rlxweb.signal.prominence import prominences

Ranking: TypeAlias = Literal["power", "prominence"]
_Index: TypeAlias = NDArray[np.int64]

_DOING = "local maxima"


@dataclass(frozen=True, slots=True, eq=False)
class LocalMaxima:
    """The strongest maxima of each row, strongest first; (B, k) but for `count`.

    count       how many of the k places are filled, (B,)
    bins        bin index; -1 where no maximum was left
    hz          refined frequency; NaN there
    power       power at the refined frequency; NaN there
    prominence  height above the higher of the two surrounding valleys; NaN there
    """

    count: NDArray[np.int64]
    bins: NDArray[np.int64]
    hz: NDArray[np.float64]
    power: NDArray[Any]
    prominence: NDArray[Any]


def local_maxima(
    power: NDArray[Any],
    freqs: NDArray[Any],
    k: int,
    *,
    height: float | None = None,
    distance: float | None = None,
    prominence: float | None = None,
    rank: Ranking = "power",
) -> LocalMaxima:
    """The k strongest local maxima of each row.

    Shapes   power (B, F), freqs (F,) ascending and evenly spaced → see LocalMaxima
    Numerics a maximum is higher than both neighbours; of a flat top the middle counts,
             and an edge never does. Filters apply in scipy's order: height (power at
             least), distance (bins between maxima at least, stronger ones first, then
             smaller bins), prominence (at least). Frequency and power are refined by a
             parabola through the logarithm of three bins (through the power itself
             where one of them is 0). Bins are ranked by power before refinement, or by
             prominence; ties go to the smaller bin. NaN is never a maximum.
    Errors   UsageError for shapes, k < 1, distance < 1 or an unknown rank; DTypeError
             unless power is floats
    """
    _check(power, freqs, k, distance, rank)
    rows, bins = _find(power)
    if height is not None:
        keep = power[rows, bins] >= height
        rows, bins = rows[keep], bins[keep]
    if distance is not None and ceil(distance) > 1:
        keep = _spaced(power, rows, bins, ceil(distance))
        rows, bins = rows[keep], bins[keep]
    heights = None
    if prominence is not None or rank == "prominence":
        heights = prominences(power, rows, bins)
        if prominence is not None:
            keep = heights >= prominence
            rows, bins, heights = rows[keep], bins[keep], heights[keep]
    by = heights if rank == "prominence" and heights is not None else power[rows, bins]
    chosen, rows, places = _strongest(rows, by, k, len(power))
    bins = bins[chosen]
    heights = prominences(power, rows, bins) if heights is None else heights[chosen]
    return _laid_out(power, freqs, k, (rows, places), bins, heights)


def _check(
    power: NDArray[Any],
    freqs: NDArray[Any],
    k: int,
    distance: float | None,
    rank: object,
) -> None:
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
    if distance is not None and not distance >= 1:
        raise UsageError(_DOING, f"distance is {distance}", "it must be at least 1 bin")
    if rank not in ("power", "prominence"):
        raise UsageError(
            _DOING, f"rank is {rank!r}", "it must be 'power' or 'prominence'"
        )


def _find(power: NDArray[Any]) -> tuple[_Index, _Index]:
    """Row and middle bin of every maximum, in the order of rows, then bins."""
    n_bins = power.shape[1]
    if power.size == 0 or n_bins < 3:
        return np.empty(0, np.int64), np.empty(0, np.int64)
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


def _places(rows: _Index) -> _Index:
    """0, 1, 2 … within each row, for row numbers in ascending order."""
    return np.arange(len(rows)) - np.searchsorted(rows, rows)


def _ranked(rows: _Index, by: NDArray[Any], n_rows: int) -> tuple[_Index, _Index]:
    """Per row, (B, M): which of its maxima is the strongest, the next …; and how many.

    Maxima are numbered 0, 1, 2 … within their row; numbers beyond the count are empty.
    """
    count = np.bincount(rows, minlength=n_rows)
    strength = np.full((n_rows, count.max(initial=0)), np.inf)
    strength[rows, _places(rows)] = -by
    return strength.argsort(axis=1, kind="stable"), count


def _spaced(
    power: NDArray[Any], rows: _Index, bins: _Index, distance: int
) -> NDArray[np.bool_]:
    """Which maxima stay when the stronger ones clear their surroundings.

    All rows take a step together: each lets its strongest undecided maximum stand.
    """
    order, count = _ranked(rows, power[rows, bins], len(power))
    places = _places(rows)
    table: NDArray[np.int64] = np.full(order.shape, -1)
    table[rows, places] = bins
    alive = table >= 0
    for rank in range(table.shape[1]):
        mine = np.flatnonzero(count > rank)
        column = order[mine, rank]
        standing = alive[mine, column]
        mine, column = mine[standing], column[standing]
        near = np.abs(table[mine] - table[mine, column][:, None]) < distance
        near[np.arange(len(mine)), column] = False
        alive[mine] &= ~near
    kept: NDArray[np.bool_] = alive[rows, places]
    return kept


def _strongest(
    rows: _Index, by: NDArray[Any], k: int, n_rows: int
) -> tuple[_Index, _Index, _Index]:
    """Positions of the k strongest maxima of each row, their rows and places."""
    order, count = _ranked(rows, by, n_rows)
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
) -> LocalMaxima:
    """The lists as (B, k) arrays, the empty places filled in."""
    shape = (len(power), k)
    shift, top = _refined(power, where[0], bins)
    step = (freqs[-1] - freqs[0]) / (len(freqs) - 1) if len(freqs) > 1 else 0.0
    found = LocalMaxima(
        count=np.bincount(where[0], minlength=shape[0]).astype(np.int64),
        bins=np.full(shape, -1, np.int64),
        hz=np.full(shape, np.nan),
        power=np.full(shape, np.nan, power.dtype),
        prominence=np.full(shape, np.nan, power.dtype),
    )
    found.bins[where] = bins
    found.hz[where] = freqs[bins] + shift * step
    found.power[where] = top
    found.prominence[where] = heights
    return found


def _refined(
    power: NDArray[Any], rows: _Index, bins: _Index
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where in -½ … ½ bins the parabola has its top, and the power there."""
    three = np.stack([power[rows, bins + i] for i in (-1, 0, 1)]).astype(np.float64)
    loggable = (three > 0).all(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        left, middle, right = np.where(loggable, np.log(three), three)
        bend = left - 2.0 * middle + right
        shift = np.where(bend < 0, 0.5 * (left - right) / bend, 0.0)
        shift = np.clip(shift, -0.5, 0.5)
        top = middle - 0.25 * (left - right) * shift
    return shift, np.where(loggable, np.exp(top), top)
