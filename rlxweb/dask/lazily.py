"""From a task per chunk to arrays: a chunk is one `Piece`, arrays are parts of it.

One task computes all there is to know of a chunk; arrays and decisions only pick out of
it, so that whoever asks for some of them or for all computes each chunk once.
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

    name     what dashboards call it
    task     (call, slices of the batch, block, …) → piece
    call     what is the same for all: a node of its own, so that it is sent once
    arrays   each with a label per axis; labels that are not of the batch are whole axes
    batch    the labels of the batch's axes
    """
    token = tokenize(name, call, [(a.name, at) for a, at in arrays])
    chunks = {i: n for a, at in arrays for i, n in zip(at, a.chunks, strict=True)}
    where = ArraySliceDep(tuple(chunks[i] for i in batch))
    pairs = [part for pair in arrays for part in pair]
    return of_dask.blockwise(
        task,
        batch,
        _node(call, f"rlxweb-call-{token}"),
        None,
        where,
        batch,
        *pairs,
        name=f"{name}-{token}",
        concatenate=None,
        align_arrays=False,
        meta=np.empty((0,) * len(batch), object),
    )


def part(pieces: Any, field: Field) -> Any:
    """One array of all pieces."""
    batch = tuple(range(pieces.ndim))
    new = tuple(range(pieces.ndim, pieces.ndim + len(field.more)))
    out = batch[: field.at] + new + batch[field.at :]
    kind, token = pieces.name.rsplit("-", 1)
    return of_dask.blockwise(
        value_of,
        out,
        pieces,
        batch,
        field.name,
        None,
        new_axes=dict(zip(new, field.more, strict=True)),
        name=f"{kind}-{field.name}{_OF_PIECES}{token}",
        align_arrays=False,
        meta=np.empty((0,) * len(out), field.dtype),
    )


def ran_of_all(pieces: Any) -> Any:
    """Where each piece was computed."""
    batch = tuple(range(pieces.ndim))
    kind, token = pieces.name.rsplit("-", 1)
    return of_dask.blockwise(
        ran_of,
        batch,
        pieces,
        batch,
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
