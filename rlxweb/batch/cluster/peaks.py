"""`rlxweb.dask.welch_peaks`: compute the peaks of every row of a Dask array, lazily."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask.base import DaskMethodsMixin
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

from rlxweb.batch.cluster.chunk_memory_check import check_chunk_memory
from rlxweb.batch.cluster.chunk_result import current_requirements
from rlxweb.batch.cluster.chunk_validation import (
    check_single_chunk,
    untyped_da,
    validate_dask_array,
)
from rlxweb.batch.cluster.device_shares import (
    Decisions,
    LazyDecisions,
    decisions_from_nested,
)
from rlxweb.batch.cluster.lazy_arrays import (
    ChunkField,
    build_chunk_results,
    collect_run_infos,
    extract_field,
    rebuild_arrays,
)
from rlxweb.batch.cluster.resource_annotations import (
    OptimizeFunction,
    collection_optimizer,
)
from rlxweb.batch.cluster.welch_chunk_tasks import WelchChunkSpec, chunk_peaks
from rlxweb.core.argument_validation import bind_arguments
from rlxweb.signal.sample_input import normalize_axis
from rlxweb.signal.welch_peaks import CONTEXT
from rlxweb.signal.welch_peaks import welch_peaks as eager
from rlxweb.signal.welch_result_shapes import DeclaredPeaks, declare_peaks

_PEAK_FIELDS = ("bins", "hz", "power", "count", "prominence")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GatheredPeaks:
    """Computed peaks of every row: as `rlxweb.WelchPeaks`, from many devices.

    decisions   which devices computed, what share, and why
    """

    bins: NDArray[np.int64]
    hz: NDArray[np.float64]
    power: NDArray[Any]
    count: NDArray[np.int64]
    prominence: NDArray[Any] | None
    decisions: Decisions
    fs: float
    mode: str

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.bins.shape))
        return f"GatheredPeaks({shape} {self.mode})\n{self.decisions}"


class LazyPeaks(DaskMethodsMixin):
    """Peaks of every row of a Dask array, not computed yet; a Dask collection.

    bins        (*batch, k) int64, a dask.array; as of `rlxweb.WelchPeaks`, as are
    hz, power, count, prominence
    decisions   the table of devices, lazy as well
    """

    def __init__(
        self, arrays: Mapping[str, Any], run_infos: Any, declared: DeclaredPeaks
    ) -> None:
        self.bins, self.hz = arrays["bins"], arrays["hz"]
        self.power, self.count = arrays["power"], arrays["count"]
        self.prominence = arrays.get("prominence")
        self.fs, self.mode, self.k = declared.fs, declared.mode, declared.k
        self._arrays, self._run_infos, self._declared = (
            dict(arrays),
            run_infos,
            declared,
        )

    @property
    def decisions(self) -> LazyDecisions:
        return LazyDecisions([self._run_infos])

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.bins.shape))
        tasks = self._run_infos.npartitions
        return f"LazyPeaks({shape} {self.mode}, {tasks} task{'s' * (tasks != 1)})"

    def _collections(self) -> list[Any]:
        return [*self._arrays.values(), self._run_infos]

    def __dask_graph__(self) -> HighLevelGraph:
        return HighLevelGraph.merge(
            *(collection.dask for collection in self._collections())
        )

    def __dask_keys__(self) -> list[Any]:
        return [collection.__dask_keys__() for collection in self._collections()]

    def __dask_layers__(self) -> tuple[str, ...]:
        return tuple(collection.name for collection in self._collections())

    __dask_tokenize__ = __dask_layers__

    @property
    def __dask_optimize__(self) -> OptimizeFunction:
        return collection_optimizer(self.__dask_graph__())

    def __dask_postcompute__(self) -> tuple[Callable[..., GatheredPeaks], Any]:
        ranks = [array.ndim for array in self._arrays.values()]
        return _gather_peaks, (tuple(self._arrays), tuple(ranks), self.fs, self.mode)

    def __dask_postpersist__(self) -> tuple[Callable[..., LazyPeaks], Any]:
        return _rebuild_peaks, (
            tuple(self._arrays),
            tuple(self._collections()),
            self._declared,
        )

    __dask_scheduler__ = staticmethod(da.Array.__dask_scheduler__)


def welch_peaks(
    x: Any, fs: float = 1.0, nperseg: int = 256, k: int = 16, **options: Any
) -> LazyPeaks:
    """Compute `rlxweb.welch_peaks` for every row of a dask.array, chunk by chunk,
    lazily.

    x        (…, T), chunked along any axes but that of time, which lies in one chunk
    options  those of `rlxweb.welch_peaks`. With `device` left out each worker picks its
             own, by its own calibration; `decisions` of the result says which
    returns  a Dask collection of dask.arrays: `.compute()` gives `GatheredPeaks`,
             `.persist()` keeps it on the workers. Nothing is computed before that
    Errors   UsageError for a time axis that is cut, with the `rechunk` that mends it,
             and as `rlxweb.welch_peaks`; ShapeError for chunks of unknown sizes;
             DTypeError for what is no dask.array of numbers. When it is computed:
             NotFinite, which names the row in the whole array, ClusterError for a
             worker with other versions, and what the devices raise
    """
    arguments = dict(bind_arguments(eager, "welch_peaks", x, fs, nperseg, k, **options))
    validate_dask_array(arguments.pop("x"), "x", CONTEXT)
    axis = normalize_axis(arguments.pop("axis"), x.ndim, CONTEXT)
    check_single_chunk(x, axis, "x", "the time axis", CONTEXT)
    check_chunk_memory(
        x, tuple(field for field in range(x.ndim) if field != axis), "x", CONTEXT
    )
    declared = declare_peaks(x.shape, x.dtype, axis, arguments)
    fields = _chunk_fields(declared, x.ndim - 1)
    output_types = {field.name: (field.extra_shape, field.dtype) for field in fields}
    labels = tuple(range(x.ndim))
    results = build_chunk_results(
        "rlxweb-welch-peaks",
        chunk_peaks,
        WelchChunkSpec(arguments, axis, current_requirements(), output_types),
        [(x, labels)],
        labels[:axis] + labels[axis + 1 :],
    )
    arrays = {field.name: extract_field(results, field, x.ndim - 1) for field in fields}
    return LazyPeaks(arrays, collect_run_infos(results), declared)


def _chunk_fields(declared: DeclaredPeaks, rank: int) -> list[ChunkField]:
    """Return the fields of a chunk's result, for a batch of this rank."""
    int64 = np.dtype(np.int64)
    float64 = np.dtype(np.float64)
    power = declared.power_dtype
    k = (declared.k,)
    fields = [
        ChunkField("bins", int64, rank, k),
        ChunkField("hz", float64, rank, k),
        ChunkField("power", power, rank, k),
        ChunkField("count", int64, rank),
    ]
    if declared.mode == "peaks":
        fields.append(ChunkField("prominence", power, rank, k))
    return fields


def _gather_peaks(
    computed: list[Any],
    names: tuple[str, ...],
    ranks: tuple[int, ...],
    *fs_and_mode: Any,
) -> GatheredPeaks:
    """Join the computed blocks of all fields into `GatheredPeaks`."""
    arrays: dict[str, Any] = dict.fromkeys(_PEAK_FIELDS)
    for name, blocks, rank in zip(names, computed, ranks, strict=False):
        arrays[name] = untyped_da.core.concatenate3(blocks) if rank else blocks
    return GatheredPeaks(
        **arrays,
        decisions=decisions_from_nested(computed[-1]),
        fs=fs_and_mode[0],
        mode=fs_and_mode[1],
    )


def _rebuild_peaks(
    graph: Any,
    names: tuple[str, ...],
    arrays: tuple[Any, ...],
    declared: DeclaredPeaks,
    rename: Mapping[str, str] | None = None,
) -> LazyPeaks:
    *values, run_infos = rebuild_arrays(graph, arrays, rename)
    return LazyPeaks(dict(zip(names, values, strict=True)), run_infos, declared)
