"""NumPy's functions that move values, over traced arrays: shapes, axes, parts, copies.

What moves the parts of a complex array alike is said once, for a tensor. A result that
would be a view of NumPy's is marked, so that nothing is changed through it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.shape import broadcast, distinct_axes, normal_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.tracing.place import refused
from rlxweb.tracing.reductions import axes_of
from rlxweb.tracing.table import numpys, there
from rlxweb.tracing.trace import Trace
from rlxweb.tracing.traced import Traced


def moved(t: Trace, a: Any, how: Callable[[Tensor], Tensor]) -> Any:
    """Move both parts of an array alike; the result may be a view of it."""
    x = t.lifted(a)
    if isinstance(a, Traced):
        a.viewed = True
    im = None if x.im is None else how(x.im)
    made = Traced(t, how(x.re), im, x.dtype, viewed=True)
    squared = x.squared
    if squared is not None:
        made.squared = lambda: how(squared())
    return made


def joined_of(
    t: Trace, every: Sequence[Traced], how: Callable[[list[Tensor]], Tensor]
) -> Any:
    """Several arrays of one dtype put together, part by part."""
    kind = every[0].dtype
    narrow = all(x.re.dtype is every[0].re.dtype for x in every)
    if kind.kind == "c":
        return Traced(t, how([x.re for x in every]), how(_imaginary(every)), kind)
    parts = [x.re if narrow else t.real(x, kind) for x in every]
    return Traced(t, how(parts), None, kind)


def _imaginary(every: Sequence[Traced]) -> list[Tensor]:
    return [x.im for x in every if x.im is not None]


def alike(
    t: Trace, values: Sequence[Any], dtype: Any = None, weak: bool = False
) -> Any:
    """Several values in the dtype that NumPy gives them together."""
    kind = t.common(values, weak) if dtype is None else t.settled(dtype)
    return [t.lifted(one, kind) for one in values]


@numpys(np.reshape)
def _reshape(
    t: Trace, a: Any, shape: Any = None, order: str = "C", copy: Any = None, **old: Any
) -> Any:
    dims = old.get("newshape", shape)
    every = (dims,) if isinstance(dims, int | np.integer) else tuple(dims)
    return moved(t, a, lambda x: x.graph.reshape(x, every))


@numpys(np.ravel)
def _ravel(t: Trace, a: Any, order: str = "C") -> Any:
    return moved(t, a, lambda x: x.graph.reshape(x, (-1,) if all(x.shape) else (0,)))


@numpys(np.transpose, np.permute_dims)
def _transpose(t: Trace, a: Any, axes: Any = None) -> Any:
    x = t.lifted(a)
    order = range(x.ndim)[::-1] if axes is None else distinct_axes(axes, x.ndim)
    return moved(t, a, lambda x: x.graph.transpose(x, tuple(order)))


@numpys(np.matrix_transpose)
def _matrix_transpose(t: Trace, x: Any, /) -> Any:
    return moved(t, x, lambda x: x.graph.swapaxes(x, -1, -2))


@numpys(np.moveaxis)
def moveaxis(t: Trace, a: Any, source: Any, destination: Any) -> Any:
    """`numpy.moveaxis`."""
    return moved(t, a, lambda x: x.graph.moveaxis(x, source, destination))


@numpys(np.rollaxis)
def _rollaxis(t: Trace, a: Any, axis: int, start: int = 0) -> Any:
    ndim = t.lifted(a).ndim
    axis = normal_axis(axis, ndim)
    start = start + ndim if start < 0 else start
    to = start - 1 if axis < start else start
    return moved(t, a, lambda x: x.graph.moveaxis(x, axis, to))


@numpys(np.swapaxes)
def _swapaxes(t: Trace, a: Any, axis1: int, axis2: int) -> Any:
    return moved(t, a, lambda x: x.graph.swapaxes(x, axis1, axis2))


@numpys(np.expand_dims)
def _expand_dims(t: Trace, a: Any, axis: Any) -> Any:
    return moved(t, a, lambda x: x.graph.unsqueeze(x, axis))


@numpys(np.squeeze)
def _squeeze(t: Trace, a: Any, axis: Any = None) -> Any:
    return moved(t, a, lambda x: x.graph.squeeze(x, axis))


@numpys(np.broadcast_to)
def _broadcast_to(t: Trace, array: Any, shape: Any, subok: bool = False) -> Any:
    return moved(t, array, lambda x: x.graph.broadcast_to(x, shape))


@numpys(np.broadcast_arrays)
def _broadcast_arrays(t: Trace, *args: Any, subok: bool = False) -> Any:
    every = [t.lifted(a) for a in args]
    shape = broadcast(*(x.shape for x in every))
    return tuple(_broadcast_to(t, x, shape) for x in every)


@numpys(np.flip)
def _flip(t: Trace, m: Any, axis: Any = None) -> Any:
    return moved(t, m, lambda x: x.graph.flip(x, axis))


@numpys(np.fliplr)
def _fliplr(t: Trace, m: Any) -> Any:
    return _flip(t, m, 1)


@numpys(np.flipud)
def _flipud(t: Trace, m: Any) -> Any:
    return _flip(t, m, 0)


@numpys(np.rot90)
def _rot90(t: Trace, m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    x = t.lifted(m)
    first, second = distinct_axes(axes, x.ndim)
    if k % 4 == 0:
        return _flip(t, x, ())
    if k % 4 == 2:
        return _flip(t, x, (first, second))
    if k % 4 == 1:
        return np.swapaxes(_flip(t, x, second), first, second)
    return _flip(t, np.swapaxes(x, first, second), second)


@numpys(np.roll)
def _roll(t: Trace, a: Any, shift: Any, axis: Any = None) -> Any:
    if axis is None:
        shape = t.lifted(a).shape
        flat = moved(t, a, lambda x: x.graph.reshape(x, (-1,)))
        return _reshape(t, _roll(t, flat, sum(_many(shift)), 0), shape)
    shifts, axes = _many(shift), _many(axis)
    count = max(len(shifts), len(axes))
    shifts = shifts * count if len(shifts) == 1 else shifts
    axes = axes * count if len(axes) == 1 else axes
    made = t.lifted(a)
    for by, at in zip(shifts, axes, strict=True):
        made = moved(t, made, partial(_rolled, by=by, at=at))
    return made


def _rolled(x: Tensor, by: int, at: int) -> Tensor:
    return x.graph.roll(x, by, at)


def _many(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, Sequence | np.ndarray) else (value,)


@numpys(np.fft.fftshift)
def _fftshift(t: Trace, x: Any, axes: Any = None) -> Any:
    of = t.lifted(x)
    on = axes_of(axes, of.ndim)
    return _roll(t, of, tuple(of.shape[a] // 2 for a in on), on) if on else of


@numpys(np.fft.ifftshift)
def _ifftshift(t: Trace, x: Any, axes: Any = None) -> Any:
    of = t.lifted(x)
    on = axes_of(axes, of.ndim)
    return _roll(t, of, tuple(-(of.shape[a] // 2) for a in on), on) if on else of


@numpys(np.tile)
def _tile(t: Trace, A: Any, reps: Any) -> Any:
    return moved(t, A, lambda x: x.graph.tile(x, _many(reps)))


@numpys(np.repeat)
def _repeat(t: Trace, a: Any, repeats: Any, axis: Any = None) -> Any:
    if isinstance(repeats, Traced):
        repeats.__index__()
    return moved(t, a, lambda x: x.graph.repeat(x, repeats, axis))


_PADS = ("constant", "edge", "reflect", "symmetric", "wrap")


@numpys(np.pad, means="mode")
def _pad(
    t: Trace, array: Any, pad_width: Any, mode: Any = "constant", **how: Any
) -> Any:
    if mode not in _PADS:
        raise refused(
            "np.pad", f"mode={mode!r} has no graph form", f"modes: {', '.join(_PADS)}"
        )
    value = how.pop("constant_values", 0)
    if how.pop("reflect_type", "even") != "even" or how:
        raise refused("np.pad", "odd reflections have no graph form")
    if not isinstance(value, int | float | complex | np.number):
        raise refused("np.pad", "constant_values is one number here")
    x = t.lifted(array)
    if isinstance(pad_width, dict):
        pad_width = [
            pad_width.get(a, pad_width.get(a - x.ndim, 0)) for a in range(x.ndim)
        ]
        pad_width = [(w, w) if isinstance(w, int) else w for w in pad_width]

    def part(tensor: Tensor, of: Any) -> Tensor:
        g = tensor.graph
        if tensor.dtype is DType.BOOL:
            whole = g.cast(tensor, DType.I32)
            return g.cast(g.pad(whole, pad_width, mode, int(bool(of))), DType.BOOL)
        return g.pad(tensor, pad_width, mode, of)

    if x.im is not None:
        parts = part(x.re, np.real(value)), part(x.im, np.imag(value))
        return Traced(t, *parts, x.dtype)
    return Traced(t, part(x.re, value), None, x.dtype)


# --- several arrays -------------------------------------------------------------------


@numpys(np.concatenate, np.concat)
def concatenate(
    t: Trace,
    arrays: Any,
    /,
    axis: Any = 0,
    out: Any = None,
    *,
    dtype: Any = None,
    casting: Any = "same_kind",
) -> Any:
    """`numpy.concatenate`."""
    every = alike(t, list(arrays), dtype)
    if axis is None:
        every, axis = [x.reshape(-1) for x in every], 0
    at = normal_axis(axis, every[0].ndim)
    return joined_of(t, every, lambda parts: t.graph.concat(parts, at))


@numpys(np.stack)
def _stack(
    t: Trace,
    arrays: Any,
    axis: int = 0,
    out: Any = None,
    *,
    dtype: Any = None,
    casting: Any = "same_kind",
) -> Any:
    every = alike(t, list(arrays), dtype)
    return joined_of(t, every, lambda parts: t.graph.stack(parts, axis))


def _at_least(t: Trace, a: Any, rank: int) -> Any:
    x = t.lifted(a)
    while x.ndim < rank:
        shape = (*x.shape, 1) if x.ndim == 2 else (1, *x.shape)
        x = _reshape(t, x, shape)
    return x


def _register_at_least(function: Any, rank: int) -> None:
    def how(t: Trace, *arys: Any) -> Any:
        every = tuple(_at_least(t, a, rank) for a in arys)
        return every[0] if len(every) == 1 else every

    numpys(function)(how)


for _function, _rank in ((np.atleast_1d, 1), (np.atleast_2d, 2), (np.atleast_3d, 3)):
    _register_at_least(_function, _rank)


@numpys(np.vstack)
def _vstack(t: Trace, tup: Any, *, dtype: Any = None, casting: Any = None) -> Any:
    return concatenate(t, [_at_least(t, a, 2) for a in tup], 0, dtype=dtype)


@numpys(np.hstack)
def _hstack(t: Trace, tup: Any, *, dtype: Any = None, casting: Any = None) -> Any:
    every = [_at_least(t, a, 1) for a in tup]
    return concatenate(t, every, 0 if every[0].ndim == 1 else 1, dtype=dtype)


@numpys(np.dstack)
def _dstack(t: Trace, tup: Any) -> Any:
    return concatenate(t, [_at_least(t, a, 3) for a in tup], 2)


@numpys(np.column_stack)
def _column_stack(t: Trace, tup: Any) -> Any:
    every = [t.lifted(a) for a in tup]
    columns = [x.reshape((-1, 1)) if x.ndim < 2 else x for x in every]
    return concatenate(t, columns, 1)


@numpys(np.append)
def _append(t: Trace, arr: Any, values: Any, axis: Any = None) -> Any:
    return concatenate(t, [arr, values], axis)


@numpys(np.array_split)
def array_split(t: Trace, ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """`numpy.array_split`."""
    x = t.lifted(ary)
    at = normal_axis(axis, x.ndim)
    size = x.shape[at]
    if isinstance(indices_or_sections, int | np.integer):
        many, rest = divmod(size, int(indices_or_sections))
        counts = [many + (n < rest) for n in range(int(indices_or_sections))]
        ends = np.cumsum(counts)[:-1].tolist()
    else:
        ends = [int(end) for end in indices_or_sections]
    lead = (slice(None),) * at
    bounds = zip([0, *ends], [*ends, size], strict=True)
    return [x[(*lead, slice(first, last))] for first, last in bounds]


@numpys(np.split)
def _split(t: Trace, ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    x = t.lifted(ary)
    size, parts = x.shape[normal_axis(axis, x.ndim)], indices_or_sections
    if isinstance(parts, int | np.integer) and (parts < 1 or size % parts):
        problem = f"an axis of {size} has no {parts} equal parts"
        raise refused("np.split", problem, hint="np.array_split takes unequal ones")
    return array_split(t, x, parts, axis)


def _register_split(function: Any, axis: int) -> None:
    def how(t: Trace, ary: Any, indices_or_sections: Any) -> Any:
        x = t.lifted(ary)
        return _split(
            t, x, indices_or_sections, 0 if x.ndim == 1 and axis == 1 else axis
        )

    numpys(function)(how)


for _part, _axis in ((np.vsplit, 0), (np.hsplit, 1), (np.dsplit, 2)):
    _register_split(_part, _axis)


@numpys(*there("unstack"))
def _unstack(t: Trace, x: Any, /, *, axis: int = 0) -> Any:
    of = t.lifted(x)
    at = normal_axis(axis, of.ndim)
    lead = (slice(None),) * at
    return tuple(of[(*lead, n)] for n in range(of.shape[at]))


@numpys(np.lib.stride_tricks.sliding_window_view)
def _sliding_window_view(
    t: Trace,
    x: Any,
    window_shape: Any,
    axis: Any = None,
    *,
    subok: bool = False,
    writeable: bool = False,
) -> Any:
    of = t.lifted(x)
    sizes = _many(window_shape)
    if axis is None and len(sizes) != of.ndim:
        problem = f"{len(sizes)} windows for {of.ndim} axes without axis="
        raise refused("np.lib.stride_tricks.sliding_window_view", problem)
    axes = tuple(range(of.ndim)) if axis is None else axes_of(_many(axis), of.ndim)
    return moved(t, of, lambda x: x.graph.windows(x, sizes, axes))


@numpys(np.meshgrid, means="copy")
def _meshgrid(
    t: Trace, *xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> Any:
    every = [t.lifted(x).reshape(-1) for x in xi]
    apart = [
        x.reshape([-1 if m == n else 1 for m in range(len(every))])
        for n, x in enumerate(every)
    ]
    if indexing == "xy" and len(apart) > 1:
        apart = [x.swapaxes(0, 1) for x in apart]
    return tuple(apart) if sparse else _broadcast_arrays(t, *apart)
