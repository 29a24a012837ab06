"""Exporters of convolutions, pools and normalizations."""

from __future__ import annotations

from math import prod
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Node
from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.onnx.exporter_registry import OnnxGraphBuilder, register_exporter


def _expand_per_axis(value: tuple[int, ...], count: int, default: int) -> list[int]:
    """Return one number for every spatial axis, given none, one or all."""
    if not value:
        return [default] * count
    return list(value) * count if len(value) == 1 else list(value)


def window_attributes(node: Node, spatial_rank: int) -> dict[str, Any]:
    """Return a node's strides, dilations and pads as ONNX attributes."""
    attrs = node.attrs
    pads = _expand_per_axis(attrs["pads"], spatial_rank, 0)
    return {
        "strides": _expand_per_axis(attrs["strides"], spatial_rank, 1),
        "dilations": _expand_per_axis(attrs["dilations"], spatial_rank, 1),
        "pads": pads
        if len(pads) == 2 * spatial_rank
        else pads * 2,  # fronts, then ends
    }


@register_exporter("conv")
def _conv(builder: OnnxGraphBuilder, node: Node, x: str, weights: str) -> str:
    attrs = window_attributes(node, node.type.rank - 2)
    return builder.add_node("Conv", x, weights, group=node.attrs["groups"], **attrs)


@register_exporter("conv_transpose")
def _conv_transpose(builder: OnnxGraphBuilder, node: Node, x: str, weights: str) -> str:
    spatial_rank = node.type.rank - 2
    return builder.add_node(
        "ConvTranspose",
        x,
        weights,
        **window_attributes(node, spatial_rank),
        group=node.attrs["groups"],
        output_padding=_expand_per_axis(node.attrs["output_padding"], spatial_rank, 0),
    )


@register_exporter("max_pool")
def _max_pool(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    spatial_rank = node.type.rank - 2
    attrs = window_attributes(node, spatial_rank)
    attrs["kernel_shape"] = _expand_per_axis(node.attrs["kernel"], spatial_rank, 1)
    return builder.add_node(
        "MaxPool", x, ceil_mode=int(node.attrs["ceil_mode"]), **attrs
    )


@register_exporter(
    "avg_pool", condition=lambda builder, node: not node.attrs["ceil_mode"]
)
def _avg_pool(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    return _add_average_pool(builder, node, x, node.attrs["count_include_pad"])


@register_exporter(
    "sum_pool", condition=lambda builder, node: not node.attrs["ceil_mode"]
)
def _sum_pool(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    kernel = _expand_per_axis(node.attrs["kernel"], node.type.rank - 2, 1)
    return builder.add_node(
        "Mul",
        _add_average_pool(builder, node, x, True),
        builder.add_scalar_like(prod(kernel), node.type),
    )


def _add_average_pool(
    builder: OnnxGraphBuilder, node: Node, x: str, counts_padding: bool
) -> str:
    """Add an AveragePool over the node's windows."""
    spatial_rank = node.type.rank - 2
    attrs = window_attributes(node, spatial_rank)
    attrs["kernel_shape"] = _expand_per_axis(node.attrs["kernel"], spatial_rank, 1)
    return builder.add_node(
        "AveragePool", x, count_include_pad=int(counts_padding), **attrs
    )


@register_exporter("layer_norm")
def _layer_norm(
    builder: OnnxGraphBuilder, node: Node, x: str, gamma: str, beta: str
) -> str:
    """Export a layer norm; ONNX normalizes trailing axes only, so another axis is moved
    to the end and back.
    """
    rank = node.type.rank
    axis = normalize_axis(node.attrs["axis"], rank)
    order = [a for a in range(rank) if a != axis] + [axis]
    is_transposed = axis != rank - 1
    x = builder.add_node("Transpose", x, perm=order) if is_transposed else x
    eps = node.attrs["eps"]
    normalized = builder.add_node(
        "LayerNormalization", x, gamma, beta, axis=-1, epsilon=eps
    )
    inverse_order = [order.index(a) for a in range(rank)]
    return (
        builder.add_node("Transpose", normalized, perm=inverse_order)
        if is_transposed
        else normalized
    )


@register_exporter("rms_norm")
def _rms_norm(
    builder: OnnxGraphBuilder, node: Node, x: str, gamma: str, beta: str
) -> str:
    tensor_type = node.type
    axis = normalize_axis(node.attrs["axis"], tensor_type.rank)
    dims = (tensor_type.shape[axis], *(1,) * (tensor_type.rank - 1 - axis))
    square = builder.add_node(
        "ReduceMean",
        builder.add_node("Mul", x, x),
        builder.add_int64_constant(axis),
        keepdims=1,
    )
    root = builder.add_node(
        "Sqrt",
        builder.add_node(
            "Add", square, builder.add_scalar_like(node.attrs["eps"], tensor_type)
        ),
    )
    scaled = builder.add_node(
        "Mul", builder.add_node("Div", x, root), builder.add_reshape(gamma, dims)
    )
    return builder.add_node("Add", scaled, builder.add_reshape(beta, dims))


@register_exporter("psd")
def _psd(builder: OnnxGraphBuilder, node: Node, re: str, im: str) -> str:
    power = builder.add_node(
        "Add", builder.add_node("Mul", re, re), builder.add_node("Mul", im, im)
    )
    return builder.add_node(
        "Div", power, builder.add_scalar_like(max(node.type.shape[-1], 1), node.type)
    )


@register_exporter("roi_align")
def _roi_align(
    builder: OnnxGraphBuilder, node: Node, x: str, rois: str, images: str
) -> str:
    attrs = node.attrs
    modes = ("output_half_pixel", "half_pixel")
    return builder.add_node(
        "RoiAlign",
        x,
        rois,
        builder.add_cast(images, DType.I64),
        coordinate_transformation_mode=modes[attrs["aligned"]],
        mode=attrs["mode"],
        output_height=attrs["size"][0],
        output_width=attrs["size"][1],
        sampling_ratio=attrs["sampling"],
        spatial_scale=attrs["scale"],
    )
