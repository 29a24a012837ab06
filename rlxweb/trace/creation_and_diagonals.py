"""NumPy's triangles, diagonals, `*_like` constructors and shape queries on traced
arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.trace.numpy_dispatch import existing_functions, implements
from rlxweb.trace.reshaping_and_joining import map_parts
from rlxweb.trace.selection_and_sorting import take, where
from rlxweb.trace.trace import Trace
from rlxweb.trace.traced_array import TracedArray

_INT64, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)


def _mask_triangle(t: Trace, m: Any, k: int, keep_lower: bool) -> Any:
    x = _at_least_square(t, m)
    rows, columns = x.shape[-2:]
    mask = np.tri(rows, columns, k if keep_lower else k - 1, dtype=bool)
    zero = t.as_traced(np.zeros((), x.dtype))
    return where(t, mask, *((x, zero) if keep_lower else (zero, x)))


def _at_least_square(t: Trace, m: Any) -> Any:
    x = t.as_traced(m)
    return np.broadcast_to(x, (x.shape[0], x.shape[0])) if x.ndim == 1 else x


@implements(np.tril)
def _tril(t: Trace, m: Any, k: int = 0) -> Any:
    return _mask_triangle(t, m, k, True)


@implements(np.triu)
def _triu(t: Trace, m: Any, k: int = 0) -> Any:
    return _mask_triangle(t, m, k, False)


@implements(np.diagonal)
def diagonal(t: Trace, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Implement `numpy.diagonal` for traced arrays."""
    x = t.as_traced(a)
    axis_pair = (normalize_axis(axis1, x.ndim), normalize_axis(axis2, x.ndim))
    matrices: Any = map_parts(
        t, x, lambda part: part.graph.moveaxis(part, axis_pair, (-2, -1))
    )
    rows, columns = matrices.shape[-2:]
    start = (max(-offset, 0), max(offset, 0))
    count = max(min(rows - start[0], columns - start[1]), 0)
    flat_indices = (np.arange(count) + start[0]) * columns + np.arange(count) + start[1]
    flat = matrices.reshape((*matrices.shape[:-2], rows * columns))
    return take(t, flat, flat_indices, -1)


@implements(np.trace)
def _trace(
    t: Trace,
    a: Any,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: Any = None,
    out: Any = None,
) -> Any:
    return np.sum(diagonal(t, a, offset, axis1, axis2), -1, dtype)


@implements(np.diag)
def _diag(t: Trace, v: Any, k: int = 0) -> Any:
    x = t.as_traced(v)
    if x.ndim != 1:
        return diagonal(t, x, k)
    size = x.shape[0] + abs(k)
    padded: Any = np.pad(x, (max(k, 0), max(-k, 0)))
    diagonal_mask = np.eye(size, k=k, dtype=bool)
    zero = np.zeros((), x.dtype)
    return where(t, diagonal_mask, padded, t.as_traced(zero)) if size else x


# --- arrays like another --------------------------------------------------------------


def _full_array(t: Trace, a: Any, value: Any, dtype: Any, shape: Any) -> Any:
    x = t.as_traced(a)
    result_dtype = x.dtype if dtype is None else t.effective_dtype(dtype)
    if isinstance(shape, int | np.integer):
        shape = (int(shape),)
    scalar = t.as_traced(value, result_dtype)
    result: Any = np.broadcast_to(scalar, x.shape if shape is None else shape)
    result.is_view = False
    return result


@implements(np.full_like)
def _full_like(
    t: Trace,
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Any:
    return _full_array(t, a, fill_value, dtype, shape)


def _register_like(function: Any, value: int) -> None:
    def implementation(
        t: Trace,
        a: Any,
        dtype: Any = None,
        order: str = "K",
        subok: bool = True,
        shape: Any = None,
        *,
        device: Any = None,
    ) -> Any:
        return _full_array(t, a, value, dtype, shape)

    implements(function)(implementation)


for _function, _value in ((np.zeros_like, 0), (np.ones_like, 1), (np.empty_like, 0)):
    _register_like(_function, _value)


@implements(np.copy)
def _copy(t: Trace, a: Any, order: str = "K", subok: bool = False) -> Any:
    return t.as_traced(a).copy()


@implements(*existing_functions("astype"))
def _astype(
    t: Trace, x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None
) -> Any:
    return t.cast(t.as_traced(x), dtype)


@implements(np.shape)
def _shape(t: Trace, a: Any) -> Any:
    return t.as_traced(a).shape


@implements(np.ndim)
def _ndim(t: Trace, a: Any) -> Any:
    return t.as_traced(a).ndim


@implements(np.size)
def _size(t: Trace, a: Any, axis: Any = None) -> Any:
    x = t.as_traced(a)
    return x.size if axis is None else x.shape[axis]


@implements(np.result_type)
def _result_type(t: Trace, *arrays_and_dtypes: Any) -> Any:
    dtypes = [v.dtype if isinstance(v, TracedArray) else v for v in arrays_and_dtypes]
    return t.effective_dtype(np.result_type(*dtypes))
