"""Vector-Jacobian products of pools: a scatter by indices, and a pool again."""

from __future__ import annotations

from rlxweb.ir.derivative import VjpContext
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.conv.vjp import dilate_and_pad
from rlxweb.ops.layout.index_map_vjp import zeros_with_dtype
from rlxweb.ops.pool.windows import pool_windows


def max_pool_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `max_pool`: the gradient goes to the first maximum of each window."""
    g, (n, c, *size) = ctx.g, ctx.x.shape
    indices = g.apply("max_pool_indices", ctx.x, **ctx.attrs)
    flat = g.reshape(
        zeros_with_dtype(ctx.grad, ctx.x.shape), (n, c, -1 if n * c else 0)
    )
    if 0 in ctx.grad.shape:
        return [zeros_with_dtype(ctx.grad, ctx.x.shape)]
    flat_indices, grads = (
        g.reshape(value, (n, c, -1)) for value in (indices, ctx.grad)
    )
    scattered = g.apply(
        "scatter_elements", flat, flat_indices, grads, axis=2, reduction="add"
    )
    return [g.reshape(scattered, (n, c, *size))]


def sum_pool_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `sum_pool`: the sum over the windows that contain an element."""
    windows = pool_windows(tuple(ctx.x.shape), ctx.attrs)
    if 0 in ctx.grad.shape:
        return [zeros_with_dtype(ctx.grad, ctx.x.shape)]
    return [
        ctx.g.apply(
            "sum_pool",
            dilate_and_pad(ctx.grad, windows),
            kernel=windows.kernel,
            dilations=windows.dilations,
        )
    ]
