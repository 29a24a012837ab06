"""True local maxima of power spectra, with prominence and refined frequency.

Owns the search on all rows at once, by the definitions of scipy.signal.find_peaks and
peak_prominences (with no window length), without a loop over maxima. It must not know
where power comes from, nor how it is shown.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rlxweb.core.errors import DTypeError, UsageError
from rlxweb.ops.welch.cpu.strongest_bins import PeaksOfPower
from rlxweb.signal.rounding_floor import RoundingFloor

_IndexArray: TypeAlias = NDArray[np.int64]

_CONTEXT = "local maxima"
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
    """Return the k strongest local maxima of each row.

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
    _check_spectrum(power, freqs, k)
    rows, bins = _find_maxima(power)
    if floor is not None:
        keep = power[rows, bins] > floor.values_at(rows, bins)
        rows, bins = rows[keep], bins[keep]
    if prominence is not None:
        return _strongest_prominent(power, freqs, k, (rows, bins), prominence, floor)
    chosen, peak_rows, ranks = _strongest_per_row(
        rows, power[rows, bins], k, len(power)
    )
    heights = prominences(power, peak_rows, bins[chosen])
    top = power[peak_rows, bins[chosen]]
    if (
        floor is not None
        and (heights <= floor.power_uncertainty(top, peak_rows, bins[chosen])).any()
    ):
        # Ripples took places of peaks that stand behind them.
        return _strongest_prominent(power, freqs, k, (rows, bins), 0.0, floor)
    return _pad_to_k(power, freqs, k, (peak_rows, ranks), bins[chosen], heights)


def _strongest_prominent(
    power: NDArray[Any],
    freqs: NDArray[Any],
    k: int,
    maxima: tuple[_IndexArray, _IndexArray],
    prominence: float,
    floor: RoundingFloor | None,
) -> PeaksOfPower:
    """Return the k strongest of the maxima that are prominent enough."""
    rows, bins = maxima
    heights = prominences(power, rows, bins)
    # A number of Python would be cast to float32, beyond which it may lie.
    keep = heights >= np.float64(prominence)
    if floor is not None:
        keep &= heights > floor.power_uncertainty(power[rows, bins], rows, bins)
    rows, bins, heights = rows[keep], bins[keep], heights[keep]
    chosen, rows, ranks = _strongest_per_row(rows, power[rows, bins], k, len(power))
    return _pad_to_k(power, freqs, k, (rows, ranks), bins[chosen], heights[chosen])


def _check_spectrum(power: NDArray[Any], freqs: NDArray[Any], k: int) -> None:
    """Raise UsageError or DTypeError unless power, freqs and k are valid."""
    if power.ndim != 2 or freqs.shape != power.shape[1:]:
        raise UsageError(
            _CONTEXT,
            f"power has shape {power.shape} and freqs {freqs.shape}",
            "expected shapes (rows, bins) and (bins,)",
        )
    if power.dtype.kind != "f":
        raise DTypeError(
            _CONTEXT, f"the power is {power.dtype}", "expected a floating-point dtype"
        )
    if len(freqs) > 1 and not (freqs[1:] > freqs[:-1]).all():
        raise UsageError(
            _CONTEXT,
            "the frequencies do not increase from bin to bin",
            "",
            "reorder a two-sided spectrum with numpy.fft.fftshift",
        )
    if k < 1:
        raise UsageError(_CONTEXT, f"k is {k}", "must be at least 1")


def _find_maxima(power: NDArray[Any]) -> tuple[_IndexArray, _IndexArray]:
    """Return row and middle bin of every maximum, in the order of rows, then bins."""
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
        peak[flat] = _flat_top_maxima(power[flat])
    rows, bins = np.divmod(np.flatnonzero(peak), n_bins)
    return rows, bins


def _flat_top_maxima(power: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark the maxima of rows with equal neighbours, at the middle of a flat top.

    The power is read as runs of equal values; a run is a maximum if it is higher than
    the run before and the run after it in its own row.
    """
    is_run_start = np.ones(power.shape, np.bool_)
    np.not_equal(power[:, 1:], power[:, :-1], out=is_run_start[:, 1:])
    starts = np.flatnonzero(is_run_start)
    run_value = power[is_run_start]
    run_row = starts // power.shape[1]
    last = np.append(starts[1:], power.size) - 1
    above_left = (run_value[1:-1] > run_value[:-2]) & (run_row[1:-1] == run_row[:-2])
    above_right = (run_value[1:-1] > run_value[2:]) & (run_row[1:-1] == run_row[2:])
    tops = 1 + np.flatnonzero(above_left & above_right)
    peak = np.zeros(power.shape, np.bool_)
    peak.ravel()[(starts[tops] + last[tops]) // 2] = True
    return peak


def _strongest_per_row(
    rows: _IndexArray, peak_power: NDArray[Any], k: int, n_rows: int
) -> tuple[_IndexArray, _IndexArray, _IndexArray]:
    """Return the positions of the k strongest maxima of each row, their rows and their
    ranks.

    rows   in ascending order
    """
    count = np.bincount(rows, minlength=n_rows)
    index_in_row = np.arange(len(rows)) - np.searchsorted(rows, rows)
    strength = np.full((n_rows, count.max(initial=0)), np.inf)
    strength[rows, index_in_row] = -peak_power
    order = strength.argsort(axis=1, kind="stable")
    chosen_rows, ranks = np.nonzero(np.arange(min(k, order.shape[1])) < count[:, None])
    first = np.cumsum(count) - count
    return first[chosen_rows] + order[chosen_rows, ranks], chosen_rows, ranks


def _pad_to_k(
    power: NDArray[Any],
    freqs: NDArray[Any],
    k: int,
    positions: tuple[_IndexArray, _IndexArray],
    bins: _IndexArray,
    heights: NDArray[Any],
) -> PeaksOfPower:
    """Arrange the maxima as (B, k) arrays and fill the empty places."""
    shape = (len(power), k)
    shift, top = _refine_by_parabola(power, positions[0], bins)
    step = (freqs[-1] - freqs[0]) / (len(freqs) - 1) if len(freqs) > 1 else 0.0

    def scatter(values: NDArray[Any], empty: float, dtype: DTypeLike) -> NDArray[Any]:
        """Return a (B, k) array with the values at their positions and `empty`
        elsewhere.
        """
        out = np.full(shape, empty, dtype)
        out[positions] = values
        return out

    return PeaksOfPower(
        bins=scatter(bins, -1, np.int64),
        hz=scatter(freqs[bins] + shift * step, np.nan, np.float64),
        power=scatter(top, np.nan, power.dtype),
        count=np.bincount(positions[0], minlength=shape[0]).astype(np.int64),
        prominence=scatter(heights, np.nan, power.dtype),
    )


def _refine_by_parabola(
    power: NDArray[Any], rows: _IndexArray, bins: _IndexArray
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the offset of the parabola's top in -½ … ½ bins, and the power there."""
    neighbors = np.stack([power[rows, bins + i] for i in (-1, 0, 1)]).astype(np.float64)
    is_positive = (neighbors > 0).all(axis=0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        left, middle, right = np.where(is_positive, np.log(neighbors), neighbors)
        curvature = left - 2.0 * middle + right
        shift = np.where(curvature < 0, 0.5 * (left - right) / curvature, 0.0)
        shift = np.clip(shift, -0.5, 0.5)
        top = middle - 0.25 * (left - right) * shift
        top = np.where(is_positive, np.exp(top), top)
    # Between two bins the power may lie past the end of its type.
    is_in_range = top <= np.finfo(power.dtype).max
    return shift, np.where(is_in_range, top, neighbors[1])


def prominences(
    power: NDArray[Any], rows: _IndexArray, bins: _IndexArray
) -> NDArray[Any]:
    """Return the prominence of the maximum at each (row, bin); rows in ascending order.

    From the maximum one walks left and right as far as nothing is higher; the higher
    of the lowest points met on the two sides is the base.
    """
    out = np.empty(len(rows), power.dtype)
    if not len(rows):
        return out
    n_bins = power.shape[1]
    rows_per_pass = max(1, _TABLE_VALUES // (n_bins * n_bins.bit_length()))
    for start in range(0, len(power), rows_per_pass):
        part = slice(*np.searchsorted(rows, (start, start + rows_per_pass)))
        if part.start == part.stop:
            continue
        block = np.ascontiguousarray(power[start : start + rows_per_pass])
        row, column = rows[part] - start, bins[part]
        first, last = _extent_without_higher(block, row, column)
        out[part] = block[row, column] - np.maximum(
            _range_minima(block, row, first, column),
            _range_minima(block, row, column, last),
        )
    return out


def _extent_without_higher(
    power: NDArray[Any], row: _IndexArray, column: _IndexArray
) -> tuple[_IndexArray, _IndexArray]:
    """Return first and last bin of the stretch around each point in which nothing is
    higher.

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
    peak_power = power[row, column]
    first, last = column.copy(), column.copy()
    for j in reversed(range(len(highest))):
        step = 1 << j
        # A negative index reads some other bin; the bound beside it rules that out.
        fits = (first >= step) & (highest[j][row, first - 1] <= peak_power)
        first -= fits * step
        ahead = np.minimum(last + step, n_bins - 1)
        fits = (last + step < n_bins) & (highest[j][row, ahead] <= peak_power)
        last += fits * step
    return first, last


def _range_minima(
    power: NDArray[Any], row: _IndexArray, first: _IndexArray, last: _IndexArray
) -> NDArray[Any]:
    """Return the lowest value of each stretch first … last of a row, both included."""
    flat = np.append(power.ravel(), power.dtype.type(0))
    ends = np.stack((first, last + 1), axis=1) + row[:, None] * power.shape[1]
    lowest: NDArray[Any] = np.minimum.reduceat(flat, ends.ravel())[::2]
    return lowest
