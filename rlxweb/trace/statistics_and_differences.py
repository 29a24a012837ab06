"""NumPy's differences, NaN-ignoring reductions, covariance and quantiles of traced
arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir.shape_arithmetic import numel
from rlxweb.trace.complex_ufuncs import square_of_abs
from rlxweb.trace.numpy_dispatch import implements
from rlxweb.trace.reductions import (
    Axis,
    keeps_dims,
    mean,
    norm_from_squares,
    reduction_axes,
    require_real,
)
from rlxweb.trace.trace import Trace
from rlxweb.trace.trace_errors import trace_error
from rlxweb.trace.traced_array import TracedArray


@implements(np.diff)
def _diff(
    t: Trace,
    a: Any,
    n: int = 1,
    axis: int = -1,
    prepend: Any = None,
    append: Any = None,
) -> Any:
    x = t.as_traced(a)
    (diff_axis,) = reduction_axes(axis, x.ndim)
    boundary_values = [
        p for p in (prepend, append) if p is not None and p is not np._NoValue
    ]
    if boundary_values:
        raise trace_error(
            "np.diff",
            "prepend= and append= are not supported in a traced function",
            hint="extend the array with np.concatenate",
        )
    for _ in range(n):
        leading_slices = (slice(None),) * diff_axis
        later = x[(*leading_slices, slice(1, None))]
        earlier = x[(*leading_slices, slice(None, -1))]
        x = later != earlier if x.dtype == np.bool_ else later - earlier
    return x


@implements(np.trapezoid)
def _trapezoid(t: Trace, y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    samples = t.as_traced(y)
    (sum_axis,) = reduction_axes(axis, samples.ndim)
    leading_slices = (slice(None),) * sum_axis
    pairs: Any = (
        samples[(*leading_slices, slice(1, None))]
        + samples[(*leading_slices, slice(None, -1))]
    )
    if x is None:
        return (pairs * (dx / 2)).sum(sum_axis)
    steps: Any = np.diff(t.as_traced(x), axis=-1 if np.ndim(x) == 1 else axis)
    if steps.ndim == 1:
        steps = steps.reshape((-1, *(1,) * (samples.ndim - sum_axis - 1)))
    return (pairs * steps / 2).sum(sum_axis)


@implements(np.average)
def _average(
    t: Trace, a: Any, axis: Axis = None, weights: Any = None, *, keepdims: Any = False
) -> Any:
    return mean(t, a, axis, None, None, keepdims)


def _replace_nan_before(op: Any, fill: float) -> Any:
    def implementation(
        t: Trace,
        a: Any,
        axis: Axis = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = False,
    ) -> Any:
        x = t.as_traced(a)
        filled: Any = x if x.dtype.kind in "biu" else np.where(np.isnan(x), fill, x)
        return op(filled, axis, dtype, keepdims=keeps_dims(keepdims))

    return implementation


implements(np.nansum)(_replace_nan_before(np.sum, 0.0))
implements(np.nanprod)(_replace_nan_before(np.prod, 1.0))


@implements(np.nanmean)
def _nanmean(
    t: Trace,
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    where: Any = None,
) -> Any:
    x = t.as_traced(a)
    if x.dtype.kind in "biu":
        return mean(t, x, axis, dtype, None, keepdims)
    keep_dims = keeps_dims(keepdims)
    is_valid: Any = ~np.isnan(x)
    count = is_valid.sum(axis, keepdims=keep_dims).astype(x.dtype)
    return np.where(is_valid, x, 0).sum(axis, dtype, keepdims=keep_dims) / count


def _nan_ignoring_extreme(function: Any, fill: float) -> Any:
    def implementation(
        t: Trace,
        a: Any,
        axis: Axis = None,
        out: Any = None,
        keepdims: Any = False,
    ) -> Any:
        x = t.as_traced(a)
        if x.dtype.kind in "biu":
            return function(x, axis, keepdims=keeps_dims(keepdims))
        is_empty: Any = np.isnan(x)
        result = function(
            np.where(is_empty, fill, x), axis, keepdims=keeps_dims(keepdims)
        )
        return np.where(
            is_empty.all(axis, keepdims=keeps_dims(keepdims)), np.nan, result
        )

    return implementation


implements(np.nanmax)(_nan_ignoring_extreme(np.max, -np.inf))
implements(np.nanmin)(_nan_ignoring_extreme(np.min, np.inf))


@implements(np.nanvar)
def nanvar(
    t: Trace,
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: Any = False,
) -> Any:
    """Implement `numpy.nanvar` for traced arrays."""
    x = t.as_traced(a)
    if x.dtype.kind in "biu":
        return np.var(x, axis, dtype, ddof=ddof, keepdims=keeps_dims(keepdims))
    is_valid: Any = ~np.isnan(x)
    centre = _nanmean(t, x, axis, keepdims=True)
    deviations: Any = np.where(is_valid, x - centre, 0)
    squares: Any = square_of_abs(deviations)
    count = (
        is_valid.sum(axis, keepdims=keeps_dims(keepdims)).astype(squares.dtype) - ddof
    )
    is_empty: Any = count <= 0
    sums = squares.sum(axis, keepdims=keeps_dims(keepdims))
    return np.where(is_empty, np.nan, sums / np.where(is_empty, 1, count))


@implements(np.nanstd)
def _nanstd(
    t: Trace,
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: Any = False,
) -> Any:
    """Implement `numpy.nanstd`, with the slope of `numpy.std`."""
    return norm_from_squares(t, nanvar(t, a, axis, dtype, None, ddof, keepdims))


@implements(np.cov)
def cov(
    t: Trace,
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: Any = None,
    fweights: Any = None,
    aweights: Any = None,
) -> Any:
    """Implement `numpy.cov` for traced arrays."""
    if fweights is not None or aweights is not None:
        raise trace_error("np.cov", "weights are not supported in a traced function")
    x = require_real(t, m, "np.cov")
    x = t.cast(x, t.common_dtype([x, np.zeros(0)]))  # at least float64, as NumPy
    rows = x.reshape((1, -1)) if x.ndim == 1 else x
    rows = rows if rowvar or x.ndim == 1 else rows.T
    if y is not None:
        other = t.cast(t.as_traced(y), x.dtype)
        needs_transpose = other.ndim > 1 and not rowvar
        other = other.reshape((1, -1)) if other.ndim == 1 else other
        rows = np.concatenate([rows, other.T if needs_transpose else other])
    delta_dof = (0 if bias else 1) if ddof is None else ddof
    centred: Any = rows - rows.mean(axis=1, keepdims=True)
    covariance: Any = centred @ centred.T / (rows.shape[1] - delta_dof)
    return np.squeeze(covariance) if covariance.shape == (1, 1) else covariance


@implements(np.corrcoef)
def _corrcoef(t: Trace, x: Any, y: Any = None, rowvar: bool = True) -> Any:
    covariance = cov(t, x, y, rowvar)
    if not covariance.ndim:
        return covariance / covariance
    deviations: Any = np.sqrt(np.diagonal(covariance))
    return np.clip(covariance / deviations[:, None] / deviations[None, :], -1, 1)


@implements(np.gradient)
def _gradient(
    t: Trace, f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1
) -> Any:
    x = t.as_traced(f)
    if x.dtype.kind in "biu":
        x = t.cast(x, np.float64)
    axes = reduction_axes(axis, x.ndim)
    steps = list(varargs) * len(axes) if len(varargs) == 1 else list(varargs)
    steps = steps or [1.0] * len(axes)
    are_numbers = all(isinstance(spacing, int | float) for spacing in steps)
    if edge_order != 1:
        problem = f"edge_order={edge_order} is not supported in a traced function"
        raise trace_error("np.gradient", problem, hint="pass edge_order=1")
    if not are_numbers or len(steps) != len(axes):
        problem = f"got {len(steps)} spacings for {len(axes)} axes"
        if not are_numbers:
            problem = "a spacing is not a Python number"
        rule = "each spacing must be a Python number: one for all axes, or one per axis"
        raise trace_error("np.gradient", problem, rule)
    gradients = [
        _finite_differences(x, gradient_axis, step)
        for gradient_axis, step in zip(axes, steps, strict=True)
    ]
    return gradients[0] if len(gradients) == 1 else tuple(gradients)


def _finite_differences(x: Any, axis: int, step: float) -> Any:
    leading_slices = (slice(None),) * axis

    def slice_axis(start: int | None, stop: int | None) -> Any:
        return x[(*leading_slices, slice(start, stop))]

    middle = (slice_axis(2, None) - slice_axis(None, -2)) / (2.0 * step)
    begin = (slice_axis(1, 2) - slice_axis(0, 1)) / step
    end = (slice_axis(-1, None) - slice_axis(-2, -1)) / step
    return np.concatenate([begin, middle, end], axis=axis)


@implements(np.unwrap)
def _unwrap(
    t: Trace, p: Any, discont: Any = None, axis: int = -1, *, period: float = 2 * np.pi
) -> Any:
    x = t.as_traced(p)
    if x.dtype.kind in "biu" and isinstance(period, float):
        x = t.cast(x, np.float64)
    (unwrap_axis,) = reduction_axes(axis, x.ndim)
    max_jump = period / 2 if discont is None else discont
    leading_slices = (slice(None),) * unwrap_axis
    steps: Any = np.diff(x, axis=unwrap_axis)
    wrapped_steps: Any = np.mod(steps + period / 2, period) - period / 2
    wrapped_steps = np.where(
        (wrapped_steps == -period / 2) & (steps > 0), period / 2, wrapped_steps
    )
    corrections = np.where(np.abs(steps) < max_jump, 0, wrapped_steps - steps).cumsum(
        unwrap_axis
    )
    rest = x[(*leading_slices, slice(1, None))] + corrections
    return np.concatenate([x[(*leading_slices, slice(0, 1))], rest], axis=unwrap_axis)


@implements(np.polyval)
def _polyval(t: Trace, p: Any, x: Any) -> Any:
    coefficients, points = t.as_traced(p), t.as_traced(x)
    result: Any = np.zeros_like(points)
    for n in range(coefficients.shape[0]):
        result = result * points + coefficients[n]
    return result


def _sorted_rows(t: Trace, name: str, a: Any, axis: Axis) -> tuple[Any, Any]:
    """Return a real array, and its values along the axes sorted, as the last axis."""
    x = require_real(t, a, name)
    axes = reduction_axes(axis, x.ndim)
    kept_axes = [n for n in range(x.ndim) if n not in axes]
    count = numel([x.shape[n] for n in axes])
    if not isinstance(count, int) or not count:
        problem = f"got {count} values"
        rule = (
            "expected at least one value; the number of values must be known while "
            "tracing"
        )
        raise trace_error(name, problem, rule)
    rows = x.transpose((*kept_axes, *axes)).reshape(
        (*(x.shape[n] for n in kept_axes), count)
    )
    return x, np.sort(rows, axis=-1)


def _restore_axes(result: Any, x: Any, axis: Axis, keepdims: Any) -> Any:
    """Return a result with the reduced axes as 1 where they are kept."""
    if not keeps_dims(keepdims):
        return result
    axes = reduction_axes(axis, x.ndim)
    return result.reshape([1 if n in axes else d for n, d in enumerate(x.shape)])


def _take_sorted(t: Trace, rows: Any, indices: Any, counts: Any) -> Any:
    """Return the sorted values at indices that depend on the number of valid values.

    indices  the place in a row for each number of valid values, from 0 on
    counts   the number of valid values in each row; None: all are valid
    """
    if counts is None:
        return rows[..., int(indices[-1])]
    row_indices = np.take(t.as_traced(indices.astype(np.int32)), counts)
    return np.take_along_axis(rows, row_indices[..., None], -1)[..., 0]


def _valid_counts(rows: Any, without_nan: bool) -> Any:
    """Return the number of valid values in each row; None where all are valid."""
    if not without_nan or rows.dtype.kind != "f":
        return None
    return np.sum(~np.isnan(rows), axis=-1)


def _propagate_nan(result: Any, rows: Any, without_nan: bool) -> Any:
    """Replace the result of each row that holds a NaN by NaN; sorting puts NaN last."""
    if without_nan or rows.dtype.kind != "f":
        return result
    return np.where(np.isnan(rows[..., -1]), np.nan, result)


def _compute_median(
    t: Trace, name: str, a: Any, axis: Axis, keepdims: Any, without_nan: bool
) -> Any:
    """Return the median: the middle value, or the mean of the two middle values."""
    x, rows = _sorted_rows(t, name, a, axis)
    valid_counts = np.arange(rows.shape[-1] + 1)
    counts = _valid_counts(rows, without_nan)
    middle_values = [
        _take_sorted(t, rows, np.maximum(indices, 0), counts)
        for indices in ((valid_counts - 1) // 2, valid_counts // 2)
    ]
    result = np.mean(np.stack(middle_values), axis=0)
    return _restore_axes(_propagate_nan(result, rows, without_nan), x, axis, keepdims)


_PLOTTING_POSITIONS = {
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}
"""Plotting positions (alpha, beta) of the interpolating quantile methods (Hyndman and
Fan 1996), as in NumPy.
"""
_INTERPOLATED_METHODS = (
    "linear",
    "midpoint",
    "averaged_inverted_cdf",
    *_PLOTTING_POSITIONS,
)
_DISCRETE_METHODS = (
    "inverted_cdf",
    "closest_observation",
    "lower",
    "higher",
    "nearest",
)


def _discrete_index(method: str, n: Any, q: Any) -> Any:
    """Return the index of a quantile that is one of `n` sorted values, for each n."""
    if method in ("lower", "higher", "nearest"):
        position = (n - 1) * q
        if method == "lower":
            return np.floor(position)
        return np.ceil(position) if method == "higher" else np.around(position)
    is_closest = method == "closest_observation"
    position = n * q - (1.5 if is_closest else 1)
    low = np.floor(position)
    is_exact = (position == low) & ((low % 2 == 1) | (not is_closest))
    return np.where(is_exact, low, low + 1)


def _interpolated_index(method: str, n: Any, q: Any) -> tuple[Any, Any]:
    """Return the index below a quantile of `n` sorted values, and the fraction beyond
    it.

    These are NumPy's formulas, so that no rounding differs.
    """
    position = (n - 1) * q
    if method == "midpoint":
        position = 0.5 * (np.floor(position) + np.ceil(position))
    elif method == "averaged_inverted_cdf":
        position = n * q - 1
    elif method in _PLOTTING_POSITIONS:
        alpha, beta = _PLOTTING_POSITIONS[method]
        position = n * q + (alpha + q * (1 - alpha - beta)) - 1
    low = np.floor(position)
    fraction = position - low
    if method == "midpoint":
        fraction = np.where(position % 1 == 0, 0.0, 0.5)
    elif method == "averaged_inverted_cdf":
        fraction = np.where(fraction == 0, 0.5, 1.0)
    return low, fraction.astype(position.dtype)


def _row_quantile(
    t: Trace, rows: Any, q: Any, method: str, without_nan: bool, is_weak: bool
) -> Any:
    """Return one quantile of each row; a weak `q` does not widen the dtype."""
    n = np.arange(rows.shape[-1] + 1, dtype=np.asarray(q).dtype)
    last = np.maximum(n - 1, 0)
    counts = _valid_counts(rows, without_nan)
    if method in _DISCRETE_METHODS:
        indices = np.clip(_discrete_index(method, n, q), 0, last)
        result = _take_sorted(t, rows, indices, counts)
        return _propagate_nan(result, rows, without_nan)
    low, fraction = _interpolated_index(method, n, q)
    lower = _take_sorted(t, rows, np.clip(low, 0, last), counts)
    upper = _take_sorted(t, rows, np.clip(low + 1, 0, last), counts)
    step = upper - lower
    # From the nearer neighbour, as NumPy: no rounding error at the farther one, and
    # infinity where that is infinite.
    if counts is None:
        weight = float(fraction[-1]) if is_weak else fraction[-1]
        is_upper_nearer = weight >= 0.5
        result = (
            upper - step * (1 - weight) if is_upper_nearer else lower + step * weight
        )
    else:
        weights = fraction.astype(rows.dtype) if is_weak else fraction
        row_weights = np.take(t.as_traced(weights), counts)
        result = np.where(
            row_weights >= 0.5,
            upper - step * (1 - row_weights),
            lower + step * row_weights,
        )
    return _propagate_nan(result, rows, without_nan)


def _register_median(function: Any, name: str, without_nan: bool) -> None:
    @implements(function)
    def implementation(
        t: Trace,
        a: Any,
        axis: Axis = None,
        out: Any = None,
        overwrite_input: bool = False,
        keepdims: Any = False,
    ) -> Any:
        return _compute_median(t, name, a, axis, keepdims, without_nan)


_register_median(np.median, "np.median", False)
_register_median(np.nanmedian, "np.nanmedian", True)


def _compute_quantiles(
    t: Trace,
    name: str,
    a: Any,
    q: Any,
    axis: Axis,
    method: str,
    keepdims: Any,
    without_nan: bool,
) -> Any:
    if isinstance(q, TracedArray):
        raise trace_error(name, "q is a traced array", hint="pass a Python number")
    if method not in _INTERPOLATED_METHODS + _DISCRETE_METHODS:
        rule = f"expected one of {', '.join(_INTERPOLATED_METHODS + _DISCRETE_METHODS)}"
        raise trace_error(name, f"method is {method!r}", rule)
    scale = 100 if "percentile" in name else 1
    quantiles = np.asarray(q) if scale == 1 else np.true_divide(q, scale)
    if not ((quantiles >= 0) & (quantiles <= 1)).all():
        raise trace_error(name, f"q is {q}", f"q must be between 0 and {scale}")
    x, rows = _sorted_rows(t, name, a, axis)
    if method == "linear" and quantiles.dtype.kind in "biu":
        method = "lower"  # the least or the greatest value: NumPy does not interpolate
    if method in _INTERPOLATED_METHODS and rows.dtype.kind != "f":
        rows = t.cast(rows, np.float64)
    is_weak = type(q) in (int, float)

    def compute_one(quantile: Any) -> Any:
        result = _row_quantile(t, rows, quantile, method, without_nan, is_weak)
        return _restore_axes(result, x, axis, keepdims)

    if not quantiles.ndim:
        return compute_one(quantiles[()])
    result = np.stack(
        [
            compute_one(quantile)
            for quantile in (quantiles.ravel() if quantiles.size else [0.5])
        ]
    )
    return result[: quantiles.size].reshape((*quantiles.shape, *result.shape[1:]))


def _register_quantiles(function: Any, name: str, without_nan: bool) -> None:
    @implements(function)
    def implementation(
        t: Trace,
        a: Any,
        q: Any,
        axis: Axis = None,
        out: Any = None,
        overwrite_input: bool = False,
        method: str = "linear",
        keepdims: Any = False,
    ) -> Any:
        return _compute_quantiles(t, name, a, q, axis, method, keepdims, without_nan)


for _name in ("quantile", "percentile", "nanquantile", "nanpercentile"):
    _register_quantiles(getattr(np, _name), f"np.{_name}", _name.startswith("nan"))
