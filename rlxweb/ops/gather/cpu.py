"""NumPy kernels of gathers of one row, and of sums along rows in blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.ir.shape_arithmetic import Shape, normalize_axis
from rlxweb.ops.cache_blocking import attr_axis, blocked_kernels
from rlxweb.ops.kernel_variant import KernelVariant

Array = NDArray[Any]


def _has_single_index(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether there is a single index.

    A network that keeps its state as parts of one array takes them out one by one, and
    the checks that many indices need take longer than that.
    """
    return inputs[1].numel == 1


def _plan_gather(inputs: Types, out: TensorType, attrs: Attrs) -> Callable[..., Array]:
    """Return the function that gathers one row; the reference for many rows."""
    if inputs[1].numel != 1:
        return partial(registry.get("gather").reference, np)
    axis = normalize_axis(attrs["axis"], inputs[0].rank)
    return partial(_gather_row, axis, out.shape)


def _gather_row(
    axis: int, shape: Shape, attrs: Attrs, table: Array, indices: Array
) -> Array:
    """Return a view of one row. Errors  IndexRefused for an index outside."""
    index, rows = int(indices.reshape(-1)[0]), table.shape[axis]
    if not -rows <= index < rows:
        result: Array = registry.get("gather").reference(np, attrs, table, indices)
        return result
    return table[(slice(None),) * axis + (index,)].reshape(shape)


KERNELS = (
    KernelVariant("gather, one row", "gather", _plan_gather, _has_single_index),
    *blocked_kernels(attr_axis, "cumsum"),
)
