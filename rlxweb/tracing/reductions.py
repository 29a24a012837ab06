"""NumPy's reductions over traced arrays: sums, extremes, moments, running sums.

dtypes are NumPy's: integers are summed in 64 bits and their means are float64, float16
is averaged in float32. An axis is one, several or None for all.
"""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.p_norm import norm_root
from rlxweb.ir.shape import distinct_axes, numel
from rlxweb.ir.size import Size
from rlxweb.ir.tensor import Tensor
from rlxweb.tracing.complex_ufuncs import joined, parts, square_of_abs
from rlxweb.tracing.place import refused
from rlxweb.tracing.table import numpys
from rlxweb.tracing.trace import Trace, as_kind
from rlxweb.tracing.traced import DT, Traced

Axis = Any
_INT64, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)


def axes_of(axis: Axis, ndim: int) -> tuple[int, ...]:
    """The axes that a reduction goes over, counted from the front."""
    if axis is None:
        return tuple(range(ndim))
    every = axis if isinstance(axis, tuple | list) else (axis,)
    return distinct_axes(every, ndim) if ndim or every else ()


def axis_of(axis: Any, ndim: int) -> int:
    """The one axis that a running sum goes along. Errors  TypeError for several."""
    return axes_of(index(axis), ndim)[0]


def kept(keepdims: Any) -> bool:
    """Do reduced axes stay, as 1?"""
    return False if keepdims is np._NoValue else bool(keepdims)


def _sum_kind(t: Trace, x: Traced, dtype: Any) -> DT:
    if dtype is not None:
        return t.settled(dtype)
    small = x.dtype.kind in "biu" and x.dtype.itemsize < 8
    if not small:
        return x.dtype
    return np.dtype(np.uint64) if x.dtype.kind == "u" else _INT64


def _folded(t: Trace, op: str, x: Traced, axis: Axis, kind: DT, keep: bool) -> Any:
    """A sum or product in a dtype; of bools a count, which 32 bits hold."""
    axes = axes_of(axis, x.ndim)
    of: Tensor
    if op == "sum" and x.dtype == _BOOL and kind == _INT64:
        of = as_kind(x.re, DType.I32)
    else:
        of = t.real(x, kind)
    if kind == np.float16:  # NumPy adds halves up in float32
        of = as_kind(of, DType.F32)
    made = getattr(t.graph, op)(of, axes, keep)
    return Traced(
        t, as_kind(made, t.part(kind)) if kind == np.float16 else made, None, kind
    )


@numpys(np.sum)
def total(
    t: Trace,
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    """`numpy.sum`."""
    x, keep = t.lifted(a), kept(keepdims)
    if x.im is not None:
        re, im = (total(t, p, axis, None, None, keep) for p in parts(x))
        return t.cast(joined(re, im), dtype or x.dtype)
    kind = _sum_kind(t, x, dtype)
    if kind.kind == "c":
        return t.cast(total(t, x, axis, None, None, keep), kind)
    return _folded(t, "sum", x, axis, kind, keep)


@numpys(np.prod)
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
    x = real_of(t, a, "np.prod")
    return _folded(t, "prod", x, axis, _sum_kind(t, x, dtype), kept(keepdims))


def real_of(t: Trace, a: Any, what: str) -> Any:
    """A real array. Errors  TraceError for a complex one."""
    x = t.lifted(a)
    if x.im is not None:
        problem = f"of complex numbers ({x.dtype}) it has no graph form"
        raise refused(what, problem, hint="take np.abs(x), x.real or x.imag")
    return x


def _mean_kinds(t: Trace, x: Traced, dtype: Any) -> tuple[DT, DT]:
    """What a mean is computed in, and what it is."""
    if dtype is not None:
        return t.settled(dtype), t.settled(dtype)
    if x.dtype.kind in "biu":
        kind = t.settled(np.float64)
        return kind, kind
    return (np.dtype(np.float32) if x.dtype == np.float16 else x.dtype), x.dtype


@numpys(np.mean)
def mean(
    t: Trace,
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    where: Any = None,
) -> Any:
    """`numpy.mean`."""
    x, keep = t.lifted(a), kept(keepdims)
    if x.im is not None:
        re, im = (mean(t, p, axis, None, None, keep) for p in parts(x))
        return t.cast(joined(re, im), dtype or x.dtype)
    wide, kind = _mean_kinds(t, x, dtype)
    axes = axes_of(axis, x.ndim)
    made = t.graph.mean(t.real(x, wide), axes, keep)
    return t.cast(Traced(t, made, None, wide), kind)


def root_of(t: Trace, squares: Traced) -> Traced:
    """Return the root of real sums of squares, with slope 0 where a sum is 0."""
    made = Traced(t, norm_root(t.graph, squares.re), None, squares.dtype)
    made.squared = lambda: squares.re
    return made


@numpys(np.var)
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
    """Add `numpy.var`."""
    x, keep = t.lifted(a), kept(keepdims)
    ddof = ddof if correction is np._NoValue else correction
    wide, kind = _mean_kinds(t, x, dtype)
    axes = axes_of(axis, x.ndim)
    x = t.cast(x, wide)
    centre = np.mean(x, axes, keepdims=True) if mean in (None, np._NoValue) else mean
    apart: Any = square_of_abs(x - centre)
    count = numel([x.shape[a] for a in axes]) - ddof
    if count <= 0:
        problem = f"{count + ddof} values with ddof {ddof}"
        raise refused("np.var", problem, "more values than ddof are needed")
    by: Any = count if isinstance(count, Size) else float(count)
    made = np.sum(apart, axes, keepdims=keep) / by
    return t.cast(made, made.dtype if kind.kind == "c" else kind)


@numpys(np.std)
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
    """Add `numpy.std`; its slope is 0 where all values are equal, as in PyTorch."""
    x = t.lifted(a)
    wide, kind = _mean_kinds(t, x, dtype)
    made = var(
        t, t.cast(x, wide), axis, None, None, ddof, keepdims, None, mean, correction
    )
    root: Any = root_of(t, made)
    return t.cast(root, root.dtype if kind.kind == "c" else kind)


def _extreme(t: Trace, op: str, a: Any, axis: Axis, keepdims: Any) -> Any:
    x, keep = real_of(t, a, f"np.{op}"), kept(keepdims)
    axes = axes_of(axis, x.ndim)
    if x.dtype == _BOOL:
        made = getattr(t.graph, op)(as_kind(x.re, DType.I32), axes, keep)
        return Traced(t, as_kind(made, DType.BOOL), None, _BOOL)
    return Traced(t, getattr(t.graph, op)(x.re, axes, keep), None, x.dtype)


@numpys(np.max, np.amax)
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


@numpys(np.min, np.amin)
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


@numpys(np.ptp)
def _ptp(
    t: Trace, a: Any, axis: Axis = None, out: Any = None, keepdims: Any = False
) -> Any:
    return _extreme(t, "max", a, axis, keepdims) - _extreme(t, "min", a, axis, keepdims)


def _truth(t: Trace, op: str, a: Any, axis: Axis, keepdims: Any) -> Any:
    x = t.cast(t.lifted(a), _BOOL)
    axes = axes_of(axis, x.ndim)
    keep = kept(keepdims)
    if not all(x.shape[a] for a in axes):  # of nothing: any is False, all is True
        count = t.graph.sum(as_kind(x.re, DType.I32), axes, keep)
        want = 0 if op == "min" else 1
        return Traced(t, t.graph.ne(count, want - 0) if want else t.graph.gt(count, 0))
    made = getattr(t.graph, op)(as_kind(x.re, DType.I32), axes, keep)
    return Traced(t, as_kind(made, DType.BOOL), None, _BOOL)


@numpys(np.any)
def _any(
    t: Trace,
    a: Any,
    axis: Axis = None,
    out: Any = None,
    keepdims: Any = False,
    where: Any = None,
) -> Any:
    return _truth(t, "max", a, axis, keepdims)


@numpys(np.all)
def _all(
    t: Trace,
    a: Any,
    axis: Axis = None,
    out: Any = None,
    keepdims: Any = False,
    where: Any = None,
) -> Any:
    return _truth(t, "min", a, axis, keepdims)


@numpys(np.count_nonzero)
def _count_nonzero(t: Trace, a: Any, axis: Axis = None, keepdims: Any = False) -> Any:
    return total(t, t.cast(t.lifted(a), _BOOL), axis, None, None, keepdims)


def _place(t: Trace, op: str, a: Any, axis: Axis, keepdims: Any) -> Any:
    """The first place of the extreme; NaN is one, as for NumPy."""
    x = real_of(t, a, f"np.arg{op}")
    g, shape = t.graph, x.shape
    of = as_kind(x.re, DType.I32) if x.dtype == _BOOL else x.re
    at = 0
    if axis is None:
        of = g.reshape(of, (-1,))
    else:
        (at,) = axes_of(axis, x.ndim)
    if not of.rank:
        of = g.reshape(of, (1,))
    count = of.shape[at]
    there = g.eq(of, getattr(g, op)(of, at, True))
    if of.dtype.is_float:
        there = g.logical_or(there, g.isnan(of))
    line = [1] * of.rank
    line[at] = count
    places = g.reshape(_line(g, count), line)
    made = g.min(g.where(there, places, g.constant(count, DType.I32)), at, False)
    if kept(keepdims):
        rest = [1] * len(shape) if axis is None else list(shape)
        if axis is not None:
            rest[at] = 1
        made = g.reshape(made, rest)
    return Traced(t, made, None, _INT64)


def _line(g: Any, count: Any) -> Tensor:
    """0, 1, … up to a count that may vary."""
    made: Tensor
    if isinstance(count, Size):
        ones = g.expand(g.constant(1, DType.I32), (count,))
        made = g.cumsum(ones, 0, exclusive=True)
    else:
        made = g.constant(np.arange(count, dtype=np.int32))
    return made


@numpys(np.argmax)
def _argmax(
    t: Trace, a: Any, axis: Axis = None, out: Any = None, keepdims: Any = False
) -> Any:
    return _place(t, "max", a, axis, keepdims)


@numpys(np.argmin)
def _argmin(
    t: Trace, a: Any, axis: Axis = None, out: Any = None, keepdims: Any = False
) -> Any:
    return _place(t, "min", a, axis, keepdims)


@numpys(np.cumprod)
def _cumprod(
    t: Trace, a: Any, axis: Axis = None, dtype: Any = None, out: Any = None
) -> Any:
    x = real_of(t, a, "np.cumprod")
    if axis is None:
        x, axis = x.reshape(-1), 0
    kind = _sum_kind(t, x, dtype)
    made = t.graph.cumprod(t.real(x, kind), axis_of(axis, x.ndim))
    return Traced(t, made, None, kind)


@numpys(np.cumsum)
def cumsum(
    t: Trace, a: Any, axis: Axis = None, dtype: Any = None, out: Any = None
) -> Any:
    """`numpy.cumsum`."""
    x = t.lifted(a)
    if x.im is not None:
        re, im = (cumsum(t, p, axis) for p in parts(x))
        return t.cast(joined(re, im), dtype or x.dtype)
    if axis is None:
        x, axis = x.reshape(-1), 0
    kind = _sum_kind(t, x, dtype)
    narrow = x.dtype == _BOOL and kind == _INT64
    of = as_kind(x.re, DType.I32) if narrow else t.real(x, kind)
    made = t.graph.cumsum(of, axis_of(axis, x.ndim))
    return Traced(t, made, None, kind)
