"""Graph methods for quantised numbers, under ONNX's names.

What a type or a zero says of how large products can be is noted here, once, so that
every engine knows how many of them it may sum in f32. Nothing is computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.core.errors import GraphError
from rlxweb.ir.dtype import DType, DTypeLike, as_dtype
from rlxweb.ir.op_methods import graph_method
from rlxweb.ir.shape_arithmetic import Shape, bad_attribute
from rlxweb.ir.tensor import Tensor, TensorLike, op_context
from rlxweb.ops.conv.methods import SpatialSizes

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph


@graph_method
def quantize_linear(
    g: Graph,
    x: Tensor,
    scale: TensorLike,
    zero_point: TensorLike | None = None,
    axis: int = 1,
    block_size: int = 0,
    dtype: DTypeLike | None = None,
    bits: int = 0,
) -> Tensor:
    """Return round(x / scale) + zero_point as integers, clipped to their range.

    scale       one number, [n] for the n places of `axis`, or with a `block_size`
                x's shape with ceil(n / block_size) there
    zero_point  as scale, of the result's type; None: 0
    dtype       of the result, i8, u8, i16 or u16; None: zero_point's, or u8
    bits        of the range, 0: all that the type has; 4 of i8 are -8 … 7
    Errors      ShapeError, DTypeError, AttributeRefused
    Source      ONNX, QuantizeLinear; halves go to the even number

    Example  q = g.quantize_linear(x, 0.02, 128)
    """
    op_name = "quantize_linear"
    if not isinstance(x, Tensor):
        raise GraphError(op_name, "x is not a tensor")
    with op_context(op_name, x):
        zero_point_dtype = getattr(zero_point, "dtype", None)
        # NumPy's own types of numbers say nothing: of 128, or of an array of such.
        chosen_dtype = (
            None if zero_point_dtype in (np.int64, np.float64) else zero_point_dtype
        )
        target = as_dtype(dtype or chosen_dtype or DType.U8)
        low, high = quantized_range(target, bits)
        scale_tensor = _scale_tensor(
            g, scale, x.dtype if x.dtype.is_float else DType.F32
        )
        zero_point_tensor = _zero_point_tensor(
            g, zero_point, scale_tensor.shape, target
        )
    return g.apply(
        op_name,
        x,
        scale_tensor,
        zero_point_tensor,
        quant_min=low,
        quant_max=high,
        axis=axis,
        block_size=block_size,
    )


@graph_method
def dequantize_linear(
    g: Graph,
    x: Tensor,
    scale: TensorLike,
    zero_point: TensorLike | None = None,
    axis: int = 1,
    block_size: int = 0,
) -> Tensor:
    """Return (x - zero_point) · scale in the dtype of the scale; other parameters
    as in `quantize_linear`. A scale that is no tensor is f32.

    Errors   ShapeError, DTypeError, AttributeRefused
    Source   ONNX, DequantizeLinear
    """
    scale_tensor = _scale_tensor(g, scale, DType.F32)
    zero_point_tensor = _zero_point_tensor(g, zero_point, scale_tensor.shape, x.dtype)
    return g.apply(
        "dequantize_linear",
        x,
        scale_tensor,
        zero_point_tensor,
        axis=axis,
        block_size=block_size,
    )


@graph_method
def dynamic_quantize_linear(g: Graph, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (x as u8, its scale, its zero point u8) for the range of x, extended
    to contain 0.

    The scale is (max - min) / 255, and 1 where x is 0 everywhere.
    Errors   DTypeError
    Source   ONNX, DynamicQuantizeLinear
    """
    maximum = _extreme_with_zero(g, "max", "maximum", x)
    minimum = _extreme_with_zero(g, "min", "minimum", x)
    value_range = g.apply("sub", maximum, minimum)
    is_empty_range = g.apply("eq", value_range, g.operand(0.0, x.dtype))
    scale = g.apply("div", value_range, g.operand(255.0, x.dtype))
    unit = g.operand(1.0, x.dtype)
    scale = g.apply("where", is_empty_range, unit, scale)
    negated_minimum = g.apply("neg", minimum)
    zero_u8 = g.operand(0, DType.U8)
    zero_point = g.quantize_linear(negated_minimum, scale, zero_u8)
    return g.quantize_linear(x, scale, zero_point), scale, zero_point


def _extreme_with_zero(g: Graph, reduction: str, binary_op: str, x: Tensor) -> Tensor:
    """Return the extreme of all elements and 0."""
    zero = g.operand(0.0, x.dtype)
    axes = tuple(range(x.rank))
    if not all(x.shape):
        return zero
    extreme = g.apply(reduction, x, axes=axes, keep_dim=False) if axes else x
    return g.apply(binary_op, extreme, zero)


@graph_method
def matmul_integer(
    g: Graph,
    x: Tensor,
    y: Tensor,
    x_zero_point: TensorLike | None = None,
    y_zero_point: TensorLike | None = None,
) -> Tensor:
    """Return (x - x_zero_point) · (y - y_zero_point), exactly, as i32.

    Shapes   x [..., M, K], y [..., K, N] → [..., M, N]; zero points are one number,
             [M] for the rows of x and [N] for the columns of y, or broadcast with
             x and y
    Errors   ShapeError, DTypeError for other than integers of up to 32 bits
    Source   ONNX, MatMulInteger; sums beyond 32 bits wrap
    """
    x_zero = _zero_point_tensor(g, x_zero_point, (), x.dtype)
    y_zero = _zero_point_tensor(g, y_zero_point, (), y.dtype)
    x_zero = _append_axes(g, x_zero, 1)
    largest = _largest_product((x, x_zero), (y, y_zero))
    return g.apply("matmul_integer", x, y, x_zero, y_zero, largest=largest)


@graph_method
def conv_integer(
    g: Graph,
    x: Tensor,
    weight: Tensor,
    x_zero_point: TensorLike | None = None,
    w_zero_point: TensorLike | None = None,
    stride: SpatialSizes = 1,
    padding: SpatialSizes = 0,
    dilation: SpatialSizes = 1,
    groups: int = 1,
) -> Tensor:
    """Return `conv` of integers less their zero points, exactly, as i32.

    Shapes   x [N, C, …], weight [M, C / groups, …] → [N, M, …]; x_zero_point is one
             number, w_zero_point one or [M]
    Errors   ShapeError, DTypeError, AttributeRefused
    Source   ONNX, ConvInteger: what is padded is x_zero_point
    """
    x_zero = _zero_point_tensor(g, x_zero_point, (), x.dtype)
    w_zero = _zero_point_tensor(g, w_zero_point, (), weight.dtype)
    w_zero = _append_axes(g, w_zero, weight.rank - 1)
    largest = _largest_product((x, x_zero), (weight, w_zero))
    return g.apply(
        "conv_integer",
        x,
        weight,
        x_zero,
        w_zero,
        strides=stride,
        pads=padding,
        dilations=dilation,
        groups=groups,
        largest=largest,
    )


def _scale_tensor(g: Graph, value: TensorLike, dtype: DType) -> Tensor:
    """Return the scale as a tensor."""
    return value if isinstance(value, Tensor) else g.operand(value, dtype)


def _zero_point_tensor(
    g: Graph, value: TensorLike | None, shape: Shape, dtype: DType
) -> Tensor:
    """Return the zero point as a tensor; one number is broadcast to the scale's
    shape.
    """
    if isinstance(value, Tensor):
        return value
    array = np.asarray(0 if value is None else value)
    if array.ndim == 0 and shape:
        array = np.broadcast_to(array, shape)
    return g.operand(array if array.ndim else array.item(), dtype)


def _append_axes(g: Graph, zero_points: Tensor, count: int) -> Tensor:
    """Append axes of size 1 to zero points [n], n != 1; return others unchanged."""
    if zero_points.rank != 1 or zero_points.shape == (1,):
        return zero_points
    return g.apply("reshape", zero_points, shape=(*zero_points.shape, *(1,) * count))


def _largest_product(*factors: tuple[Tensor, Tensor]) -> int:
    """Return the largest product of one element of each (integers, zero points); 0 if
    it is too large to bound.
    """
    bound = 1
    for integers, zero_points in factors:
        node = zero_points.graph.node(zero_points.id)
        known = node.attrs["value"].array if node.op == "constant" else None
        bound *= max_shifted_magnitude(integers.dtype, known)
    return bound


def max_shifted_magnitude(dtype: DType, zero_points: Any) -> int:
    """Return the largest |integer - zero point| of a dtype; 0 if it is too large to
    bound.

    zero_points  an array, None where it is not known
    """
    if not dtype.is_integer or dtype.nbytes > 2:
        return 0
    low, high = int(dtype.min_value), int(dtype.max_value)
    if zero_points is None or not zero_points.size:
        return high - low
    ends = int(zero_points.min()), int(zero_points.max())
    return max(abs(end - zero_point) for end in (low, high) for zero_point in ends)


def quantized_range(dtype: DType, bits: int = 0) -> tuple[int, int]:
    """Return the smallest and the largest integer of `bits` bits in a dtype; 0 bits: of
    the whole dtype.

    Errors   AttributeRefused for more bits than it has, DTypeError for no integers.
    """
    type_bits = 8 * dtype.nbytes
    if bits < 0 or bits == 1 or bits > type_bits:
        raise bad_attribute(
            f"bits={bits} for {dtype}",
            f"bits must be 0 (all bits of the dtype), or 2 to {type_bits}",
        )
    low, high = int(dtype.min_value), int(dtype.max_value)
    shift = type_bits - bits if bits else 0
    return low >> shift, high >> shift
