"""Gradients of convolutions and pools: convolutions and pools again.

A window's elements lie `dilation` apart and begin `stride` apart. What is taken back to
the array is the gradient with strides - 1 zeros between its elements, under the kernel
turned round; what is taken back to the kernel is the array under the gradient, with
strides and dilations exchanged.
"""

from __future__ import annotations

from typing import Any

from rlxweb.ir.derivative import Taken
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.places_back import with_zeros
from rlxweb.recipes.windows import Windows, pool_windows, windows_of


def conv_back(at: Taken) -> list[Tensor | None]:
    """Of `conv`, by the array and by the weights."""
    x, w = at.inputs
    windows = windows_of(x.shape[2:], w.shape[2:], at.attrs)
    return [
        _to_array(at, windows) if at.wants[0] else None,
        _to_weights(at, windows) if at.wants[1] else None,
    ]


def _spread(grad: Tensor, windows: Windows) -> Tensor:
    """The gradient with zeros between and around, for windows of stride 1 that are as
    many as the array has elements.
    """
    g, axes, pads = grad.graph, [], [(0, 0), (0, 0)]
    axes = [axis + 2 for axis in range(len(windows.size))]
    spread = g.apply("dilate", grad, axes=tuple(axes), steps=windows.strides)
    for axis, size, kernel, dilation, before in zip(
        axes,
        windows.size,
        windows.kernel,
        windows.dilations,
        windows.before,
        strict=True,
    ):
        extent = (kernel - 1) * dilation + 1
        front = extent - 1 - before
        pads.append((front, size + extent - 1 - spread.shape[axis] - front))
    return g.pad(spread, pads)


def _to_array(at: Taken, windows: Windows) -> Tensor:
    x, w = at.inputs
    g, groups, rank = at.g, at.attrs["groups"], x.rank - 2
    if 0 in at.grad.shape or 0 in w.shape:
        return with_zeros(at.grad, x.shape)
    m, c = w.shape[0] // groups, w.shape[1]
    kernel = tuple(w.shape[2:])
    spatial = tuple(range(3, 3 + rank))
    turned = g.transpose(g.reshape(w, (groups, m, c, *kernel)), (0, 2, 1, *spatial))
    turned = g.flip(g.reshape(turned, (groups * c, m, *kernel)), range(2, 2 + rank))
    made = g.apply(
        "conv",
        _spread(at.grad, windows),
        turned,
        dilations=windows.dilations,
        groups=groups,
    )
    return made


def _to_weights(at: Taken, windows: Windows) -> Tensor:
    x, w = at.inputs
    g, groups, rank = at.g, at.attrs["groups"], x.rank - 2
    if 0 in at.grad.shape or 0 in x.shape:
        return with_zeros(at.grad, w.shape)
    pads: list[tuple[int, int]] = [(0, 0), (0, 0)]
    for size, before, reach in zip(
        windows.size, windows.before, windows.reach, strict=True
    ):
        pads.append((before, reach - before - size))
    padded = g.pad(x, pads)
    n, c = x.shape[0], w.shape[1]
    lines = tuple(padded.shape[2:])
    spatial = tuple(range(3, 3 + rank))
    cut = g.transpose(g.reshape(padded, (n, groups, c, *lines)), (2, 1, 0, *spatial))
    images = g.reshape(cut, (c, groups * n, *lines))
    last = tuple(range(2, 2 + rank))
    kernels = g.transpose(at.grad, (1, 0, *last))
    made = g.apply(
        "conv",
        images,
        kernels,
        strides=windows.dilations,
        dilations=windows.strides,
        groups=groups,
    )
    return g.transpose(made, (1, 0, *last))


def max_pool_back(at: Taken) -> list[Tensor | None]:
    """To the first of the largest elements of each window."""
    g, (n, c, *size) = at.g, at.x.shape
    places = g.apply("max_pool_indices", at.x, **at.attrs)
    flat = g.reshape(with_zeros(at.grad, at.x.shape), (n, c, -1 if n * c else 0))
    if 0 in at.grad.shape:
        return [with_zeros(at.grad, at.x.shape)]
    at_places, grads = (g.reshape(t, (n, c, -1)) for t in (places, at.grad))
    summed = g.apply(
        "scatter_elements", flat, at_places, grads, axis=2, reduction="add"
    )
    return [g.reshape(summed, (n, c, *size))]


def sum_pool_back(at: Taken) -> list[Tensor | None]:
    """Of `sum_pool`: sums of the windows that an element was in."""
    windows = pool_windows(tuple(at.x.shape), at.attrs)
    if 0 in at.grad.shape:
        return [with_zeros(at.grad, at.x.shape)]
    how: dict[str, Any] = {"kernel": windows.kernel, "dilations": windows.dilations}
    return [at.g.apply("sum_pool", _spread(at.grad, windows), **how)]
