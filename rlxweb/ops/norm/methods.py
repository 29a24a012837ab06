"""Graph methods for softmax and normalizations, over the ops of norms.

Lines of several axes are laid out as one; those of images, groups and channels too, and
what is multiplied and added after is elementwise and joins the step of whatever is next
to it. Nothing is computed here.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from rlxweb.core.errors import AttributeRefused, ShapeError
from rlxweb.ir.op_methods import (
    cast_like,
    graph_method,
    reshape_if_needed,
    upcast_half,
)
from rlxweb.ir.shape_arithmetic import (
    Shape,
    as_integers,
    broadcast,
    format_shape,
    normalize_axis,
    normalize_sorted_axes,
)
from rlxweb.ir.tensor import Axes, Tensor
from rlxweb.ops.layout.methods import unstack
from rlxweb.ops.norm.op import EPS

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph


@graph_method
def hardmax(g: Graph, x: Tensor, axis: int = -1) -> Tensor:
    """Return 1 at the largest element of an axis, the first of equal ones, and 0
    elsewhere.
    """
    first_maximum = g.argmax(x, axis, keepdims=True)
    return _axis_indices(g, x, axis).eq(first_maximum).cast(x.dtype)


def _axis_indices(g: Graph, x: Tensor, axis: int) -> Tensor:
    """Return the indices 0, 1 … along an axis of x, shaped to broadcast with x."""
    normalized_axis, shape = normalize_axis(axis, x.rank), [1] * x.rank
    shape[normalized_axis] = x.shape[normalized_axis]
    return g.arange(x.shape[normalized_axis]).reshape(shape)


@graph_method
def layer_norm(
    g: Graph,
    x: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    axis: Axes = -1,
    eps: float = 1e-5,
) -> Tensor:
    """Return (x - mean) / sqrt(variance + eps) · gamma + beta along one axis or
    several.

    gamma, beta   of the shape of those axes, or what broadcasts to it; None: 1, 0
    Errors   ShapeError, AttributeRefused, DTypeError.
    """
    return _normalize_axes(g, "layer_norm", x, (gamma, beta), axis, eps)


@graph_method
def rms_norm(
    g: Graph,
    x: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    axis: Axes = -1,
    eps: float = 1e-5,
) -> Tensor:
    """Return x / sqrt(mean of x² + eps) · gamma + beta: layer norm without the mean."""
    return _normalize_axes(g, "rms_norm", x, (gamma, beta), axis, eps)


def _normalize_axes(
    g: Graph,
    op: str,
    x: Tensor,
    gamma_beta: tuple[Tensor | None, Tensor | None],
    axis: Axes,
    eps: float,
) -> Tensor:
    """Apply a normalization op along one axis or several, which are merged into one."""
    axes = normalize_sorted_axes(as_integers(axis, "an axis"), x.rank)
    if not axes:
        raise AttributeRefused(
            f"{op} along axis={axis}", "at least one axis is required"
        )
    sizes = tuple(x.shape[a] for a in axes)
    n, rank, original = prod(sizes), x.rank, x
    if len(axes) > 1:  # as one, the last
        rest = tuple(a for a in range(rank) if a not in axes)
        x = _transpose_if_needed(g, x, (*rest, *axes))
        outer_shape = x.shape[: len(rest)]
        x = g.apply("reshape", x, shape=(*outer_shape, n))
    gamma, beta = (
        _row_parameter(g, op, original, parameter, value, sizes)
        for parameter, value in zip(gamma_beta, (1.0, 0.0), strict=True)
    )
    norm_axis = axes[0] if len(axes) == 1 else -1
    result = g.apply(op, x, gamma, beta, axis=norm_axis, eps=eps)
    if len(axes) == 1:
        return result
    result = g.apply("reshape", result, shape=(*outer_shape, *sizes))
    inverse_perm = [0] * rank
    for position, a in enumerate((*rest, *axes)):
        inverse_perm[a] = position
    return _transpose_if_needed(g, result, tuple(inverse_perm))


def _transpose_if_needed(g: Graph, x: Tensor, perm: tuple[int, ...]) -> Tensor:
    is_identity = perm == tuple(range(x.rank))
    return x if is_identity else g.apply("transpose", x, perm=perm)


def _row_parameter(
    g: Graph, op: str, x: Tensor, parameter: Tensor | None, value: float, sizes: Shape
) -> Tensor:
    """Return gamma or beta as one number for each element of a row; `value`
    everywhere if it is None.
    """
    if parameter is None:
        parameter = g.constant(value, x.dtype)
    elif parameter.shape == sizes:
        return reshape_if_needed(parameter, (prod(sizes),))
    elif broadcast(parameter.shape, sizes) != sizes:
        raise ShapeError(
            f"{op} of {format_shape(x.shape)}",
            f"{'gamma' if value else 'beta'} has shape {format_shape(parameter.shape)}",
            f"it must broadcast to the shape of the normalized axes, "
            f"{format_shape(sizes)}",
        )
    return reshape_if_needed(g.apply("expand", parameter, shape=sizes), (prod(sizes),))


@graph_method
def inv_std(g: Graph, x: Tensor, axis: Axes = -1, eps: float = 1e-5) -> Tensor:
    """Return 1 / sqrt(variance + eps) along axes, which are kept with one element
    each.
    """
    EPS.check(eps)
    _, variance = _moments(g, upcast_half(x), as_integers(axis, "an axis"))
    return cast_like(g.apply("rsqrt", variance + eps), x)


def _moments(g: Graph, x: Tensor, axes: Shape) -> tuple[Tensor, Tensor]:
    """Return mean and variance along axes, which are kept with one element each."""
    mean = g.apply("mean", x, axes=axes, keep_dim=True)
    deviation = x - mean
    return mean, g.apply("mean", deviation * deviation, axes=axes, keep_dim=True)


@graph_method
def batch_norm(
    g: Graph,
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Return (x - mean) / sqrt(var + eps) · weight + bias with one number of each
    per channel.

    What it is at inference: [N, C, …] and vectors of C elements.
    Errors   ShapeError, DTypeError.
    """
    EPS.check(eps)
    scale = g.apply("rsqrt", running_var + eps)
    scale = scale if weight is None else scale * weight
    shift = -running_mean * scale
    shift = shift if bias is None else shift + bias
    return _scale_and_shift(g, x, scale, shift)


@graph_method
def batch_statistics(g: Graph, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance (divided by n, not n - 1) of each channel of [N, C,
    …], which `batch_norm` takes during training.
    """
    axes = tuple(a for a in range(x.rank) if a != 1)
    mean, variance = (
        cast_like(reshape_if_needed(moment, x.shape[1:2]), x)
        for moment in _moments(g, upcast_half(x), axes)
    )
    return mean, variance


def _scale_and_shift(
    g: Graph, x: Tensor, scale: Tensor | None, shift: Tensor | None
) -> Tensor:
    """Return x · scale + shift, with one number of each for each channel of [N, C,
    …].
    """
    for op, factor in (("mul", scale), ("add", shift)):
        if factor is None:
            continue
        if x.rank < 2 or factor.shape != x.shape[1:2]:
            raise ShapeError(
                f"normalization of {format_shape(x.shape)}",
                f"the array has rank {x.rank}"
                if x.rank < 2
                else f"the {'scale' if op == 'mul' else 'bias'} has shape "
                f"{format_shape(factor.shape)}",
                "expected an array [N, C, …]"
                if x.rank < 2
                else f"expected shape {format_shape(x.shape[1:2])}, one number per "
                "channel",
            )
        x = g.apply(
            op,
            x,
            reshape_if_needed(factor, (*factor.shape, *(1,) * (x.rank - 2))),
        )
    return x


@graph_method
def group_norm(
    g: Graph,
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each group of channels of [N, C, …] over all its elements, then
    apply · weight + bias for each channel.

    Errors   ShapeError, AttributeRefused, DTypeError.
    """
    if x.rank < 2 or num_groups < 1 or x.shape[1] % num_groups:
        raise AttributeRefused(
            f"group_norm of {format_shape(x.shape)}",
            f"num_groups={num_groups}",
            "expected an array [N, C, …] and a num_groups >= 1 that divides C",
        )
    group_size = prod(x.shape[1:]) // num_groups
    rows = reshape_if_needed(x, (x.shape[0], num_groups, group_size))
    normalized = reshape_if_needed(g.layer_norm(rows, eps=eps), x.shape)
    return _scale_and_shift(g, normalized, weight, bias)


@graph_method
def instance_norm(
    g: Graph,
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each channel by itself: `group_norm` with one channel per group."""
    return g.group_norm(x, max(1, *x.shape[1:2]), weight, bias, eps)


@graph_method
def local_response_norm(
    g: Graph,
    x: Tensor,
    size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    before: int | None = None,
) -> Tensor:
    """Return x / (k + alpha · mean of x² over `size` channels around each)^beta.

    before   channels of the window in front of its own; None: size // 2, as
             PyTorch has it
    """
    front = size // 2 if before is None else before
    if size < 1 or not 0 <= front < size or x.rank < 3:
        raise AttributeRefused(
            f"local_response_norm of {format_shape(x.shape)}",
            f"size={size}, before={front}",
            "expected size >= 1, 0 <= before < size and an array [N, C, …] of at "
            "least rank 3",
        )
    n, c = x.shape[:2]
    upcast = upcast_half(x)
    square = reshape_if_needed(upcast * upcast, (n, 1, c, prod(x.shape[2:])))
    pads = (front, 0, size - 1 - front, 0)
    sums = g.apply("sum_pool", square, kernel=(size, 1), pads=pads)
    result = upcast / g.apply(
        "pow",
        reshape_if_needed(sums, x.shape) * (alpha / size) + k,
        g.constant(beta, upcast.dtype),
    )
    return cast_like(result, x)


@graph_method
def normalize(
    g: Graph, x: Tensor, p: float = 2.0, axis: int = 1, eps: float = 1e-12
) -> Tensor:
    """Return x / max(p-norm, eps) along an axis.

    p   > 0; of infinity the norm is the largest |x|

    A line of zeros stays zeros, and its slope is 1 / eps, as in PyTorch.
    Errors   AttributeRefused, ShapeError, DTypeError.
    """
    if not p > 0:
        context = f"normalize {format_shape(x.shape)}"
        raise AttributeRefused(context, f"p={p}", "p must be > 0; infinity is allowed")
    EPS.check(eps)
    upcast = upcast_half(x)
    norm = g.norm(upcast, p, axis, keep_dim=True)
    result = upcast / g.apply("maximum", norm, g.constant(eps, upcast.dtype))
    return cast_like(result, x)


@graph_method
def add_layer_norm(
    g: Graph,
    x: Tensor,
    residual: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """Return (layer norm of x + residual along the last axis, the sum): one kernel.

    Shapes   x and residual alike, [..., n], gamma and beta [n], or None: 1 and 0
    Errors   ShapeError, DTypeError, AttributeRefused
    """
    return _add_norm(g, x, residual, (gamma, beta), eps, True)


@graph_method
def add_rms_norm(
    g: Graph,
    x: Tensor,
    residual: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """Return `add_layer_norm` with the RMS norm, which does not subtract the mean."""
    return _add_norm(g, x, residual, (gamma, beta), eps, False)


def _add_norm(
    g: Graph,
    x: Tensor,
    residual: Tensor,
    scale_and_shift: tuple[Tensor | None, Tensor | None],
    eps: float,
    centred: bool,
) -> tuple[Tensor, Tensor]:
    """Add the norm of x + residual; return it and the sum."""
    gamma, beta = (
        g.constant(np.full(x.shape[-1:], default), x.dtype)
        if parameter is None
        else parameter
        for parameter, default in zip(scale_and_shift, (1.0, 0.0), strict=True)
    )
    stacked = g.apply("add_norm", x, residual, gamma, beta, centred=centred, eps=eps)
    normed, total = unstack(g, stacked)
    return normed, total
