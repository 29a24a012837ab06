"""The k strongest bins of every row, exactly: ties go to the smaller bin.

Owns that search, and the record that any search for peaks fills. It must not know where
power comes from; true local maxima are in `signal/local_maxima.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlxweb.errors import DTypeError, UsageError
from rlxweb.host.row_blocks import Task, run_tasks

_BLOCK_BINS = 32_768
_THREADED_BINS = 524_288
# So few are sorted in less time than it takes to tell the strongest from the others.
_SORTED_BINS = 512

_DOING = "strongest bins"
Found: TypeAlias = tuple[NDArray[np.int64], NDArray[Any]]
"""Bins of each row and their power, strongest first."""


@dataclass(frozen=True, slots=True, eq=False)
class PeaksOfPower:
    """The strongest peaks of each row, strongest first; (B, k) but for `count`.

    bins        bin index; -1 where a row has fewer than k peaks, behind those it has
    hz          frequency, refined for a local maximum; NaN there
    power       power at that frequency; NaN there
    count       how many of the k places are filled, (B,)
    prominence  height above the higher of the two surrounding valleys, NaN there; None
                for strongest bins, which have none
    """

    bins: NDArray[np.int64]
    hz: NDArray[np.float64]
    power: NDArray[Any]
    count: NDArray[np.int64]
    prominence: NDArray[Any] | None


def strongest_bins(power: NDArray[Any], k: int, *, threads: int | None = None) -> Found:
    """The k strongest bins of each row, strongest first.

    Shapes   power (B, F) → bins (B, k) int64, power (B, k) of the same dtype
    Numerics exact: equal powers in order of their bins; NaN after every number
    Errors   UsageError unless power is 2-D and 1 ≤ k ≤ F; DTypeError unless floats
    """
    if power.ndim != 2:
        raise UsageError(
            _DOING,
            f"the power has shape {power.shape}",
            "2 axes are wanted: rows, bins",
        )
    if power.dtype.kind != "f":
        raise DTypeError(_DOING, f"the power is {power.dtype}", "floats are wanted")
    n_rows, n_bins = power.shape
    if not 1 <= k <= n_bins:
        raise UsageError(
            _DOING,
            f"k is {k}",
            f"it must be 1 to {n_bins}, the number of bins",
            "ask for fewer bins or give a larger nperseg or nfft",
        )
    bins = np.empty((n_rows, k), np.int64)
    top = np.empty((n_rows, k), power.dtype)
    rows = max(1, _BLOCK_BINS // n_bins)

    def make_worker() -> Task:
        def work(task: int) -> None:
            mine = slice(task * rows, (task + 1) * rows)
            bins[mine], top[mine] = _search(np.ascontiguousarray(power[mine]), k)

        return work

    if power.size < _THREADED_BINS:
        threads = 1
    run_tasks(-(-n_rows // rows), make_worker, threads=threads)
    return bins, top


def as_peaks(bins: NDArray[np.int64], power: NDArray[Any], hz: Any) -> PeaksOfPower:
    """The strongest bins (B, k) and their power, found here or on a device; hz (F,)."""
    count = np.empty(len(bins), np.int64)
    count.fill(bins.shape[1])
    return PeaksOfPower(bins, hz[bins], power, count, None)


def _search(power: NDArray[Any], k: int) -> Found:
    n_rows, n_bins = power.shape
    if 2 * k > n_bins or power.size <= _SORTED_BINS:
        return _sorted_outright(power, k)
    parted = power.copy()
    parted.partition(n_bins - k, axis=1)
    reached = power >= parted[:, n_bins - k, None]
    flat = reached.ravel().nonzero()[0]
    if flat.size == n_rows * k:
        values = power.ravel()[flat].reshape(n_rows, k)
        columns = flat.reshape(n_rows, k)
        columns -= np.arange(0, n_rows * n_bins, n_bins)[:, None]
        # In ascending order, k per row on average: k in each row if none is astray,
        # neither behind its row nor before it (a negative number, unsigned, is huge).
        if columns.view(np.uintp).max() < n_bins:
            return _ordered(columns, values)
    return _repaired(power, reached, k)


def _ordered(columns: NDArray[np.int64], values: NDArray[Any]) -> Found:
    """Sort the chosen bins, given in ascending order, strongest first.

    The fast sort may shuffle equal powers; only then is the slower, stable one run.
    """
    falling = -values
    kinds: tuple[Literal["quicksort", "stable"], ...] = ("quicksort", "stable")
    starts = np.arange(0, columns.size, columns.shape[1])[:, None]
    for kind in kinds:
        order = falling.argsort(axis=1, kind=kind)
        order += starts
        top = values.ravel()[order]
        if kind == "stable" or not (top[:, 1:] == top[:, :-1]).any():
            break
    return columns.ravel()[order], top


def _repaired(power: NDArray[Any], reached: NDArray[np.bool_], k: int) -> Found:
    """Rows where a tie or a NaN lies on the edge are sorted outright."""
    bins = np.empty((len(power), k), np.int64)
    top = np.empty(bins.shape, power.dtype)
    exact = np.count_nonzero(reached, axis=1) == k
    if exact.any():
        columns = np.nonzero(reached[exact])[1].reshape(-1, k)
        values = np.take_along_axis(power[exact], columns, axis=1)
        bins[exact], top[exact] = _ordered(columns, values)
    bins[~exact], top[~exact] = _sorted_outright(power[~exact], k)
    return bins, top


def _sorted_outright(power: NDArray[Any], k: int) -> Found:
    bins = (-power).argsort(axis=1, kind="stable")[:, :k]
    return bins, power[np.arange(len(power))[:, None], bins]
