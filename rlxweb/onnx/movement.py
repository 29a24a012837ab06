"""Reshape, transpose, slice, concat and their like: what only moves values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlxweb.ir.shape import broadcast, normal_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, Value, converts

Ints = tuple[int, ...]


@converts("Reshape", until=4)
def _old_reshape(
    call: Call, x: Tensor, *, shape: Ints, consumed_inputs: Ints = ()
) -> Tensor:
    return _reshaped(call, x, shape, 0)


@converts("Reshape", since=5)
def _reshape(call: Call, x: Tensor, shape: Tensor, *, allowzero: int = 0) -> Tensor:
    return _reshaped(call, x, call.ints(shape, "the shape"), allowzero)


def _reshaped(call: Call, x: Tensor, shape: Ints, allowzero: int) -> Tensor:
    """In ONNX's shape a 0 means the dimension of the same place in x."""
    dims = list(shape)
    for at, dim in enumerate(dims):
        if dim == 0 and not allowzero:
            if at >= x.rank:
                call.contradict(f"dimension {at} is 0", f"x has rank {x.rank}")
            dims[at] = x.shape[at]
    if 0 in dims and -1 in dims and not allowzero:
        # Our solver refuses 0 times anything; ONNX leaves the rest to be 0 too.
        rest = np.prod([d for d in dims if d != -1])
        if not rest and not np.prod(x.shape):
            dims[dims.index(-1)] = 0
    return call.g.reshape(x, dims)


@converts("Flatten")
def _flatten(call: Call, x: Tensor, *, axis: int = 1) -> Tensor:
    if not -x.rank <= axis <= x.rank:
        call.contradict(f"axis {axis}", f"x has rank {x.rank}")
    axis = axis + x.rank if axis < 0 else axis
    outer = int(np.prod(x.shape[:axis], dtype=np.int64))
    return call.g.reshape(x, (outer, int(np.prod(x.shape[axis:], dtype=np.int64))))


@converts("Transpose")
def _transpose(call: Call, x: Tensor, *, perm: Ints | None = None) -> Tensor:
    return x.transpose(*(perm or ()))


@converts("Squeeze", until=12)
def _old_squeeze(call: Call, x: Tensor, *, axes: Ints | None = None) -> Tensor:
    return squeezed(call, x, axes)


@converts("Squeeze", since=13)
def _squeeze(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
    return squeezed(call, x, None if axes is None else call.ints(axes, "the axes"))


def squeezed(call: Call, x: Tensor, axes: Ints | None) -> Tensor:
    """Without these axes of size 1; None: without any of them."""
    if axes is None:
        axes = tuple(a for a, d in enumerate(x.shape) if d == 1)
    gone = {normal_axis(a, x.rank) for a in axes}
    for axis in gone:
        if x.shape[axis] != 1:
            call.contradict(f"axis {axis} has {x.shape[axis]} elements", "1 is wanted")
    return call.g.reshape(x, [d for a, d in enumerate(x.shape) if a not in gone])


@converts("Unsqueeze", until=12)
def _old_unsqueeze(call: Call, x: Tensor, *, axes: Ints) -> Tensor:
    return unsqueezed(call, x, axes)


@converts("Unsqueeze", since=13)
def _unsqueeze(call: Call, x: Tensor, axes: Tensor) -> Tensor:
    return unsqueezed(call, x, call.ints(axes, "the axes"))


def unsqueezed(call: Call, x: Tensor, axes: Sequence[int]) -> Tensor:
    """With new axes of size 1 at these places of the result."""
    rank = x.rank + len(axes)
    new = {normal_axis(a, rank) for a in axes}
    if len(new) != len(axes):
        call.contradict(f"axes {tuple(axes)} name one twice")
    old = iter(x.shape)
    return call.g.reshape(x, [1 if a in new else next(old) for a in range(rank)])


@converts("Concat")
def _concat(call: Call, *xs: Tensor, axis: int = 1) -> Tensor:
    return call.g.concat(xs, axis)


@converts("Expand")
def _expand(call: Call, x: Tensor, shape: Tensor) -> Tensor:
    return call.g.expand(x, broadcast(x.shape, call.ints(shape, "the shape")))


@converts("Slice", until=9)
def _old_slice(
    call: Call, x: Tensor, *, starts: Ints, ends: Ints, axes: Ints | None = None
) -> Tensor:
    return _sliced(call, x, starts, ends, axes, None)


@converts("Slice", since=10)
def _slice(
    call: Call,
    x: Tensor,
    starts: Tensor,
    ends: Tensor,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    return _sliced(
        call,
        x,
        call.ints(starts, "the starts"),
        call.ints(ends, "the ends"),
        None if axes is None else call.ints(axes, "the axes"),
        None if steps is None else call.ints(steps, "the steps"),
    )


def _sliced(
    call: Call,
    x: Tensor,
    starts: Ints,
    ends: Ints,
    axes: Ints | None,
    steps: Ints | None,
) -> Tensor:
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        call.contradict("starts, ends, axes and steps are of different lengths")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            call.contradict("a step is 0")
        axis = normal_axis(axis, x.rank)
        x = _cut(call, x, axis, _bounds(start, end, step, x.shape[axis]))
    return x


def _bounds(start: int, end: int, step: int, size: int) -> range:
    """The indices that are taken; ONNX cuts bounds off where the axis ends."""
    top = size if step > 0 else size - 1
    least = 0 if step > 0 else -1
    start = min(max(start + size if start < 0 else start, 0), top)
    end = min(max(end + size if end < 0 else end, least), size)
    return range(start, end, step)


def _cut(call: Call, x: Tensor, axis: int, taken: range) -> Tensor:
    if taken.step == 1 or len(taken) <= 1:
        start = taken.start if len(taken) else 0
        return call.g.narrow(x, axis, start, len(taken))
    stop = None if taken.stop < 0 else taken.stop
    return call.g.slice(x, (taken.start,), (stop,), (axis,), (taken.step,))


@converts("Split", until=12)
def _old_split(
    call: Call, x: Tensor, *, axis: int = 0, split: Ints | None = None
) -> tuple[Tensor, ...]:
    return _parts(call, x, axis, split, len(call.node.outputs))


@converts("Split", since=13)
def _split(
    call: Call,
    x: Tensor,
    split: Tensor | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
) -> tuple[Tensor, ...]:
    sizes = None if split is None else call.ints(split, "the sizes")
    count = len(call.node.outputs)
    if num_outputs not in (None, count):
        call.contradict(f"num_outputs is {num_outputs}", f"it has {count}")
    return _parts(call, x, axis, sizes, count)


def _parts(
    call: Call, x: Tensor, axis: int, sizes: Ints | None, count: int
) -> tuple[Tensor, ...]:
    axis = normal_axis(axis, x.rank)
    if sizes is None:
        size = x.shape[axis]
        each = -(-size // count)
        sizes = (*(each,) * (count - 1), size - each * (count - 1))
    return parts(call, x, axis, sizes)


def parts(call: Call, x: Tensor, axis: int, sizes: Ints) -> tuple[Tensor, ...]:
    """Parts of these sizes, which are together all of the axis."""
    size = x.shape[axis]
    if sum(sizes) != size or min(sizes, default=0) < 0:
        call.contradict(f"parts of {sizes}", f"the axis has {size} elements")
    starts = np.cumsum((0, *sizes)).tolist()
    return tuple(
        call.g.narrow(x, axis, start, length)
        for start, length in zip(starts, sizes, strict=False)
    )


def stacked(call: Call, xs: Sequence[Value], axis: int = 0) -> Tensor:
    """Tensors of one shape side by side along a new axis."""
    return call.g.concat([unsqueezed(call, x, (axis,)) for x in xs], axis)
