"""Graph methods for pools, and for windows scattered back into images.

They have PyTorch's names and arguments. Fold and max_unpool are scatters into zeros.
Nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rlxweb.core.errors import AttributeRefused, ShapeError
from rlxweb.ir.op_methods import graph_method
from rlxweb.ir.shape_arithmetic import as_tuple, format_shape, short_repr
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.conv.methods import SpatialSizes, add_fixed_rank_methods

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph


@graph_method
def max_pool(
    g: Graph,
    x: Tensor,
    kernel_size: SpatialSizes,
    stride: SpatialSizes | None = None,
    padding: SpatialSizes = 0,
    dilation: SpatialSizes = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Return the largest element of each window; the stride is the kernel size by
    default.
    """
    attrs = _pool_attrs(kernel_size, stride, padding, ceil_mode)
    return g.apply("max_pool", x, dilations=dilation, **attrs)


@graph_method
def max_pool_indices(
    g: Graph,
    x: Tensor,
    kernel_size: SpatialSizes,
    stride: SpatialSizes | None = None,
    padding: SpatialSizes = 0,
    dilation: SpatialSizes = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Return the indices of `max_pool`'s elements: i32, flat over the spatial axes
    of an image.
    """
    attrs = _pool_attrs(kernel_size, stride, padding, ceil_mode)
    return g.apply("max_pool_indices", x, dilations=dilation, **attrs)


@graph_method
def avg_pool(
    g: Graph,
    x: Tensor,
    kernel_size: SpatialSizes,
    stride: SpatialSizes | None = None,
    padding: SpatialSizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Return the mean of each window of [N, C, …], its padding zeros that count or
    not.
    """
    attrs = _pool_attrs(kernel_size, stride, padding, ceil_mode)
    return g.apply("avg_pool", x, count_include_pad=count_include_pad, **attrs)


@graph_method
def lp_pool(
    g: Graph,
    x: Tensor,
    norm_type: float,
    kernel_size: SpatialSizes,
    stride: SpatialSizes | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """Return (sum of |x|ᵖ)^(1/p) of each window of [N, C, …]; p is `norm_type`.

    A window of zeros has slope 0, as in PyTorch.
    """
    attrs = _pool_attrs(kernel_size, stride, 0, ceil_mode)
    return g.apply("lp_pool", x, p=norm_type, **attrs)


add_fixed_rank_methods(max_pool, avg_pool, lp_pool)


def _pool_attrs(
    kernel: SpatialSizes,
    stride: SpatialSizes | None,
    padding: SpatialSizes,
    ceil_mode: bool,
) -> dict[str, Any]:
    """Return the attributes of a pooling op; the stride is the kernel size by
    default.
    """
    steps = kernel if stride is None else stride
    return {"kernel": kernel, "strides": steps, "pads": padding, "ceil_mode": ceil_mode}


@graph_method
def fold(
    g: Graph,
    x: Tensor,
    output_size: SpatialSizes,
    kernel_size: SpatialSizes,
    dilation: SpatialSizes = 1,
    padding: SpatialSizes = 0,
    stride: SpatialSizes = 1,
) -> Tensor:
    """Sum windows [N, C · window, windows] at their positions in images [N, C, …],
    as torch.nn.functional.fold; ONNX calls it Col2Im.

    output_size  of an image, a number for each spatial axis
    padding      what windows reach beyond an image at both ends of each axis: one
                 number for all, one each, or the fronts' and then the ends'
    Errors   ShapeError, AttributeRefused, DTypeError.
    """
    context = f"fold of {format_shape(x.shape)}"
    size = _per_axis(context, "output_size", output_size, 0)
    rank = len(size)
    kernel = _per_axis(context, "kernel_size", kernel_size, rank, minimum=1)
    dilations = _per_axis(context, "dilation", dilation, rank, minimum=1)
    strides = _per_axis(context, "stride", stride, rank, minimum=1)
    has_both_ends = len(as_tuple(padding) or ()) == 2 * rank
    pads = _per_axis(context, "padding", padding, 2 * rank if has_both_ends else rank)
    pads = pads if has_both_ends else (*pads, *pads)
    padded = [n + a + b for n, a, b in zip(size, pads, pads[rank:], strict=False)]
    indices = _window_indices(padded, kernel, dilations, strides)
    if x.rank != 3 or x.shape[1] % len(indices) or x.shape[2] != indices.shape[1]:
        raise ShapeError(
            context,
            f"x has shape {format_shape(x.shape)}",
            f"expected [N, C · {len(indices)}, {indices.shape[1]}], because images "
            f"of {format_shape(size)} have {indices.shape[1]} windows of "
            f"{len(indices)} elements",
        )
    n, channels = x.shape[0], x.shape[1] // len(indices)
    rows = g.reshape(x, (n * channels, indices.size))
    flat = _scatter_rows(g, rows, indices.reshape(1, -1), prod(padded), "add")
    images = g.reshape(flat, (n, channels, *padded))
    for axis, (front, length) in enumerate(zip(pads[:rank], size, strict=True), 2):
        images = g.narrow(images, axis, front, length)
    return images


@graph_method
def max_unpool(
    g: Graph,
    x: Tensor,
    indices: Tensor,
    kernel_size: SpatialSizes,
    stride: SpatialSizes | None = None,
    padding: SpatialSizes = 0,
    output_size: SpatialSizes | None = None,
) -> Tensor:
    """Put the results of a max_pool back at the `indices` that max_pool_indices
    gives, and zeros elsewhere, as torch.nn.functional.max_unpool2d. The last of
    several at one index wins.

    Shapes   x and indices [N, C, …] → [N, C, *output_size]; that is the least size
             that the windows reach over unless told
    Errors   IndexRefused when it is run; ShapeError, AttributeRefused, DTypeError.
    """
    context, rank = f"max_unpool of {format_shape(x.shape)}", x.rank - 2
    if rank < 1 or indices.shape != x.shape:
        raise ShapeError(
            context,
            f"indices has shape {format_shape(indices.shape)}",
            "x and indices must have the same shape [N, C, …]",
        )
    kernel = _per_axis(context, "kernel_size", kernel_size, rank, minimum=1)
    steps = kernel_size if stride is None else stride
    strides = _per_axis(context, "stride", steps, rank, minimum=1)
    pads = _per_axis(context, "padding", padding, rank)
    if output_size is None:
        axis_settings = zip(x.shape[2:], strides, kernel, pads, strict=True)
        size = tuple((n - 1) * s + k - 2 * p for n, s, k, p in axis_settings)
    else:
        size = _per_axis(context, "output_size", output_size, rank)
    row_count, row_length = x.shape[0] * x.shape[1], prod(x.shape[2:])
    rows, row_indices = (
        g.reshape(tensor, (row_count, row_length)) for tensor in (x, indices)
    )
    scattered = _scatter_rows(g, rows, row_indices, prod(size), "none")
    return g.reshape(scattered, (*x.shape[:2], *size))


def _scatter_rows(
    g: Graph, rows: Tensor, indices: Any, size: Any, reduction: str
) -> Tensor:
    """Scatter rows [R, n] into rows of zeros [R, size]."""
    zero = g.constant(np.zeros((), rows.dtype.numpy))
    zeros = g.expand(zero, (rows.shape[0], size))
    if not isinstance(indices, Tensor):
        indices = g.expand(g.constant(indices.astype(np.int32)), rows.shape)
    return g.scatter_elements(zeros, indices, rows, 1, reduction)


def _per_axis(
    context: str, label: str, value: Any, rank: int, minimum: int = 0
) -> tuple[Any, ...]:
    """Return a number for each spatial axis; rank 0: as many as are given. Errors
    AttributeRefused.
    """
    numbers = as_tuple(value)
    if numbers is None or not numbers or any(n < minimum for n in numbers):
        raise AttributeRefused(
            context, f"{label}={short_repr(value)}", f"expected integers >= {minimum}"
        )
    numbers = numbers * rank if len(numbers) == 1 and rank else numbers
    if rank and len(numbers) != rank:
        raise AttributeRefused(
            context,
            f"{label}={short_repr(value)}",
            f"expected one number, or one for each of the {rank} spatial axes",
        )
    return numbers


def _window_indices(
    size: Sequence[int],
    kernel: Sequence[int],
    dilations: Sequence[int],
    strides: Sequence[int],
) -> npt.NDArray[np.int64]:
    """Return the index of each window element in the flat padded image: [elements of a
    window, windows].
    """
    flat_indices = np.zeros((1, 1), np.int64)
    for n, k, d, s in zip(size, kernel, dilations, strides, strict=True):
        count = max((n - d * (k - 1) - 1) // s + 1, 0)
        axis_indices = np.arange(k)[:, None] * d + np.arange(count)[None, :] * s
        flat_indices = (
            flat_indices[:, None, :, None] * n + axis_indices[None, :, None, :]
        )
        flat_indices = flat_indices.reshape(flat_indices.shape[0] * k, -1)
    return flat_indices
