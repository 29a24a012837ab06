"""Generators of random data movement ops: slices, windows, padding, gathers, scatters,
sorting.

Slices backwards and by steps, windows, padding, tiling, gathers and scatters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.smoke.random_graph_builder import (
    BoundedTensor,
    OpGenerator,
    RandomGraphBuilder,
    op_generator,
)

MAX_RANK = 5


def _has_axes(v: BoundedTensor) -> bool:
    """Return whether the tensor has axes and elements."""
    return bool(v.shape) and 0 not in v.shape


def _is_numeric(v: BoundedTensor) -> bool:
    """Return whether the tensor is not boolean."""
    return v.dtype is not DType.BOOL


def _random_axis(builder: RandomGraphBuilder, value: BoundedTensor) -> int:
    """Return a random axis of the tensor."""
    return builder.random_integer(0, len(value.shape) - 1)


@op_generator(_has_axes)
def add_slice(
    builder: RandomGraphBuilder, value: BoundedTensor
) -> BoundedTensor | None:
    """Add a slice of one or two axes with a step that may be negative."""
    axes = sorted({_random_axis(builder, value) for _ in range(2)})
    bounds = []
    for axis in axes:
        n, step = value.shape[axis], builder.choose(-3, -2, -1, 1, 2, 3)
        start, stop = sorted(
            (builder.random_integer(-n, n), builder.random_integer(-n, n))
        )
        if step < 0:
            start, stop = stop, start
        if not len(range(*slice(start, stop, step).indices(n))):
            start, stop = (n - 1, -n - 1) if step < 0 else (0, n)
        bounds.append((start, stop, step))
    starts, stops, steps = zip(*bounds, strict=True)
    attrs = {"starts": starts, "stops": stops, "steps": steps}
    return builder.add_data_movement("slice", value, axes=tuple(axes), **attrs)


@op_generator(_has_axes, lambda v: len(v.shape) < MAX_RANK)
def add_windows(
    builder: RandomGraphBuilder, value: BoundedTensor
) -> BoundedTensor | None:
    """Add sliding windows over an axis, strided and dilated."""
    axis = _random_axis(builder, value)
    n = value.shape[axis]
    size = builder.random_integer(1, min(n, 4))
    dilation = builder.random_integer(1, max((n - 1) // max(size - 1, 1), 1))
    attrs = {
        "sizes": (size,),
        "steps": (builder.random_integer(1, 3),),
        "dilations": (dilation,),
    }
    return builder.add_data_movement("windows", value, axes=(axis,), **attrs)


@op_generator(_has_axes, _is_numeric)
def add_pad(builder: RandomGraphBuilder, value: BoundedTensor) -> BoundedTensor | None:
    """Add padding in a random mode; constant padding may also crop."""
    axes = tuple(sorted({_random_axis(builder, value) for _ in range(2)}))
    mode = builder.choose("constant", "reflect", "symmetric", "edge", "wrap")
    fill = builder.random_integer(0, 5)
    widths = []
    for axis in axes:
        n = value.shape[axis]
        max_width = {"reflect": n - 1, "symmetric": n, "wrap": n}.get(mode, 3)
        min_width = -min((n - 1) // 2, 2) if mode == "constant" else 0
        widths.append(
            [builder.random_integer(min_width, min(max_width, 3)) for _ in range(2)]
        )
    widths_before, widths_after = zip(*widths, strict=True)
    attrs: dict[str, Any] = {
        "before": widths_before,
        "after": widths_after,
        "mode": mode,
    }
    result = builder.add_data_movement("pad", value, axes=axes, value=fill, **attrs)
    if mode != "constant":
        return result
    return replace(result, low=min(value.low, fill), high=max(value.high, fill))


@op_generator(_has_axes)
def add_tile_or_repeat(
    builder: RandomGraphBuilder, value: BoundedTensor
) -> BoundedTensor | None:
    """Add a tile of the whole tensor, or a repeat of an axis's elements."""
    axis = _random_axis(builder, value)
    if builder.random_integer(0, 1):
        repeats = [builder.random_integer(1, 2) for _ in value.shape]
        return builder.add_data_movement("tile", value, repeats=tuple(repeats))
    counts = builder.choose((2,), tuple(builder.rng.integers(0, 3, value.shape[axis])))
    int_counts = tuple(int(count) for count in counts)
    return builder.add_data_movement("repeat", value, repeats=int_counts, axis=axis)


@op_generator(_has_axes, _is_numeric)
def add_roll_or_dilate(
    builder: RandomGraphBuilder, value: BoundedTensor
) -> BoundedTensor | None:
    """Add a roll of an axis, or a dilation that inserts elements between its
    elements.
    """
    axis = _random_axis(builder, value)
    if builder.random_integer(0, 1):
        return builder.add_data_movement(
            "roll", value, shifts=(builder.random_integer(-7, 7),), axes=(axis,)
        )
    result = builder.add_data_movement(
        "dilate", value, axes=(axis,), steps=(builder.random_integer(1, 3),)
    )
    return replace(result, low=min(value.low, 0), high=max(value.high, 0))


def _add_indices(
    builder: RandomGraphBuilder, n: int, shape: tuple[int, ...]
) -> BoundedTensor:
    """Add random indices into an axis, negative ones among them."""
    index_array = builder.rng.integers(-n, n, shape).astype(np.int32)
    return builder.add_feed(np.asarray(index_array), -n, n - 1, True, is_reusable=False)


@op_generator(_has_axes)
def add_gather_elements_or_nd(
    builder: RandomGraphBuilder, value: BoundedTensor
) -> BoundedTensor | None:
    """Add a gather of one element of an axis per index, or of rows by indices of
    several axes.
    """
    if builder.random_integer(0, 1):
        axis = _random_axis(builder, value)
        shape = list(value.shape)
        shape[axis] = builder.random_integer(1, 5)
        indices = _add_indices(builder, value.shape[axis], tuple(shape))
        result = builder.add_node(
            "gather_elements",
            (value, indices),
            value.low,
            value.high,
            value.max_error,
            axis=axis,
        )
    else:
        n_indexed_axes = builder.random_integer(1, len(value.shape))
        axis_indices = [
            builder.rng.integers(0, n, 3) for n in value.shape[:n_indexed_axes]
        ]
        array = np.stack(axis_indices, axis=-1).astype(np.int32)
        indices = builder.add_feed(array, 0, max(value.shape), True, is_reusable=False)
        operands = (value, indices)
        result = builder.add_node(
            "gather_nd", operands, value.low, value.high, value.max_error
        )
    return replace(
        result, max_error=value.max_error, is_exact_integer=value.is_exact_integer
    )


@op_generator(_has_axes, _is_numeric, lambda v: v.dtype is not DType.U32)
def add_scatter(
    builder: RandomGraphBuilder, value: BoundedTensor
) -> BoundedTensor | None:
    """Add a scatter into an axis that replaces or combines elements."""
    axis = _random_axis(builder, value)
    n = value.shape[axis]
    reduction = builder.choose("none", "add", "max", "min")
    shape = list(value.shape)
    # Of several values for one place the last is taken, on every engine alike.
    shape[axis] = builder.random_integer(1, n + 1)
    indices = _add_indices(builder, n, tuple(shape))
    kind = "i32" if value.dtype is DType.I32 else "whole"
    updates = builder.add_leaf(tuple(shape), kind, is_reusable=False)
    low, high = min(value.low, updates.low), max(value.high, updates.high)
    if reduction == "add":
        low = value.low + min(shape[axis] * updates.low, 0)
        high = value.high + max(shape[axis] * updates.high, 0)
    attrs = {"axis": axis, "reduction": reduction}
    inputs = (value, indices, updates)
    return builder.add_node(
        "scatter_elements", inputs, low, high, value.max_error, **attrs
    )


@op_generator(_has_axes, lambda v: v.is_exact_integer and v.dtype is not DType.BOOL)
def add_sort_or_search(
    builder: RandomGraphBuilder, value: BoundedTensor
) -> BoundedTensor | None:
    """Add a sort, argsort or searchsorted of exact integers."""
    axis = _random_axis(builder, value)
    is_descending = bool(builder.random_integer(0, 1))
    name = builder.choose("sort", "argsort", "searchsorted")
    if name == "sort":
        return builder.add_data_movement(
            "sort", value, axis=axis, descending=is_descending
        )
    if name == "argsort":
        n = value.shape[axis]
        attrs = {"axis": axis, "descending": is_descending}
        return builder.add_node("argsort", (value,), 0, n - 1, 0.0, **attrs)
    sorted_rows = builder.add_data_movement(
        "sort", value, axis=len(value.shape) - 1, descending=False
    )
    kind = {DType.I32: "i32", DType.U32: "u32"}.get(value.dtype, "whole")
    searched_values = builder.add_leaf(
        (*value.shape[:-1], builder.random_integer(1, 4)), kind, is_reusable=False
    )
    side = builder.choose("left", "right")
    row_length = value.shape[-1]
    return builder.add_node(
        "searchsorted", (sorted_rows, searched_values), 0, row_length, 0.0, side=side
    )


DATA_MOVEMENT_GENERATORS: tuple[OpGenerator, ...] = (
    *(
        add_slice,
        add_windows,
        add_pad,
        add_tile_or_repeat,
        add_roll_or_dilate,
        add_gather_elements_or_nd,
        add_scatter,
        add_sort_or_search,
    ),
)
