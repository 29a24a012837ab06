"""Converters of convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Required, TypedDict, Unpack

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, converts
from rlxweb.ops.conv.windows import same_pads

Ints = tuple[int, ...]
_AUTO_PAD_MODES = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


class WindowAttributes(TypedDict, total=False):
    """Attributes that all sliding-window ops share."""

    auto_pad: str
    dilations: Ints
    pads: Ints
    strides: Ints


class ConvAttributes(WindowAttributes, total=False):
    """Attributes of convolutions."""

    group: int
    kernel_shape: Ints


def _window_geometry(
    ctx: ConversionContext, x: Tensor, kernel: Ints, attributes: WindowAttributes
) -> dict[str, Any]:
    """Return explicit strides, dilations and pads of a sliding window."""
    size, auto_pad = x.shape[2:], attributes.get("auto_pad") or "NOTSET"
    strides = attributes.get("strides") or (1,) * len(size)
    dilations = attributes.get("dilations") or (1,) * len(size)
    pads = attributes.get("pads")
    if len(kernel) != len(size) or {len(strides), len(dilations)} != {len(size)}:
        ctx.raise_invalid_model(
            f"got kernel {kernel}, strides {strides}, dilations {dilations}",
            f"each must have {len(size)} numbers, one per spatial axis of x",
        )
    if auto_pad not in _AUTO_PAD_MODES:
        ctx.raise_invalid_model(
            f"auto_pad is {auto_pad!r}",
            "must be NOTSET, SAME_UPPER, SAME_LOWER or VALID",
        )
    if auto_pad.startswith("SAME"):
        is_upper = auto_pad == "SAME_UPPER"
        pads = same_pads(size, kernel, strides, dilations, is_upper)
    elif auto_pad == "VALID":
        pads = None
    pads = pads or (0,) * (2 * len(size))
    return {"strides": strides, "dilations": dilations, "pads": pads}


def conv_arguments(
    ctx: ConversionContext, x: Tensor, w: Tensor, attributes: ConvAttributes
) -> dict[str, Any]:
    """Return the arguments of the graph's convolution ops."""
    kernel, declared_kernel = w.shape[2:], attributes.get("kernel_shape")
    if declared_kernel is not None and declared_kernel != kernel:
        ctx.raise_invalid_model(
            f"kernel_shape is {declared_kernel}",
            f"the weight has the kernel shape {kernel}",
        )
    geometry = _window_geometry(ctx, x, kernel, attributes)
    return {"groups": attributes.get("group", 1), **geometry}


class PoolAttributes(WindowAttributes, total=False):
    """Attributes of pools."""

    kernel_shape: Required[Ints]
    ceil_mode: int


def _pool_arguments(
    ctx: ConversionContext, x: Tensor, attributes: PoolAttributes
) -> dict[str, Any]:
    """Return the arguments of the graph's pooling ops."""
    kernel = attributes["kernel_shape"]
    geometry = _window_geometry(ctx, x, kernel, attributes)
    return {
        "kernel": kernel,
        "ceil_mode": bool(attributes.get("ceil_mode")),
        **geometry,
    }


def _add_bias(result: Tensor, bias: Tensor | None) -> Tensor:
    """Add an optional bias along axis 1."""
    if bias is None:
        return result
    return result + bias.reshape((*bias.shape, *(1,) * (result.rank - 2)))


@converts("Conv")
def _conv(
    ctx: ConversionContext,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    **attributes: Unpack[ConvAttributes],
) -> Tensor:
    result = ctx.graph.apply("conv", x, w, **conv_arguments(ctx, x, w, attributes))
    return _add_bias(result, bias)


@converts("ConvTranspose")
def _conv_transpose(
    ctx: ConversionContext,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    output_padding: Ints | None = None,
    output_shape: Ints | None = None,
    **attributes: Unpack[ConvAttributes],
) -> Tensor:
    kernel, rank = w.shape[2:], x.rank - 2
    auto_pad = attributes.get("auto_pad", "NOTSET")
    arguments = conv_arguments(ctx, x, w, attributes)
    extra = list(output_padding or (0,) * rank)
    target_size: Sequence[int] | None = output_shape and output_shape[-rank:]
    if target_size is None and auto_pad.startswith("SAME"):
        pairs = zip(x.shape[2:], arguments["strides"], strict=True)
        target_size = [n * s for n, s in pairs]
    if target_size is not None:
        arguments["pads"] = _pads_for_output_size(
            x, kernel, arguments, target_size, extra, auto_pad
        )
    result = ctx.graph.apply("conv_transpose", x, w, output_padding=extra, **arguments)
    return _add_bias(result, bias)


def _pads_for_output_size(
    x: Tensor,
    kernel: Ints,
    arguments: dict[str, Any],
    target_size: Sequence[int],
    extra: list[int],
    auto_pad: str,
) -> Ints:
    """Return the pads that give the target output size; where the output is too small,
    `extra` is increased.
    """
    fronts, ends = [], []
    for axis, size in enumerate(target_size):
        extent = (kernel[axis] - 1) * arguments["dilations"][axis] + 1
        full_size = (
            (x.shape[2 + axis] - 1) * arguments["strides"][axis] + extent + extra[axis]
        )
        excess = max(0, full_size - size)
        extra[axis] += max(0, size - full_size)
        half = excess // 2
        fronts.append(half if auto_pad == "SAME_UPPER" else excess - half)
        ends.append(excess - fronts[-1])
    return (*fronts, *ends)


@converts("MaxPool")
def _max_pool(
    ctx: ConversionContext,
    x: Tensor,
    *,
    storage_order: int = 0,
    **attributes: Unpack[PoolAttributes],
) -> Tensor | tuple[Tensor, Tensor]:
    arguments = _pool_arguments(ctx, x, attributes)
    result = ctx.graph.apply("max_pool", x, **arguments)
    if not ctx.needs_output(1):
        return result
    indices = ctx.graph.apply("max_pool_indices", x, **arguments)
    return result, _global_indices(ctx, x, indices, bool(storage_order))


def _global_indices(
    ctx: ConversionContext, x: Tensor, indices: Tensor, is_column_major: bool
) -> Tensor:
    """Convert indices within each image to indices in all of x, as ONNX counts them."""
    g, size = ctx.graph, x.shape[2:]
    if is_column_major:
        order = np.arange(prod(size)).reshape(size[::-1]).T.reshape(-1)
        indices = g.gather(g.constant(order.astype(np.int32)), indices)
    images = np.arange(x.shape[0] * x.shape[1], dtype=np.int64) * prod(size)
    images = images.reshape(*x.shape[:2], *(1,) * len(size))
    return g.cast(indices, DType.I64) + g.constant(images)


@converts("MaxUnpool", since=9)
def _max_unpool(
    ctx: ConversionContext,
    x: Tensor,
    indices: Tensor,
    output_shape: Tensor | None = None,
    *,
    kernel_shape: Ints,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    g, rank = ctx.graph, x.rank - 2
    strides, pads = strides or (1,) * rank, pads or (0,) * (2 * rank)
    size = [
        (n - 1) * s + k - pads[index] - pads[index + rank]
        for index, (n, s, k) in enumerate(
            zip(x.shape[2:], strides, kernel_shape, strict=True)
        )
    ]
    shape = (*x.shape[:2], *size)
    zeros = g.expand(g.constant(np.zeros((), x.dtype.numpy)), (prod(shape),))
    result = g.scatter_elements(zeros, indices.reshape((-1,)), x.reshape((-1,)))
    result = result.reshape(shape)
    if output_shape is None:
        return result
    target_shape = ctx.require_ints(output_shape, "the output shape")
    for axis, (n, current) in enumerate(zip(target_shape, shape, strict=True)):
        if n > current:
            empty_shape = (*result.shape[:axis], n - current, *result.shape[axis + 1 :])
            empty = g.expand(g.constant(np.zeros((), x.dtype.numpy)), empty_shape)
            result = g.concat([result, empty], axis)
        elif n < current:
            ctx.raise_invalid_model(
                f"output_shape is {n} at axis {axis}",
                f"must be at least {current}, the size of this axis if output_shape is "
                "omitted",
            )
    return result


@converts("AveragePool")
def _average_pool(
    ctx: ConversionContext,
    x: Tensor,
    *,
    count_include_pad: int = 0,
    **attributes: Unpack[PoolAttributes],
) -> Tensor:
    return build_average_pool(ctx, x, bool(count_include_pad), attributes)


def build_average_pool(
    ctx: ConversionContext, x: Tensor, counts_padding: bool, attributes: PoolAttributes
) -> Tensor:
    """Add an average pool to the graph; `counts_padding` includes padded elements in
    the average.
    """
    arguments = _pool_arguments(ctx, x, attributes)
    return ctx.graph.apply("avg_pool", x, count_include_pad=counts_padding, **arguments)


@converts("LpPool", since=2)
def _lp_pool(
    ctx: ConversionContext,
    x: Tensor,
    *,
    p: int = 2,
    **attributes: Unpack[PoolAttributes],
) -> Tensor:
    return ctx.graph.apply(
        "lp_pool", x, p=float(p), **_pool_arguments(ctx, x, attributes)
    )


@converts("GlobalAveragePool")
def _global_average_pool(ctx: ConversionContext, x: Tensor) -> Tensor:
    return ctx.graph.mean(x, range(2, x.rank), keep_dim=True)


@converts("GlobalMaxPool")
def _global_max_pool(ctx: ConversionContext, x: Tensor) -> Tensor:
    return ctx.graph.max(x, range(2, x.rank), keep_dim=True)


@converts("GlobalLpPool", since=2)
def _global_lp_pool(ctx: ConversionContext, x: Tensor, *, p: int = 2) -> Tensor:
    if p < 1:
        ctx.raise_invalid_model(f"p is {p}", "must be at least 1")
    g, axes = ctx.graph, range(2, x.rank)
    return g.norm(x, float(p), axes, keep_dim=True)
