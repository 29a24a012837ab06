"""Converters of Gather, CumSum and CumProd."""

from __future__ import annotations

from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, converts


@converts("Gather")
def _gather(
    ctx: ConversionContext, table: Tensor, indices: Tensor, *, axis: int = 0
) -> Tensor:
    return ctx.graph.gather(table, indices, axis)


@converts("CumSum")
def _cumsum(
    ctx: ConversionContext,
    x: Tensor,
    axis: Tensor,
    *,
    exclusive: int = 0,
    reverse: int = 0,
) -> Tensor:
    known_axis = int(ctx.require_number(axis, "the axis"))
    return ctx.graph.cumsum(x, known_axis, bool(exclusive), bool(reverse))


@converts("CumProd", since=26)
def _cumprod(
    ctx: ConversionContext,
    x: Tensor,
    axis: Tensor,
    *,
    exclusive: int = 0,
    reverse: int = 0,
) -> Tensor:
    known_axis = int(ctx.require_number(axis, "the axis"))
    return ctx.graph.cumprod(x, known_axis, bool(exclusive), bool(reverse))
