"""Graph methods that move values: slices, new and dropped axes, splits, repetitions.

They have the names of NumPy and PyTorch; where the two differ the docstring says whose
meaning a name has. Most are views or a few ops of `rlxweb.ops`. Nothing is computed
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.ir.indexing import take_indices
from rlxweb.ir.op_methods import graph_method
from rlxweb.ir.shape_arithmetic import (
    as_integer,
    as_integers,
    as_tuple,
    bad_shape,
    format_shape,
    normalize_axes,
    normalize_axis,
    numel,
    short_repr,
    solve_expand,
)
from rlxweb.ir.tensor import Axes, Tensor, as_tensor_tuple

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph

_BEYOND_ANY_AXIS = 1 << 62
"""A slice bound beyond every axis."""
SliceBounds = int | None | Sequence[int | None]


@graph_method("slice")
def add_slice(
    g: Graph,
    x: Tensor,
    starts: SliceBounds,
    stops: SliceBounds,
    axes: Axes | None = None,
    steps: Axes | None = None,
) -> Tensor:
    """Return `x[start:stop:step]` along each of `axes`; None stands for the first axes.

    Bounds are Python's: negative ones count from the end, None is the end that a
    slice begins or ends at. A view, backwards too.
    Errors   ShapeError, AttributeRefused.
    """
    start_bounds, stop_bounds = _parse_bounds(starts), _parse_bounds(stops)
    step_sizes = (
        (1,) * len(start_bounds) if steps is None else as_integers(steps, "a step")
    )
    sliced_axes = (
        range(len(start_bounds)) if axes is None else as_integers(axes, "an axis")
    )
    if not len(start_bounds) == len(stop_bounds) == len(step_sizes) == len(sliced_axes):
        raise bad_shape(
            f"got {len(start_bounds)} starts, {len(stop_bounds)} stops, "
            f"{len(step_sizes)} steps and {len(sliced_axes)} axes",
            "expected one start, one stop and one step per axis",
        )
    default_bounds = [
        (_BEYOND_ANY_AXIS, -_BEYOND_ANY_AXIS) if step < 0 else (0, _BEYOND_ANY_AXIS)
        for step in step_sizes
    ]
    return g.apply(
        "slice",
        x,
        axes=tuple(sliced_axes),
        starts=tuple(
            default[0] if start is None else start
            for start, default in zip(start_bounds, default_bounds, strict=True)
        ),
        stops=tuple(
            default[1] if stop is None else stop
            for stop, default in zip(stop_bounds, default_bounds, strict=True)
        ),
        steps=step_sizes,
    )


@graph_method
def flip(g: Graph, x: Tensor, axes: Axes | None = None) -> Tensor:
    """Reverse the order of elements along axes, along all of them for None; a view."""
    flipped_axes = (
        tuple(range(x.rank)) if axes is None else as_integers(axes, "an axis")
    )
    bounds = (None,) * len(flipped_axes)
    return (
        g.slice(x, bounds, bounds, flipped_axes, (-1,) * len(flipped_axes))
        if flipped_axes
        else x
    )


@graph_method
def windows(
    g: Graph,
    x: Tensor,
    sizes: Axes,
    axes: Axes | None = None,
    steps: Axes = 1,
    dilations: Axes = 1,
) -> Tensor:
    """Return sliding windows, as numpy.lib.stride_tricks.sliding_window_view; a view.

    axes       one for each size, the last ones when it is None
    steps      every how many-th window; one for all or one for each
    dilations  how far apart the elements of a window are

    [..., n, ...] → [..., places, ..., *sizes]: the axes become the windows' places,
    and their elements the new last axes. Errors  ShapeError, AttributeRefused.
    """
    window_sizes = as_integers(sizes, "a size")
    rank = len(window_sizes)
    window_steps, window_dilations = (
        values * rank if len(values) == 1 else values
        for values in (
            as_integers(steps, "a step"),
            as_integers(dilations, "a dilation"),
        )
    )
    return g.apply(
        "windows",
        x,
        axes=tuple(range(-rank, 0)) if axes is None else axes,
        sizes=window_sizes,
        steps=window_steps,
        dilations=window_dilations,
    )


@graph_method
def broadcast_to(g: Graph, x: Tensor, shape: Sequence[int]) -> Tensor:
    """Broadcast x to exactly this shape, as NumPy's. Errors  ShapeError.

    `expand` broadcasts both ways, so that a 1 in its shape leaves an axis alone.
    """
    target = as_integers(shape, "a dimension")
    if solve_expand(x.shape, target) != target:
        raise bad_shape(
            f"cannot broadcast {format_shape(x.shape)} to {format_shape(target)}",
            "aligned from the right, each dimension of the array must be 1 or "
            "equal to the dimension of the target shape",
            "use `expand`, which keeps dimensions where the target shape has 1",
        )
    return g.apply("expand", x, shape=target)


@graph_method
def squeeze(g: Graph, x: Tensor, axes: Axes | None = None) -> Tensor:
    """Remove these axes of size 1, or all such axes for None; a view.

    Errors   ShapeError for an axis of another size.
    """
    unit_axes = tuple(a for a, d in enumerate(x.shape) if d == 1)
    removed_axes = (
        unit_axes
        if axes is None
        else normalize_axes(as_integers(axes, "an axis"), x.rank)
    )
    for axis in removed_axes:
        if x.shape[axis] != 1:
            raise bad_shape(
                f"axis {axis} of {format_shape(x.shape)} has {x.shape[axis]} elements",
                "a squeezed axis must have 1 element",
                "select one element instead: x[..., 0]",
            )
    remaining_shape = tuple(d for a, d in enumerate(x.shape) if a not in removed_axes)
    return g.apply("reshape", x, shape=remaining_shape)


@graph_method
def unsqueeze(g: Graph, x: Tensor, axes: Axes) -> Tensor:
    """Insert axes of size 1 at these positions of the result; a view.

    Errors   ShapeError.
    """
    positions = as_integers(axes, "an axis")
    rank = x.rank + len(positions)
    new_axes = normalize_axes(positions, rank)
    rest = iter(x.shape)
    shape = tuple(1 if a in new_axes else next(rest) for a in range(rank))
    return g.apply("reshape", x, shape=shape)


graph_method("expand_dims")(unsqueeze)


@graph_method
def flatten(g: Graph, x: Tensor, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """Merge the axes from `start_axis` to `end_axis` into one, as PyTorch's; a view."""
    if not x.rank:
        return g.apply("reshape", x, shape=(1,))
    first, last = (normalize_axis(a, x.rank) for a in (start_axis, end_axis))
    if first > last:
        raise bad_shape(
            f"start_axis {first} comes after end_axis {last}",
            "start_axis must be <= end_axis",
        )
    count = numel(x.shape[first : last + 1])
    shape = (*x.shape[:first], count, *x.shape[last + 1 :])
    return g.apply("reshape", x, shape=shape)


@graph_method
def moveaxis(g: Graph, x: Tensor, source: Axes, destination: Axes) -> Tensor:
    """Move axes to other positions, the rest in their order, as NumPy's; a view."""
    source_axes = normalize_axes(as_integers(source, "an axis"), x.rank)
    target_axes = normalize_axes(as_integers(destination, "an axis"), x.rank)
    if len(source_axes) != len(target_axes):
        raise bad_shape(
            f"got {len(source_axes)} source axes and {len(target_axes)} "
            f"destination axes",
            "expected one destination axis per source axis",
        )
    source_of = dict(zip(target_axes, source_axes, strict=True))
    rest = iter(a for a in range(x.rank) if a not in source_axes)
    perm = tuple(source_of[a] if a in source_of else next(rest) for a in range(x.rank))
    return g.apply("transpose", x, perm=perm)


@graph_method
def swapaxes(g: Graph, x: Tensor, first: int, second: int) -> Tensor:
    """Exchange two axes, as NumPy's; a view."""
    a, b = (normalize_axis(axis, x.rank) for axis in (first, second))
    perm = list(range(x.rank))
    perm[a], perm[b] = b, a
    return g.apply("transpose", x, perm=perm)


@graph_method
def split(g: Graph, x: Tensor, parts: Axes, axis: int = 0) -> list[Tensor]:
    """Split an axis into consecutive parts; views.

    parts   their sizes, as PyTorch's `split` and ONNX take them; one number: how
            many parts of equal size, as NumPy takes it

    Errors   ShapeError when they are not the whole axis.
    """
    axis = normalize_axis(axis, x.rank)
    sizes = _split_sizes(x.shape[axis], parts)
    starts = accumulate(sizes, initial=0)
    return [
        g.apply("narrow", x, axis=axis, start=start, length=size)
        for start, size in zip(starts, sizes, strict=False)
    ]


def unstack(g: Graph, x: Tensor) -> list[Tensor]:
    """Return the tensors that lie stacked along the first axis; views."""
    return [g.reshape(part, x.shape[1:]) for part in g.split(x, x.shape[0])]


@graph_method
def stack(g: Graph, xs: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Join tensors of one shape along a new axis. Errors  ShapeError."""
    tensors = as_tensor_tuple(xs, "stack", "stack([a, b])")
    unsqueezed = [g.unsqueeze(x, axis) for x in tensors]
    concat_axis = normalize_axis(axis, unsqueezed[0].rank) if unsqueezed else 0
    return g.apply("concat", *unsqueezed, axis=concat_axis)


@graph_method
def take(g: Graph, x: Tensor, indices: Any, axis: int | None = None) -> Tensor:
    """Select elements of an axis by index, as NumPy's; negative indices count from
    its end.

    indices   integers, an array of them or an integer tensor
    axis      None: of the elements in their order

    Errors   IndexRefused, when it is run for those of a tensor.
    """
    if axis is None:
        x, axis = g.apply("reshape", x, shape=(-1,)), 0
    return take_indices(x, indices, normalize_axis(axis, x.rank))


@graph_method
def reshape(g: Graph, x: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the elements of x, in row-major order, in another shape."""
    return g.apply("reshape", x, shape=shape)


@graph_method
def transpose(g: Graph, x: Tensor, perm: Sequence[int]) -> Tensor:
    """Return x with its axes in the order of `perm`."""
    return g.apply("transpose", x, perm=perm)


@graph_method
def narrow(g: Graph, x: Tensor, axis: int, start: int, length: int) -> Tensor:
    """Return `length` entries of x along an axis, from `start` on."""
    return g.apply("narrow", x, axis=axis, start=start, length=length)


@graph_method
def concat(g: Graph, xs: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Join tensors along an axis."""
    return g.apply(
        "concat", *as_tensor_tuple(xs, "concat", "concat([a, b])"), axis=axis
    )


@graph_method
def expand(g: Graph, x: Tensor, shape: Sequence[int]) -> Tensor:
    """Broadcast x with a shape; -1 and 1 leave an axis unchanged."""
    return g.apply("expand", x, shape=shape)


def _parse_bounds(bounds: SliceBounds) -> tuple[int | None, ...]:
    elements = (None,) if bounds is None else as_tuple(bounds)
    if elements is None:
        raise bad_shape(
            f"the bounds are {short_repr(bounds)}", "expected integers or None"
        )
    return tuple(b if b is None else as_integer(b, "a bound") for b in elements)


def _split_sizes(length: int, parts: Axes) -> tuple[int, ...]:
    """Return the sizes of the parts of an axis from their sizes or their number."""
    if not isinstance(parts, Sequence | np.ndarray):
        count = as_integer(parts, "the number of parts")
        if count < 1 or length % count:
            raise bad_shape(
                f"an axis of {length} elements cannot be split into {count} equal "
                f"parts",
                f"the number of parts must be >= 1 and divide {length}",
                "for unequal parts, pass the size of each part",
            )
        return (length // count,) * count
    sizes = as_integers(parts, "the size of a part")
    if sum(sizes) != length or any(size < 0 for size in sizes):
        raise bad_shape(
            f"the sizes of the parts are {format_shape(sizes)}",
            f"the sizes must be >= 0 and add up to {length}, got a sum of {sum(sizes)}",
        )
    return sizes
