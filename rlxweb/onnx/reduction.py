"""Sums, means, extremes and products over axes, and softmax."""

from __future__ import annotations

import math

from rlxweb.ir.shape import normal_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts

Ints = tuple[int, ...]
_REDUCED = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
}


def _old_reduction(
    call: Call,
    x: Tensor,
    *,
    axes: Ints | None = None,
    keepdims: int = 1,
) -> Tensor:
    every = tuple(range(x.rank)) if axes is None else axes
    return call.g.apply(_REDUCED[call.node.op], x, axes=every, keep_dim=bool(keepdims))


def _reduction(
    call: Call,
    x: Tensor,
    axes: Tensor | None = None,
    *,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Tensor:
    named = () if axes is None else call.ints(axes, "the axes")
    if not named and noop_with_empty_axes:
        return x
    every = named or tuple(range(x.rank))
    return call.g.apply(_REDUCED[call.node.op], x, axes=every, keep_dim=bool(keepdims))


converts("ReduceSum", until=12)(_old_reduction)
converts("ReduceSum", since=13)(_reduction)
_OTHERS = tuple(name for name in _REDUCED if name != "ReduceSum")
converts(*_OTHERS, until=17)(_old_reduction)
converts(*_OTHERS, since=18)(_reduction)


@converts("Softmax", until=12)
def _old_softmax(call: Call, x: Tensor, *, axis: int = 1) -> Tensor:
    """Before opset 13: over all axes from `axis` on, as one."""
    axis = normal_axis(axis, x.rank)
    flat = call.g.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    return call.g.reshape(call.g.softmax(flat), x.shape)
