"""Converter of GatherBlockQuantized of com.microsoft: rows of a table of packed codes.

The table stays as small as it is: its bytes are words of 32 bits, of which the rows
that are wanted are picked, and only they are taken apart and become floats.
"""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.ir.dtype import DType
from rlxweb.ir.shape_arithmetic import Shape, format_shape, normalize_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, Value, converts
from rlxweb.onnx.microsoft_fused import MICROSOFT_DOMAIN
from rlxweb.onnx.quantized import as_integer_tensor, onnx_dtype
from rlxweb.onnx.sub_byte import SubByteTensor, bit_width

Array = npt.NDArray[Any]


@converts("GatherBlockQuantized", domain=MICROSOFT_DOMAIN)
def _gather_block_quantized(
    ctx: ConversionContext,
    table: Value,
    indices: Tensor,
    scales: Tensor,
    zero_points: Value = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Tensor:
    g, table_tensor = ctx.graph, as_integer_tensor(ctx, table)
    if table_tensor is None or table_tensor.dtype not in (DType.I8, DType.U8):
        ctx.raise_unsupported(
            f"input 'data' has dtype {onnx_dtype(table)}",
            "must be an integer dtype of up to 8 bits",
        )
    if isinstance(table, SubByteTensor):
        bits = bit_width(table.dtype)
    if bits not in (2, 4, 8):
        ctx.raise_invalid_model(f"bits={bits}", "must be 2, 4 or 8")
    last_axis = table_tensor.rank - 1
    axes = (
        normalize_axis(gather_axis, table_tensor.rank),
        normalize_axis(quantize_axis, table_tensor.rank),
    )
    if axes != (0, last_axis) or not last_axis:
        ctx.raise_unsupported(
            f"gather_axis is {axes[0]} and quantize_axis is {axes[1]} for data of "
            f"rank {table_tensor.rank}",
            "gather_axis must be 0, quantize_axis the last axis, and the rank at least "
            "2",
        )
    columns, is_packed = table_tensor.shape[-1], not isinstance(table, SubByteTensor)
    if is_packed:
        columns *= 8 // bits
    blocks = ceil(columns / block_size)
    if scales.shape != (*table_tensor.shape[:-1], blocks):
        ctx.raise_invalid_model(
            f"scales has shape {format_shape(scales.shape)}",
            f"must be {format_shape((*table_tensor.shape[:-1], blocks))}",
        )
    codes = _gather_codes(ctx, table_tensor, indices, (bits, columns, is_packed))
    row_scales = g.gather(scales.cast("f32"), indices)
    default_zero = (
        0 if not is_packed and table_tensor.dtype is DType.U8 else 1 << (bits - 1)
    )
    row_zeros = _zero_points(
        ctx,
        zero_points,
        (*table_tensor.shape[:-1], blocks),
        (bits, is_packed, default_zero),
    )
    row_zeros = (
        g.expand(row_zeros, row_scales.shape)
        if not row_zeros.rank
        else g.gather(row_zeros, indices)
    )
    rows = g.dequantize_linear(
        codes, row_scales, row_zeros, axis=-1, block_size=block_size
    )
    return rows.cast(scales.dtype)


def _pack_words(array: Array, bits: int, is_packed: bool) -> Array:
    """Pack unsigned codes into words, the first code in the lowest bits; short rows are
    padded with 0.

    is_packed  bytes of several codes each; else one signed or unsigned number each
    """
    if not is_packed:
        codes = array.astype(np.int32) + _code_offset(array.dtype, bits)
        padded_length = -(-codes.shape[-1] * bits // 8) * (8 // bits)
        codes = _pad_last_axis(codes.astype(np.uint8), padded_length)
        byte_codes = codes.reshape(*codes.shape[:-1], -1, 8 // bits)
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        array = np.bitwise_or.reduce(byte_codes << shifts, axis=-1)
    padded_length = -(-array.shape[-1] // 4) * 4
    return (
        np.ascontiguousarray(_pad_last_axis(array, padded_length))
        .view("<u4")
        .astype(np.uint32)
    )


def _pad_last_axis(array: Array, length: int) -> Array:
    padding = length - array.shape[-1]
    return (
        np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, padding)])
        if padding
        else array
    )


def _code_offset(dtype: np.dtype[Any], bits: int) -> int:
    """Return the offset added to values of a signed type so that codes begin at 0."""
    return 1 << (bits - 1) if dtype.kind == "i" else 0


def _gather_codes(
    ctx: ConversionContext,
    table_tensor: Tensor,
    indices: Tensor,
    layout: tuple[int, int, bool],
) -> Tensor:
    """Return the codes, i32, of the selected rows."""
    g, (bits, columns, is_packed) = ctx.graph, layout
    shape = (*table_tensor.shape[:-1], ceil(columns * bits / 32))
    words = g.derive_weight(
        table_tensor,
        ("words", bits),
        DType.U32,
        lambda array: _pack_words(array, bits, is_packed),
        shape,
    )
    if words is None:
        ctx.raise_unsupported(
            "input 'data' is not a weight of the model",
            "input 'data' must be an initializer",
        )
    rows = g.gather(words, indices)
    codes_by_shift = [
        g.bitwise_and(
            g.shift_right(rows, g.constant(np.uint32(shift))),
            g.constant(np.uint32((1 << bits) - 1)),
        )
        for shift in range(0, 32, bits)
    ]
    interleaved = g.stack(codes_by_shift, axis=rows.rank)
    flat = g.reshape(
        interleaved, (*rows.shape[:-1], rows.shape[-1] * len(codes_by_shift))
    )
    return g.narrow(flat, flat.rank - 1, 0, columns).cast("i32")


def _zero_points(
    ctx: ConversionContext,
    zero_points: Value,
    shape: Shape,
    layout: tuple[int, bool, int],
) -> Tensor:
    """Return the zero points, i32: one for all, or one for each block."""
    g, (bits, is_packed, default_zero) = ctx.graph, layout
    zero_tensor = None if zero_points is None else as_integer_tensor(ctx, zero_points)
    if zero_tensor is None:
        return g.constant(np.int32(default_zero))

    def unpack_array(array: Array) -> Array:
        if not is_packed:
            return array.astype(np.int32) + _code_offset(array.dtype, bits)
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        codes = (array[..., None] >> shifts) & np.uint8((1 << bits) - 1)
        return codes.reshape(*array.shape[:-1], -1)[..., : shape[-1]]

    unpacked = g.derive_weight(
        zero_tensor, ("zeros", bits), DType.I32, unpack_array, shape
    )
    if unpacked is None:
        ctx.raise_unsupported(
            "input 'zero_points' is not a weight of the model",
            "input 'zero_points' must be an initializer",
        )
    return unpacked
