"""Translate NumPy-style keys of `tensor[…]` into views, one reshape and one gather.

Integers, slices with steps, None and Ellipsis are views. One axis (or the axes that a
mask covers) may be taken by an array of integers, a list, a mask of constants or an
integer tensor. What needs values to know a shape is refused with what to do instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlxweb.core.array_coercion import as_array
from rlxweb.core.errors import IndexRefused, ShapeError, UsageError
from rlxweb.ir.dtype import DType
from rlxweb.ir.shape_arithmetic import (
    as_integer,
    bad_shape,
    error_context,
    format_shape,
    numel,
    short_repr,
)

if TYPE_CHECKING:
    from rlxweb.ir.tensor import Tensor


class IndexPart(NamedTuple):
    """One component of a key: the selection along one axis, or along several axes that
    are merged.

    kind   "cut": `length` of it from `start` on · "step": the slice `index` · "drop":
           the element at `start` · "new": an axis of 1 · "take": the elements at
           `index`
    axes   of the operand; none for a new one
    """

    kind: str
    axes: int = 1
    start: int = 0
    length: int = 1
    index: Any = None


def index_tensor(x: Tensor, key: object) -> Tensor:
    """Return the part of a tensor that a key selects. Errors  ShapeError, IndexRefused,
    UsageError, DTypeError.
    """
    with error_context(repr(x)):
        components = key if isinstance(key, tuple) else (key,)
        keys = _expand_ellipsis(
            x, [as_array(k) if isinstance(k, list) else k for k in components]
        )
        parts, axis = [], 0
        for component in keys:
            parts.append(_parse_component(x, component, axis))
            axis += parts[-1].axes
        return _apply_parts(x, parts)


def _apply_parts(x: Tensor, parts: Sequence[IndexPart]) -> Tensor:
    """Apply the parsed parts of a key: views, one reshape and at most one gather."""
    array_parts = [n for n, part in enumerate(parts) if part.kind == "take"]
    if len(array_parts) > 1:
        raise UsageError(
            repr(x),
            f"{len(array_parts)} axes are indexed by arrays",
            "only one axis can be indexed by an array",
            "index one axis at a time, or use graph.gather_nd",
        )
    out = _apply_reshape(_apply_slices(x, parts), parts)
    if not array_parts:
        return out
    axis = sum(part.kind != "drop" for part in parts[: array_parts[0]])
    index = parts[array_parts[0]].index
    out = take_indices(out, index, axis)
    # NumPy puts what arrays and integers make together in front, where they are apart.
    advanced = [n for n, part in enumerate(parts) if part.kind in ("take", "drop")]
    if advanced[-1] - advanced[0] >= len(advanced) and len(advanced) > 1:
        rank = len(index.shape)
        out = out.graph.moveaxis(out, range(axis, axis + rank), range(rank))
    return out


def _expand_ellipsis(x: Tensor, keys: list[object]) -> list[object]:
    """Replace the ellipsis, or the omitted trailing axes, by full slices."""
    used = sum(_axis_count(component) for component in keys)
    if used > x.rank:
        raise ShapeError(
            repr(x), f"got {used} indices", f"the tensor has rank {x.rank}"
        )
    ellipses = [n for n, component in enumerate(keys) if component is Ellipsis]
    if len(ellipses) > 1:
        raise ShapeError(
            repr(x), f"got {len(ellipses)} ellipses", "at most one is allowed"
        )
    position = ellipses[0] if ellipses else len(keys)
    rest = [slice(None)] * (x.rank - used)
    return [*keys[:position], *rest, *keys[position + len(ellipses) :]]


def _axis_count(component: object) -> int:
    """Return the number of operand axes that a component of a key consumes."""
    if component is None or isinstance(component, EllipsisType):
        return 0
    if isinstance(component, np.ndarray) and component.dtype == np.bool_:
        return component.ndim
    return 1


def _parse_component(x: Tensor, component: Any, axis: int) -> IndexPart:
    """Return the index part of one component of a key."""
    if component is None:
        return IndexPart("new", 0)
    size = x.shape[axis] if axis < x.rank else 1
    if isinstance(component, slice):
        return _slice_part(component, size)
    if isinstance(component, np.ndarray) or hasattr(component, "graph"):
        return _array_part(x, component, axis)
    index = as_integer(component, "an index")
    if not -size <= index < size:
        raise bad_shape(
            f"index {index} on axis {axis} of {format_shape(x.shape)}",
            f"expected {-size} <= index < {size}",
        )
    return IndexPart("drop", start=index % size)


def _slice_part(key: slice, size: int) -> IndexPart:
    for bound in (key.start, key.stop, key.step):
        if bound is not None:
            as_integer(bound, "the start, stop or step of a slice")
    if key.step == 0:
        raise bad_shape("the slice step is 0", "a step must not be 0")
    start, stop, step = key.indices(size)
    if step != 1:
        return IndexPart("step", index=key)
    return IndexPart("cut", start=start, length=max(stop - start, 0))


def _array_part(x: Tensor, indices: Any, axis: int) -> IndexPart:
    if hasattr(indices, "graph"):
        if indices.dtype is DType.BOOL:
            raise UsageError(
                repr(x),
                "the index is a computed mask",
                "the number of selected elements is unknown until the graph runs",
                "use graph.where, which keeps the shape",
            )
        return IndexPart("take", index=indices)
    if indices.dtype != np.bool_:
        return IndexPart(
            "take", index=indices if indices.size else indices.astype(np.int32)
        )
    masked_shape = x.shape[axis : axis + indices.ndim]
    if indices.shape != masked_shape or not indices.ndim:
        raise bad_shape(
            f"the mask has shape {format_shape(indices.shape)}, the indexed axes "
            f"{format_shape(masked_shape)}",
            "a mask must have the shape of the axes that it indexes",
        )
    return IndexPart("take", indices.ndim, index=np.flatnonzero(indices))


def _apply_slices(x: Tensor, parts: Sequence[IndexPart]) -> Tensor:
    """Apply the views along single axes."""
    axis, stepped = 0, []
    for part in parts:
        if part.kind == "step":
            stepped.append((axis, part.index))
        elif part.kind in ("cut", "drop"):
            if (part.start, part.length) != (0, x.shape[axis]):
                x = x.graph.narrow(x, axis, part.start, part.length)
        axis += part.axes
    if not stepped:
        return x
    rows = [(key.start, key.stop, axis, key.step) for axis, key in stepped]
    return x.graph.slice(x, *map(list, zip(*rows, strict=True)))


def _apply_reshape(x: Tensor, parts: Sequence[IndexPart]) -> Tensor:
    """Reshape: remove dropped axes, insert new ones and merge those under a mask."""
    shape, axis = [], 0
    for part in parts:
        if part.kind != "drop":
            shape.append(numel(x.shape[axis : axis + part.axes]))
        axis += part.axes
    return x if tuple(shape) == x.shape else x.graph.reshape(x, shape)


def take_indices(x: Tensor, indices: Any, axis: int) -> Tensor:
    """Select elements of an axis by index; negative indices count from its end.

    Errors   IndexRefused for one of a constant; ShapeError, DTypeError.
    """
    g, size = x.graph, x.shape[axis] if x.rank else 1
    if not hasattr(indices, "graph"):
        return g.gather(x, g.constant(normalize_indices(indices, size, axis)), axis)
    return g.gather(x, indices, axis)


def normalize_indices(
    indices: Any, size: int, axis: int
) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return constant indices of an axis as non-negative i32. Errors  IndexRefused."""
    array = np.asarray(indices)
    if array.dtype.kind not in "iu":
        raise bad_shape(f"indices must be integers, got {short_repr(indices)}")
    out_of_range = (array < -size) | (array >= size)
    if out_of_range.any():
        position = np.argwhere(out_of_range)[0]
        raise IndexRefused(
            "",
            f"index {array[tuple(position)]} at position "
            f"{format_shape(position.tolist())}",
            f"expected {-size} <= index < {size} on axis {axis}",
            "check the index array",
        )
    widened = array.astype(np.int64)
    return np.where(widened < 0, widened + size, widened).astype(np.int32)
