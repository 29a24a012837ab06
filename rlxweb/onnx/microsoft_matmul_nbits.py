"""Converter of MatMulNBits of com.microsoft: a product with packed weights that stay
packed.

B as bytes is the layout of `rlxweb.core.quantized_weights`, so its words are the file's
own bytes, mapped from there. Zero points become biases, -zero · scale; without them
codes count from 2^(bits - 1) in ONNX Runtime as here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from hashlib import sha256
from math import prod

import numpy as np

from rlxweb.core.quantized_weights import BITS, unpack_codes
from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, Value, converts
from rlxweb.onnx.microsoft_fused import MICROSOFT_DOMAIN
from rlxweb.onnx.quantized import Array


@converts("MatMulNBits", domain=MICROSOFT_DOMAIN)
def _matmul_nbits(
    ctx: ConversionContext,
    x: Tensor,
    b: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    g_idx: Value = None,
    bias: Tensor | None = None,
    *,
    K: int,
    N: int,
    bits: int = 4,
    block_size: int = 32,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> Tensor:
    """Convert a product with packed weights. `accuracy_level` merely permits rounding
    x, so it is ignored.
    """
    if g_idx is not None:
        ctx.raise_unsupported(
            "input g_idx is not supported",
            "the weights that share a scale must be contiguous along K",
        )
    if weight_prepacked:
        ctx.raise_unsupported(
            f"weight_prepacked is {weight_prepacked}",
            "must be 0: only one ONNX Runtime kernel can read prepacked weights",
        )
    if bits not in BITS or block_size < 16 or block_size & (block_size - 1):
        ctx.raise_unsupported(
            f"bits={bits}, block_size={block_size}",
            "bits must be 2, 4 or 8, and block_size a power of 2 >= 16",
        )
    groups = -(-K // block_size)
    row_nbytes = groups * block_size * bits // 8
    if b.dtype is not DType.U8 or prod(b.shape) != N * row_nbytes:
        ctx.raise_invalid_model(
            f"B is {b.dtype} {list(b.shape)}",
            f"must be u8 with {N} rows of {row_nbytes} bytes",
        )
    if prod(scales.shape) != N * groups:
        ctx.raise_invalid_model(
            f"scales has shape {list(scales.shape)}", f"must be [{N}, {groups}]"
        )
    words = _derive_constant(
        ctx,
        b,
        ("words", N, row_nbytes),
        DType.I32,
        (N, row_nbytes // 4),
        _view_as_words,
    )
    if zero_points is None:
        scales_and_biases = [ctx.graph.reshape(scales, (N, groups))]
    else:
        scales_and_biases = _scales_and_biases(
            ctx, scales, zero_points, (N, groups), bits
        )
    y = ctx.graph.apply(
        "quantized_matmul",
        x,
        words,
        *scales_and_biases,
        bits=bits,
        group_size=block_size,
    )
    return y if bias is None else y + bias


def _view_as_words(packed_bytes: Array) -> Array:
    return np.ascontiguousarray(packed_bytes).reshape(-1).view("<i4")


def _scales_and_biases(
    ctx: ConversionContext,
    scales: Tensor,
    zero_points: Tensor,
    shape: tuple[int, int],
    bits: int,
) -> list[Tensor]:
    """Return scales and biases in f32, as f16 cannot hold every bias of 8-bit codes."""
    n, groups = shape
    zero_codes = ctx.require_array(zero_points, "the zero points")
    if zero_points.dtype is DType.U8:
        row_nbytes = -(-groups * bits // 8)
        if zero_codes.size != n * row_nbytes:
            ctx.raise_invalid_model(
                f"got {zero_codes.size} bytes of zero points",
                f"expected {n * row_nbytes}: {n} rows of {row_nbytes} bytes",
            )
        zero_codes = _unpack_rows(zero_codes.reshape(n, row_nbytes), bits)[:, :groups]
    elif zero_codes.size != n * groups:
        ctx.raise_invalid_model(
            f"got {zero_codes.size} zero points", f"expected {n * groups}"
        )
    zero_f32 = zero_codes.reshape(n, groups).astype(np.float32)

    def to_f32(array: Array) -> Array:
        return array.reshape(n, groups).astype(np.float32)

    def compute_biases(array: Array) -> Array:
        return -zero_f32 * to_f32(array)

    biases_key = ("biases", shape, sha256(zero_f32.tobytes()).digest())
    return [
        _derive_constant(ctx, scales, ("scales", shape), DType.F32, shape, to_f32),
        _derive_constant(ctx, scales, biases_key, DType.F32, shape, compute_biases),
    ]


def _unpack_rows(packed_bytes: Array, bits: int) -> Array:
    """Unpack the codes of rows of bytes that need not fill whole words."""
    padding = -packed_bytes.shape[1] % 4
    padded = np.pad(packed_bytes, ((0, 0), (0, padding)))
    return unpack_codes(np.ascontiguousarray(padded).view("<i4"), bits)


def _derive_constant(
    ctx: ConversionContext,
    x: Tensor,
    key: Hashable,
    dtype: DType,
    shape: tuple[int, int],
    function: Callable[[Array], Array],
) -> Tensor:
    """Return `function` of a constant: of a weight lazily when it is read, of another
    known value at once.
    """
    derived = ctx.graph.derive_weight(
        x, key, dtype, lambda a: function(a).reshape(shape), shape
    )
    if derived is not None:
        return derived
    return ctx.graph.add_constant(
        function(ctx.require_array(x, "the packed weight")).reshape(shape)
    )
