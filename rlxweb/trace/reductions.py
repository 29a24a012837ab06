"""NumPy reductions of traced arrays: sums, extremes, moments, cumulative sums.

dtypes are NumPy's: integers are summed in 64 bits and their means are float64, float16
is averaged in float32. An axis is one, several or None for all.
"""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.p_norm import norm_root
from rlxweb.ir.shape_arithmetic import normalize_axes, numel
from rlxweb.ir.sym_int import SymInt
from rlxweb.ir.tensor import Tensor
from rlxweb.trace.complex_ufuncs import make_complex, real_and_imag, square_of_abs
from rlxweb.trace.numpy_dispatch import implements
from rlxweb.trace.trace import Trace, cast_tensor
from rlxweb.trace.trace_errors import trace_error
from rlxweb.trace.traced_array import NumpyDtype, TracedArray

Axis = Any
_INT64, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)


def reduction_axes(axis: Axis, ndim: int) -> tuple[int, ...]:
    """Return the axes that a reduction goes over, counted from the front."""
    if axis is None:
        return tuple(range(ndim))
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    return normalize_axes(axes, ndim) if ndim or axes else ()


def single_axis(axis: Any, ndim: int) -> int:
    """Return the single axis that a cumulative sum goes along. Errors  TypeError for
    several.
    """
    return reduction_axes(index(axis), ndim)[0]


def keeps_dims(keepdims: Any) -> bool:
    """Return whether reduced axes stay, with size 1."""
    return False if keepdims is np._NoValue else bool(keepdims)


def _sum_dtype(t: Trace, x: TracedArray, dtype: Any) -> NumpyDtype:
    if dtype is not None:
        return t.effective_dtype(dtype)
    is_small_integer = x.dtype.kind in "biu" and x.dtype.itemsize < 8
    if not is_small_integer:
        return x.dtype
    return np.dtype(np.uint64) if x.dtype.kind == "u" else _INT64


def _sum_or_product(
    t: Trace,
    op: str,
    x: TracedArray,
    axis: Axis,
    sum_dtype: NumpyDtype,
    keep_dims: bool,
) -> Any:
    """Sum or multiply in a dtype; a sum of bools is a count, which 32 bits hold."""
    axes = reduction_axes(axis, x.ndim)
    operand: Tensor
    if op == "sum" and x.dtype == _BOOL and sum_dtype == _INT64:
        operand = cast_tensor(x.re, DType.I32)
    else:
        operand = t.real_tensor(x, sum_dtype)
    if sum_dtype == np.float16:  # NumPy adds halves up in float32
        operand = cast_tensor(operand, DType.F32)
    result = getattr(t.graph, op)(operand, axes, keep_dims)
    return TracedArray(
        t,
        cast_tensor(result, t.element_dtype(sum_dtype))
        if sum_dtype == np.float16
        else result,
        None,
        sum_dtype,
    )


@implements(np.sum)
def sum_array(
    t: Trace,
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    """Implement `numpy.sum` for traced arrays."""
    x, keep_dims = t.as_traced(a), keeps_dims(keepdims)
    if x.im is not None:
        re, im = (
            sum_array(t, p, axis, None, None, keep_dims) for p in real_and_imag(x)
        )
        return t.cast(make_complex(re, im), dtype or x.dtype)
    result_dtype = _sum_dtype(t, x, dtype)
    if result_dtype.kind == "c":
        return t.cast(sum_array(t, x, axis, None, None, keep_dims), result_dtype)
    return _sum_or_product(t, "sum", x, axis, result_dtype, keep_dims)


@implements(np.prod)
def _prod(
    t: Trace,
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    x = require_real(t, a, "np.prod")
    return _sum_or_product(
        t, "prod", x, axis, _sum_dtype(t, x, dtype), keeps_dims(keepdims)
    )


def require_real(t: Trace, a: Any, function_name: str) -> Any:
    """Return a value as a real traced array. Errors  TraceError for a complex one."""
    x = t.as_traced(a)
    if x.im is not None:
        problem = f"this operation on {x.dtype} is not supported in a traced function"
        raise trace_error(
            function_name, problem, hint="use np.abs(x), x.real or x.imag"
        )
    return x


def _mean_dtypes(t: Trace, x: TracedArray, dtype: Any) -> tuple[NumpyDtype, NumpyDtype]:
    """Return the dtype that a mean is computed in, and the dtype of the result."""
    if dtype is not None:
        return t.effective_dtype(dtype), t.effective_dtype(dtype)
    if x.dtype.kind in "biu":
        result_dtype = t.effective_dtype(np.float64)
        return result_dtype, result_dtype
    return (np.dtype(np.float32) if x.dtype == np.float16 else x.dtype), x.dtype


@implements(np.mean)
def mean(
    t: Trace,
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    where: Any = None,
) -> Any:
    """Implement `numpy.mean` for traced arrays."""
    x, keep_dims = t.as_traced(a), keeps_dims(keepdims)
    if x.im is not None:
        re, im = (mean(t, p, axis, None, None, keep_dims) for p in real_and_imag(x))
        return t.cast(make_complex(re, im), dtype or x.dtype)
    accumulator_dtype, result_dtype = _mean_dtypes(t, x, dtype)
    axes = reduction_axes(axis, x.ndim)
    result = t.graph.mean(t.real_tensor(x, accumulator_dtype), axes, keep_dims)
    return t.cast(TracedArray(t, result, None, accumulator_dtype), result_dtype)


def norm_from_squares(t: Trace, squares: TracedArray) -> TracedArray:
    """Return the square root of real sums of squares, with slope 0 where a sum is 0."""
    result = TracedArray(t, norm_root(t.graph, squares.re), None, squares.dtype)
    result.make_square = lambda: squares.re
    return result


@implements(np.var)
def var(
    t: Trace,
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: Any = False,
    where: Any = None,
    mean: Any = None,
    correction: Any = np._NoValue,
) -> Any:
    """Implement `numpy.var` for traced arrays."""
    x, keep_dims = t.as_traced(a), keeps_dims(keepdims)
    ddof = ddof if correction is np._NoValue else correction
    accumulator_dtype, result_dtype = _mean_dtypes(t, x, dtype)
    axes = reduction_axes(axis, x.ndim)
    x = t.cast(x, accumulator_dtype)
    centre = np.mean(x, axes, keepdims=True) if mean in (None, np._NoValue) else mean
    squared_deviations: Any = square_of_abs(x - centre)
    count = numel([x.shape[a] for a in axes]) - ddof
    if count <= 0:
        problem = f"got {count + ddof} values with ddof={ddof}"
        raise trace_error("np.var", problem, "expected more values than ddof")
    divisor: Any = count if isinstance(count, SymInt) else float(count)
    result = np.sum(squared_deviations, axes, keepdims=keep_dims) / divisor
    return t.cast(result, result.dtype if result_dtype.kind == "c" else result_dtype)


@implements(np.std)
def _std(
    t: Trace,
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: Any = False,
    where: Any = None,
    mean: Any = None,
    correction: Any = np._NoValue,
) -> Any:
    """Implement `numpy.std`; its slope is 0 where all values are equal, as in
    PyTorch.
    """
    x = t.as_traced(a)
    accumulator_dtype, result_dtype = _mean_dtypes(t, x, dtype)
    result = var(
        t,
        t.cast(x, accumulator_dtype),
        axis,
        None,
        None,
        ddof,
        keepdims,
        None,
        mean,
        correction,
    )
    root: Any = norm_from_squares(t, result)
    return t.cast(root, root.dtype if result_dtype.kind == "c" else result_dtype)


def _extreme(t: Trace, op: str, a: Any, axis: Axis, keepdims: Any) -> Any:
    x, keep_dims = require_real(t, a, f"np.{op}"), keeps_dims(keepdims)
    axes = reduction_axes(axis, x.ndim)
    if x.dtype == _BOOL:
        result = getattr(t.graph, op)(cast_tensor(x.re, DType.I32), axes, keep_dims)
        return TracedArray(t, cast_tensor(result, DType.BOOL), None, _BOOL)
    return TracedArray(t, getattr(t.graph, op)(x.re, axes, keep_dims), None, x.dtype)


@implements(np.max, np.amax)
def _max(
    t: Trace,
    a: Any,
    axis: Axis = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    return _extreme(t, "max", a, axis, keepdims)


@implements(np.min, np.amin)
def _min(
    t: Trace,
    a: Any,
    axis: Axis = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    return _extreme(t, "min", a, axis, keepdims)


@implements(np.ptp)
def _ptp(
    t: Trace, a: Any, axis: Axis = None, out: Any = None, keepdims: Any = False
) -> Any:
    return _extreme(t, "max", a, axis, keepdims) - _extreme(t, "min", a, axis, keepdims)


def _any_or_all(t: Trace, op: str, a: Any, axis: Axis, keepdims: Any) -> Any:
    x = t.cast(t.as_traced(a), _BOOL)
    axes = reduction_axes(axis, x.ndim)
    keep_dims = keeps_dims(keepdims)
    if not all(x.shape[a] for a in axes):  # of nothing: any is False, all is True
        count = t.graph.sum(cast_tensor(x.re, DType.I32), axes, keep_dims)
        is_any = 0 if op == "min" else 1
        return TracedArray(
            t, t.graph.ne(count, is_any - 0) if is_any else t.graph.gt(count, 0)
        )
    result = getattr(t.graph, op)(cast_tensor(x.re, DType.I32), axes, keep_dims)
    return TracedArray(t, cast_tensor(result, DType.BOOL), None, _BOOL)


@implements(np.any)
def _any(
    t: Trace,
    a: Any,
    axis: Axis = None,
    out: Any = None,
    keepdims: Any = False,
    where: Any = None,
) -> Any:
    return _any_or_all(t, "max", a, axis, keepdims)


@implements(np.all)
def _all(
    t: Trace,
    a: Any,
    axis: Axis = None,
    out: Any = None,
    keepdims: Any = False,
    where: Any = None,
) -> Any:
    return _any_or_all(t, "min", a, axis, keepdims)


@implements(np.count_nonzero)
def _count_nonzero(t: Trace, a: Any, axis: Axis = None, keepdims: Any = False) -> Any:
    return sum_array(t, t.cast(t.as_traced(a), _BOOL), axis, None, None, keepdims)


def _arg_extreme(t: Trace, op: str, a: Any, axis: Axis, keepdims: Any) -> Any:
    """Return the index of the first extreme; NaN counts as an extreme, as in NumPy."""
    x = require_real(t, a, f"np.arg{op}")
    g, shape = t.graph, x.shape
    operand = cast_tensor(x.re, DType.I32) if x.dtype == _BOOL else x.re
    search_axis = 0
    if axis is None:
        operand = g.reshape(operand, (-1,))
    else:
        (search_axis,) = reduction_axes(axis, x.ndim)
    if not operand.rank:
        operand = g.reshape(operand, (1,))
    count = operand.shape[search_axis]
    is_extreme = g.eq(operand, getattr(g, op)(operand, search_axis, True))
    if operand.dtype.is_float:
        is_extreme = g.logical_or(is_extreme, g.isnan(operand))
    index_shape = [1] * operand.rank
    index_shape[search_axis] = count
    indices = g.reshape(_index_range(g, count), index_shape)
    result = g.min(
        g.where(is_extreme, indices, g.constant(count, DType.I32)), search_axis, False
    )
    if keeps_dims(keepdims):
        kept_shape = [1] * len(shape) if axis is None else list(shape)
        if axis is not None:
            kept_shape[search_axis] = 1
        result = g.reshape(result, kept_shape)
    return TracedArray(t, result, None, _INT64)


def _index_range(g: Any, count: Any) -> Tensor:
    """Return 0, 1, … up to a count, which may be symbolic."""
    result: Tensor
    if isinstance(count, SymInt):
        ones = g.expand(g.constant(1, DType.I32), (count,))
        result = g.cumsum(ones, 0, exclusive=True)
    else:
        result = g.constant(np.arange(count, dtype=np.int32))
    return result


@implements(np.argmax)
def _argmax(
    t: Trace, a: Any, axis: Axis = None, out: Any = None, keepdims: Any = False
) -> Any:
    return _arg_extreme(t, "max", a, axis, keepdims)


@implements(np.argmin)
def _argmin(
    t: Trace, a: Any, axis: Axis = None, out: Any = None, keepdims: Any = False
) -> Any:
    return _arg_extreme(t, "min", a, axis, keepdims)


@implements(np.cumprod)
def _cumprod(
    t: Trace, a: Any, axis: Axis = None, dtype: Any = None, out: Any = None
) -> Any:
    x = require_real(t, a, "np.cumprod")
    if axis is None:
        x, axis = x.reshape(-1), 0
    result_dtype = _sum_dtype(t, x, dtype)
    result = t.graph.cumprod(t.real_tensor(x, result_dtype), single_axis(axis, x.ndim))
    return TracedArray(t, result, None, result_dtype)


@implements(np.cumsum)
def cumsum(
    t: Trace, a: Any, axis: Axis = None, dtype: Any = None, out: Any = None
) -> Any:
    """Implement `numpy.cumsum` for traced arrays."""
    x = t.as_traced(a)
    if x.im is not None:
        re, im = (cumsum(t, p, axis) for p in real_and_imag(x))
        return t.cast(make_complex(re, im), dtype or x.dtype)
    if axis is None:
        x, axis = x.reshape(-1), 0
    result_dtype = _sum_dtype(t, x, dtype)
    counts_bools = x.dtype == _BOOL and result_dtype == _INT64
    operand = (
        cast_tensor(x.re, DType.I32) if counts_bools else t.real_tensor(x, result_dtype)
    )
    result = t.graph.cumsum(operand, single_axis(axis, x.ndim))
    return TracedArray(t, result, None, result_dtype)
