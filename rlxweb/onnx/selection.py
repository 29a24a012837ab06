"""Gather, running sums and products: what depends on where values stand."""

from __future__ import annotations

from rlxweb.ir.shape import normal_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts


@converts("Gather")
def _gather(call: Call, table: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    size = table.shape[normal_axis(axis, table.rank)]
    return call.g.gather(table, from_the_front(call, indices, size), axis)


def from_the_front(call: Call, indices: Tensor, size: int) -> Tensor:
    """Indices of an axis of `size`, of which negative ones count from its end."""
    known = call.g.known(indices)
    if known is not None and not (known < 0).any():
        return indices
    return call.g.where(indices < 0, indices + size, indices)


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
