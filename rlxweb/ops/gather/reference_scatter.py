"""Scatter helpers for references: write or combine values into an array at indices that
may repeat, in any NumPy-like library.

What references of scatters are written with, for every library that stands for NumPy.
No device is known here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ops.array_dtype_checks import is_float
from rlxweb.ops.gather.index_validation import as_take_indices


def scatter_last(xp: Any, flat: Any, indices: Any, values: Any) -> Any:
    """Return a copy with values stored at indices; of several at one index the last
    stays.
    """
    if xp is np:
        out = xp.asarray(flat, copy=True)
        out[indices] = values
        return out
    # Which one is put in last is not said of any other library; a largest number is.
    order = as_take_indices(xp, xp.arange(values.shape[0]), values.shape[0])
    unset = xp.zeros((flat.shape[0],), dtype=order.dtype) - 1
    last_writer = scatter_combine(xp, unset, indices, order, "max")
    last_values = xp.take(
        values, xp.where(last_writer < 0, last_writer * 0, last_writer), axis=0
    )
    return xp.where(last_writer < 0, flat, last_values)


_TORCH_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
_UPDATE_METHODS = {
    "add": ("add",),
    "mul": ("multiply",),
    "max": ("maximum", "max"),
    "min": ("minimum", "min"),
}


def scatter_combine(xp: Any, flat: Any, indices: Any, values: Any, mode: str) -> Any:
    """Combine values into an array at indices that may repeat, in each library's own
    way.
    """
    if hasattr(flat, "scatter_reduce"):  # PyTorch
        wide_indices = xp.asarray(indices, dtype=xp.int64)
        return flat.scatter_reduce(
            0, wide_indices, values, reduce=_TORCH_REDUCTIONS[mode]
        )
    if hasattr(flat, "at"):  # JAX, MLX
        indexed = flat.at[indices]
        name = next(n for n in _UPDATE_METHODS[mode] if hasattr(indexed, n))
        result = getattr(indexed, name)(values)
        if mode in ("max", "min") and is_float(xp, flat):  # MLX's leave NaN out
            zero = xp.zeros_like(values)
            result = result.at[indices].add(xp.where(xp.isnan(values), values, zero))
            result = xp.where(xp.isnan(flat), flat, result)
        return result
    out = xp.asarray(flat, copy=True)
    getattr(xp, _UPDATE_METHODS[mode][0]).at(out, indices, values)
    return out
