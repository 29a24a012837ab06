"""Converters of reductions over axes, softmax variants, argmax and argmin."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, converts

Ints = tuple[int, ...]
Reduction = Callable[[ConversionContext, Tensor, Ints, bool], Tensor]


def _extreme_reduction(op: str) -> Reduction:
    """Return the maximum or minimum reduction; an empty range gives the identity of the
    operation.
    """

    def reduce_extreme(
        ctx: ConversionContext, x: Tensor, axes: Ints, keep_dim: bool
    ) -> Tensor:
        reduced_axes = {normalize_axis(a, x.rank) for a in axes}
        if math.prod(x.shape[a] for a in reduced_axes):
            return ctx.graph.apply(op, x, axes=axes, keep_dim=keep_dim)
        shape = [1 if a in reduced_axes else d for a, d in enumerate(x.shape)]
        if not keep_dim:
            shape = [d for a, d in enumerate(x.shape) if a not in reduced_axes]
        return ctx.graph.expand(
            ctx.graph.add_constant(_empty_extreme(op, x.dtype)), shape
        )

    return reduce_extreme


def _empty_extreme(op: str, dtype: DType) -> np.ndarray:
    """Return the maximum (or minimum) of an empty set: the lowest (or highest) value of
    the dtype.
    """
    lowest: float
    highest: float
    if dtype.is_integer:
        bounds = np.iinfo(dtype.numpy)
        lowest, highest = int(bounds.min), int(bounds.max)
    else:
        lowest, highest = (-np.inf, np.inf) if dtype.is_float else (0, 1)
    return np.array(lowest if op == "max" else highest, dtype.numpy)


def _op_reduction(op: str) -> Reduction:
    """Return the reduction that applies one op of the graph."""
    return lambda ctx, x, axes, keep_dim: ctx.graph.apply(
        op, x, axes=axes, keep_dim=keep_dim
    )


def _sum_after(function: Callable[[ConversionContext, Tensor], Tensor]) -> Reduction:
    """Return the reduction that sums after applying `function` to each element."""
    return lambda ctx, x, axes, keep_dim: function(ctx, x).sum(axes, keep_dim)


def _l2_norm(ctx: ConversionContext, x: Tensor, axes: Ints, keep_dim: bool) -> Tensor:
    """Return the L2 norm; for integers it is computed in f32 and truncated, as ONNX
    defines it.
    """
    if x.dtype.is_float:
        return ctx.graph.norm(x, 2.0, axes, keep_dim)
    return (x * x).sum(axes, keep_dim).cast(DType.F32).sqrt().cast(x.dtype)


_REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": _op_reduction("sum"),
    "ReduceMean": _op_reduction("mean"),
    "ReduceMax": _extreme_reduction("max"),
    "ReduceMin": _extreme_reduction("min"),
    "ReduceProd": _op_reduction("prod"),
    "ReduceL1": _sum_after(lambda ctx, x: x.abs()),
    "ReduceL2": _l2_norm,
    "ReduceSumSquare": _sum_after(lambda ctx, x: x * x),
    "ReduceLogSum": lambda ctx, x, axes, keep_dim: x.sum(axes, keep_dim).log(),
    "ReduceLogSumExp": lambda ctx, x, axes, keep_dim: ctx.graph.logsumexp(
        x, axes, keep_dim
    ),
}


def _reduce_over_attribute_axes(
    ctx: ConversionContext,
    x: Tensor,
    *,
    axes: Ints | None = None,
    keepdims: int = 1,
) -> Tensor:
    """Convert a reduction of an early opset, whose axes are an attribute."""
    all_axes = tuple(range(x.rank)) if axes is None else axes
    return _REDUCTIONS[ctx.node.op](ctx, x, all_axes, bool(keepdims))


def _reduce_over_operand_axes(
    ctx: ConversionContext,
    x: Tensor,
    axes: Tensor | None = None,
    *,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Tensor:
    """Convert a reduction whose axes are an operand. With no axes and
    `noop_with_empty_axes`, the elementwise part is still applied.
    """
    reduced_axes = () if axes is None else ctx.require_ints(axes, "the axes")
    if not reduced_axes and not noop_with_empty_axes:
        reduced_axes = tuple(range(x.rank))
    return _REDUCTIONS[ctx.node.op](ctx, x, reduced_axes, bool(keepdims))


converts("ReduceSum", until=12)(_reduce_over_attribute_axes)
converts("ReduceSum", since=13)(_reduce_over_operand_axes)
_OTHER_REDUCTIONS = tuple(name for name in _REDUCTIONS if name != "ReduceSum")
converts(*_OTHER_REDUCTIONS, until=17)(_reduce_over_attribute_axes)
converts(*_OTHER_REDUCTIONS, since=18)(_reduce_over_operand_axes)


@converts("Softmax", "LogSoftmax", "Hardmax", until=12)
def _old_softmax(ctx: ConversionContext, x: Tensor, *, axis: int = 1) -> Tensor:
    """Convert a softmax variant of an opset before 13: over all axes from `axis` on,
    flattened.
    """
    axis = normalize_axis(axis, x.rank)
    flat = ctx.graph.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    g = ctx.graph
    softmax_functions = {
        "Softmax": g.softmax,
        "LogSoftmax": g.log_softmax,
        "Hardmax": g.hardmax,
    }
    return g.reshape(softmax_functions[ctx.node.op](flat), x.shape)


@converts("Hardmax", since=13)
def _hardmax(ctx: ConversionContext, x: Tensor, *, axis: int = -1) -> Tensor:
    return ctx.graph.hardmax(x, axis)


@converts("ArgMax", "ArgMin")
def _arg_extreme(
    ctx: ConversionContext,
    x: Tensor,
    *,
    axis: int = 0,
    keepdims: int = 1,
    select_last_index: int = 0,
) -> Tensor:
    g = ctx.graph
    search = g.argmax if ctx.node.op == "ArgMax" else g.argmin
    return search(x, axis, bool(keepdims), bool(select_last_index)).cast(DType.I64)
