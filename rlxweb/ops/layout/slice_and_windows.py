"""Strided slices, backwards too, and sliding windows: views along several axes.

Bounds are Python's: negative ones count from the end and those outside are brought to
it, so that a slice means the same for every size. No device is known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from rlxweb.ir.derivative import VjpContext
from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import View
from rlxweb.ir.op import (
    Attr,
    Attrs,
    Op,
    TensorType,
    Types,
    has_same_type,
    no_flops,
    registry,
)
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import (
    Shape,
    bad_attribute,
    bad_shape,
    format_shape,
    normalize_axes,
)
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.layout.index_map_vjp import batch_shifted_axes
from rlxweb.ops.layout.windows_frames_vjp import overlap_add

AxisSlice = tuple[int, int, int, int]
"""Slice of one axis: (axis, start, length, step)."""


def check_equal_lengths(attrs: Attrs, *names: str) -> int:
    """Return the common number of values of several attributes. Errors
    AttributeRefused.
    """
    counts = [len(attrs[name]) for name in names]
    if len(set(counts)) > 1:
        lengths = ", ".join(f"{n} {c}" for n, c in zip(names, counts, strict=True))
        raise bad_attribute(
            f"the attributes differ in length: {lengths}",
            "every attribute must have one value per axis",
        )
    return counts[0]


def axis_slices(shape: Shape, attrs: Attrs) -> tuple[AxisSlice, ...]:
    """Return the slice of each axis that the attributes select. Errors  ShapeError,
    AttributeRefused.
    """
    check_equal_lengths(attrs, "axes", "starts", "stops", "steps")
    slices = []
    for axis, start, stop, step in zip(
        normalize_axes(attrs["axes"], len(shape)),
        *(attrs[name] for name in ("starts", "stops", "steps")),
        strict=True,
    ):
        if step == 0:
            raise bad_attribute(f"the step on axis {axis} is 0", "a step must not be 0")
        selected_range = range(shape[axis])[start:stop:step]
        # Of none the first may be -1, where no element is.
        first = selected_range.start if selected_range else 0
        slices.append((axis, first, len(selected_range), step))
    return tuple(slices)


def _infer_slice(types: Types, attrs: Attrs) -> TensorType:
    shape = list(types[0].shape)
    for axis, _, length, _ in axis_slices(types[0].shape, attrs):
        shape[axis] = length
    return TensorType(tuple(shape), types[0].dtype)


def _is_full_slice(types: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether the slice takes the whole operand in order."""
    return has_same_type(types, out, attrs) and min(attrs["steps"], default=1) > 0


def _slice_reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    """Slice forwards and then flip, since not every library has views with negative
    steps.
    """
    slices, flipped_axes = [slice(None)] * x.ndim, []
    for axis, start, length, step in axis_slices(tuple(x.shape), attrs):
        last = start + (length - 1) * step
        low = max(0, min(start, last))
        slices[axis] = slice(low, low + (length - 1) * abs(step) + 1, abs(step))
        if length == 0:
            slices[axis] = slice(0, 0)
        elif step < 0:
            flipped_axes.append(axis)
    x = x[tuple(slices)]
    return xp.flip(x, axis=tuple(flipped_axes)) if flipped_axes else x


def _slice_layout(layout: Layout, out: Shape, attrs: Attrs) -> Layout:
    for axis_slice in axis_slices(layout.shape, attrs):
        layout = layout.narrow(*axis_slice)
    return layout


def window_counts(shape: Shape, attrs: Attrs) -> tuple[int, ...]:
    """Return the number of windows that fit along each axis. Errors  ShapeError,
    AttributeRefused.
    """
    check_equal_lengths(attrs, "axes", "sizes", "steps", "dilations")
    counts = []
    for axis, size, step, dilation in _window_specs(shape, attrs):
        if size < 1 or step < 1 or dilation < 1:
            raise bad_attribute(
                f"axis {axis}: size {size}, step {step}, dilation {dilation}",
                "size, step and dilation must be at least 1",
            )
        reach = (size - 1) * dilation + 1
        if reach > shape[axis]:
            raise bad_shape(
                f"a window spans {reach} elements on axis {axis} of "
                f"{format_shape(shape)}",
                f"the axis has {shape[axis]} elements",
                "pad the operand first, or use a smaller window",
            )
        counts.append((shape[axis] - reach) // step + 1)
    return tuple(counts)


def _window_specs(shape: Shape, attrs: Attrs) -> Iterator[tuple[int, ...]]:
    """Iterate over the (axis, size, step, dilation) of each windowed axis."""
    axes = normalize_axes(attrs["axes"], len(shape))
    return zip(axes, attrs["sizes"], attrs["steps"], attrs["dilations"], strict=True)


def _infer_windows(types: Types, attrs: Attrs) -> TensorType:
    shape = list(types[0].shape)
    counts = window_counts(types[0].shape, attrs)
    for axis, count in zip(
        normalize_axes(attrs["axes"], len(shape)), counts, strict=True
    ):
        shape[axis] = count
    return TensorType((*shape, *attrs["sizes"]), types[0].dtype)


def _windows_reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    counts = window_counts(tuple(x.shape), attrs)
    specs = _window_specs(tuple(x.shape), attrs)
    counted_specs = zip(counts, specs, strict=True)
    return take_windows(
        xp, x, ((axis, count, *spec) for count, (axis, *spec) in counted_specs)
    )


def take_windows(xp: Any, x: Any, specs: Iterable[tuple[int, ...]]) -> Any:
    """Take windows along some axes, with the window elements as new last axes.

    specs   (axis, how many windows, size, step, dilation) of each
    """
    for axis, count, size, step, dilation in specs:
        starts = xp.reshape(xp.arange(count) * step, (count, 1))
        positions = starts + xp.reshape(xp.arange(size) * dilation, (1, size))
        elements = xp.take(x, xp.reshape(positions, (count * size,)), axis=axis)
        shape = (*x.shape[:axis], count, size, *x.shape[axis + 1 :])
        x = xp.moveaxis(xp.reshape(elements, shape), axis + 1, -1)
    return x


def _window_layout(layout: Layout, out: Shape, attrs: Attrs) -> Layout:
    shape, strides, steps = list(out), list(layout.strides), []
    for axis, _, step, dilation in _window_specs(layout.shape, attrs):
        steps.append(layout.strides[axis] * dilation)
        strides[axis] *= step
    return Layout(tuple(shape), (*strides, *steps), layout.offset)


def _slice_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `slice`: flip again, with zeros between and around."""
    g, grad, shape = ctx.g, ctx.grad, tuple(ctx.x.shape)
    slices = [
        axis_slice for axis_slice in axis_slices(shape, ctx.attrs) if axis_slice[2]
    ]
    flipped_axes = [axis for axis, *_, step in slices if step < 0]
    axis_steps = [(axis, abs(step)) for axis, _, length, step in slices if length > 1]
    grad = g.flip(grad, flipped_axes) if flipped_axes else grad
    if any(step > 1 for _, step in axis_steps):
        axes, steps = zip(*axis_steps, strict=True)
        grad = g.apply("dilate", grad, axes=axes, steps=steps)
    pads = [
        (0, size - grad_size) for size, grad_size in zip(shape, grad.shape, strict=True)
    ]
    for axis, start, length, step in slices:
        low = min(start, start + (length - 1) * step)
        pads[axis] = low, shape[axis] - low - grad.shape[axis]
    return [g.pad(grad, pads) if pads else grad]


def _windows_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `windows`: move the last axis of each window next to its positions and
    overlap-add both into one axis.
    """
    grad, shape, g = ctx.grad, tuple(ctx.x.shape), ctx.g
    for axis, _, step, dilation in reversed(list(_window_specs(shape, ctx.attrs))):
        windows = g.moveaxis(grad, axis, -2)
        grad = g.moveaxis(overlap_add(windows, step, dilation, shape[axis]), -1, axis)
    return [grad]


def _case(
    names: str, shape: Shape, *rows: tuple[int, ...], dtype: DType = DType.F32
) -> Sample:
    """Return a sample whose attributes are the columns of rows, one row per axis."""
    attr_names = names.split()
    columns = zip(*rows, strict=True) if rows else ((),) * len(attr_names)
    attrs = {
        name: tuple(column) for name, column in zip(attr_names, columns, strict=True)
    }
    return Sample((Drawn(shape, dtype, -9, 9, whole=True),), attrs)


_SLICE_ATTRS = ("axes", "starts", "stops", "steps")
_WINDOW_ATTRS = ("axes", "sizes", "steps", "dilations")
_slice_case = partial(_case, " ".join(_SLICE_ATTRS))
_window_case = partial(_case, " ".join(_WINDOW_ATTRS))
_UNBOUNDED = 1 << 62
_REVERSED = (_UNBOUNDED, -_UNBOUNDED, -1)
_view_op = partial(Op, traits=frozenset({"view"}), flops=no_flops)

registry.register_all(
    _view_op(
        name="slice",
        infer=_infer_slice,
        reference=_slice_reference,
        lower=View(_slice_layout),
        attrs=tuple(Attr(name, "ints") for name in _SLICE_ATTRS),
        is_noop=_is_full_slice,
        samples=(
            _slice_case((1,), (0, *_REVERSED)),
            _slice_case((5, 0), (0, 1, 4, 2), (1, *_REVERSED)),
            _slice_case((65_537, 2), (0, *_REVERSED), (-1, *_REVERSED)),
            _slice_case((4, 7, 5), (1, -1, 0, -3), (2, 1, _UNBOUNDED, 2)),
            _slice_case((4, 6, 12), (0, *_REVERSED), (2, 4, 12, 1)),
            *(
                _slice_case((3, 9), (-1, 7, -_UNBOUNDED, -2), (0, *_REVERSED), dtype=d)
                for d in (DType.I32, DType.BOOL, DType.F16, DType.I64)
            ),
        ),
        vjp=_slice_vjp,
        batch=batch_shifted_axes,
        doc="Every step-th element of some axes from start up to but excluding stop, "
        "like Python slices: negative bounds count from the end, and a negative step "
        "goes backwards. The attributes `starts`, `stops` and `steps` have one value "
        "per axis.",
    ),
    _view_op(
        name="windows",
        infer=_infer_windows,
        reference=_windows_reference,
        lower=View(_window_layout),
        attrs=tuple(Attr(name, "ints") for name in _WINDOW_ATTRS),
        samples=(
            _window_case((1,), (0, 1, 1, 1)),
            _window_case((0, 5), (1, 3, 1, 2)),
            _window_case((65_537, 2), (0, 2, 1, 1)),
            _window_case((2, 7, 9), (1, 3, 2, 1), (-1, 2, 1, 3)),
            _window_case((2, 7, 9), (2, 3, 3, 1), (1, 2, 1, 2), dtype=DType.I32),
            _window_case((5, 9), (0, 2, 1, 1), (1, 4, 5, 1), dtype=DType.F16),
        ),
        vjp=_windows_vjp,
        batch=batch_shifted_axes,
        doc="Sliding windows along some axes, like "
        "numpy.lib.stride_tricks.sliding_window_view: these axes become the window "
        "positions, and new last axes hold the window elements. Only every step-th "
        "window is taken, and the elements of a window are dilation positions apart; "
        "the attributes `sizes`, `steps` and `dilations` have one value per axis.",
    ),
)
