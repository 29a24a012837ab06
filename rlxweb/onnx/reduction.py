"""Sums, means, extremes, norms over axes; softmax and its like; where extremes are."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.shape import normal_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts

Ints = tuple[int, ...]
Reduction = Callable[[Call, Tensor, Ints, bool], Tensor]


def _extreme(op: str) -> Reduction:
    """The largest or smallest; of nothing what every number is beyond."""

    def reduced(call: Call, x: Tensor, axes: Ints, keep: bool) -> Tensor:
        on = {normal_axis(a, x.rank) for a in axes}
        if math.prod(x.shape[a] for a in on):
            return call.g.apply(op, x, axes=axes, keep_dim=keep)
        shape = [1 if a in on else d for a, d in enumerate(x.shape)]
        if not keep:
            shape = [d for a, d in enumerate(x.shape) if a not in on]
        return call.g.expand(call.g.hold(_beyond(op, x.dtype)), shape)

    return reduced


def _beyond(op: str, dtype: DType) -> np.ndarray:
    """What the largest (or smallest) of nothing is."""
    least: float
    most: float
    if dtype.is_integer:
        bounds = np.iinfo(dtype.numpy)
        least, most = int(bounds.min), int(bounds.max)
    else:
        least, most = (-np.inf, np.inf) if dtype.is_float else (0, 1)
    return np.array(least if op == "max" else most, dtype.numpy)


def _plain(op: str) -> Reduction:
    return lambda call, x, axes, keep: call.g.apply(op, x, axes=axes, keep_dim=keep)


def _sum_of(function: Callable[[Call, Tensor], Tensor]) -> Reduction:
    return lambda call, x, axes, keep: function(call, x).sum(axes, keep)


def _euclidean(call: Call, x: Tensor, axes: Ints, keep: bool) -> Tensor:
    """Of integers the whole part, by way of f32, as ONNX defines it."""
    if x.dtype.is_float:
        return call.g.norm(x, 2.0, axes, keep)
    return (x * x).sum(axes, keep).cast(DType.F32).sqrt().cast(x.dtype)


_REDUCED: dict[str, Reduction] = {
    "ReduceSum": _plain("sum"),
    "ReduceMean": _plain("mean"),
    "ReduceMax": _extreme("max"),
    "ReduceMin": _extreme("min"),
    "ReduceProd": _plain("prod"),
    "ReduceL1": _sum_of(lambda call, x: x.abs()),
    "ReduceL2": _euclidean,
    "ReduceSumSquare": _sum_of(lambda call, x: x * x),
    "ReduceLogSum": lambda call, x, axes, keep: x.sum(axes, keep).log(),
    "ReduceLogSumExp": lambda call, x, axes, keep: call.g.logsumexp(x, axes, keep),
}


def _old_reduction(
    call: Call,
    x: Tensor,
    *,
    axes: Ints | None = None,
    keepdims: int = 1,
) -> Tensor:
    every = tuple(range(x.rank)) if axes is None else axes
    return _REDUCED[call.node.op](call, x, every, bool(keepdims))


def _reduction(
    call: Call,
    x: Tensor,
    axes: Tensor | None = None,
    *,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Tensor:
    """Over no axes what is done to each element is done all the same."""
    named = () if axes is None else call.ints(axes, "the axes")
    if not named and not noop_with_empty_axes:
        named = tuple(range(x.rank))
    return _REDUCED[call.node.op](call, x, named, bool(keepdims))


converts("ReduceSum", until=12)(_old_reduction)
converts("ReduceSum", since=13)(_reduction)
_OTHERS = tuple(name for name in _REDUCED if name != "ReduceSum")
converts(*_OTHERS, until=17)(_old_reduction)
converts(*_OTHERS, since=18)(_reduction)


@converts("Softmax", "LogSoftmax", "Hardmax", until=12)
def _old_softmax(call: Call, x: Tensor, *, axis: int = 1) -> Tensor:
    """Before opset 13: over all axes from `axis` on, as one."""
    axis = normal_axis(axis, x.rank)
    flat = call.g.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    g = call.g
    kinds = {"Softmax": g.softmax, "LogSoftmax": g.log_softmax, "Hardmax": g.hardmax}
    return g.reshape(kinds[call.node.op](flat), x.shape)


@converts("Hardmax", since=13)
def _hardmax(call: Call, x: Tensor, *, axis: int = -1) -> Tensor:
    return call.g.hardmax(x, axis)


@converts("ArgMax", "ArgMin")
def _place(
    call: Call,
    x: Tensor,
    *,
    axis: int = 0,
    keepdims: int = 1,
    select_last_index: int = 0,
) -> Tensor:
    g = call.g
    kind = g.argmax if call.node.op == "ArgMax" else g.argmin
    return kind(x, axis, bool(keepdims), bool(select_last_index)).cast(DType.I64)
