"""Dask tasks that put one chunk through `welch_peaks` or `welch`.

A worker picks its device by its own calibration and opens it once; both are the
business of the functions called here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.batch.cluster.chunk_result import (
    ChunkResult,
    WorkerRequirements,
    check_worker,
    current_run_info,
    unwrap_single,
)
from rlxweb.signal.error_row_numbers import row_number_offset
from rlxweb.signal.welch import welch_and_pick
from rlxweb.signal.welch_candidates import resolve_pick
from rlxweb.signal.welch_peaks import welch_peaks
from rlxweb.signal.welch_peaks_result import WelchPeaks

PEAK_FIELDS = ("bins", "hz", "power", "count")


@dataclass(frozen=True, slots=True, eq=False)
class WelchChunkSpec:
    """Arguments that all chunks share; sent once, as a node of the graph.

    arguments  the arguments, by name, but for the samples and their axis
    axis      of time, 0 … rank - 1
    requirements  who asks
    output_types  what a chunk without rows gives: for each array the shape behind the
              batch's axes, and the dtype
    """

    arguments: Mapping[str, Any]
    axis: int
    requirements: WorkerRequirements
    output_types: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]


def chunk_peaks(
    spec: WelchChunkSpec, batch_slices: Sequence[slice], block: Any
) -> ChunkResult:
    """Compute the peaks of a chunk's rows.

    batch_slices  the rows of the batch, a slice per axis
    """
    x = _check_block(block, spec, "welch_peaks")
    batch = x.shape[: spec.axis] + x.shape[spec.axis + 1 :]
    if 0 in batch:
        return _empty_result(batch, len(batch), spec)
    with row_number_offset(_block_offset(batch_slices)):
        peaks = welch_peaks(x, axis=spec.axis, **spec.arguments)
    values = {name: getattr(peaks, name) for name in PEAK_FIELDS}
    if peaks.prominence is not None:
        values["prominence"] = peaks.prominence
    run_info = current_run_info(
        peaks.count.size,
        peaks.device.label,
        _engine_adapter(peaks) or spec.arguments["adapter"],
        peaks.engine,
        peaks.decision,
    )
    return ChunkResult(values, run_info)


def chunk_power(
    spec: WelchChunkSpec, batch_slices: Sequence[slice], block: Any
) -> ChunkResult:
    """Compute the spectra of a chunk's rows, with frequency in place of the time
    axis.
    """
    x = _check_block(block, spec, "welch")
    batch = x.shape[: spec.axis] + x.shape[spec.axis + 1 :]
    if 0 in batch:
        return _empty_result(batch, spec.axis, spec)
    with row_number_offset(_block_offset(batch_slices)):
        (_, power), pick = welch_and_pick(x, axis=spec.axis, **spec.arguments)
    run_info = current_run_info(
        x.size // x.shape[spec.axis],
        pick.device.label,
        pick.candidate.adapter,
        resolve_pick(pick)[1].name,
        pick.decision,
    )
    return ChunkResult({"power": power}, run_info)


def _check_block(block: Any, spec: WelchChunkSpec, context: str) -> NDArray[Any]:
    """Check that this worker meets the requirements and return the block's samples."""
    check_worker(spec.requirements, context)
    return np.asarray(unwrap_single(block))


def _block_offset(batch_slices: Sequence[slice]) -> tuple[int, ...]:
    return tuple(rows.start for rows in batch_slices)


def _engine_adapter(peaks: WelchPeaks) -> str:
    candidates = peaks.decision.candidates
    return next(
        (
            candidate.adapter
            for candidate in candidates
            if candidate.engine == peaks.engine
        ),
        "",
    )


def _empty_result(
    batch: tuple[int, ...], position: int, spec: WelchChunkSpec
) -> ChunkResult:
    """Return the result of a chunk without rows; the extra axes are inserted at
    `position` among the batch axes.
    """
    arrays = {
        name: np.empty(batch[:position] + extra_shape + batch[position:], dtype)
        for name, (extra_shape, dtype) in spec.output_types.items()
    }
    return ChunkResult(arrays, None)
