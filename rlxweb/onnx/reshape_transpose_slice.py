"""Converters of Reshape, Transpose, Slice, Concat and other ops that only move
values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlxweb.ir.shape_arithmetic import broadcast, normalize_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, Value, converts

Ints = tuple[int, ...]


@converts("Reshape", until=4)
def _old_reshape(
    ctx: ConversionContext, x: Tensor, *, shape: Ints, consumed_inputs: Ints = ()
) -> Tensor:
    return _reshape_to(ctx, x, shape, 0)


@converts("Reshape", since=5)
def _reshape(
    ctx: ConversionContext, x: Tensor, shape: Tensor, *, allowzero: int = 0
) -> Tensor:
    return _reshape_to(ctx, x, ctx.require_ints(shape, "the shape"), allowzero)


def _reshape_to(
    ctx: ConversionContext, x: Tensor, shape: Ints, allowzero: int
) -> Tensor:
    """Reshape to an ONNX shape, in which 0 means the dimension of x at the same
    axis.
    """
    dims = list(shape)
    for axis, dim in enumerate(dims):
        if dim == 0 and not allowzero:
            if axis >= x.rank:
                ctx.raise_invalid_model(
                    f"dimension {axis} of the new shape is 0",
                    "a 0 stands for the dimension of x at the same axis, but x has "
                    f"rank {x.rank}",
                )
            dims[axis] = x.shape[axis]
    if 0 in dims and -1 in dims and not allowzero:
        # Our solver refuses 0 times anything; ONNX leaves the rest to be 0 too.
        known_product = np.prod([d for d in dims if d != -1])
        if not known_product and not np.prod(x.shape):
            dims[dims.index(-1)] = 0
    return ctx.graph.reshape(x, dims)


@converts("Flatten")
def _flatten(ctx: ConversionContext, x: Tensor, *, axis: int = 1) -> Tensor:
    if not -x.rank <= axis <= x.rank:
        ctx.raise_invalid_model(
            f"axis {axis} is out of range",
            f"must be {-x.rank} to {x.rank} because x has rank {x.rank}",
        )
    axis = axis + x.rank if axis < 0 else axis
    outer = int(np.prod(x.shape[:axis], dtype=np.int64))
    return ctx.graph.reshape(x, (outer, int(np.prod(x.shape[axis:], dtype=np.int64))))


@converts("Transpose")
def _transpose(
    ctx: ConversionContext, x: Tensor, *, perm: Ints | None = None
) -> Tensor:
    return x.transpose(*(perm or ()))


@converts("Squeeze", until=12)
def _old_squeeze(
    ctx: ConversionContext, x: Tensor, *, axes: Ints | None = None
) -> Tensor:
    return squeeze_axes(ctx, x, axes)


@converts("Squeeze", since=13)
def _squeeze(ctx: ConversionContext, x: Tensor, axes: Tensor | None = None) -> Tensor:
    return squeeze_axes(
        ctx, x, None if axes is None else ctx.require_ints(axes, "the axes")
    )


def squeeze_axes(ctx: ConversionContext, x: Tensor, axes: Ints | None) -> Tensor:
    """Remove these axes of size 1; None: all axes of size 1."""
    if axes is None:
        axes = tuple(a for a, d in enumerate(x.shape) if d == 1)
    removed_axes = {normalize_axis(a, x.rank) for a in axes}
    for axis in removed_axes:
        if x.shape[axis] != 1:
            ctx.raise_invalid_model(
                f"axis {axis} has size {x.shape[axis]}",
                "a removed axis must have size 1",
            )
    return ctx.graph.reshape(
        x, [d for a, d in enumerate(x.shape) if a not in removed_axes]
    )


@converts("Unsqueeze", until=12)
def _old_unsqueeze(ctx: ConversionContext, x: Tensor, *, axes: Ints) -> Tensor:
    return unsqueeze_axes(ctx, x, axes)


@converts("Unsqueeze", since=13)
def _unsqueeze(ctx: ConversionContext, x: Tensor, axes: Tensor) -> Tensor:
    return unsqueeze_axes(ctx, x, ctx.require_ints(axes, "the axes"))


def unsqueeze_axes(ctx: ConversionContext, x: Tensor, axes: Sequence[int]) -> Tensor:
    """Insert new axes of size 1 at these axes of the result."""
    rank = x.rank + len(axes)
    new_axes = {normalize_axis(a, rank) for a in axes}
    if len(new_axes) != len(axes):
        ctx.raise_invalid_model(
            f"axes {tuple(axes)} contain duplicates", "each axis must be unique"
        )
    old_dims = iter(x.shape)
    return ctx.graph.reshape(
        x, [1 if a in new_axes else next(old_dims) for a in range(rank)]
    )


@converts("Concat")
def _concat(ctx: ConversionContext, *xs: Tensor, axis: int = 1) -> Tensor:
    return ctx.graph.concat(xs, axis)


@converts("Expand")
def _expand(ctx: ConversionContext, x: Tensor, shape: Tensor) -> Tensor:
    return ctx.graph.expand(x, broadcast(x.shape, ctx.require_ints(shape, "the shape")))


@converts("Slice", until=9)
def _old_slice(
    ctx: ConversionContext,
    x: Tensor,
    *,
    starts: Ints,
    ends: Ints,
    axes: Ints | None = None,
) -> Tensor:
    return _slice_axes(ctx, x, starts, ends, axes, None)


@converts("Slice", since=10)
def _slice(
    ctx: ConversionContext,
    x: Tensor,
    starts: Tensor,
    ends: Tensor,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    return _slice_axes(
        ctx,
        x,
        ctx.require_ints(starts, "the starts"),
        ctx.require_ints(ends, "the ends"),
        None if axes is None else ctx.require_ints(axes, "the axes"),
        None if steps is None else ctx.require_ints(steps, "the steps"),
    )


def _slice_axes(
    ctx: ConversionContext,
    x: Tensor,
    starts: Ints,
    ends: Ints,
    axes: Ints | None,
    steps: Ints | None,
) -> Tensor:
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        ctx.raise_invalid_model(
            f"got {len(starts)} starts, {len(ends)} ends, {len(axes)} axes and "
            f"{len(steps)} steps",
            "the four counts must be equal",
        )
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            ctx.raise_invalid_model("a step is 0", "must not be 0")
        axis = normalize_axis(axis, x.rank)
        x = _slice_axis(ctx, x, axis, _slice_range(start, end, step, x.shape[axis]))
    return x


def _slice_range(start: int, end: int, step: int, size: int) -> range:
    """Return the range of selected indices; ONNX clips bounds to the axis."""
    max_start = size if step > 0 else size - 1
    min_end = 0 if step > 0 else -1
    start = min(max(start + size if start < 0 else start, 0), max_start)
    end = min(max(end + size if end < 0 else end, min_end), size)
    return range(start, end, step)


def _slice_axis(ctx: ConversionContext, x: Tensor, axis: int, indices: range) -> Tensor:
    if indices.step == 1 or len(indices) <= 1:
        start = indices.start if len(indices) else 0
        return ctx.graph.narrow(x, axis, start, len(indices))
    stop = None if indices.stop < 0 else indices.stop
    return ctx.graph.slice(x, (indices.start,), (stop,), (axis,), (indices.step,))


@converts("Split", until=12)
def _old_split(
    ctx: ConversionContext, x: Tensor, *, axis: int = 0, split: Ints | None = None
) -> tuple[Tensor, ...]:
    return _split_outputs(ctx, x, axis, split, len(ctx.node.outputs))


@converts("Split", since=13)
def _split(
    ctx: ConversionContext,
    x: Tensor,
    split: Tensor | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
) -> tuple[Tensor, ...]:
    sizes = None if split is None else ctx.require_ints(split, "the sizes")
    count = len(ctx.node.outputs)
    if num_outputs not in (None, count):
        ctx.raise_invalid_model(
            f"num_outputs is {num_outputs}", f"the node has {count} outputs"
        )
    return _split_outputs(ctx, x, axis, sizes, count)


def _split_outputs(
    ctx: ConversionContext, x: Tensor, axis: int, sizes: Ints | None, count: int
) -> tuple[Tensor, ...]:
    axis = normalize_axis(axis, x.rank)
    if sizes is None:
        size = x.shape[axis]
        chunk_size = -(-size // count)
        sizes = (*(chunk_size,) * (count - 1), size - chunk_size * (count - 1))
    return split_axis(ctx, x, axis, sizes)


def split_axis(
    ctx: ConversionContext, x: Tensor, axis: int, sizes: Ints
) -> tuple[Tensor, ...]:
    """Split an axis into parts of these sizes, which must add up to the axis."""
    size = x.shape[axis]
    if sum(sizes) != size or min(sizes, default=0) < 0:
        ctx.raise_invalid_model(
            f"the parts have sizes {sizes}",
            f"the sizes must be >= 0 and add up to {size}, the size of axis {axis}",
        )
    starts = np.cumsum((0, *sizes)).tolist()
    return tuple(
        ctx.graph.narrow(x, axis, start, length)
        for start, length in zip(starts, sizes, strict=False)
    )


def stack_values(ctx: ConversionContext, xs: Sequence[Value], axis: int = 0) -> Tensor:
    """Stack tensors of one shape along a new axis."""
    return ctx.graph.concat([unsqueeze_axes(ctx, x, (axis,)) for x in xs], axis)
