"""Gather, running sums and products: what depends on where values stand."""

from __future__ import annotations

from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts


@converts("Gather")
def _gather(call: Call, table: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return call.g.gather(table, indices, axis)


@converts("CumSum")
def _cumsum(
    call: Call, x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0
) -> Tensor:
    along = int(call.number(axis, "the axis"))
    return call.g.cumsum(x, along, bool(exclusive), bool(reverse))


@converts("CumProd", since=26)
def _cumprod(
    call: Call, x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0
) -> Tensor:
    along = int(call.number(axis, "the axis"))
    return call.g.cumprod(x, along, bool(exclusive), bool(reverse))
