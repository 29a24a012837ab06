"""Lazy Dask arrays built from one task per chunk: each task gives a `ChunkResult`, and
arrays are fields of it.

One task computes all there is to know of a chunk; arrays and decisions only pick out of
it, so that whoever asks for some of them or for all computes each chunk once.

Pieces keep an axis for each whole axis of what they are made of, such as that of time,
though there is one block along it: Dask takes what goes without an axis for a
reduction, and does not fuse it with what reads the blocks. A block would then go from
task to task, and now and then to another worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.base import tokenize
from dask.delayed import Delayed, delayed
from dask.layers import ArraySliceDep

from rlxweb.batch.cluster.chunk_result import ChunkResult, chunk_array, chunk_run_info
from rlxweb.batch.cluster.chunk_validation import untyped_da

_CHUNK_LAYER_PREFIXES = ("rlxweb-welch-", "rlxweb-run-")
"""Prefixes of the names of layers of chunk results; dashboards show them without the
token.
"""
_FIELD_LAYER_MARK = "-of-piece-"


def is_chunk_layer(name: str) -> bool:
    """Return whether this is the name of a layer of chunk results."""
    return name.startswith(_CHUNK_LAYER_PREFIXES) and _FIELD_LAYER_MARK not in name


@dataclass(frozen=True, slots=True)
class ChunkField:
    """Description of one array of a chunk's result.

    position  where its further axes stand among those of the batch
    extra_shape  their lengths
    """

    name: str
    dtype: np.dtype[Any]
    position: int
    extra_shape: tuple[int, ...] = ()


def build_chunk_results(
    name: str,
    task: Callable[..., ChunkResult],
    shared: object,
    arrays: Sequence[tuple[Any, tuple[int, ...]]],
    batch: tuple[int, ...],
) -> Any:
    """Build an object array with one chunk result per block of the batch.

    Its axes are those of the batch, then the whole ones.

    name     what dashboards call it
    task     (call, slices of the batch, block, …) → piece
    shared   what is the same for all: a node of its own, so that it is sent once
    arrays   each with a label per axis; labels that are not of the batch are whole axes
    batch    the labels of the batch's axes
    """
    token = tokenize(
        name, shared, [(array.name, axis_labels) for array, axis_labels in arrays]
    )
    chunks = {
        i: n
        for array, axis_labels in arrays
        for i, n in zip(axis_labels, array.chunks, strict=True)
    }
    batch_slices = ArraySliceDep(tuple(chunks[i] for i in batch))
    labels = (*batch, *(i for i in chunks if i not in batch))
    pairs = [argument for pair in arrays for argument in pair]
    return untyped_da.blockwise(
        task,
        labels,
        _shared_node(shared, f"rlxweb-call-{token}"),
        None,
        batch_slices,
        batch,
        *pairs,
        name=f"{name}-{token}",
        concatenate=None,
        align_arrays=False,
        meta=np.empty((0,) * len(labels), object),
    )


def extract_field(chunk_results: Any, field: ChunkField, rank: int) -> Any:
    """Build the array of one field from all chunk results.

    rank   of the batch. Further axes of the field stand for whole ones, as far as there
           are as many: where none goes, Dask makes one task of the piece and its part
    """
    batch = tuple(range(rank))
    extra_axes = dict(
        zip(range(rank, rank + len(field.extra_shape)), field.extra_shape, strict=True)
    )
    output_axes = batch[: field.position] + tuple(extra_axes) + batch[field.position :]
    kind, token = chunk_results.name.rsplit("-", 1)
    return untyped_da.blockwise(
        chunk_array,
        output_axes,
        chunk_results,
        tuple(range(chunk_results.ndim)),
        field.name,
        None,
        new_axes={i: n for i, n in extra_axes.items() if i >= chunk_results.ndim},
        adjust_chunks={i: n for i, n in extra_axes.items() if i < chunk_results.ndim},
        name=f"{kind}-{field.name}{_FIELD_LAYER_MARK}{token}",
        align_arrays=False,
        meta=np.empty((0,) * len(output_axes), field.dtype),
    )


def collect_run_infos(chunk_results: Any) -> Any:
    """Build the array of run records: where each chunk was computed."""
    axes = tuple(range(chunk_results.ndim))
    kind, token = chunk_results.name.rsplit("-", 1)
    return untyped_da.blockwise(
        chunk_run_info,
        axes,
        chunk_results,
        axes,
        name=f"{kind}-ran{_FIELD_LAYER_MARK}{token}",
        align_arrays=False,
        meta=np.empty((0,) * chunk_results.ndim, object),
    )


def rebuild_arrays(
    graph: Any, arrays: Sequence[Any], rename: Mapping[str, str] | None
) -> list[Any]:
    """Rebuild the arrays over a graph that holds their computed chunks."""
    names = rename or {}
    return [
        untyped_da.Array(
            graph, names.get(array.name, array.name), array.chunks, meta=array._meta
        )
        for array in arrays
    ]


def _shared_node(value: object, name: str) -> Delayed:
    node: Delayed = delayed(value, name=name, traverse=False, pure=True)
    return node
