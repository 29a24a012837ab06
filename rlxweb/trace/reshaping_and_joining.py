"""NumPy functions that move values of traced arrays: shapes, axes, joins, splits,
copies.

What moves the parts of a complex array alike is said once, for a tensor. A result that
would be a view of NumPy's is marked, so that nothing is changed through it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.shape_arithmetic import broadcast, normalize_axes, normalize_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.trace.numpy_dispatch import existing_functions, implements
from rlxweb.trace.reductions import reduction_axes
from rlxweb.trace.trace import Trace
from rlxweb.trace.trace_errors import trace_error
from rlxweb.trace.traced_array import TracedArray


def map_parts(t: Trace, a: Any, map_tensor: Callable[[Tensor], Tensor]) -> Any:
    """Apply a tensor function to both parts of an array; the result may be a view of
    it.
    """
    x = t.as_traced(a)
    if isinstance(a, TracedArray):
        a.is_view = True
    im = None if x.im is None else map_tensor(x.im)
    result = TracedArray(t, map_tensor(x.re), im, x.dtype, is_view=True)
    make_square = x.make_square
    if make_square is not None:
        result.make_square = lambda: map_tensor(make_square())
    return result


def combine_arrays(
    t: Trace, arrays: Sequence[TracedArray], combine: Callable[[list[Tensor]], Tensor]
) -> Any:
    """Combine several arrays of one dtype, part by part."""
    result_dtype = arrays[0].dtype
    is_same_dtype = all(x.re.dtype is arrays[0].re.dtype for x in arrays)
    if result_dtype.kind == "c":
        return TracedArray(
            t,
            combine([x.re for x in arrays]),
            combine(_imaginary_tensors(arrays)),
            result_dtype,
        )
    parts = [x.re if is_same_dtype else t.real_tensor(x, result_dtype) for x in arrays]
    return TracedArray(t, combine(parts), None, result_dtype)


def _imaginary_tensors(arrays: Sequence[TracedArray]) -> list[Tensor]:
    return [x.im for x in arrays if x.im is not None]


def to_common_dtype(
    t: Trace, values: Sequence[Any], dtype: Any = None, weak: bool = False
) -> Any:
    """Convert several values to the dtype that NumPy gives them together."""
    result_dtype = (
        t.common_dtype(values, weak) if dtype is None else t.effective_dtype(dtype)
    )
    return [t.as_traced(value, result_dtype) for value in values]


@implements(np.reshape)
def _reshape(
    t: Trace,
    a: Any,
    shape: Any = None,
    order: str = "C",
    copy: Any = None,
    **deprecated: Any,
) -> Any:
    dims = deprecated.get("newshape", shape)
    new_shape = (dims,) if isinstance(dims, int | np.integer) else tuple(dims)
    return map_parts(t, a, lambda x: x.graph.reshape(x, new_shape))


@implements(np.ravel)
def _ravel(t: Trace, a: Any, order: str = "C") -> Any:
    return map_parts(
        t, a, lambda x: x.graph.reshape(x, (-1,) if all(x.shape) else (0,))
    )


@implements(np.transpose, np.permute_dims)
def _transpose(t: Trace, a: Any, axes: Any = None) -> Any:
    x = t.as_traced(a)
    order = range(x.ndim)[::-1] if axes is None else normalize_axes(axes, x.ndim)
    return map_parts(t, a, lambda x: x.graph.transpose(x, tuple(order)))


@implements(np.matrix_transpose)
def _matrix_transpose(t: Trace, x: Any, /) -> Any:
    return map_parts(t, x, lambda x: x.graph.swapaxes(x, -1, -2))


@implements(np.moveaxis)
def moveaxis(t: Trace, a: Any, source: Any, destination: Any) -> Any:
    """Implement `numpy.moveaxis` for traced arrays."""
    return map_parts(t, a, lambda x: x.graph.moveaxis(x, source, destination))


@implements(np.rollaxis)
def _rollaxis(t: Trace, a: Any, axis: int, start: int = 0) -> Any:
    ndim = t.as_traced(a).ndim
    axis = normalize_axis(axis, ndim)
    start = start + ndim if start < 0 else start
    target_axis = start - 1 if axis < start else start
    return map_parts(t, a, lambda x: x.graph.moveaxis(x, axis, target_axis))


@implements(np.swapaxes)
def _swapaxes(t: Trace, a: Any, axis1: int, axis2: int) -> Any:
    return map_parts(t, a, lambda x: x.graph.swapaxes(x, axis1, axis2))


@implements(np.expand_dims)
def _expand_dims(t: Trace, a: Any, axis: Any) -> Any:
    return map_parts(t, a, lambda x: x.graph.unsqueeze(x, axis))


@implements(np.squeeze)
def _squeeze(t: Trace, a: Any, axis: Any = None) -> Any:
    return map_parts(t, a, lambda x: x.graph.squeeze(x, axis))


@implements(np.broadcast_to)
def _broadcast_to(t: Trace, array: Any, shape: Any, subok: bool = False) -> Any:
    return map_parts(t, array, lambda x: x.graph.broadcast_to(x, shape))


@implements(np.broadcast_arrays)
def _broadcast_arrays(t: Trace, *args: Any, subok: bool = False) -> Any:
    arrays = [t.as_traced(a) for a in args]
    shape = broadcast(*(x.shape for x in arrays))
    return tuple(_broadcast_to(t, x, shape) for x in arrays)


@implements(np.flip)
def _flip(t: Trace, m: Any, axis: Any = None) -> Any:
    return map_parts(t, m, lambda x: x.graph.flip(x, axis))


@implements(np.fliplr)
def _fliplr(t: Trace, m: Any) -> Any:
    return _flip(t, m, 1)


@implements(np.flipud)
def _flipud(t: Trace, m: Any) -> Any:
    return _flip(t, m, 0)


@implements(np.rot90)
def _rot90(t: Trace, m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    x = t.as_traced(m)
    first, second = normalize_axes(axes, x.ndim)
    if k % 4 == 0:
        return _flip(t, x, ())
    if k % 4 == 2:
        return _flip(t, x, (first, second))
    if k % 4 == 1:
        return np.swapaxes(_flip(t, x, second), first, second)
    return _flip(t, np.swapaxes(x, first, second), second)


@implements(np.roll)
def _roll(t: Trace, a: Any, shift: Any, axis: Any = None) -> Any:
    if axis is None:
        shape = t.as_traced(a).shape
        flat = map_parts(t, a, lambda x: x.graph.reshape(x, (-1,)))
        return _reshape(t, _roll(t, flat, sum(_as_tuple(shift)), 0), shape)
    shifts, axes = _as_tuple(shift), _as_tuple(axis)
    count = max(len(shifts), len(axes))
    shifts = shifts * count if len(shifts) == 1 else shifts
    axes = axes * count if len(axes) == 1 else axes
    result = t.as_traced(a)
    for axis_shift, roll_axis in zip(shifts, axes, strict=True):
        result = map_parts(
            t, result, partial(_roll_axis, shift=axis_shift, axis=roll_axis)
        )
    return result


def _roll_axis(x: Tensor, shift: int, axis: int) -> Tensor:
    return x.graph.roll(x, shift, axis)


def _as_tuple(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, Sequence | np.ndarray) else (value,)


@implements(np.fft.fftshift)
def _fftshift(t: Trace, x: Any, axes: Any = None) -> Any:
    array = t.as_traced(x)
    shifted_axes = reduction_axes(axes, array.ndim)
    return (
        _roll(t, array, tuple(array.shape[a] // 2 for a in shifted_axes), shifted_axes)
        if shifted_axes
        else array
    )


@implements(np.fft.ifftshift)
def _ifftshift(t: Trace, x: Any, axes: Any = None) -> Any:
    array = t.as_traced(x)
    shifted_axes = reduction_axes(axes, array.ndim)
    return (
        _roll(
            t, array, tuple(-(array.shape[a] // 2) for a in shifted_axes), shifted_axes
        )
        if shifted_axes
        else array
    )


@implements(np.tile)
def _tile(t: Trace, A: Any, reps: Any) -> Any:
    return map_parts(t, A, lambda x: x.graph.tile(x, _as_tuple(reps)))


@implements(np.repeat)
def _repeat(t: Trace, a: Any, repeats: Any, axis: Any = None) -> Any:
    if isinstance(repeats, TracedArray):
        repeats.__index__()
    return map_parts(t, a, lambda x: x.graph.repeat(x, repeats, axis))


_PAD_MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


@implements(np.pad, accepted="mode")
def _pad(
    t: Trace, array: Any, pad_width: Any, mode: Any = "constant", **options: Any
) -> Any:
    if mode not in _PAD_MODES:
        raise trace_error(
            "np.pad",
            f"mode={mode!r} is not supported in a traced function",
            f"expected one of {', '.join(_PAD_MODES)}",
        )
    value = options.pop("constant_values", 0)
    reflect_type = options.pop("reflect_type", "even")
    if reflect_type != "even" or options:
        unsupported = (
            f"{next(iter(options))}="
            if reflect_type == "even"
            else f"reflect_type={reflect_type!r}"
        )
        raise trace_error(
            "np.pad", f"{unsupported} is not supported in a traced function"
        )
    if not isinstance(value, int | float | complex | np.number):
        raise trace_error("np.pad", "constant_values must be one number")
    x = t.as_traced(array)
    if isinstance(pad_width, dict):
        pad_width = [
            pad_width.get(a, pad_width.get(a - x.ndim, 0)) for a in range(x.ndim)
        ]
        pad_width = [(w, w) if isinstance(w, int) else w for w in pad_width]

    def pad_tensor(tensor: Tensor, fill_value: Any) -> Tensor:
        g = tensor.graph
        if tensor.dtype is DType.BOOL:
            as_integers = g.cast(tensor, DType.I32)
            return g.cast(
                g.pad(as_integers, pad_width, mode, int(bool(fill_value))), DType.BOOL
            )
        return g.pad(tensor, pad_width, mode, fill_value)

    if x.im is not None:
        parts = pad_tensor(x.re, np.real(value)), pad_tensor(x.im, np.imag(value))
        return TracedArray(t, *parts, x.dtype)
    return TracedArray(t, pad_tensor(x.re, value), None, x.dtype)


# --- several arrays -------------------------------------------------------------------


@implements(np.concatenate, np.concat)
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
    """Implement `numpy.concatenate` for traced arrays."""
    operands = to_common_dtype(t, list(arrays), dtype)
    if axis is None:
        operands, axis = [x.reshape(-1) for x in operands], 0
    concat_axis = normalize_axis(axis, operands[0].ndim)
    return combine_arrays(t, operands, lambda parts: t.graph.concat(parts, concat_axis))


@implements(np.stack)
def _stack(
    t: Trace,
    arrays: Any,
    axis: int = 0,
    out: Any = None,
    *,
    dtype: Any = None,
    casting: Any = "same_kind",
) -> Any:
    operands = to_common_dtype(t, list(arrays), dtype)
    return combine_arrays(t, operands, lambda parts: t.graph.stack(parts, axis))


def _at_least(t: Trace, a: Any, rank: int) -> Any:
    x = t.as_traced(a)
    while x.ndim < rank:
        shape = (*x.shape, 1) if x.ndim == 2 else (1, *x.shape)
        x = _reshape(t, x, shape)
    return x


def _register_at_least(function: Any, rank: int) -> None:
    def implementation(t: Trace, *arys: Any) -> Any:
        arrays = tuple(_at_least(t, a, rank) for a in arys)
        return arrays[0] if len(arrays) == 1 else arrays

    implements(function)(implementation)


for _function, _rank in ((np.atleast_1d, 1), (np.atleast_2d, 2), (np.atleast_3d, 3)):
    _register_at_least(_function, _rank)


@implements(np.vstack)
def _vstack(t: Trace, tup: Any, *, dtype: Any = None, casting: Any = None) -> Any:
    return concatenate(t, [_at_least(t, a, 2) for a in tup], 0, dtype=dtype)


@implements(np.hstack)
def _hstack(t: Trace, tup: Any, *, dtype: Any = None, casting: Any = None) -> Any:
    arrays = [_at_least(t, a, 1) for a in tup]
    return concatenate(t, arrays, 0 if arrays[0].ndim == 1 else 1, dtype=dtype)


@implements(np.dstack)
def _dstack(t: Trace, tup: Any) -> Any:
    return concatenate(t, [_at_least(t, a, 3) for a in tup], 2)


@implements(np.column_stack)
def _column_stack(t: Trace, tup: Any) -> Any:
    arrays = [t.as_traced(a) for a in tup]
    columns = [x.reshape((-1, 1)) if x.ndim < 2 else x for x in arrays]
    return concatenate(t, columns, 1)


@implements(np.append)
def _append(t: Trace, arr: Any, values: Any, axis: Any = None) -> Any:
    return concatenate(t, [arr, values], axis)


@implements(np.array_split)
def array_split(t: Trace, ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """Implement `numpy.array_split` for traced arrays."""
    x = t.as_traced(ary)
    split_axis = normalize_axis(axis, x.ndim)
    size = x.shape[split_axis]
    if isinstance(indices_or_sections, int | np.integer):
        base_count, remainder = divmod(size, int(indices_or_sections))
        counts = [base_count + (n < remainder) for n in range(int(indices_or_sections))]
        ends = np.cumsum(counts)[:-1].tolist()
    else:
        ends = [int(end) for end in indices_or_sections]
    leading_slices = (slice(None),) * split_axis
    bounds = zip([0, *ends], [*ends, size], strict=True)
    return [x[(*leading_slices, slice(first, last))] for first, last in bounds]


@implements(np.split)
def _split(t: Trace, ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    x = t.as_traced(ary)
    size, sections = x.shape[normalize_axis(axis, x.ndim)], indices_or_sections
    if isinstance(sections, int | np.integer) and (sections < 1 or size % sections):
        problem = (
            f"an axis of {size} elements cannot be split into {sections} equal parts"
        )
        hint = "use np.array_split for unequal parts"
        raise trace_error("np.split", problem, hint=hint)
    return array_split(t, x, sections, axis)


def _register_split(function: Any, axis: int) -> None:
    def implementation(t: Trace, ary: Any, indices_or_sections: Any) -> Any:
        x = t.as_traced(ary)
        return _split(
            t, x, indices_or_sections, 0 if x.ndim == 1 and axis == 1 else axis
        )

    implements(function)(implementation)


for _split_function, _axis in ((np.vsplit, 0), (np.hsplit, 1), (np.dsplit, 2)):
    _register_split(_split_function, _axis)


@implements(*existing_functions("unstack"))
def _unstack(t: Trace, x: Any, /, *, axis: int = 0) -> Any:
    array = t.as_traced(x)
    stack_axis = normalize_axis(axis, array.ndim)
    leading_slices = (slice(None),) * stack_axis
    return tuple(array[(*leading_slices, n)] for n in range(array.shape[stack_axis]))


@implements(np.lib.stride_tricks.sliding_window_view)
def _sliding_window_view(
    t: Trace,
    x: Any,
    window_shape: Any,
    axis: Any = None,
    *,
    subok: bool = False,
    writeable: bool = False,
) -> Any:
    array = t.as_traced(x)
    sizes = _as_tuple(window_shape)
    if axis is None and len(sizes) != array.ndim:
        raise trace_error(
            "np.lib.stride_tricks.sliding_window_view",
            f"got {len(sizes)} window sizes for {array.ndim} axes",
            hint="pass one window size per axis, or select the axes with axis=",
        )
    axes = (
        tuple(range(array.ndim))
        if axis is None
        else reduction_axes(_as_tuple(axis), array.ndim)
    )
    return map_parts(t, array, lambda x: x.graph.windows(x, sizes, axes))


@implements(np.meshgrid, accepted="copy")
def _meshgrid(
    t: Trace, *xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> Any:
    vectors = [t.as_traced(x).reshape(-1) for x in xi]
    grids = [
        x.reshape([-1 if m == n else 1 for m in range(len(vectors))])
        for n, x in enumerate(vectors)
    ]
    if indexing == "xy" and len(grids) > 1:
        grids = [x.swapaxes(0, 1) for x in grids]
    return tuple(grids) if sparse else _broadcast_arrays(t, *grids)
