"""Products with packed weights in NumPy: unpacked some rows at a time.

A part of the weights is unpacked where the cache holds it, and BLAS has it from there;
no more than a part of them is ever floats.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.ir.op import Attrs
from rlxweb.packed_weights import floats_of

Array = NDArray[Any]
AT_ONCE = 1 << 18
"""Weights of a part: a megabyte in float32."""


def quantized_matmul(
    attrs: Attrs, x: Array, words: Array, scales: Array, *biases: Array
) -> Array:
    """X [..., K] times the transpose of the weights."""
    wide = np.float32 if x.dtype == np.float16 else x.dtype
    n, k = words.shape[0], x.shape[-1]
    out = np.zeros((*x.shape[:-1], n), wide)
    if not out.size or not k:
        return out.astype(x.dtype, copy=False)
    rows, made = x.reshape(-1, k).astype(wide, copy=False), out.reshape(-1, n)
    step = max(1, AT_ONCE // k)
    for at in range(0, n, step):
        part = slice(at, at + step)
        scale, *bias = (one[part].astype(wide, copy=False) for one in (scales, *biases))
        w = floats_of(words[part], scale, bias[0] if bias else None, attrs["bits"])
        np.matmul(rows, w[:, :k].T, out=made[:, part])
    return out.astype(x.dtype, copy=False)
