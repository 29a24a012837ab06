"""Graph methods for gathering, scattering and running sums.

They have the names of NumPy and PyTorch; where the two differ the docstring says whose
meaning a name has. Nothing is computed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlxweb.ir.op_methods import graph_method
from rlxweb.ir.shape_arithmetic import (
    bad_shape,
    normalize_axis,
)
from rlxweb.ir.tensor import Tensor, op_context

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph


@graph_method
def gather_elements(g: Graph, x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """Pick an element of an axis for each index, as PyTorch's gather and ONNX's
    GatherElements.

    The other axes of the indices may be shorter than those of `x`: of these the
    first elements are used. Negative indices count from the end.
    Errors   IndexRefused when it is run; ShapeError, DTypeError.
    """
    gather_axis = normalize_axis(axis, x.rank)
    for a, size in enumerate(indices.shape[: x.rank]):
        if a != gather_axis and size < x.shape[a]:
            x = g.apply("narrow", x, axis=a, start=0, length=size)
    return g.apply("gather_elements", x, indices, axis=axis)


@graph_method
def take_along_axis(g: Graph, x: Tensor, indices: Tensor, axis: int = -1) -> Tensor:
    """Gather elements as `gather_elements` with broadcast other axes, as
    numpy.take_along_axis.
    """
    gather_axis = normalize_axis(axis, x.rank)
    if indices.rank != x.rank:
        raise bad_shape(
            f"the indices have rank {indices.rank}, x has rank {x.rank}",
            "indices and x must have the same rank",
        )
    broadcast_shape = tuple(1 if a == gather_axis else d for a, d in enumerate(x.shape))
    indices = g.apply("expand", indices, shape=broadcast_shape)
    broadcast_shape = tuple(
        1 if a == gather_axis else d for a, d in enumerate(indices.shape)
    )
    x = g.apply("expand", x, shape=broadcast_shape)
    return g.apply("gather_elements", x, indices, axis=gather_axis)


@graph_method
def gather_nd(g: Graph, x: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """Gather rows by indices of several axes, which the last axis of `indices` holds.

    As ONNX's GatherND and TensorFlow's. Errors  IndexRefused when it is run.
    """
    return g.apply("gather_nd", x, indices, batch_dims=batch_dims)


@graph_method
def scatter_elements(
    g: Graph,
    x: Tensor,
    indices: Tensor,
    values: Tensor,
    axis: int = 0,
    reduction: str = "none",
) -> Tensor:
    """Return `x` with values written at indices of an axis, as ONNX's ScatterElements.

    reduction  "none": of several the last; "add", "mul", "max", "min": combined
               with what is there

    The other axes of the indices may be shorter than those of `x`.
    Errors   IndexRefused when it is run; ShapeError, DTypeError.
    """
    scatter_axis = normalize_axis(axis, x.rank)
    shorter_axes = [
        (a, n)
        for a, n in enumerate(indices.shape[: x.rank])
        if a != scatter_axis and n < x.shape[a]
    ]
    if not shorter_axes or indices.rank != x.rank:
        return g.apply(
            "scatter_elements", x, indices, values, axis=axis, reduction=reduction
        )
    # Put into the part that is named, which takes its place before the rest.
    a, n = shorter_axes[0]
    part = g.apply("narrow", x, axis=a, start=0, length=n)
    scattered = g.scatter_elements(part, indices, values, axis, reduction)
    untouched = g.apply("narrow", x, axis=a, start=n, length=x.shape[a] - n)
    return g.apply("concat", scattered, untouched, axis=a)


@graph_method
def scatter_nd(
    g: Graph,
    x: Tensor,
    indices: Tensor,
    values: Tensor,
    reduction: str = "none",
    batch_dims: int = 0,
) -> Tensor:
    """Return `x` with rows written at the indices that the last axis of `indices`
    holds.

    See `scatter_elements` for the reductions. As ONNX's ScatterND.
    Errors   IndexRefused when it is run; ShapeError, DTypeError.
    """
    return g.apply(
        "scatter_nd", x, indices, values, batch_dims=batch_dims, reduction=reduction
    )


@graph_method
def gather(g: Graph, table: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """Select entries of `table` along an axis, as np.take: `table.dims[:axis] ++
    indices.dims ++ table.dims[axis+1:]`.

    Negative indices count from the end. Errors  IndexRefused when it is run.
    """
    return g.apply("gather", table, indices, axis=axis)


@graph_method
def cumsum(
    g: Graph,
    x: Tensor,
    axis: int = -1,
    exclusive: bool = False,
    reverse: bool = False,
) -> Tensor:
    """Return running sums along an axis; `exclusive` leaves out each element's own
    value, `reverse` starts at the end of the axis.
    """
    return _add_running(g, "cumsum", x, axis, exclusive, reverse)


@graph_method
def cumprod(
    g: Graph,
    x: Tensor,
    axis: int = -1,
    exclusive: bool = False,
    reverse: bool = False,
) -> Tensor:
    """Return running products along an axis. `exclusive` leaves each element's own
    value out; `reverse` starts at the end of the axis.
    """
    return _add_running(g, "cumprod", x, axis, exclusive, reverse)


def _add_running(
    g: Graph,
    op: str,
    x: Tensor,
    axis: int,
    exclusive: bool,
    reverse: bool,
) -> Tensor:
    """Add the running sums or products along an axis.

    exclusive  leaves out each element's own value
    reverse    starts at the end of the axis
    """
    if not reverse:
        return g.apply(op, x, axis=axis, exclusive=exclusive)
    with op_context(op, x):
        flipped = g.flip(x, axis) if x.rank else x
    return g.flip(g.apply(op, flipped, axis=axis, exclusive=exclusive), axis)
