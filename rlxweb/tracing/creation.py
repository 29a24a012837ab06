"""NumPy's triangles and diagonals, arrays like another, and what asks for shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir.shape import normal_axis
from rlxweb.tracing.moves import moved
from rlxweb.tracing.picks import take, where
from rlxweb.tracing.table import numpys, there
from rlxweb.tracing.trace import Trace
from rlxweb.tracing.traced import Traced

_INT64, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)


def _masked(t: Trace, m: Any, k: int, below: bool) -> Any:
    x = _at_least_square(t, m)
    rows, columns = x.shape[-2:]
    mask = np.tri(rows, columns, k if below else k - 1, dtype=bool)
    zero = t.lifted(np.zeros((), x.dtype))
    return where(t, mask, *((x, zero) if below else (zero, x)))


def _at_least_square(t: Trace, m: Any) -> Any:
    x = t.lifted(m)
    return np.broadcast_to(x, (x.shape[0], x.shape[0])) if x.ndim == 1 else x


@numpys(np.tril)
def _tril(t: Trace, m: Any, k: int = 0) -> Any:
    return _masked(t, m, k, True)


@numpys(np.triu)
def _triu(t: Trace, m: Any, k: int = 0) -> Any:
    return _masked(t, m, k, False)


@numpys(np.diagonal)
def diagonal(t: Trace, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """`numpy.diagonal`."""
    x = t.lifted(a)
    on = (normal_axis(axis1, x.ndim), normal_axis(axis2, x.ndim))
    last: Any = moved(t, x, lambda part: part.graph.moveaxis(part, on, (-2, -1)))
    rows, columns = last.shape[-2:]
    first = (max(-offset, 0), max(offset, 0))
    count = max(min(rows - first[0], columns - first[1]), 0)
    places = (np.arange(count) + first[0]) * columns + np.arange(count) + first[1]
    flat = last.reshape((*last.shape[:-2], rows * columns))
    return take(t, flat, places, -1)


@numpys(np.trace)
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


@numpys(np.diag)
def _diag(t: Trace, v: Any, k: int = 0) -> Any:
    x = t.lifted(v)
    if x.ndim != 1:
        return diagonal(t, x, k)
    size = x.shape[0] + abs(k)
    wide: Any = np.pad(x, (max(k, 0), max(-k, 0)))
    rows = np.eye(size, k=k, dtype=bool)
    zero = np.zeros((), x.dtype)
    return where(t, rows, wide, t.lifted(zero)) if size else x


# --- arrays like another --------------------------------------------------------------


def _filled(t: Trace, a: Any, value: Any, dtype: Any, shape: Any) -> Any:
    x = t.lifted(a)
    kind = x.dtype if dtype is None else t.settled(dtype)
    if isinstance(shape, int | np.integer):
        shape = (int(shape),)
    one = t.lifted(value, kind)
    made: Any = np.broadcast_to(one, x.shape if shape is None else shape)
    made.viewed = False
    return made


@numpys(np.full_like)
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
    return _filled(t, a, fill_value, dtype, shape)


def _register_like(function: Any, value: int) -> None:
    def how(
        t: Trace,
        a: Any,
        dtype: Any = None,
        order: str = "K",
        subok: bool = True,
        shape: Any = None,
        *,
        device: Any = None,
    ) -> Any:
        return _filled(t, a, value, dtype, shape)

    numpys(function)(how)


for _function, _value in ((np.zeros_like, 0), (np.ones_like, 1), (np.empty_like, 0)):
    _register_like(_function, _value)


@numpys(np.copy)
def _copy(t: Trace, a: Any, order: str = "K", subok: bool = False) -> Any:
    return t.lifted(a).copy()


@numpys(*there("astype"))
def _astype(
    t: Trace, x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None
) -> Any:
    return t.cast(t.lifted(x), dtype)


@numpys(np.shape)
def _shape(t: Trace, a: Any) -> Any:
    return t.lifted(a).shape


@numpys(np.ndim)
def _ndim(t: Trace, a: Any) -> Any:
    return t.lifted(a).ndim


@numpys(np.size)
def _size(t: Trace, a: Any, axis: Any = None) -> Any:
    x = t.lifted(a)
    return x.size if axis is None else x.shape[axis]


@numpys(np.result_type)
def _result_type(t: Trace, *arrays_and_dtypes: Any) -> Any:
    kinds = [v.dtype if isinstance(v, Traced) else v for v in arrays_and_dtypes]
    return t.settled(np.result_type(*kinds))
