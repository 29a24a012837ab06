"""Exact search for the k strongest bins of every row; ties go to the smaller bin.

Owns that search, and the record that any search for peaks fills. It must not know where
power comes from; true local maxima are in `signal/local_maxima.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.errors import DTypeError, UsageError
from rlxweb.core.thread_tasks import Task, run_tasks
from rlxweb.ir.op import Attrs, TensorType, Types

_BLOCK_BINS = 32_768
_MIN_THREADED_BINS = 524_288
# So few are sorted in less time than it takes to tell the strongest from the others.
_MAX_SORTED_BINS = 512

_CONTEXT = "strongest bins"
BinsAndPower: TypeAlias = tuple[NDArray[np.int64], NDArray[Any]]
"""Bins of each row and their power, strongest first."""


@dataclass(frozen=True, slots=True, eq=False)
class PeaksOfPower:
    """Strongest peaks of each row, strongest first; (B, k) but for `count`.

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

    def select(self, is_selected: NDArray[np.bool_]) -> PeaksOfPower:
        """Return the selected ones of the peaks (B, k), in their order; the places of
        the others are empty, behind them.
        """
        order = np.argsort(~is_selected, axis=1, kind="stable")
        is_filled = np.take_along_axis(is_selected, order, axis=1)

        def reorder(values: NDArray[Any], empty: float) -> NDArray[Any]:
            reordered = np.take_along_axis(values, order, axis=1)
            return np.where(is_filled, reordered, empty)

        return PeaksOfPower(
            bins=reorder(self.bins, -1),
            hz=reorder(self.hz, np.nan),
            power=reorder(self.power, np.nan),
            count=np.count_nonzero(is_filled, axis=1).astype(np.int64),
            prominence=(
                None if self.prominence is None else reorder(self.prominence, np.nan)
            ),
        )


def strongest_bins(
    power: NDArray[Any], k: int, *, threads: int | None = None
) -> BinsAndPower:
    """Return the k strongest bins of each row, strongest first.

    Shapes   power (B, F) → bins (B, k) int64, power (B, k) of the same dtype
    Numerics exact: equal powers in order of their bins; NaN after every number
    Errors   UsageError unless power is 2-D and 1 ≤ k ≤ F; DTypeError unless floats
    """
    if power.ndim != 2:
        raise UsageError(
            _CONTEXT,
            f"the power has shape {power.shape}",
            "expected shape (rows, bins)",
        )
    if power.dtype.kind != "f":
        raise DTypeError(
            _CONTEXT, f"the power is {power.dtype}", "expected a floating-point dtype"
        )
    n_rows, n_bins = power.shape
    if not 1 <= k <= n_bins:
        raise UsageError(
            _CONTEXT,
            f"k is {k}",
            f"must be 1 to {n_bins}, the number of bins",
            "request fewer bins, or use a larger nperseg or nfft",
        )
    bins = np.empty((n_rows, k), np.int64)
    top_power = np.empty((n_rows, k), power.dtype)
    block_rows = max(1, _BLOCK_BINS // n_bins)

    def make_worker() -> Task:
        def run_task(task: int) -> None:
            row_slice = slice(task * block_rows, (task + 1) * block_rows)
            bins[row_slice], top_power[row_slice] = _find_strongest(
                np.ascontiguousarray(power[row_slice]), k
            )

        return run_task

    if power.size < _MIN_THREADED_BINS:
        threads = 1
    run_tasks(-(-n_rows // block_rows), make_worker, threads=threads)
    return bins, top_power


def to_peaks(bins: NDArray[np.int64], power: NDArray[Any], hz: Any) -> PeaksOfPower:
    """Return peaks for the strongest bins (B, k) and their power, found here or on a
    device; hz (F,).
    """
    count = np.empty(len(bins), np.int64)
    count.fill(bins.shape[1])
    return PeaksOfPower(bins, hz[bins], power, count, None)


def _find_strongest(power: NDArray[Any], k: int) -> BinsAndPower:
    """Return the k strongest bins of contiguous rows, by partition where there are many
    bins.
    """
    n_rows, n_bins = power.shape
    if 2 * k > n_bins or power.size <= _MAX_SORTED_BINS:
        return _sort_all_bins(power, k)
    partitioned = power.copy()
    partitioned.partition(n_bins - k, axis=1)
    is_candidate = power >= partitioned[:, n_bins - k, None]
    flat = is_candidate.ravel().nonzero()[0]
    if flat.size == n_rows * k:
        values = power.ravel()[flat].reshape(n_rows, k)
        columns = flat.reshape(n_rows, k)
        columns -= np.arange(0, n_rows * n_bins, n_bins)[:, None]
        # In ascending order, k per row on average: k in each row if none is astray,
        # neither behind its row nor before it (a negative number, unsigned, is huge).
        if columns.view(np.uintp).max() < n_bins:
            return _sort_candidates(columns, values)
    return _resolve_ties(power, is_candidate, k)


def _sort_candidates(columns: NDArray[np.int64], values: NDArray[Any]) -> BinsAndPower:
    """Sort the chosen bins, given in ascending order, strongest first.

    The fast sort may shuffle equal powers; only then is the slower, stable one run.
    """
    negated = -values
    kinds: tuple[Literal["quicksort", "stable"], ...] = ("quicksort", "stable")
    starts = np.arange(0, columns.size, columns.shape[1])[:, None]
    for kind in kinds:
        order = negated.argsort(axis=1, kind=kind)
        order += starts
        top_power = values.ravel()[order]
        if kind == "stable" or not (top_power[:, 1:] == top_power[:, :-1]).any():
            break
    return columns.ravel()[order], top_power


def _resolve_ties(
    power: NDArray[Any], is_candidate: NDArray[np.bool_], k: int
) -> BinsAndPower:
    """Sort the rows outright where a tie or a NaN lies on the edge."""
    bins = np.empty((len(power), k), np.int64)
    top_power = np.empty(bins.shape, power.dtype)
    has_k_candidates = np.count_nonzero(is_candidate, axis=1) == k
    if has_k_candidates.any():
        columns = np.nonzero(is_candidate[has_k_candidates])[1].reshape(-1, k)
        values = np.take_along_axis(power[has_k_candidates], columns, axis=1)
        bins[has_k_candidates], top_power[has_k_candidates] = _sort_candidates(
            columns, values
        )
    bins[~has_k_candidates], top_power[~has_k_candidates] = _sort_all_bins(
        power[~has_k_candidates], k
    )
    return bins, top_power


def _sort_all_bins(power: NDArray[Any], k: int) -> BinsAndPower:
    """Return the k strongest bins by a stable sort of all bins."""
    bins = (-power).argsort(axis=1, kind="stable")[:, :k]
    return bins, power[np.arange(len(power))[:, None], bins]


def has_long_float_rows(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether rows are long enough for a search to beat a sort."""
    x = inputs[0]
    return x.dtype.is_float and x.numel >= 2048 and x.shape[-1] >= 16
