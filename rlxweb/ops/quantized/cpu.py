"""NumPy kernel of products with packed weights."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.quantized_weights import dequantize_rows
from rlxweb.ir.op import Attrs
from rlxweb.ops.kernel_variant import KernelVariant, for_every_node

Array = NDArray[Any]
_BLOCK_WEIGHTS: Final = 1 << 18
"""Packed weights that are unpacked at a time: a megabyte in float32."""


def _quantized_matmul(
    attrs: Attrs, x: Array, words: Array, scales: Array, *biases: Array
) -> Array:
    """Multiply x [..., K] by the transpose of packed weights.

    A part of the weights is unpacked where the cache holds it, and BLAS has it from
    there; no more than a part of them is ever floats.
    """
    work_dtype = np.float32 if x.dtype == np.float16 else x.dtype
    n, k = words.shape[0], x.shape[-1]
    out = np.zeros((*x.shape[:-1], n), work_dtype)
    if not out.size or not k:
        return out.astype(x.dtype, copy=False)
    rows, flat_out = x.reshape(-1, k).astype(work_dtype, copy=False), out.reshape(-1, n)
    block_rows = max(1, _BLOCK_WEIGHTS // k)
    for start in range(0, n, block_rows):
        block = slice(start, start + block_rows)
        scale, *bias = (
            array[block].astype(work_dtype, copy=False) for array in (scales, *biases)
        )
        w = dequantize_rows(
            words[block], scale, bias[0] if bias else None, attrs["bits"]
        )
        np.matmul(rows, w[:, :k].T, out=flat_out[:, block])
    return out.astype(x.dtype, copy=False)


KERNELS = (
    KernelVariant(
        "quantized_matmul, unpacked in cache",
        "quantized_matmul",
        for_every_node(_quantized_matmul),
    ),
)
