"""One row of a table on the host: a view of it, where the place is a single one.

A network that keeps its state as parts of one array takes them out one by one; all the
checks that many indices need take longer than that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.ir.shape import Shape, normal_axis

Array = NDArray[Any]


def is_open(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """A single index."""
    return inputs[1].numel == 1


def gather(inputs: Types, out: TensorType, attrs: Attrs) -> Callable[..., Array]:
    """How a node is run, its axis and shape known; by the reference for many."""
    if inputs[1].numel != 1:
        return partial(registry.get("gather").reference, np)
    axis = normal_axis(attrs["axis"], inputs[0].rank)
    return partial(_row, axis, out.shape)


def _row(axis: int, shape: Shape, attrs: Attrs, table: Array, indices: Array) -> Array:
    """Errors  IndexRefused, by the reference, for an index outside."""
    at, rows = int(indices.reshape(-1)[0]), table.shape[axis]
    if not -rows <= at < rows:
        made: Array = registry.get("gather").reference(np, attrs, table, indices)
        return made
    return table[(slice(None),) * axis + (at,)].reshape(shape)
