"""Forms of convolutions, pools and norms in ONNX."""

from __future__ import annotations

from math import prod
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Node
from rlxweb.ir.shape import normal_axis
from rlxweb.onnx.writer import Writer, writes


def _each(value: tuple[int, ...], count: int, default: int) -> list[int]:
    """One number for every spatial axis, of none, one or all."""
    if not value:
        return [default] * count
    return list(value) * count if len(value) == 1 else list(value)


def windows(node: Node, spatial: int) -> dict[str, Any]:
    """Strides, dilations and pads of a node as ONNX has them."""
    attrs = node.attrs
    pads = _each(attrs["pads"], spatial, 0)
    return {
        "strides": _each(attrs["strides"], spatial, 1),
        "dilations": _each(attrs["dilations"], spatial, 1),
        "pads": pads if len(pads) == 2 * spatial else pads * 2,  # fronts, then ends
    }


@writes("conv")
def _conv(w: Writer, node: Node, x: str, weights: str) -> str:
    attrs = windows(node, node.type.rank - 2)
    return w.add("Conv", x, weights, group=node.attrs["groups"], **attrs)


@writes("conv_transpose")
def _conv_transpose(w: Writer, node: Node, x: str, weights: str) -> str:
    spatial = node.type.rank - 2
    attrs = windows(node, spatial)
    more = _each(node.attrs["output_padding"], spatial, 0)
    attrs |= {"group": node.attrs["groups"], "output_padding": more}
    return w.add("ConvTranspose", x, weights, **attrs)


@writes("max_pool")
def _max_pool(w: Writer, node: Node, x: str) -> str:
    spatial = node.type.rank - 2
    attrs = windows(node, spatial)
    attrs["kernel_shape"] = _each(node.attrs["kernel"], spatial, 1)
    return w.add("MaxPool", x, ceil_mode=int(node.attrs["ceil_mode"]), **attrs)


@writes("avg_pool", only=lambda w, node: not node.attrs["ceil_mode"])
def _avg_pool(w: Writer, node: Node, x: str) -> str:
    return _averages(w, node, x, node.attrs["count_include_pad"])


@writes("sum_pool", only=lambda w, node: not node.attrs["ceil_mode"])
def _sum_pool(w: Writer, node: Node, x: str) -> str:
    kernel = _each(node.attrs["kernel"], node.type.rank - 2, 1)
    return w.add("Mul", _averages(w, node, x, True), w.like(prod(kernel), node.type))


def _averages(w: Writer, node: Node, x: str, padding: bool) -> str:
    spatial = node.type.rank - 2
    attrs = windows(node, spatial)
    attrs["kernel_shape"] = _each(node.attrs["kernel"], spatial, 1)
    return w.add("AveragePool", x, count_include_pad=int(padding), **attrs)


@writes("layer_norm")
def _layer_norm(w: Writer, node: Node, x: str, gamma: str, beta: str) -> str:
    """ONNX's is over all axes from one on: another axis goes to the end and back."""
    rank = node.type.rank
    axis = normal_axis(node.attrs["axis"], rank)
    order = [a for a in range(rank) if a != axis] + [axis]
    moved = axis != rank - 1
    x = w.add("Transpose", x, perm=order) if moved else x
    eps = node.attrs["eps"]
    out = w.add("LayerNormalization", x, gamma, beta, axis=-1, epsilon=eps)
    back = [order.index(a) for a in range(rank)]
    return w.add("Transpose", out, perm=back) if moved else out


@writes("rms_norm")
def _rms_norm(w: Writer, node: Node, x: str, gamma: str, beta: str) -> str:
    kind = node.type
    axis = normal_axis(node.attrs["axis"], kind.rank)
    dims = (kind.shape[axis], *(1,) * (kind.rank - 1 - axis))
    square = w.add("ReduceMean", w.add("Mul", x, x), w.ints(axis), keepdims=1)
    root = w.add("Sqrt", w.add("Add", square, w.like(node.attrs["eps"], kind)))
    scaled = w.add("Mul", w.add("Div", x, root), w.shape(gamma, dims))
    return w.add("Add", scaled, w.shape(beta, dims))


@writes("psd")
def _psd(w: Writer, node: Node, re: str, im: str) -> str:
    power = w.add("Add", w.add("Mul", re, re), w.add("Mul", im, im))
    return w.add("Div", power, w.like(max(node.type.shape[-1], 1), node.type))


@writes("roi_align")
def _roi_align(w: Writer, node: Node, x: str, rois: str, images: str) -> str:
    attrs = node.attrs
    modes = ("output_half_pixel", "half_pixel")
    return w.add(
        "RoiAlign",
        x,
        rois,
        w.cast(images, DType.I64),
        coordinate_transformation_mode=modes[attrs["aligned"]],
        mode=attrs["mode"],
        output_height=attrs["size"][0],
        output_width=attrs["size"][1],
        sampling_ratio=attrs["sampling"],
        spatial_scale=attrs["scale"],
    )
