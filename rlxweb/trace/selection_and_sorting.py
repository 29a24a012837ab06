"""NumPy functions that select, order and round values of traced arrays: where, take,
sort, clip, interp.

Masks choose and keep the shape; sorting is the graph's topk of all elements. Creation
of arrays like another is here too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.trace.numpy_dispatch import implements, no_graph_form_error
from rlxweb.trace.reductions import reduction_axes, require_real
from rlxweb.trace.reshaping_and_joining import map_parts, to_common_dtype
from rlxweb.trace.trace import Trace
from rlxweb.trace.trace_errors import trace_error
from rlxweb.trace.traced_array import TracedArray

_INT64, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)


@implements(np.where)
def where(t: Trace, condition: Any, *values: Any) -> Any:
    """Implement `numpy.where` for traced arrays."""
    if len(values) != 2:
        raise no_graph_form_error("np.nonzero")
    x, y = to_common_dtype(t, values, weak=True)
    mask = t.real_tensor(condition, _BOOL)
    if x.im is not None and y.im is not None:
        re, im = t.graph.where(mask, x.re, y.re), t.graph.where(mask, x.im, y.im)
        return TracedArray(t, re, im, x.dtype)
    first, second = x.re, y.re
    if first.dtype is not second.dtype:
        first, second = t.real_tensor(x, x.dtype), t.real_tensor(y, x.dtype)
    return TracedArray(t, _where_tensor(t, mask, first, second), None, x.dtype)


def _where_tensor(t: Trace, mask: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return t.graph.where(mask, x, y)


@implements(np.select)
def _select(t: Trace, condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    result: Any = default
    result_dtype = t.common_dtype([*choicelist, default], weak=True)
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        result = where(
            t,
            condition,
            t.as_traced(choice, result_dtype),
            t.as_traced(result, result_dtype),
        )
    return result


@implements(np.clip)
def _clip(
    t: Trace,
    a: Any,
    a_min: Any = None,
    a_max: Any = None,
    out: Any = None,
    *,
    min: Any = None,
    max: Any = None,
    dtype: Any = None,
) -> Any:
    low = min if a_min is None or a_min is np._NoValue else a_min
    high = max if a_max is None or a_max is np._NoValue else a_max
    result: Any = t.as_traced(a).copy()
    if low is not None and low is not np._NoValue:
        result = np.maximum(result, low)
    if high is not None and high is not np._NoValue:
        result = np.minimum(result, high)
    return result


@implements(np.nan_to_num, accepted="copy")
def _nan_to_num(
    t: Trace,
    x: Any,
    copy: bool = True,
    nan: float = 0.0,
    posinf: Any = None,
    neginf: Any = None,
) -> Any:
    array = require_real(t, x, "np.nan_to_num")
    if array.dtype.kind != "f":
        return array.copy()
    dtype_limits = np.finfo(array.dtype)
    max_value = dtype_limits.max if posinf is None else posinf
    min_value = dtype_limits.min if neginf is None else neginf
    result: Any = np.where(np.isnan(array), array.dtype.type(nan), array)
    result = np.where(array == np.inf, array.dtype.type(max_value), result)
    return np.where(array == -np.inf, array.dtype.type(min_value), result)


@implements(np.isclose)
def _isclose(
    t: Trace,
    a: Any,
    b: Any,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Any:
    x, y = to_common_dtype(t, (a, b))
    if x.dtype.kind in "biu":
        x, y = t.cast(x, np.float64), t.cast(y, np.float64)
    is_close: Any = (np.abs(x - y) <= atol + rtol * np.abs(y)) & np.isfinite(y)
    is_close = is_close | (x == y)
    return is_close | (np.isnan(x) & np.isnan(y)) if equal_nan else is_close


def _coerce_indices(t: Trace, indices: Any) -> Any:
    """Return computed indices as a tensor, other indices as an array."""
    if isinstance(indices, TracedArray):
        if t.require_current(indices).dtype.kind not in "iu":
            raise trace_error(
                "indices", f"the dtype is {indices.dtype}", "indices must be integers"
            )
        return indices.re
    array = np.asarray(indices)
    if isinstance(indices, np.ndarray):
        t.capture(indices, indices)
    return array if array.size else array.astype(np.int32)


@implements(np.take)
def take(
    t: Trace,
    a: Any,
    indices: Any,
    axis: Any = None,
    out: Any = None,
    mode: str = "raise",
) -> Any:
    """Implement `numpy.take` for traced arrays."""
    x, index = t.as_traced(a), _coerce_indices(t, indices)
    if axis is None:
        x, axis = x.reshape(-1), 0
    take_axis = normalize_axis(axis, x.ndim)
    result = map_parts(t, x, lambda part: part.graph.take(part, index, take_axis))
    result.is_view = False
    return result


@implements(np.take_along_axis)
def _take_along_axis(t: Trace, arr: Any, indices: Any, axis: Any = -1) -> Any:
    x, index = t.as_traced(arr), t.as_traced(indices)
    if axis is None:
        x, axis = x.reshape(-1), 0
    index_tensor = (
        index.re if index.re.dtype.is_integer else t.real_tensor(index, _INT64)
    )
    return map_parts(
        t, x, lambda part: part.graph.take_along_axis(part, index_tensor, axis)
    )


@implements(np.argsort)
def _argsort(
    t: Trace,
    a: Any,
    axis: Any = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: Any = None,
) -> Any:
    x = require_real(t, a, "np.argsort")
    if axis is None:
        x, axis = x.reshape(-1), 0
    (sort_axis,) = reduction_axes(axis, x.ndim)
    return TracedArray(t, t.graph.argsort(x.re, sort_axis), None, _INT64)


@implements(np.sort)
def _sort(
    t: Trace,
    a: Any,
    axis: Any = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: Any = None,
) -> Any:
    x = require_real(t, a, "np.sort")
    if axis is None:
        x, axis = x.reshape(-1), 0
    (sort_axis,) = reduction_axes(axis, x.ndim)
    return TracedArray(t, t.graph.sort(x.re, sort_axis), None, x.dtype)


@implements(np.searchsorted)
def _searchsorted(
    t: Trace, a: Any, v: Any, side: str = "left", sorter: Any = None
) -> Any:
    if sorter is not None:
        problem = "sorter= is not supported in a traced function"
        raise trace_error("np.searchsorted", problem, hint="sort the array first")
    table, values = to_common_dtype(t, (a, v))
    common_dtype = table.dtype
    if table.ndim != 1:
        raise trace_error(
            "np.searchsorted", f"a has rank {table.ndim}", "expected rank 1"
        )
    result = t.graph.searchsorted(
        t.real_tensor(table, common_dtype), t.real_tensor(values, common_dtype), side
    )
    return TracedArray(t, result, None, _INT64)


@implements(np.digitize)
def _digitize(t: Trace, x: Any, bins: Any, right: bool = False) -> Any:
    return _searchsorted(t, bins, x, "left" if right else "right")


@implements(np.round, np.around)
def _round(t: Trace, a: Any, decimals: int = 0, out: Any = None) -> Any:
    x: Any = t.as_traced(a)
    if x.dtype.kind in "biu":
        if decimals < 0:
            problem = f"decimals={decimals} is not supported in a traced function"
            rule = f"for {x.dtype}, decimals must be >= 0"
            raise trace_error("np.round", problem, rule)
        return x.copy()
    if not decimals:
        return np.rint(x)
    scale = 10.0 ** abs(decimals)
    return np.rint(x * scale) / scale if decimals > 0 else np.rint(x / scale) * scale


@implements(np.isposinf)
def _isposinf(t: Trace, x: Any, out: Any = None) -> Any:
    return t.as_traced(x) == np.inf


@implements(np.isneginf)
def _isneginf(t: Trace, x: Any, out: Any = None) -> Any:
    return t.as_traced(x) == -np.inf


@implements(np.sinc)
def _sinc(t: Trace, x: Any) -> Any:
    array: Any = t.as_traced(x)
    if array.dtype.kind in "biu":
        array = t.cast(array, np.float64)
    angle: Any = np.pi * array
    is_near_zero: Any = np.abs(angle) < _SINC_SERIES_LIMIT
    square = np.where(is_near_zero, angle * angle, 0)
    series: Any = np.zeros_like(square)
    for term in reversed(_SINC_SERIES):
        series = series * square + term
    safe_angle = np.where(is_near_zero, 1, angle)
    return np.where(is_near_zero, series, np.sin(safe_angle) / safe_angle)


_SINC_SERIES_LIMIT = 1.0
_SINC_SERIES = [(-1) ** k / math.factorial(2 * k + 1) for k in range(13)]
"""Taylor series of sin(x) / x in x².

The quotient has no derivatives at 0 and few digits of them nearby. The terms up to x^24
give the derivatives up to the eighth order all digits of float64.
"""


@implements(np.fix)
def _fix(t: Trace, x: Any, out: Any = None) -> Any:
    return np.trunc(t.as_traced(x))


@implements(np.interp)
def _interp(
    t: Trace,
    x: Any,
    xp: Any,
    fp: Any,
    left: Any = None,
    right: Any = None,
    period: Any = None,
) -> Any:
    if period is not None:
        problem = "period= is not supported in a traced function"
        raise trace_error("np.interp", problem, hint="apply np.mod to x first")
    points, grid, values = (t.cast(t.as_traced(v), np.float64) for v in (x, xp, fp))
    last = grid.shape[0] - 1
    # At the last place the value is exactly the last one, on the line before it.
    interval: Any = np.clip(_searchsorted(t, grid, points, "right") - 1, 0, last)
    lower_index = np.minimum(interval, max(last - 1, 0))
    upper_index = np.minimum(lower_index + 1, last)
    width: Any = take(t, grid, upper_index) - take(t, grid, lower_index)
    rise: Any = take(t, values, upper_index) - take(t, values, lower_index)
    fraction: Any = (points - take(t, grid, interval)) / np.where(width == 0, 1, width)
    # At a place of the table the value beside it, NaN or infinite, does not matter.
    rise = np.where((fraction == 0) & ~np.isfinite(rise), 0, rise)
    result: Any = take(t, values, interval) + rise * fraction
    result = np.where(points < grid[0], values[0] if left is None else left, result)
    result = np.where(points > grid[-1], values[-1] if right is None else right, result)
    return np.where(np.isnan(points), np.nan, result)
