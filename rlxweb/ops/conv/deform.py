"""Deformable convolution: each tap of a window is moved by its own offsets.

As Dai et al. (2017) and, with a mask, Zhu et al. (2019) have it, torchvision and ONNX
too: what a tap meets is linear between elements, 0 outside. Composed of gathers of rows
of channels and a product; the reference is written with the same few steps. Owns no
shader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import Shape, bad_attribute, bad_shape, format_shape
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise.op import FLOAT_DTYPES, common_dtype, require_dtypes
from rlxweb.ops.matmul.op import widen_float16
from rlxweb.ops.norm.op import widen_float16_tensors
from rlxweb.ops.vision.grid_sample import (
    SamplingArrayOps,
    SamplingTensorOps,
    floor_float,
)


class _DeformArrayOps(SamplingArrayOps):
    """Operations of a deformable convolution on arrays of a namespace."""

    def reshape(self, x: Any, shape: Shape) -> Any:
        return self.xp.reshape(x, shape)

    def transpose(self, x: Any, perm: Shape) -> Any:
        return self.xp.permute_dims(x, perm)

    def matmul(self, x: Any, y: Any) -> Any:
        return self.xp.matmul(x, y)

    def constant_like(self, value: np.ndarray[Any, Any], like: Any) -> Any:
        return self.xp.asarray(value, dtype=like.dtype)

    def int32_constant(self, value: np.ndarray[Any, Any]) -> Any:
        return self.xp.asarray(value, dtype=self.xp.int32)

    def coordinate(self, x: Any, axis: int) -> Any:
        return x[:, :, :, axis]


class _DeformTensorOps(SamplingTensorOps):
    """Operations of a deformable convolution on tensors of a graph."""

    def reshape(self, x: Tensor, shape: Shape) -> Tensor:
        return self.g.reshape(x, shape)

    def transpose(self, x: Tensor, perm: Shape) -> Tensor:
        return self.g.transpose(x, perm)

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        return self.g.matmul(x, y)

    def constant_like(self, value: np.ndarray[Any, Any], like: Tensor) -> Tensor:
        return self.g.constant(value, like.dtype)

    def int32_constant(self, value: np.ndarray[Any, Any]) -> Tensor:
        return self.g.constant(value.astype(np.int32))

    def coordinate(self, x: Tensor, axis: int) -> Tensor:
        return self.g.narrow(x, 3, axis, 1).reshape((*x.shape[:3], x.shape[4]))


class _DeformConvSizes(NamedTuple):
    """Sizes of a deformable convolution, derived from shapes and attributes.

    out      rows and columns of the result
    offset_groups  groups of channels with offsets of their own
    """

    x: Shape
    weight: Shape
    out: tuple[int, int]
    strides: Shape
    dilations: Shape
    pads: Shape
    groups: int
    offset_groups: int

    @property
    def taps(self) -> int:
        return self.weight[2] * self.weight[3]


def _deform_sizes(x: Shape, weight: Shape, attrs: Attrs) -> _DeformConvSizes:
    """Return the sizes of a deformable convolution. Errors  ShapeError,
    AttributeRefused.
    """
    groups, offset_groups = attrs["groups"], attrs["offset_groups"]
    if len(x) != 4 or len(weight) != 4:
        raise bad_shape(
            f"got images {format_shape(x)} and a weight {format_shape(weight)}",
            "expected images [N, C, H, W] and a weight [O, C / groups, kernel "
            "height, kernel width]",
        )
    strides, dilations = ((*attrs[n],) for n in ("strides", "dilations"))
    pads = (*attrs["pads"],)
    if min(groups, offset_groups, *strides, *dilations) < 1 or min(pads) < 0:
        raise bad_attribute(
            f"groups={groups}, offset_groups={offset_groups}, strides={strides}, "
            f"dilations={dilations}, pads={pads}",
            "pads must be at least 0, and all other attributes at least 1",
        )
    if (len(strides), len(dilations), len(pads)) != (2, 2, 4):
        raise bad_attribute(
            f"strides={strides}, dilations={dilations}, pads={pads}",
            "expected 2 strides, 2 dilations and 4 pads (at the start of each axis, "
            "then at the end of each axis)",
        )
    if x[1] != weight[1] * groups or weight[0] % groups or x[1] % offset_groups:
        raise bad_shape(
            f"got {x[1]} channels, a weight {format_shape(weight)}, groups={groups} "
            f"and offset_groups={offset_groups}",
            "the weight must be [O, channels / groups, …]; groups must divide O, and "
            "offset_groups must divide the number of channels",
        )
    out = tuple(
        (n + pads[a] + pads[a + 2] - dilations[a] * (weight[a + 2] - 1) - 1)
        // strides[a]
        + 1
        for a, n in enumerate(x[2:])
    )
    if min(out) < 1 or min(x[2:]) < 1:
        raise bad_shape(
            f"got images {format_shape(x)} and a kernel {format_shape(weight[2:])}",
            "an image must not be empty, and at least one window must fit into the "
            "padded image",
        )
    return _DeformConvSizes(
        x, weight, (out[0], out[1]), strides, dilations, pads, groups, offset_groups
    )


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, weight, offset, *mask = types
    dtype = common_dtype(types)
    require_dtypes(types, FLOAT_DTYPES)
    s = _deform_sizes(x.shape, weight.shape, attrs)
    expected = (x.shape[0], 2 * s.offset_groups * s.taps, *s.out)
    if offset.shape != expected:
        raise bad_shape(
            f"got offsets {format_shape(offset.shape)}",
            f"expected {format_shape(expected)}",
        )
    expected = (x.shape[0], s.offset_groups * s.taps, *s.out)
    if mask and mask[0].shape != expected:
        raise bad_shape(
            f"got a mask {format_shape(mask[0].shape)}",
            f"expected {format_shape(expected)}",
        )
    return TensorType((x.shape[0], weight.shape[0], *s.out), dtype)


def _base_positions(s: _DeformConvSizes) -> list[np.ndarray[Any, Any]]:
    """Return tap positions without offsets, down and across: [1, 1, taps,
    positions].
    """
    kernel = s.weight[2:]
    positions = []
    for axis in range(2):
        taps = np.arange(kernel[axis]) * s.dilations[axis] - s.pads[axis]
        window_starts = np.arange(s.out[axis]) * s.strides[axis]
        tap_shape = [1, 1, 1, 1]
        tap_shape[axis] = -1
        start_shape = [1, 1, 1, 1]
        start_shape[axis + 2] = -1
        grid = taps.reshape(tap_shape) + window_starts.reshape(start_shape)
        grid = np.broadcast_to(grid, (*kernel, *s.out))
        positions.append(grid.reshape(1, 1, s.taps, -1).astype(np.float64))
    return positions


def _linear_taps(ops: Any, position: Any, size: int) -> list[tuple[Any, Any]]:
    """Return the two elements around positions along an axis and their weights; 0
    outside.
    """
    position = ops.clip(ops.replace_nan(position, -2.0), -2.0, size + 1.0)
    floor = floor_float(ops, position)
    fraction = position - floor
    taps = []
    for element, weight in ((floor, 1.0 - fraction), (floor + 1.0, fraction)):
        is_inside = ops.to_float_like(element >= 0.0, position) * ops.to_float_like(
            element <= size - 1.0, position
        )
        taps.append(
            (ops.to_int32(ops.clip(element, 0.0, size - 1.0)), weight * is_inside)
        )
    return taps


def _deform_conv(ops: Any, s: _DeformConvSizes, operands: Sequence[Any]) -> Any:
    """Compute the convolution: rows of channels around each tap, their weighted sum,
    the product.

    operands  images, weight, offsets, and a mask if there is one
    """
    x, weight, offset, *mask = operands
    n, c, rows, columns = s.x
    channels_per_group, position_count = c // s.offset_groups, s.out[0] * s.out[1]
    table = ops.reshape(x, (n * s.offset_groups, channels_per_group, rows * columns))
    table = ops.reshape(ops.transpose(table, (0, 2, 1)), (-1, channels_per_group))
    tap_offsets = ops.reshape(offset, (n, s.offset_groups, s.taps, 2, position_count))
    down, across = (
        _linear_taps(
            ops,
            ops.coordinate(tap_offsets, axis) + ops.constant_like(base, offset),
            size,
        )
        for axis, (base, size) in enumerate(
            zip(_base_positions(s), (rows, columns), strict=True)
        )
    )
    base = np.arange(n * s.offset_groups).reshape(n, s.offset_groups, 1, 1) * (
        rows * columns
    )
    first_row, sampled = ops.int32_constant(base), None
    for down_index, down_weight in down:
        for across_index, across_weight in across:
            values = ops.take_rows(
                table, first_row + down_index * columns + across_index
            )
            weighted = values * ops.append_axis(down_weight * across_weight)
            sampled = weighted if sampled is None else sampled + weighted
    if mask:
        sampled = sampled * ops.append_axis(
            ops.reshape(mask[0], (n, s.offset_groups, s.taps, position_count))
        )
    products_per_result = c // s.groups * s.taps
    sampled = ops.reshape(
        ops.transpose(sampled, (0, 1, 4, 2, 3)),
        (n, s.groups, products_per_result, position_count),
    )
    filters = ops.reshape(
        weight, (1, s.groups, s.weight[0] // s.groups, products_per_result)
    )
    return ops.reshape(ops.matmul(filters, sampled), (n, s.weight[0], *s.out))


def _reference(xp: Any, attrs: Attrs, x: Any, weight: Any, *rest: Any) -> Any:
    s = _deform_sizes(tuple(x.shape), tuple(weight.shape), attrs)
    if 0 in (s.x[0], s.weight[0], s.x[1]):
        return xp.zeros((s.x[0], s.weight[0], *s.out), dtype=x.dtype)
    operands = [widen_float16(xp, operand) for operand in (x, weight, *rest)]
    result = _deform_conv(_DeformArrayOps(xp), s, operands)
    return xp.asarray(result, dtype=x.dtype)


def _build(g: Graph, attrs: Attrs, x: Tensor, weight: Tensor, *rest: Tensor) -> Tensor:
    s = _deform_sizes(x.shape, weight.shape, attrs)
    if 0 in (s.x[0], s.weight[0], s.x[1]):
        zero = g.constant(np.zeros((), x.dtype.numpy))
        return g.expand(zero, (s.x[0], s.weight[0], *s.out))
    operands = widen_float16_tensors(g, x, weight, *rest)
    result = _deform_conv(_DeformTensorOps(g), s, operands)
    return result if result.dtype is x.dtype else g.cast(result, x.dtype)


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    s = _deform_sizes(inputs[0].shape, inputs[1].shape, attrs)
    terms = s.x[1] * s.taps
    return out.numel // max(s.weight[0], 1) * terms * (8.0 + 2.0 * s.weight[0])


def _case(
    x: Shape, weight: Shape, dtype: DType = DType.F32, mask: bool = False, **attrs: Any
) -> Sample:
    all_attrs = {attr.name: attrs.get(attr.name, attr.default) for attr in _ATTRS}
    s = _deform_sizes(x, weight, all_attrs)
    inputs = [
        Drawn(x, dtype, -2, 2),
        Drawn(weight, dtype, -1, 1),
        Drawn((x[0], 2 * s.offset_groups * s.taps, *s.out), dtype, -2, 2),
    ]
    if mask:
        inputs.append(Drawn((x[0], s.offset_groups * s.taps, *s.out), dtype, 0, 1))
    return Sample(tuple(inputs), attrs)


_ATTRS = (
    Attr("strides", "ints", (1, 1)),
    Attr("dilations", "ints", (1, 1)),
    Attr("pads", "ints", (0, 0, 0, 0)),
    Attr("groups", "int", 1),
    Attr("offset_groups", "int", 1),
)

registry.register_all(
    Op(
        name="deform_conv",
        arity=(3, 4),
        infer=_infer,
        reference=_reference,
        lower=Compose(_build),
        attrs=_ATTRS,
        traits=frozenset({"floats_only"}),
        flops=_flops,
        tolerance=Tolerance(rtol=1e-4, atol=3e-5, relative_to_peak=True),
        samples=(
            _case((1, 1, 1, 1), (1, 1, 1, 1)),
            _case((2, 4, 5, 6), (3, 4, 3, 2), mask=True, pads=(1, 0, 2, 1)),
            _case((1, 4, 7, 5), (2, 2, 2, 2), groups=2, offset_groups=4),
            _case(
                (1, 4, 7, 6), (4, 1, 3, 3), strides=(2, 1), dilations=(2, 2), groups=4
            ),
            _case((0, 2, 4, 4), (2, 2, 2, 2)),
            _case((1, 2, 4, 5), (2, 2, 2, 2), DType.F64, mask=True, offset_groups=2),
            _case((1, 1, 8, 41), (205, 1, 1, 1)),
        ),
        doc="Convolution of images [N, C, H, W] with a weight [O, C / groups, h, w]. "
        "The offsets [N, offset_groups·h·w·2, …] displace the h·w taps of every "
        "window: each tap has a vertical offset, followed by its horizontal offset. "
        "An optional mask [N, offset_groups·h·w, …] multiplies the sampled values. "
        "Values between elements are interpolated linearly; values outside the image "
        "are 0.",
    )
)
