"""From a task per chunk to arrays: a chunk is one `Piece`, arrays are parts of it.

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

from rlxweb.dask.blocks import of_dask
from rlxweb.dask.piece import Piece, ran_of, value_of

_PIECES = ("rlxweb-welch-", "rlxweb-run-")
"""How the names of the layers of pieces begin; dashboards show them without token."""
_OF_PIECES = "-of-piece-"


def is_of_pieces(name: str) -> bool:
    """Is this the name of a layer of pieces?"""
    return name.startswith(_PIECES) and _OF_PIECES not in name


@dataclass(frozen=True, slots=True)
class Field:
    """One array among what comes of a chunk.

    at       where its further axes stand among those of the batch
    more     their lengths
    """

    name: str
    dtype: np.dtype[Any]
    at: int
    more: tuple[int, ...] = ()


def pieces(
    name: str,
    task: Callable[..., Piece],
    call: object,
    arrays: Sequence[tuple[Any, tuple[int, ...]]],
    batch: tuple[int, ...],
) -> Any:
    """A piece per block of the batch, as an array of one object per block.

    Its axes are those of the batch, then the whole ones.

    name     what dashboards call it
    task     (call, slices of the batch, block, …) → piece
    call     what is the same for all: a node of its own, so that it is sent once
    arrays   each with a label per axis; labels that are not of the batch are whole axes
    batch    the labels of the batch's axes
    """
    token = tokenize(name, call, [(a.name, at) for a, at in arrays])
    chunks = {i: n for a, at in arrays for i, n in zip(at, a.chunks, strict=True)}
    where = ArraySliceDep(tuple(chunks[i] for i in batch))
    labels = (*batch, *(i for i in chunks if i not in batch))
    pairs = [part for pair in arrays for part in pair]
    return of_dask.blockwise(
        task,
        labels,
        _node(call, f"rlxweb-call-{token}"),
        None,
        where,
        batch,
        *pairs,
        name=f"{name}-{token}",
        concatenate=None,
        align_arrays=False,
        meta=np.empty((0,) * len(labels), object),
    )


def part(pieces: Any, field: Field, rank: int) -> Any:
    """One array of all pieces.

    rank   of the batch. Further axes of the field stand for whole ones, as far as there
           are as many: where none goes, Dask makes one task of the piece and its part
    """
    batch = tuple(range(rank))
    more = dict(zip(range(rank, rank + len(field.more)), field.more, strict=True))
    out = batch[: field.at] + tuple(more) + batch[field.at :]
    kind, token = pieces.name.rsplit("-", 1)
    return of_dask.blockwise(
        value_of,
        out,
        pieces,
        tuple(range(pieces.ndim)),
        field.name,
        None,
        new_axes={i: n for i, n in more.items() if i >= pieces.ndim},
        adjust_chunks={i: n for i, n in more.items() if i < pieces.ndim},
        name=f"{kind}-{field.name}{_OF_PIECES}{token}",
        align_arrays=False,
        meta=np.empty((0,) * len(out), field.dtype),
    )


def ran_of_all(pieces: Any) -> Any:
    """Where each piece was computed."""
    axes = tuple(range(pieces.ndim))
    kind, token = pieces.name.rsplit("-", 1)
    return of_dask.blockwise(
        ran_of,
        axes,
        pieces,
        axes,
        name=f"{kind}-ran{_OF_PIECES}{token}",
        align_arrays=False,
        meta=np.empty((0,) * pieces.ndim, object),
    )


def rebuilt(
    graph: Any, arrays: Sequence[Any], rename: Mapping[str, str] | None
) -> list[Any]:
    """The arrays over a graph that holds what was computed of them."""
    names = rename or {}
    return [
        of_dask.Array(graph, names.get(a.name, a.name), a.chunks, meta=a._meta)
        for a in arrays
    ]


def _node(value: object, name: str) -> Delayed:
    node: Delayed = delayed(value, name=name, traverse=False, pure=True)
    return node
