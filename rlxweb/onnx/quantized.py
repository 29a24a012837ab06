"""Converters of QuantizeLinear and related ops, and of integer matrix products and
convolutions.

Weights become floats where they are read, once: those of a DequantizeLinear its result,
those of a product of integers whole numbers less their zero point. So a run does with
them what it does with any weight. Integers of 4 and 2 bits lie in those of 8 (see
`sub_byte.py`); small floats are known arrays, of which there is nothing on a device.
"""

from __future__ import annotations

from hashlib import blake2b
from math import prod
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from rlxweb.ir.dtype import DType
from rlxweb.ir.op import registry
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx import onnx_library_access
from rlxweb.onnx.constant_folding_graph import rlx_dtype_or_none
from rlxweb.onnx.conv_pool import ConvAttributes, conv_arguments
from rlxweb.onnx.converter_registry import ConversionContext, Value, converts
from rlxweb.onnx.sub_byte import STORAGE_DTYPES, SubByteTensor, bit_width
from rlxweb.ops.quantized.integer_matmul_conv import (
    MAX_EXACT_F32_INTEGER,
    integer_conv,
    sum_in_chunks,
)
from rlxweb.ops.quantized.methods import max_shifted_magnitude, quantized_range
from rlxweb.ops.quantized.quantize import broadcast_scale

Array = npt.NDArray[Any]
_HALF_DTYPES = {10: DType.F16, 16: DType.BF16}
"""Half-precision dtypes that `precision` may name, by ONNX element type."""


def as_integer_tensor(ctx: ConversionContext, x: Value) -> Tensor | None:
    """Return quantised integers as a tensor, or None for quantised floats."""
    if isinstance(x, Tensor):
        return x
    if isinstance(x, SubByteTensor):
        return x.tensor
    storage_dtype = STORAGE_DTYPES.get(x.dtype.name)
    return (
        None
        if storage_dtype is None
        else ctx.graph.add_constant(x.astype(storage_dtype.numpy))
    )


def onnx_dtype(x: Value) -> np.dtype[Any]:
    """Return the NumPy dtype of a value's ONNX type."""
    return (
        onnx_library_access.numpy_dtype(x.dtype) if isinstance(x, Tensor) else x.dtype
    )


class _QuantizedType(NamedTuple):
    """Type that values are quantised to: its ONNX dtype and the dtype it is stored
    in.
    """

    dtype: np.dtype[Any]
    storage_dtype: DType

    @property
    def value_range(self) -> tuple[int, int]:
        is_sub_byte = self.dtype.name in STORAGE_DTYPES
        return quantized_range(
            self.storage_dtype, bit_width(self.dtype) if is_sub_byte else 0
        )

    def wrap_tensor(self, x: Tensor) -> Value:
        """Return the tensor as an ONNX value of this type."""
        return SubByteTensor(x, self.dtype) if self.dtype.name in STORAGE_DTYPES else x


def zero_point_like(
    ctx: ConversionContext, zero_point: Value, scale: Tensor, dtype: DType
) -> Tensor:
    """Return a zero point in the shape of its scale."""
    tensor = None if zero_point is None else as_integer_tensor(ctx, zero_point)
    if tensor is None:
        tensor = ctx.graph.constant(np.zeros((), dtype.numpy))
    if tensor.dtype is not dtype:
        ctx.raise_invalid_model(
            f"the zero point has dtype {tensor.dtype}", f"must be {dtype}"
        )
    if tensor.shape == scale.shape:
        return tensor
    if prod(tensor.shape) != 1:
        ctx.raise_invalid_model(
            f"the zero point has shape {tensor.shape}, the scale has shape "
            f"{scale.shape}",
            "the shapes must be equal, or the zero point must have 1 element",
        )
    return ctx.graph.expand(tensor.reshape(()), scale.shape)


def quantize(
    ctx: ConversionContext,
    x: Tensor,
    scale: Tensor,
    zero_point: Value,
    dtype: np.dtype[Any] | None = None,
    **scale_attrs: Any,
) -> Value:
    """Return round(x / scale) + zero point, of the zero point's type or `dtype`; x and
    scale are f32.
    """
    target_dtype = dtype or (
        np.dtype(np.uint8) if zero_point is None else onnx_dtype(zero_point)
    )
    storage_dtype = STORAGE_DTYPES.get(target_dtype.name) or rlx_dtype_or_none(
        target_dtype
    )
    if storage_dtype is None or not storage_dtype.is_integer:
        ctx.raise_unsupported(
            f"the quantised dtype is {target_dtype}",
            "must be an integer dtype of up to 16 bits",
        )
    quantized_type = _QuantizedType(target_dtype, storage_dtype)
    zero_tensor, (low, high) = (
        zero_point_like(ctx, zero_point, scale, storage_dtype),
        quantized_type.value_range,
    )
    result = ctx.graph.apply(
        "quantize_linear",
        x,
        scale,
        zero_tensor,
        quant_min=low,
        quant_max=high,
        **scale_attrs,
    )
    return quantized_type.wrap_tensor(result)


@converts("QuantizeLinear", since=10)
@converts("QuantizeLinear", domain="com.microsoft")
def _quantize(
    ctx: ConversionContext,
    x: Tensor,
    scale: Tensor,
    zero_point: Value = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Value:
    declared_dtype = (
        onnx_library_access.dtype_from_onnx(output_dtype) if output_dtype else None
    )
    if zero_point is not None and declared_dtype not in (None, onnx_dtype(zero_point)):
        ctx.raise_invalid_model(
            f"output_dtype is {declared_dtype}, the zero point has dtype "
            f"{onnx_dtype(zero_point)}",
            "the dtypes must be equal",
        )
    scale_attrs = {"axis": axis if scale.rank else 0, "block_size": block_size}
    compute_dtype = DType.F64 if precision == 11 else DType.F32
    x, wide_scale = x.cast(compute_dtype), scale.cast(compute_dtype)
    target_dtype = declared_dtype or (
        None if zero_point is None else onnx_dtype(zero_point)
    )
    if target_dtype is not None and target_dtype.name.startswith("float"):
        return _quantize_to_small_float(
            ctx,
            x / broadcast_scale(ctx.graph, scale_attrs, x, wide_scale),
            target_dtype,
            saturate,
        )
    if precision in _HALF_DTYPES:
        quotient = (x / broadcast_scale(ctx.graph, scale_attrs, x, wide_scale)).cast(
            _HALF_DTYPES[precision]
        )
        unit_scale = ctx.graph.expand(ctx.graph.constant(1.0, "f32"), wide_scale.shape)
        x, wide_scale = quotient.cast("f32"), unit_scale
    return quantize(ctx, x, wide_scale, zero_point, target_dtype, **scale_attrs)


def _quantize_to_small_float(
    ctx: ConversionContext, x: Tensor, target_dtype: np.dtype[Any], saturate: int
) -> Value:
    """Quantise known values to a small float type, whose zero point is 0."""
    array = ctx.require_array(x, f"the input quantised to {target_dtype}")
    return ctx.constant_value(
        onnx_library_access.cast_by_onnx_rules(
            array, target_dtype, bool(saturate), "up"
        )
    )


@converts("DequantizeLinear", since=10)
@converts("DequantizeLinear", domain="com.microsoft")
def _dequantize(
    ctx: ConversionContext,
    x: Value,
    scale: Tensor,
    zero_point: Value = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    result_dtype: np.dtype[Any] | DType = (
        onnx_library_access.dtype_from_onnx(output_dtype)
        if output_dtype
        else scale.dtype
    )
    target_dtype = (
        rlx_dtype_or_none(result_dtype)
        if isinstance(result_dtype, np.dtype)
        else result_dtype
    )
    if target_dtype is None or not target_dtype.is_float:
        ctx.raise_unsupported(
            f"the dtype of the result is {result_dtype}",
            "must be a floating-point dtype that rlxweb supports",
        )
    scale_attrs = {"axis": axis if scale.rank else 0, "block_size": block_size}
    codes = as_integer_tensor(ctx, x)
    scale_f32 = scale.cast("f32")
    if codes is None:
        values = ctx.graph.add_constant(
            ctx.require_array(x, "the quantised input").astype(np.float32)
        )
        return (
            values * broadcast_scale(ctx.graph, scale_attrs, values, scale_f32)
        ).cast(target_dtype)
    zero_tensor = zero_point_like(ctx, zero_point, scale, codes.dtype)
    return dequantize(ctx, codes, scale_f32, zero_tensor, **scale_attrs).cast(
        target_dtype
    )


def dequantize(
    ctx: ConversionContext,
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    **scale_attrs: Any,
) -> Tensor:
    """Return (x - zero point) · scale, f32; the result of a weight is a derived
    weight.
    """
    g = ctx.graph
    attrs: dict[str, Any] = {"axis": 0, "block_size": 0, **scale_attrs}
    scale_array, zero_array = g.known_array(scale), g.known_array(zero_point)
    if scale_array is None or zero_array is None:
        return g.apply("dequantize_linear", x, scale, zero_point, **attrs)
    key = (
        "dequantized",
        array_digest(scale_array),
        array_digest(zero_array),
        *attrs.values(),
    )

    def dequantize_array(array: Array) -> Array:
        with np.errstate(all="ignore"):
            op = registry.get("dequantize_linear")
            result: Array = op.reference(np, attrs, array, scale_array, zero_array)
        return result

    weight = g.derive_weight(x, key, DType.F32, dequantize_array)
    if weight is not None:
        return weight
    node = g.node(x.id)
    if node.op == "gather" and prod(scale.shape) == 1:
        # Of a table with one scale the rows that are wanted, out of it in floats.
        table, row_indices = (g.tensor(i) for i in node.inputs)
        rows = g.derive_weight(table, key, DType.F32, dequantize_array)
        if rows is not None:
            return g.apply("gather", rows, row_indices, **node.attrs)
    return g.apply("dequantize_linear", x, scale, zero_point, **attrs)


@converts("DynamicQuantizeLinear", since=11)
def _dynamic_quantize(ctx: ConversionContext, x: Tensor) -> tuple[Tensor, ...]:
    return ctx.graph.dynamic_quantize_linear(x)


def array_digest(array: Array) -> tuple[str, bytes]:
    """Return a key that is equal for arrays of one shape, dtype and content."""
    content = np.ascontiguousarray(array).tobytes()
    return f"{array.shape} {array.dtype}", blake2b(content, digest_size=16).digest()


# --- products -----------------------------------------------------------------------


class _CenteredIntegers(NamedTuple):
    """Integers less their zero point, and their maximum magnitude.

    is_weight   they are numbers of the model's, f32
    """

    tensor: Tensor
    max_magnitude: int
    is_weight: bool = False


def _center_integers(
    ctx: ConversionContext,
    x: Value,
    zero_point: Value,
    axis_shape: tuple[int, ...] = (),
) -> _CenteredIntegers:
    """Subtract the zero point from an operand of an integer product.

    axis_shape  the shape in which a zero point of one axis stands beside x
    """
    g, codes = ctx.graph, as_integer_tensor(ctx, x)
    if codes is None:
        ctx.raise_unsupported(
            f"an operand has dtype {onnx_dtype(x)}",
            "must be an integer dtype of up to 16 bits",
        )
    zero_tensor = _broadcastable_zero_point(ctx, zero_point, codes, axis_shape)
    zero_array = None if zero_tensor is None else g.known_array(zero_tensor)
    if zero_array is not None and not zero_array.any():
        zero_tensor = None
    max_magnitude = max_shifted_magnitude(
        codes.dtype, np.zeros(1, np.int32) if zero_tensor is None else zero_array
    )
    if zero_tensor is None or zero_array is not None:
        key = ("whole", None if zero_array is None else array_digest(zero_array))
        offset = (
            0
            if zero_tensor is None or zero_array is None
            else zero_array.astype(np.int32)
        )

        def center_array(array: Array) -> Array:
            return array.astype(np.int32) - offset

        weight = g.derive_weight(codes, key, DType.F32, center_array)
        if weight is not None:
            return _CenteredIntegers(weight, max_magnitude, True)
    codes_i32 = codes.cast(DType.I32)
    return _CenteredIntegers(
        codes_i32 if zero_tensor is None else codes_i32 - zero_tensor.cast(DType.I32),
        max_magnitude,
    )


def _max_product(
    ctx: ConversionContext,
    x: _CenteredIntegers,
    y: _CenteredIntegers,
    reduced_axes: tuple[int, ...],
) -> int:
    """Return a bound on the magnitude of each product; for known weights whose sums are
    all exact in f32, a bound on its average.

    reduced_axes  axes of y
    """
    max_product = x.max_magnitude * y.max_magnitude
    terms = prod(y.tensor.shape[axis] for axis in reduced_axes)
    if not y.is_weight or terms * max_product <= MAX_EXACT_F32_INTEGER:
        return max_product
    array = ctx.require_array(y.tensor, "the weights")
    sums = np.abs(array).sum(axis=reduced_axes, dtype=np.float64)
    sums_fit = x.max_magnitude * sums.max(initial=0) <= MAX_EXACT_F32_INTEGER
    return (
        MAX_EXACT_F32_INTEGER // terms if sums_fit and x.max_magnitude else max_product
    )


def _broadcastable_zero_point(
    ctx: ConversionContext, zero_point: Value, x: Tensor, axis_shape: tuple[int, ...]
) -> Tensor | None:
    tensor = None if zero_point is None else as_integer_tensor(ctx, zero_point)
    if tensor is None:
        return None
    if prod(tensor.shape) == 1:
        return tensor.reshape(())
    return tensor.reshape(axis_shape) if tensor.rank == 1 and axis_shape else tensor


def integer_matmul(
    ctx: ConversionContext, x: Value, y: Value, zero_points: tuple[Value, Value]
) -> Tensor:
    """Return the matrix product of integers less their zero points, i32."""
    x_zero, y_zero = zero_points
    left = _center_integers(ctx, x, x_zero, (-1, 1))
    right = _center_integers(ctx, y, y_zero)
    max_product = _max_product(ctx, left, right, (max(0, right.tensor.rank - 2),))
    left_matrix, right_matrix = left.tensor, right.tensor
    left_is_vector, right_is_vector = left_matrix.rank == 1, right_matrix.rank == 1
    left_matrix = (
        left_matrix.reshape((1, *left_matrix.shape)) if left_is_vector else left_matrix
    )
    right_matrix = (
        right_matrix.reshape((*right_matrix.shape, 1))
        if right_is_vector
        else right_matrix
    )
    product = sum_in_chunks(
        ctx.graph, left_matrix, right_matrix, (-1, -2), max_product, ctx.graph.matmul
    )
    shape = product.shape[:-2] + (() if left_is_vector else product.shape[-2:-1])
    return product.reshape(shape if right_is_vector else (*shape, product.shape[-1]))


@converts("MatMulInteger")
def _matmul_integer(
    ctx: ConversionContext,
    x: Tensor,
    y: Tensor,
    x_zero: Tensor | None = None,
    y_zero: Tensor | None = None,
) -> Tensor:
    return integer_matmul(ctx, x, y, (x_zero, y_zero))


@converts("ConvInteger")
def _conv_integer(
    ctx: ConversionContext,
    x: Tensor,
    w: Tensor,
    x_zero: Tensor | None = None,
    w_zero: Tensor | None = None,
    **weighted_attrs: Unpack[ConvAttributes],
) -> Tensor:
    conv_attrs = conv_arguments(ctx, x, w, weighted_attrs)
    return _integer_conv(ctx, x, w, (x_zero, w_zero), conv_attrs)


def _integer_conv(
    ctx: ConversionContext,
    x: Tensor,
    w: Tensor,
    zero_points: tuple[Value, Value],
    conv_attrs: dict[str, Any],
) -> Tensor:
    centered_x = _center_integers(ctx, x, zero_points[0])
    centered_w = _center_integers(ctx, w, zero_points[1], (-1, *(1,) * (w.rank - 1)))
    max_product = _max_product(ctx, centered_x, centered_w, tuple(range(1, w.rank)))
    return integer_conv(
        ctx.graph, centered_x.tensor, centered_w.tensor, max_product, conv_attrs
    )


def requantize(
    ctx: ConversionContext,
    total: Tensor,
    scale: Tensor,
    zero_point: Value,
    dtype: Any = None,
) -> Value:
    """Multiply i32 sums by a scale and quantise the result with a single zero point."""
    unit_scale = ctx.graph.constant(1.0, "f32")
    result_zero = zero_point
    if zero_point is not None and prod(zero_point.shape) != 1:
        ctx.raise_unsupported(
            f"the zero point of the result has shape {zero_point.shape}",
            "must have 1 element",
        )
    return quantize(ctx, total.cast("f32") * scale, unit_scale, result_zero, dtype)


def scalar_scale(ctx: ConversionContext, scale: Tensor) -> Tensor:
    """Return a scale that must be a single number, f32."""
    if prod(scale.shape) != 1:
        ctx.raise_unsupported(
            f"the scale of the result has shape {scale.shape}",
            "must have 1 element",
        )
    return scale.reshape(()).cast("f32")


def broadcastable_scales(x: Tensor, shape: tuple[int, ...] = (-1,)) -> Tensor:
    """Return scales, f32: a single one, or those of one axis in this shape."""
    scales = x.cast("f32")
    if prod(x.shape) == 1:
        return scales.reshape(())
    return scales.reshape(shape) if x.rank == 1 else scales


@converts("QLinearMatMul")
def _qlinear_matmul(
    ctx: ConversionContext,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Value:
    total = integer_matmul(ctx, a, b, (a_zero, b_zero))
    product_scale = (
        broadcastable_scales(a_scale, (-1, 1))
        * broadcastable_scales(b_scale)
        / scalar_scale(ctx, y_scale)
    )
    return requantize(ctx, total, product_scale, y_zero)


@converts("QLinearConv")
@converts("QLinearConv", domain="com.microsoft")
def _qlinear_conv(
    ctx: ConversionContext,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    bias: Tensor | None = None,
    *,
    channels_last: int = 0,
    **weighted_attrs: Unpack[ConvAttributes],
) -> Value:
    x = ctx.graph.moveaxis(x, -1, 1) if channels_last else x
    conv_attrs = conv_arguments(ctx, x, w, weighted_attrs)
    total = _integer_conv(ctx, x, w, (x_zero, w_zero), conv_attrs)
    channel_shape = (-1, *(1,) * (w.rank - 2))
    if bias is not None:
        total = total + bias.reshape(channel_shape)
    product_scale = (
        scalar_scale(ctx, x_scale)
        * broadcastable_scales(w_scale, channel_shape)
        / scalar_scale(ctx, y_scale)
    )
    result = requantize(ctx, total, product_scale, y_zero)
    return ctx.graph.moveaxis(result, 1, -1) if channels_last else result
