"""NumPy's differences, means without NaN and quantiles over traced arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir.shape import numel
from rlxweb.tracing.complex_ufuncs import square_of_abs
from rlxweb.tracing.place import refused
from rlxweb.tracing.reductions import Axis, axes_of, kept, mean, real_of, root_of
from rlxweb.tracing.table import numpys
from rlxweb.tracing.trace import Trace
from rlxweb.tracing.traced import Traced


@numpys(np.diff)
def _diff(
    t: Trace,
    a: Any,
    n: int = 1,
    axis: int = -1,
    prepend: Any = None,
    append: Any = None,
) -> Any:
    x = t.lifted(a)
    (at,) = axes_of(axis, x.ndim)
    more = [p for p in (prepend, append) if p is not None and p is not np._NoValue]
    if more:
        raise refused(
            "np.diff", "prepend= and append= are not taken", hint="use np.concatenate"
        )
    for _ in range(n):
        lead = (slice(None),) * at
        later, before = x[(*lead, slice(1, None))], x[(*lead, slice(None, -1))]
        x = later != before if x.dtype == np.bool_ else later - before
    return x


@numpys(np.trapezoid)
def _trapezoid(t: Trace, y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    of = t.lifted(y)
    (at,) = axes_of(axis, of.ndim)
    lead = (slice(None),) * at
    pairs: Any = of[(*lead, slice(1, None))] + of[(*lead, slice(None, -1))]
    if x is None:
        return (pairs * (dx / 2)).sum(at)
    steps: Any = np.diff(t.lifted(x), axis=-1 if np.ndim(x) == 1 else axis)
    if steps.ndim == 1:
        steps = steps.reshape((-1, *(1,) * (of.ndim - at - 1)))
    return (pairs * steps / 2).sum(at)


@numpys(np.average)
def _average(
    t: Trace, a: Any, axis: Axis = None, weights: Any = None, *, keepdims: Any = False
) -> Any:
    return mean(t, a, axis, None, None, keepdims)


def _without_nan(op: Any, fill: float) -> Any:
    def how(
        t: Trace,
        a: Any,
        axis: Axis = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = False,
    ) -> Any:
        x = t.lifted(a)
        there: Any = x if x.dtype.kind in "biu" else np.where(np.isnan(x), fill, x)
        return op(there, axis, dtype, keepdims=kept(keepdims))

    return how


numpys(np.nansum)(_without_nan(np.sum, 0.0))
numpys(np.nanprod)(_without_nan(np.prod, 1.0))


@numpys(np.nanmean)
def _nanmean(
    t: Trace,
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    where: Any = None,
) -> Any:
    x = t.lifted(a)
    if x.dtype.kind in "biu":
        return mean(t, x, axis, dtype, None, keepdims)
    keep = kept(keepdims)
    there: Any = ~np.isnan(x)
    count = there.sum(axis, keepdims=keep).astype(x.dtype)
    return np.where(there, x, 0).sum(axis, dtype, keepdims=keep) / count


def _extreme_without_nan(function: Any, fill: float) -> Any:
    def how(
        t: Trace,
        a: Any,
        axis: Axis = None,
        out: Any = None,
        keepdims: Any = False,
    ) -> Any:
        x = t.lifted(a)
        if x.dtype.kind in "biu":
            return function(x, axis, keepdims=kept(keepdims))
        none: Any = np.isnan(x)
        made = function(np.where(none, fill, x), axis, keepdims=kept(keepdims))
        return np.where(none.all(axis, keepdims=kept(keepdims)), np.nan, made)

    return how


numpys(np.nanmax)(_extreme_without_nan(np.max, -np.inf))
numpys(np.nanmin)(_extreme_without_nan(np.min, np.inf))


@numpys(np.nanvar)
def nanvar(
    t: Trace,
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: Any = False,
) -> Any:
    """`numpy.nanvar`."""
    x = t.lifted(a)
    if x.dtype.kind in "biu":
        return np.var(x, axis, dtype, ddof=ddof, keepdims=kept(keepdims))
    there: Any = ~np.isnan(x)
    centre = _nanmean(t, x, axis, keepdims=True)
    apart: Any = np.where(there, x - centre, 0)
    squares: Any = square_of_abs(apart)
    count = there.sum(axis, keepdims=kept(keepdims)).astype(squares.dtype) - ddof
    none: Any = count <= 0
    sums = squares.sum(axis, keepdims=kept(keepdims))
    return np.where(none, np.nan, sums / np.where(none, 1, count))


@numpys(np.nanstd)
def _nanstd(
    t: Trace,
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: Any = False,
) -> Any:
    """Add `numpy.nanstd`, with the slope of `numpy.std`."""
    return root_of(t, nanvar(t, a, axis, dtype, None, ddof, keepdims))


@numpys(np.cov)
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
    """`numpy.cov`."""
    if fweights is not None or aweights is not None:
        raise refused("np.cov", "weights are not taken")
    x = real_of(t, m, "np.cov")
    x = t.cast(x, t.common([x, np.zeros(0)]))  # at least float64, as NumPy
    rows = x.reshape((1, -1)) if x.ndim == 1 else x
    rows = rows if rowvar or x.ndim == 1 else rows.T
    if y is not None:
        other = t.cast(t.lifted(y), x.dtype)
        turned = other.ndim > 1 and not rowvar
        other = other.reshape((1, -1)) if other.ndim == 1 else other
        rows = np.concatenate([rows, other.T if turned else other])
    less = (0 if bias else 1) if ddof is None else ddof
    centred: Any = rows - rows.mean(axis=1, keepdims=True)
    made: Any = centred @ centred.T / (rows.shape[1] - less)
    return np.squeeze(made) if made.shape == (1, 1) else made


@numpys(np.corrcoef)
def _corrcoef(t: Trace, x: Any, y: Any = None, rowvar: bool = True) -> Any:
    made = cov(t, x, y, rowvar)
    if not made.ndim:
        return made / made
    spread: Any = np.sqrt(np.diagonal(made))
    return np.clip(made / spread[:, None] / spread[None, :], -1, 1)


@numpys(np.gradient)
def _gradient(
    t: Trace, f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1
) -> Any:
    x = t.lifted(f)
    if x.dtype.kind in "biu":
        x = t.cast(x, np.float64)
    axes = axes_of(axis, x.ndim)
    steps = list(varargs) * len(axes) if len(varargs) == 1 else list(varargs)
    steps = steps or [1.0] * len(axes)
    plain = all(isinstance(one, int | float) for one in steps)
    if edge_order != 1 or not plain or len(steps) != len(axes):
        problem = "it takes one number for the distance along each axis here"
        raise refused("np.gradient", problem, hint="edge_order=1")
    made = [_slopes(x, at, step) for at, step in zip(axes, steps, strict=True)]
    return made[0] if len(made) == 1 else tuple(made)


def _slopes(x: Any, at: int, step: float) -> Any:
    lead = (slice(None),) * at

    def part(first: int | None, last: int | None) -> Any:
        return x[(*lead, slice(first, last))]

    middle = (part(2, None) - part(None, -2)) / (2.0 * step)
    begin = (part(1, 2) - part(0, 1)) / step
    end = (part(-1, None) - part(-2, -1)) / step
    return np.concatenate([begin, middle, end], axis=at)


@numpys(np.unwrap)
def _unwrap(
    t: Trace, p: Any, discont: Any = None, axis: int = -1, *, period: float = 2 * np.pi
) -> Any:
    x = t.lifted(p)
    if x.dtype.kind in "biu" and isinstance(period, float):
        x = t.cast(x, np.float64)
    (at,) = axes_of(axis, x.ndim)
    most = period / 2 if discont is None else discont
    lead = (slice(None),) * at
    steps: Any = np.diff(x, axis=at)
    turned: Any = np.mod(steps + period / 2, period) - period / 2
    turned = np.where((turned == -period / 2) & (steps > 0), period / 2, turned)
    more = np.where(np.abs(steps) < most, 0, turned - steps).cumsum(at)
    rest = x[(*lead, slice(1, None))] + more
    return np.concatenate([x[(*lead, slice(0, 1))], rest], axis=at)


@numpys(np.polyval)
def _polyval(t: Trace, p: Any, x: Any) -> Any:
    factors, at = t.lifted(p), t.lifted(x)
    made: Any = np.zeros_like(at)
    for n in range(factors.shape[0]):
        made = made * at + factors[n]
    return made


def _sorted_rows(t: Trace, name: str, a: Any, axis: Axis) -> tuple[Any, Any]:
    """Return a real array, and its values along the axes sorted, as the last axis."""
    x = real_of(t, a, name)
    axes = axes_of(axis, x.ndim)
    rest = [n for n in range(x.ndim) if n not in axes]
    count = numel([x.shape[n] for n in axes])
    if not isinstance(count, int) or not count:
        problem = f"it is over {count} values"
        raise refused(name, problem, "a known number of values, at least one")
    rows = x.transpose((*rest, *axes)).reshape((*(x.shape[n] for n in rest), count))
    return x, np.sort(rows, axis=-1)


def _with_axes(made: Any, x: Any, axis: Axis, keepdims: Any) -> Any:
    """Return a result with the reduced axes as 1 where they are kept."""
    if not kept(keepdims):
        return made
    axes = axes_of(axis, x.ndim)
    return made.reshape([1 if n in axes else d for n, d in enumerate(x.shape)])


def _at_places(t: Trace, rows: Any, places: Any, counts: Any) -> Any:
    """Return the sorted values at places that depend on the number of valid values.

    places   the place in a row for each number of valid values, from 0 on
    counts   the number of valid values in each row; None: all are valid
    """
    if counts is None:
        return rows[..., int(places[-1])]
    index = np.take(t.lifted(places.astype(np.int32)), counts)
    return np.take_along_axis(rows, index[..., None], -1)[..., 0]


def _counts(rows: Any, without_nan: bool) -> Any:
    """Return the number of valid values in each row; None where all are valid."""
    if not without_nan or rows.dtype.kind != "f":
        return None
    return np.sum(~np.isnan(rows), axis=-1)


def _nan_where_any(made: Any, rows: Any, without_nan: bool) -> Any:
    """Return NaN for each row that holds one: sorting puts it last."""
    if without_nan or rows.dtype.kind != "f":
        return made
    return np.where(np.isnan(rows[..., -1]), np.nan, made)


def _median_of(
    t: Trace, name: str, a: Any, axis: Axis, keepdims: Any, without_nan: bool
) -> Any:
    """Return the middle value, or the mean of the two middle values."""
    x, rows = _sorted_rows(t, name, a, axis)
    each = np.arange(rows.shape[-1] + 1)
    counts = _counts(rows, without_nan)
    both = [
        _at_places(t, rows, np.maximum(places, 0), counts)
        for places in ((each - 1) // 2, each // 2)
    ]
    made = np.mean(np.stack(both), axis=0)
    return _with_axes(_nan_where_any(made, rows, without_nan), x, axis, keepdims)


_CONTINUOUS = {
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}
"""Methods by their alpha and beta (Hyndman and Fan 1996), as NumPy has them."""
_INTERPOLATED = ("linear", "midpoint", "averaged_inverted_cdf", *_CONTINUOUS)
_DISCRETE = ("inverted_cdf", "closest_observation", "lower", "higher", "nearest")


def _discrete_places(method: str, n: Any, q: Any) -> Any:
    """Return the place of a quantile that is one of `n` sorted values, for each n."""
    if method in ("lower", "higher", "nearest"):
        at = (n - 1) * q
        if method == "lower":
            return np.floor(at)
        return np.ceil(at) if method == "higher" else np.around(at)
    closest = method == "closest_observation"
    at = n * q - (1.5 if closest else 1)
    low = np.floor(at)
    stays = (at == low) & ((low % 2 == 1) | (not closest))
    return np.where(stays, low, low + 1)


def _places_between(method: str, n: Any, q: Any) -> tuple[Any, Any]:
    """Return the place below a quantile of `n` sorted values, and the part beyond it.

    These are NumPy's formulas, so that no rounding differs.
    """
    at = (n - 1) * q
    if method == "midpoint":
        at = 0.5 * (np.floor(at) + np.ceil(at))
    elif method == "averaged_inverted_cdf":
        at = n * q - 1
    elif method in _CONTINUOUS:
        alpha, beta = _CONTINUOUS[method]
        at = n * q + (alpha + q * (1 - alpha - beta)) - 1
    low = np.floor(at)
    part = at - low
    if method == "midpoint":
        part = np.where(at % 1 == 0, 0.0, 0.5)
    elif method == "averaged_inverted_cdf":
        part = np.where(part == 0, 0.5, 1.0)
    return low, part.astype(at.dtype)


def _quantile_of(
    t: Trace, rows: Any, q: Any, method: str, without_nan: bool, is_weak: bool
) -> Any:
    """Return one quantile of each row; a weak `q` does not widen the dtype."""
    n = np.arange(rows.shape[-1] + 1, dtype=np.asarray(q).dtype)
    last = np.maximum(n - 1, 0)
    counts = _counts(rows, without_nan)
    if method in _DISCRETE:
        places = np.clip(_discrete_places(method, n, q), 0, last)
        made = _at_places(t, rows, places, counts)
        return _nan_where_any(made, rows, without_nan)
    low, part = _places_between(method, n, q)
    before = _at_places(t, rows, np.clip(low, 0, last), counts)
    after = _at_places(t, rows, np.clip(low + 1, 0, last), counts)
    step = after - before
    # From the nearer neighbour, as NumPy: no rounding error at the farther one, and
    # infinity where that is infinite.
    if counts is None:
        weight = float(part[-1]) if is_weak else part[-1]
        far = weight >= 0.5
        made = after - step * (1 - weight) if far else before + step * weight
    else:
        weights = part.astype(rows.dtype) if is_weak else part
        of_count = np.take(t.lifted(weights), counts)
        made = np.where(
            of_count >= 0.5, after - step * (1 - of_count), before + step * of_count
        )
    return _nan_where_any(made, rows, without_nan)


def _register_median(function: Any, name: str, without_nan: bool) -> None:
    @numpys(function)
    def how(
        t: Trace,
        a: Any,
        axis: Axis = None,
        out: Any = None,
        overwrite_input: bool = False,
        keepdims: Any = False,
    ) -> Any:
        return _median_of(t, name, a, axis, keepdims, without_nan)


_register_median(np.median, "np.median", False)
_register_median(np.nanmedian, "np.nanmedian", True)


def _quantiles(
    t: Trace,
    name: str,
    a: Any,
    q: Any,
    axis: Axis,
    method: str,
    keepdims: Any,
    without_nan: bool,
) -> Any:
    if isinstance(q, Traced):
        raise refused(name, "q is computed", hint="pass it as a Python number")
    if method not in _INTERPOLATED + _DISCRETE:
        rule = f"NumPy has {', '.join(_INTERPOLATED + _DISCRETE)}"
        raise refused(name, f"method is {method!r}", rule)
    by = 100 if "percentile" in name else 1
    every = np.asarray(q) if by == 1 else np.true_divide(q, by)
    if not ((every >= 0) & (every <= 1)).all():
        raise refused(name, f"q is {q}", f"it lies between 0 and {by}")
    x, rows = _sorted_rows(t, name, a, axis)
    if method == "linear" and every.dtype.kind in "biu":
        method = "lower"  # the least or the greatest value: NumPy does not interpolate
    if method in _INTERPOLATED and rows.dtype.kind != "f":
        rows = t.cast(rows, np.float64)
    is_weak = type(q) in (int, float)

    def at(one: Any) -> Any:
        made = _quantile_of(t, rows, one, method, without_nan, is_weak)
        return _with_axes(made, x, axis, keepdims)

    if not every.ndim:
        return at(every[()])
    made = np.stack([at(one) for one in (every.ravel() if every.size else [0.5])])
    return made[: every.size].reshape((*every.shape, *made.shape[1:]))


def _register_quantiles(function: Any, name: str, without_nan: bool) -> None:
    @numpys(function)
    def how(
        t: Trace,
        a: Any,
        q: Any,
        axis: Axis = None,
        out: Any = None,
        overwrite_input: bool = False,
        method: str = "linear",
        keepdims: Any = False,
    ) -> Any:
        return _quantiles(t, name, a, q, axis, method, keepdims, without_nan)


for _name in ("quantile", "percentile", "nanquantile", "nanpercentile"):
    _register_quantiles(getattr(np, _name), f"np.{_name}", _name.startswith("nan"))
