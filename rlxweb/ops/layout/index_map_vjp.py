"""Vector-Jacobian products of index-map ops: each gradient goes back to the source
element.

An axis of a result is a table of places of the operand's axis, or -1 for what came from
nowhere. The gradient of an element is the sum over the places where it went.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.ir.derivative import VjpContext, VjpRule
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.vmap_batching import BatchContext

IndexTable = npt.NDArray[np.int32]


def index_map_axis_vjp(grad: Tensor, axis: int, table: IndexTable, size: int) -> Tensor:
    """Return the gradient of an axis of `size` elements from which `table` took its
    elements.

    What went to several places is added up by twos, so that there is work for many at
    once and as many passes as a sum of two, four, eight … takes.
    """
    g, valid_positions = grad.graph, np.flatnonzero(table >= 0)
    shape = (*grad.shape[:axis], size, *grad.shape[axis + 1 :])
    if not len(valid_positions) or not prod(shape):
        return zeros_with_dtype(grad, shape)
    if size == 1:
        return g.sum(_remap_axis(grad, axis, valid_positions), axis, keep_dim=True)
    order = np.argsort(table[valid_positions], kind="stable")
    positions, elements = valid_positions[order], table[valid_positions][order]
    while True:
        starts = np.flatnonzero(np.diff(elements, prepend=-1))
        counts = np.diff(starts, append=len(elements))
        if counts.max() == 1:
            break
        occurrence = np.arange(len(elements)) - np.repeat(starts, counts)
        even_occurrences = np.flatnonzero(occurrence % 2 == 0)
        # Its neighbour goes with it, if that is of the same element.
        has_neighbor = (
            np.append(occurrence[1:], 0)[even_occurrences]
            == occurrence[even_occurrences] + 1
        )
        neighbor_positions = np.where(
            has_neighbor, np.append(positions[1:], -1)[even_occurrences], -1
        )
        grad = _remap_axis(grad, axis, positions[even_occurrences]) + _remap_axis(
            grad, axis, neighbor_positions
        )
        positions = np.arange(len(even_occurrences))
        elements = elements[even_occurrences]
    inverse_table = np.full(size, -1)
    inverse_table[elements] = positions
    return _remap_axis(grad, axis, inverse_table)


def _remap_axis(x: Tensor, axis: int, table: npt.NDArray[Any]) -> Tensor:
    """Take the elements of one axis by a table of positions; -1 gives 0."""
    if np.array_equal(table, np.arange(x.shape[axis])):
        return x
    positions = tuple(table.tolist())
    return x.graph.apply(
        "remap", x, axes=(axis,), sizes=(len(positions),), places=positions
    )


def index_map_vjp(axis_map_rule: Callable[[Shape, Any], Sequence[Any]]) -> VjpRule:
    """Return the VJP rule of an op whose axes are given by index tables."""

    def vjp_rule(ctx: VjpContext) -> list[Tensor | None]:
        grad, shape = ctx.grad, tuple(ctx.x.shape)
        for axis, axis_map in enumerate(axis_map_rule(shape, ctx.attrs)):
            if axis_map is not None:
                grad = index_map_axis_vjp(grad, axis, axis_map.table(), shape[axis])
        return [grad]

    return vjp_rule


def batch_shifted_axes(ctx: BatchContext) -> Tensor:
    """Batch an op that acts along its attribute `axes`: shift each axis by one."""
    rank = ctx.ranks[0]
    return ctx.apply(ctx.x, axes=tuple(a % rank + 1 for a in ctx.attrs["axes"]))


def zeros_with_dtype(like: Tensor, shape: Sequence[int]) -> Tensor:
    """Return zeros of a shape, with the dtype of a tensor."""
    g = like.graph
    return g.expand(g.constant(0, like.dtype), tuple(shape))


def enumerate_axes(like: Tensor, first: int, last: int) -> Tensor:
    """Number the elements over neighbouring axes of a tensor's shape (i32), the same
    for all other axes.
    """
    g, shape = like.graph, like.shape
    numbers = np.arange(prod(shape[first:last]), dtype=np.int32)
    line_shape = (*(1,) * first, *shape[first:last], *(1,) * (like.rank - last))
    return g.expand(g.constant(numbers.reshape(line_shape)), shape)
