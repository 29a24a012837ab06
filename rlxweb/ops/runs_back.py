"""Gradients of running sums and products: runs from the other end."""

from __future__ import annotations

from rlxweb.ir.derivative import Taken
from rlxweb.ir.dtype import DType
from rlxweb.ir.shape import normal_axis
from rlxweb.ir.tensor import Tensor


def _from_the_end(at: Taken, x: Tensor) -> Tensor:
    """The running sum of x from its last element on."""
    g, axis = at.g, normal_axis(at.attrs["axis"], at.x.rank)
    exclusive = at.attrs["exclusive"]
    return g.flip(g.cumsum(g.flip(x, [axis]), axis, exclusive=exclusive), [axis])


def summed_back(at: Taken) -> list[Tensor | None]:
    """Of `cumsum`: a running sum from the other end."""
    return [_from_the_end(at, at.grad)]


def multiplied_back(at: Taken) -> list[Tensor | None]:
    """Multiply the product in front of an element by the sum of what follows it.

    That sum is a recurrence from the end, s = grad + next · s, by twos. There is no
    division, so zeros are like other numbers and small factors keep their digits in
    derivatives of any order. f16 is computed in f32, as by the op.
    """
    g = at.g
    wide = DType.F32 if at.x.dtype is DType.F16 else at.x.dtype
    x, grad = at.x.cast(wide), at.grad.cast(wide)
    axis = normal_axis(at.attrs["axis"], x.rank)

    def later(x: Tensor, by: int) -> Tensor:
        return g.apply("pad", x, axes=(axis,), before=(-by,), after=(by,))

    sums, rates, step = grad, later(x, 1), 1
    if at.attrs["exclusive"]:
        sums = later(grad, 1)
    while step < x.shape[axis]:
        sums = sums + rates * later(sums, step)
        rates, step = rates * later(rates, step), 2 * step
    made = g.cumprod(x, axis, exclusive=True) * sums
    return [made.cast(at.x.dtype)]
