"""`tensor[…]`: what a key of NumPy's kind means, as views, one reshape and one gather.

Integers, slices with steps, None and Ellipsis are views. One axis (or the axes that a
mask covers) may be taken by an array of integers, a list, a mask of constants or an
integer tensor. What needs values to know a shape is refused with what to do instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlxweb.errors import IndexRefused, ShapeError, UsageError
from rlxweb.given import array_of
from rlxweb.ir.dtype import DType
from rlxweb.ir.shape import as_integer, bad_shape, doing, numel, short, show

if TYPE_CHECKING:
    from rlxweb.ir.tensor import Tensor


class Part(NamedTuple):
    """What a key says of one axis, or of several that are seen as one.

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


def indexed(x: Tensor, key: object) -> Tensor:
    """The part of a tensor that a key names. Errors  ShapeError, IndexRefused,
    UsageError, DTypeError.
    """
    with doing(repr(x)):
        every = key if isinstance(key, tuple) else (key,)
        keys = _whole(x, [array_of(k) if isinstance(k, list) else k for k in every])
        parts, at = [], 0
        for one in keys:
            parts.append(_part(x, one, at))
            at += parts[-1].axes
        return _made(x, parts)


def _made(x: Tensor, parts: Sequence[Part]) -> Tensor:
    chosen = [n for n, part in enumerate(parts) if part.kind == "take"]
    if len(chosen) > 1:
        raise UsageError(
            repr(x),
            f"{len(chosen)} axes are indexed by arrays",
            "one of them can be",
            "index them one after the other, or use graph.gather_nd",
        )
    out = _reshaped(_cut(x, parts), parts)
    if not chosen:
        return out
    axis = sum(part.kind != "drop" for part in parts[: chosen[0]])
    index = parts[chosen[0]].index
    out = taken(out, index, axis)
    # NumPy puts what arrays and integers make together in front, where they are apart.
    advanced = [n for n, part in enumerate(parts) if part.kind in ("take", "drop")]
    if advanced[-1] - advanced[0] >= len(advanced) and len(advanced) > 1:
        rank = len(index.shape)
        out = out.graph.moveaxis(out, range(axis, axis + rank), range(rank))
    return out


def _whole(x: Tensor, keys: list[object]) -> list[object]:
    """The key with its ellipsis, or what it leaves out at the end, spelled."""
    used = sum(_axes_of(one) for one in keys)
    if used > x.rank:
        raise ShapeError(repr(x), f"{used} indices", f"rank is {x.rank}")
    dots = [n for n, one in enumerate(keys) if one is Ellipsis]
    if len(dots) > 1:
        raise ShapeError(repr(x), f"{len(dots)} ellipses", "one stands for the rest")
    at = dots[0] if dots else len(keys)
    rest = [slice(None)] * (x.rank - used)
    return [*keys[:at], *rest, *keys[at + len(dots) :]]


def _axes_of(one: object) -> int:
    """How many axes of the operand a part of a key speaks of."""
    if one is None or isinstance(one, EllipsisType):
        return 0
    if isinstance(one, np.ndarray) and one.dtype == np.bool_:
        return one.ndim
    return 1


def _part(x: Tensor, one: Any, axis: int) -> Part:
    if one is None:
        return Part("new", 0)
    size = x.shape[axis] if axis < x.rank else 1
    if isinstance(one, slice):
        return _sliced(one, size)
    if isinstance(one, np.ndarray) or hasattr(one, "graph"):
        return _by_array(x, one, axis)
    index = as_integer(one, "an index")
    if not -size <= index < size:
        raise bad_shape(
            f"index {index} on axis {axis} of {show(x.shape)}",
            f"{-size} <= index < {size}",
        )
    return Part("drop", start=index % size)


def _sliced(one: slice, size: int) -> Part:
    for bound in (one.start, one.stop, one.step):
        if bound is not None:
            as_integer(bound, "a bound of a slice")
    if one.step == 0:
        raise bad_shape("slice step 0", "a step is not 0")
    start, stop, step = one.indices(size)
    if step != 1:
        return Part("step", index=one)
    return Part("cut", start=start, length=max(stop - start, 0))


def _by_array(x: Tensor, one: Any, axis: int) -> Part:
    if hasattr(one, "graph"):
        if one.dtype is DType.BOOL:
            raise UsageError(
                repr(x),
                "it is indexed by a mask that is computed",
                "how many elements that is shows when the graph is run",
                "graph.where keeps the shape",
            )
        return Part("take", index=one)
    if one.dtype != np.bool_:
        return Part("take", index=one if one.size else one.astype(np.int32))
    there = x.shape[axis : axis + one.ndim]
    if one.shape != there or not one.ndim:
        raise bad_shape(
            f"a mask of {show(one.shape)} over axes of {show(there)}",
            "a mask has the shape of the axes it stands for",
        )
    return Part("take", one.ndim, index=np.flatnonzero(one))


def _cut(x: Tensor, parts: Sequence[Part]) -> Tensor:
    """The views along single axes."""
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
    rows = [(one.start, one.stop, axis, one.step) for axis, one in stepped]
    return x.graph.slice(x, *map(list, zip(*rows, strict=True)))


def _reshaped(x: Tensor, parts: Sequence[Part]) -> Tensor:
    """Without dropped axes, with new ones, and with those under a mask as one."""
    shape, axis = [], 0
    for part in parts:
        if part.kind != "drop":
            shape.append(numel(x.shape[axis : axis + part.axes]))
        axis += part.axes
    return x if tuple(shape) == x.shape else x.graph.reshape(x, shape)


def taken(x: Tensor, indices: Any, axis: int) -> Tensor:
    """Rows of an axis by index, negative ones counted from its end.

    Errors   IndexRefused for one of a constant; ShapeError, DTypeError.
    """
    g, size = x.graph, x.shape[axis] if x.rank else 1
    if not hasattr(indices, "graph"):
        return g.gather(x, g.constant(counted(indices, size, axis)), axis)
    return g.gather(x, indices, axis)


def counted(indices: Any, size: int, axis: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Constant indices of an axis, counted from its front. Errors  IndexRefused."""
    array = np.asarray(indices)
    if array.dtype.kind not in "iu":
        raise bad_shape(f"indices are integers, got {short(indices)}")
    outside = (array < -size) | (array >= size)
    if outside.any():
        place = np.argwhere(outside)[0]
        raise IndexRefused(
            "",
            f"index {array[tuple(place)]} at position {show(place.tolist())}",
            f"{-size} <= index < {size} on axis {axis}",
            "check the index array",
        )
    wide = array.astype(np.int64)
    return np.where(wide < 0, wide + size, wide).astype(np.int32)
