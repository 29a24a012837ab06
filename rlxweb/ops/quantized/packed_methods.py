"""Graph methods for packed weights of a few bits each.

How they lie is in `rlxweb.core.quantized_weights`. Nothing is computed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.core.errors import DTypeError, ShapeError
from rlxweb.core.quantized_weights import group_counts
from rlxweb.ir.dtype import DType
from rlxweb.ir.op_methods import graph_method
from rlxweb.ir.shape_arithmetic import format_shape
from rlxweb.ir.tensor import Tensor

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph


@graph_method
def quantized_matmul(
    g: Graph,
    x: Tensor,
    w: Tensor,
    scales: Tensor,
    biases: Tensor | None = None,
    transpose: bool = True,
    group_size: int = 64,
    bits: int = 4,
) -> Tensor:
    """Return the product x · wᵀ with a matrix whose weights stay packed, a few bits
    each.

    w          words i32 or u32 [N, W], as `rlxweb.quantize` and MLX make them: a
               row's K weights, `bits` each, from the lowest bits on
    scales     of groups of `group_size` weights of a row, [N, G]
    biases     of the same; a weight is code · scale + bias. None: (code -
               2^(bits - 1)) · scale
    transpose  False: x · w, for which the weights are unpacked whole at each run
    bits       2, 4 or 8
    Shapes     x [..., K] → [..., N], or [..., N] → [..., K] without `transpose`;
               G = ceil(K / group_size), W = G · group_size · bits / 32
    Errors     ShapeError, DTypeError, AttributeRefused
    """
    scale_inputs = [scales] if biases is None else [scales, biases]
    attrs: dict[str, Any] = {"bits": bits, "group_size": group_size}
    if transpose:
        return g.apply("quantized_matmul", x, w, *scale_inputs, **attrs)
    return g.matmul(x, g.dequantize(w, scales, biases, **attrs))


@graph_method
def dequantize(
    g: Graph,
    w: Tensor,
    scales: Tensor,
    biases: Tensor | None = None,
    group_size: int = 64,
    bits: int = 4,
) -> Tensor:
    """Unpack weights to floats [..., K] in the dtype of the scales.

    w, scales, biases   as those of `quantized_matmul`, or some rows of them; K is
                        all that w holds
    Errors              ShapeError, DTypeError, AttributeRefused
    """
    context = f"dequantize of {format_shape(w.shape)} {w.dtype}"
    scale_inputs = [scales] if biases is None else [scales, biases]
    k = scales.shape[-1] * group_size if scales.rank else 0
    group_counts(k, bits, group_size)
    scales_shape = (*w.shape[:-1], k // group_size)
    fits = w.rank > 0 and w.shape[-1] * 32 == k * bits
    if not fits or any(tensor.shape != scales_shape for tensor in scale_inputs):
        shapes = ", biases ".join(format_shape(tensor.shape) for tensor in scale_inputs)
        raise ShapeError(
            context,
            f"scales has shape {shapes}",
            f"with group_size={group_size} and bits={bits}, w must have shape "
            f"[..., {k * bits // 32}], and scales and biases must have shape "
            f"{format_shape(scales_shape)}",
        )
    if w.dtype not in (DType.I32, DType.U32):
        raise DTypeError(
            context,
            "w must be i32 or u32",
            hint="pack the weights with rlxweb.quantize",
        )
    return unpack_weights(g, w, *scale_inputs, bits=bits, group_size=group_size)


def unpack_weights(
    g: Graph, words: Tensor, scales: Tensor, *biases: Tensor, bits: int, group_size: int
) -> Tensor:
    """Unpack all weights [..., K] with graph ops, in the dtype of the scales."""
    *rows, groups = scales.shape
    shifts = g.constant(np.arange(0, 32, bits), words.dtype)
    shifted = g.shift_right(g.reshape(words, (*words.shape, 1)), shifts)
    codes = g.bitwise_and(shifted, (1 << bits) - 1)
    values = g.cast(g.reshape(codes, (*rows, groups, group_size)), scales.dtype)
    scale, *bias = (
        g.reshape(tensor, (*tensor.shape, 1)) for tensor in (scales, *biases)
    )
    if bias:
        values = values * scale + bias[0]
    else:
        values = (values - float(1 << (bits - 1))) * scale
    return g.reshape(values, (*rows, groups * group_size))
