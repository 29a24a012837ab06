"""NumPy's functions that choose among values, over traced arrays: where, take, sort.

Masks choose and keep the shape; sorting is the graph's topk of all elements. Creation
of arrays like another is here too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlxweb.ir.shape import normal_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.tracing.moves import alike, moved
from rlxweb.tracing.place import refused
from rlxweb.tracing.reductions import axes_of, real_of
from rlxweb.tracing.table import no_form, numpys
from rlxweb.tracing.trace import Trace
from rlxweb.tracing.traced import Traced

_INT64, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)


@numpys(np.where)
def where(t: Trace, condition: Any, *values: Any) -> Any:
    """`numpy.where`."""
    if len(values) != 2:
        raise no_form("np.nonzero")
    x, y = alike(t, values, weak=True)
    mask = t.real(condition, _BOOL)
    if x.im is not None and y.im is not None:
        re, im = t.graph.where(mask, x.re, y.re), t.graph.where(mask, x.im, y.im)
        return Traced(t, re, im, x.dtype)
    first, second = x.re, y.re
    if first.dtype is not second.dtype:
        first, second = t.real(x, x.dtype), t.real(y, x.dtype)
    return Traced(t, _chosen(t, mask, first, second), None, x.dtype)


def _chosen(t: Trace, mask: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return t.graph.where(mask, x, y)


@numpys(np.select)
def _select(t: Trace, condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    made: Any = default
    kind = t.common([*choicelist, default], weak=True)
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        made = where(t, condition, t.lifted(choice, kind), t.lifted(made, kind))
    return made


@numpys(np.clip)
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
    made: Any = t.lifted(a).copy()
    if low is not None and low is not np._NoValue:
        made = np.maximum(made, low)
    if high is not None and high is not np._NoValue:
        made = np.minimum(made, high)
    return made


@numpys(np.nan_to_num, means="copy")
def _nan_to_num(
    t: Trace,
    x: Any,
    copy: bool = True,
    nan: float = 0.0,
    posinf: Any = None,
    neginf: Any = None,
) -> Any:
    of = real_of(t, x, "np.nan_to_num")
    if of.dtype.kind != "f":
        return of.copy()
    bounds = np.finfo(of.dtype)
    most = bounds.max if posinf is None else posinf
    least = bounds.min if neginf is None else neginf
    made: Any = np.where(np.isnan(of), of.dtype.type(nan), of)
    made = np.where(of == np.inf, of.dtype.type(most), made)
    return np.where(of == -np.inf, of.dtype.type(least), made)


@numpys(np.isclose)
def _isclose(
    t: Trace,
    a: Any,
    b: Any,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Any:
    x, y = alike(t, (a, b))
    if x.dtype.kind in "biu":
        x, y = t.cast(x, np.float64), t.cast(y, np.float64)
    near: Any = (np.abs(x - y) <= atol + rtol * np.abs(y)) & np.isfinite(y)
    near = near | (x == y)
    return near | (np.isnan(x) & np.isnan(y)) if equal_nan else near


def _index(t: Trace, indices: Any) -> Any:
    """Computed indices as a tensor, others as an array."""
    if isinstance(indices, Traced):
        if t.check(indices).dtype.kind not in "iu":
            raise refused("indices", f"they are {indices.dtype}", "integers are wanted")
        return indices.re
    array = np.asarray(indices)
    if isinstance(indices, np.ndarray):
        t.seen(indices, indices)
    return array if array.size else array.astype(np.int32)


@numpys(np.take)
def take(
    t: Trace,
    a: Any,
    indices: Any,
    axis: Any = None,
    out: Any = None,
    mode: str = "raise",
) -> Any:
    """`numpy.take`."""
    x, at = t.lifted(a), _index(t, indices)
    if axis is None:
        x, axis = x.reshape(-1), 0
    on = normal_axis(axis, x.ndim)
    made = moved(t, x, lambda part: part.graph.take(part, at, on))
    made.viewed = False
    return made


@numpys(np.take_along_axis)
def _take_along_axis(t: Trace, arr: Any, indices: Any, axis: Any = -1) -> Any:
    x, at = t.lifted(arr), t.lifted(indices)
    if axis is None:
        x, axis = x.reshape(-1), 0
    places = at.re if at.re.dtype.is_integer else t.real(at, _INT64)
    return moved(t, x, lambda part: part.graph.take_along_axis(part, places, axis))


@numpys(np.argsort)
def _argsort(
    t: Trace,
    a: Any,
    axis: Any = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: Any = None,
) -> Any:
    x = real_of(t, a, "np.argsort")
    if axis is None:
        x, axis = x.reshape(-1), 0
    (at,) = axes_of(axis, x.ndim)
    return Traced(t, t.graph.argsort(x.re, at), None, _INT64)


@numpys(np.sort)
def _sort(
    t: Trace,
    a: Any,
    axis: Any = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: Any = None,
) -> Any:
    x = real_of(t, a, "np.sort")
    if axis is None:
        x, axis = x.reshape(-1), 0
    (at,) = axes_of(axis, x.ndim)
    return Traced(t, t.graph.sort(x.re, at), None, x.dtype)


@numpys(np.searchsorted)
def _searchsorted(
    t: Trace, a: Any, v: Any, side: str = "left", sorter: Any = None
) -> Any:
    if sorter is not None:
        raise refused("np.searchsorted", "sorter= is not taken", hint="sort first")
    table, values = alike(t, (a, v))
    kind = table.dtype
    if table.ndim != 1:
        raise refused("np.searchsorted", f"a has {table.ndim} axes", "it has 1")
    made = t.graph.searchsorted(t.real(table, kind), t.real(values, kind), side)
    return Traced(t, made, None, _INT64)


@numpys(np.digitize)
def _digitize(t: Trace, x: Any, bins: Any, right: bool = False) -> Any:
    return _searchsorted(t, bins, x, "left" if right else "right")


@numpys(np.round, np.around)
def _round(t: Trace, a: Any, decimals: int = 0, out: Any = None) -> Any:
    x: Any = t.lifted(a)
    if x.dtype.kind in "biu":
        if decimals < 0:
            raise refused("np.round", "integers to tens have no graph form")
        return x.copy()
    if not decimals:
        return np.rint(x)
    by = 10.0 ** abs(decimals)
    return np.rint(x * by) / by if decimals > 0 else np.rint(x / by) * by


@numpys(np.isposinf)
def _isposinf(t: Trace, x: Any, out: Any = None) -> Any:
    return t.lifted(x) == np.inf


@numpys(np.isneginf)
def _isneginf(t: Trace, x: Any, out: Any = None) -> Any:
    return t.lifted(x) == -np.inf


@numpys(np.sinc)
def _sinc(t: Trace, x: Any) -> Any:
    of: Any = t.lifted(x)
    if of.dtype.kind in "biu":
        of = t.cast(of, np.float64)
    at: Any = np.pi * of
    near: Any = np.abs(at) < _SERIES_END
    square = np.where(near, at * at, 0)
    series: Any = np.zeros_like(square)
    for term in reversed(_SINC_SERIES):
        series = series * square + term
    far = np.where(near, 1, at)
    return np.where(near, series, np.sin(far) / far)


_SERIES_END = 1.0
_SINC_SERIES = [(-1) ** k / math.factorial(2 * k + 1) for k in range(13)]
"""Taylor series of sin(x) / x in x².

The quotient has no derivatives at 0 and few digits of them nearby. The terms up to x^24
give the derivatives up to the eighth order all digits of float64.
"""


@numpys(np.fix)
def _fix(t: Trace, x: Any, out: Any = None) -> Any:
    return np.trunc(t.lifted(x))


@numpys(np.interp)
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
        raise refused("np.interp", "period= is not taken", hint="np.mod of x first")
    at, places, values = (t.cast(t.lifted(v), np.float64) for v in (x, xp, fp))
    last = places.shape[0] - 1
    # At the last place the value is exactly the last one, on the line before it.
    found: Any = np.clip(_searchsorted(t, places, at, "right") - 1, 0, last)
    begin = np.minimum(found, max(last - 1, 0))
    end = np.minimum(begin + 1, last)
    width: Any = take(t, places, end) - take(t, places, begin)
    rise: Any = take(t, values, end) - take(t, values, begin)
    way: Any = (at - take(t, places, found)) / np.where(width == 0, 1, width)
    # At a place of the table the value beside it, NaN or infinite, does not matter.
    rise = np.where((way == 0) & ~np.isfinite(rise), 0, rise)
    made: Any = take(t, values, found) + rise * way
    made = np.where(at < places[0], values[0] if left is None else left, made)
    made = np.where(at > places[-1], values[-1] if right is None else right, made)
    return np.where(np.isnan(at), np.nan, made)
