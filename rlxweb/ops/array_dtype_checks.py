"""Dtype checks for arrays of any library: whether an array is of floats, and its NumPy
dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType


def is_float(xp: Any, x: Any) -> bool:
    """Return whether an array of namespace `xp` holds floats."""
    return any(x.dtype == t for t in (xp.float32, xp.float16)) or is_float64(xp, x)


def is_float64(xp: Any, x: Any) -> bool:
    """Return whether an array holds float64, which not every library has."""
    return hasattr(xp, "float64") and bool(x.dtype == xp.float64)


def numpy_dtype(xp: Any, x: Any) -> np.dtype[Any]:
    """Return NumPy's dtype of an array of namespace `xp`."""
    if xp is np:
        dtype: np.dtype[Any] = x.dtype
        return dtype
    return next(d.numpy for d in DType if d is not DType.BF16 and _has_dtype(xp, x, d))


def _has_dtype(xp: Any, x: Any, dtype: DType) -> bool:
    name = "bool_" if dtype is DType.BOOL else dtype.numpy.name
    return hasattr(xp, name) and bool(x.dtype == getattr(xp, name))
