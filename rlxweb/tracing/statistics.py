"""NumPy's differences, means without NaN and quantiles over traced arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

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
    t: Trace, a: Any, axis: Axis = None, weights: Any = None, returned: bool = False
) -> Any:
    return mean(t, a, axis)


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
    count = there.sum(axis, keepdims=kept(keepdims)).astype(x.dtype) - ddof
    none: Any = count <= 0
    sums: Any = square_of_abs(apart).sum(axis, keepdims=kept(keepdims))
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


def _median_like(t: Trace, a: Any, q: float, axis: Axis, keepdims: Any) -> Any:
    """The value at a fraction of the sorted ones, on the line between two."""
    x = real_of(t, a, "np.quantile")
    axes = axes_of(axis, x.ndim)
    rest = [n for n in range(x.ndim) if n not in axes]
    moved = x.transpose((*rest, *axes)).reshape((*(x.shape[n] for n in rest), -1))
    if moved.dtype.kind not in "f":
        moved = t.cast(moved, np.float64)
    count = moved.shape[-1]
    at = q * (count - 1)
    low = min(int(at), count - 1)
    high = min(low + 1, count - 1)
    rows: Any = np.sort(moved, axis=-1)
    made: Any = rows[..., low] + (rows[..., high] - rows[..., low]) * (at - low)
    if low == high or at == low:
        made = rows[..., low]
    made = np.where(np.isnan(rows[..., -1]), np.nan, made)
    if kept(keepdims):
        made = made.reshape([1 if n in axes else d for n, d in enumerate(x.shape)])
    return made


@numpys(np.median)
def _median(
    t: Trace,
    a: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    keepdims: Any = False,
) -> Any:
    return _median_like(t, a, 0.5, axis, keepdims)


def _quantiles(
    t: Trace, name: str, a: Any, q: Any, axis: Axis, method: str, keep: Any
) -> Any:
    if isinstance(q, Traced):
        raise refused(name, "q is computed", hint="pass it as a Python number")
    if method != "linear":
        raise refused(name, f"method={method!r} has no graph form", hint="use 'linear'")
    every = np.asarray(q, np.float64)
    if type(q) not in (int, float):  # an array of q has a dtype of its own
        a = t.cast(t.lifted(a), t.common([a, every]))
    if ((every < 0) | (every > 1)).any():
        raise refused(
            name, f"q is {q}", "it lies between 0 and 1 (100 for percentiles)"
        )
    if not every.ndim:
        return _median_like(t, a, float(every), axis, keep)
    return np.stack([_median_like(t, a, float(one), axis, keep) for one in every.flat])


@numpys(np.quantile)
def _quantile(
    t: Trace,
    a: Any,
    q: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: Any = False,
) -> Any:
    return _quantiles(t, "np.quantile", a, q, axis, method, keepdims)


@numpys(np.percentile)
def _percentile(
    t: Trace,
    a: Any,
    q: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: Any = False,
) -> Any:
    if not isinstance(q, Traced):
        q = q / 100 if type(q) in (int, float) else np.asarray(q, np.float64) / 100
    return _quantiles(t, "np.percentile", a, q, axis, method, keepdims)
