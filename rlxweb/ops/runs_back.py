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
    """The products without an element: by division, but for zeros. Without the only
    zero of a run there is a product; without one of two there is the other times it,
    which is 0 and has a derivative. In f32 of f16, as the op computes.
    """
    g = at.g
    x, out, grad = (
        t.cast(DType.F32) if t.dtype is DType.F16 else t
        for t in (at.x, at.out, at.grad)
    )
    axis, exclusive = normal_axis(at.attrs["axis"], x.rank), at.attrs["exclusive"]
    is_zero = x.eq(0.0)
    zeros = g.cumsum(is_zero.cast(DType.I32), axis)
    among = zeros - is_zero.cast(DType.I32) if exclusive else zeros
    others = g.where(is_zero, 1.0, x)
    rest = grad * g.cumprod(others, axis, exclusive=exclusive)
    alone, paired = (
        _from_the_end(at, g.where(among.eq(count), rest, 0.0)) for count in (1, 2)
    )
    paired = g.where(g.isfinite(paired), paired, 0.0)
    first, second = (g.logical_and(is_zero, zeros.eq(nth)) for nth in (1, 2))
    its, other = (g.sum(g.where(m, x, 0.0), axis, True) for m in (first, second))
    of_second = g.where(second, its * paired, 0.0)
    of_zeros = g.where(first, alone + other * paired, of_second)
    made = g.where(is_zero, of_zeros, _from_the_end(at, grad * out) / others)
    return [made.cast(at.x.dtype)]
