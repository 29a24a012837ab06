"""Vector-Jacobian products of cumsum and cumprod, by scans from the other end."""

from __future__ import annotations

from rlxweb.ir.derivative import VjpContext
from rlxweb.ir.dtype import DType
from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.ir.tensor import Tensor


def _reverse_cumsum(ctx: VjpContext, x: Tensor) -> Tensor:
    """Return the cumulative sum of x from its last element to its first."""
    g, axis = ctx.g, normalize_axis(ctx.attrs["axis"], ctx.x.rank)
    exclusive = ctx.attrs["exclusive"]
    return g.flip(g.cumsum(g.flip(x, [axis]), axis, exclusive=exclusive), [axis])


def cumsum_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `cumsum`: a cumulative sum from the other end."""
    return [_reverse_cumsum(ctx, ctx.grad)]


def cumprod_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `cumprod`: multiply the product in front of an element by the sum of what
    follows it.

    That sum is a recurrence from the end, s = grad + next · s, by twos. There is no
    division, so zeros are like other numbers and small factors keep their digits in
    derivatives of any order. f16 is computed in f32, as by the op.
    """
    g = ctx.g
    wide = DType.F32 if ctx.x.dtype is DType.F16 else ctx.x.dtype
    x, grad = ctx.x.cast(wide), ctx.grad.cast(wide)
    axis = normalize_axis(ctx.attrs["axis"], x.rank)

    def shift_to_start(x: Tensor, count: int) -> Tensor:
        """Shift a tensor towards the start of the axis, with zeros at the end."""
        return g.apply("pad", x, axes=(axis,), before=(-count,), after=(count,))

    sums, rates, step = grad, shift_to_start(x, 1), 1
    if ctx.attrs["exclusive"]:
        sums = shift_to_start(grad, 1)
    while step < x.shape[axis]:
        sums = sums + rates * shift_to_start(sums, step)
        rates, step = rates * shift_to_start(rates, step), 2 * step
    operand_grad = g.cumprod(x, axis, exclusive=True) * sums
    return [operand_grad.cast(ctx.x.dtype)]
