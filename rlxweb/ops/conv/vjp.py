"""Vector-Jacobian products of convolutions, as convolutions again.

A window's elements lie `dilation` apart and begin `stride` apart. What is taken back to
the array is the gradient with strides - 1 zeros between its elements, under the kernel
turned round; what is taken back to the kernel is the array under the gradient, with
strides and dilations exchanged.
"""

from __future__ import annotations

from rlxweb.ir.derivative import VjpContext
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.conv.windows import (
    SlidingWindows,
    sliding_windows,
)
from rlxweb.ops.layout.index_map_vjp import zeros_with_dtype


def conv_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `conv` by the array and by the weights."""
    x, w = ctx.inputs
    windows = sliding_windows(x.shape[2:], w.shape[2:], ctx.attrs)
    return [
        _array_grad(ctx, windows) if ctx.needs_grad[0] else None,
        _weights_grad(ctx, windows) if ctx.needs_grad[1] else None,
    ]


def dilate_and_pad(grad: Tensor, windows: SlidingWindows) -> Tensor:
    """Return the gradient with zeros between and around, for windows of stride 1, one
    per element of the array.
    """
    g, axes, pads = grad.graph, [], [(0, 0), (0, 0)]
    axes = [axis + 2 for axis in range(len(windows.spatial_shape))]
    dilated = g.apply("dilate", grad, axes=tuple(axes), steps=windows.strides)
    for axis, size, kernel, dilation, before in zip(
        axes,
        windows.spatial_shape,
        windows.kernel,
        windows.dilations,
        windows.pads_before,
        strict=True,
    ):
        extent = (kernel - 1) * dilation + 1
        leading_pad = extent - 1 - before
        pads.append(
            (leading_pad, size + extent - 1 - dilated.shape[axis] - leading_pad)
        )
    return g.pad(dilated, pads)


def _array_grad(ctx: VjpContext, windows: SlidingWindows) -> Tensor:
    """Return the gradient of a convolution's array."""
    x, w = ctx.inputs
    g, groups, rank = ctx.g, ctx.attrs["groups"], x.rank - 2
    if 0 in ctx.grad.shape or 0 in w.shape:
        return zeros_with_dtype(ctx.grad, x.shape)
    m, c = w.shape[0] // groups, w.shape[1]
    kernel = tuple(w.shape[2:])
    spatial = tuple(range(3, 3 + rank))
    flipped_kernel = g.transpose(
        g.reshape(w, (groups, m, c, *kernel)), (0, 2, 1, *spatial)
    )
    flipped_kernel = g.flip(
        g.reshape(flipped_kernel, (groups * c, m, *kernel)), range(2, 2 + rank)
    )
    array_grad = g.apply(
        "conv",
        dilate_and_pad(ctx.grad, windows),
        flipped_kernel,
        dilations=windows.dilations,
        groups=groups,
    )
    return array_grad


def _weights_grad(ctx: VjpContext, windows: SlidingWindows) -> Tensor:
    """Return the gradient of a convolution's weights."""
    x, w = ctx.inputs
    g, groups, rank = ctx.g, ctx.attrs["groups"], x.rank - 2
    if 0 in ctx.grad.shape or 0 in x.shape:
        return zeros_with_dtype(ctx.grad, w.shape)
    pads: list[tuple[int, int]] = [(0, 0), (0, 0)]
    for size, before, reach in zip(
        windows.spatial_shape, windows.pads_before, windows.extents, strict=True
    ):
        pads.append((before, reach - before - size))
    padded = g.pad(x, pads)
    n, c = x.shape[0], w.shape[1]
    padded_size = tuple(padded.shape[2:])
    spatial = tuple(range(3, 3 + rank))
    grouped = g.transpose(
        g.reshape(padded, (n, groups, c, *padded_size)), (2, 1, 0, *spatial)
    )
    images = g.reshape(grouped, (c, groups * n, *padded_size))
    last = tuple(range(2, 2 + rank))
    kernels = g.transpose(ctx.grad, (1, 0, *last))
    weights_grad = g.apply(
        "conv",
        images,
        kernels,
        strides=windows.dilations,
        dilations=windows.strides,
        groups=groups,
    )
    return g.transpose(weights_grad, (1, 0, *last))
