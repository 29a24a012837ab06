"""Slices with steps, backwards too, and windows that slide: views of several axes.

Bounds are Python's: negative ones count from the end and those outside are brought to
it, so that a slice means the same for every size. No device is known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from rlxweb.ir.derivative import Taken
from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import View
from rlxweb.ir.op import (
    Attr,
    Attrs,
    Op,
    TensorType,
    Types,
    no_flops,
    registry,
    same_type,
)
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, bad_attribute, bad_shape, distinct_axes, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.overlap_back import overlapped
from rlxweb.ops.places_back import one_further

Cut = tuple[int, int, int, int]
"""axis, start, length, step"""


def as_many(attrs: Attrs, *names: str) -> int:
    """How many values each of these attributes has. Errors  AttributeRefused."""
    counts = [len(attrs[name]) for name in names]
    if len(set(counts)) > 1:
        said = ", ".join(f"{n} has {c}" for n, c in zip(names, counts, strict=True))
        raise bad_attribute(said, "there is one of each for an axis")
    return counts[0]


def cuts_of(shape: Shape, attrs: Attrs) -> tuple[Cut, ...]:
    """What a slice takes of each of its axes. Errors  ShapeError, AttributeRefused."""
    as_many(attrs, "axes", "starts", "stops", "steps")
    found = []
    for axis, start, stop, step in zip(
        distinct_axes(attrs["axes"], len(shape)),
        *(attrs[name] for name in ("starts", "stops", "steps")),
        strict=True,
    ):
        if step == 0:
            raise bad_attribute(f"the step on axis {axis} is 0", "a step is not 0")
        taken = range(shape[axis])[start:stop:step]
        # Of none the first may be -1, where no element is.
        first = taken.start if taken else 0
        found.append((axis, first, len(taken), step))
    return tuple(found)


def _sliced(types: Types, attrs: Attrs) -> TensorType:
    shape = list(types[0].shape)
    for axis, _, length, _ in cuts_of(types[0].shape, attrs):
        shape[axis] = length
    return TensorType(tuple(shape), types[0].dtype)


def _is_whole(types: Types, out: TensorType, attrs: Attrs) -> bool:
    return same_type(types, out, attrs) and min(attrs["steps"], default=1) > 0


def _slice(xp: Any, attrs: Attrs, x: Any) -> Any:
    """Forwards, then turned round: not every library has views that go backwards."""
    cut, turned = [slice(None)] * x.ndim, []
    for axis, start, length, step in cuts_of(tuple(x.shape), attrs):
        last = start + (length - 1) * step
        low = max(0, min(start, last))
        cut[axis] = slice(low, low + (length - 1) * abs(step) + 1, abs(step))
        if length == 0:
            cut[axis] = slice(0, 0)
        elif step < 0:
            turned.append(axis)
    x = x[tuple(cut)]
    return xp.flip(x, axis=tuple(turned)) if turned else x


def _slice_layout(layout: Layout, out: Shape, attrs: Attrs) -> Layout:
    for cut in cuts_of(layout.shape, attrs):
        layout = layout.narrow(*cut)
    return layout


def window_counts(shape: Shape, attrs: Attrs) -> tuple[int, ...]:
    """How many windows fit along each axis. Errors  ShapeError, AttributeRefused."""
    as_many(attrs, "axes", "sizes", "steps", "dilations")
    counts = []
    for axis, size, step, dilation in _windows(shape, attrs):
        if size < 1 or step < 1 or dilation < 1:
            raise bad_attribute(
                f"axis {axis}: size {size}, step {step}, dilation {dilation}",
                "each is at least 1",
            )
        reach = (size - 1) * dilation + 1
        if reach > shape[axis]:
            raise bad_shape(
                f"a window reaches over {reach} on axis {axis} of {show(shape)}",
                f"it fits into {shape[axis]}",
                "pad the operand first, or use a smaller window",
            )
        counts.append((shape[axis] - reach) // step + 1)
    return tuple(counts)


def _windows(shape: Shape, attrs: Attrs) -> Iterator[tuple[int, ...]]:
    """(axis, size, step, dilation) of each."""
    axes = distinct_axes(attrs["axes"], len(shape))
    return zip(axes, attrs["sizes"], attrs["steps"], attrs["dilations"], strict=True)


def _windowed(types: Types, attrs: Attrs) -> TensorType:
    shape = list(types[0].shape)
    counts = window_counts(types[0].shape, attrs)
    for axis, count in zip(
        distinct_axes(attrs["axes"], len(shape)), counts, strict=True
    ):
        shape[axis] = count
    return TensorType((*shape, *attrs["sizes"]), types[0].dtype)


def _window(xp: Any, attrs: Attrs, x: Any) -> Any:
    counts = window_counts(tuple(x.shape), attrs)
    every = _windows(tuple(x.shape), attrs)
    found = zip(counts, every, strict=True)
    return windowed(xp, x, ((axis, n, *how) for n, (axis, *how) in found))


def windowed(xp: Any, x: Any, every: Iterable[tuple[int, ...]]) -> Any:
    """Windows along some axes, their elements new last axes.

    every   (axis, how many windows, size, step, dilation) of each
    """
    for axis, count, size, step, dilation in every:
        starts = xp.reshape(xp.arange(count) * step, (count, 1))
        places = starts + xp.reshape(xp.arange(size) * dilation, (1, size))
        taken = xp.take(x, xp.reshape(places, (count * size,)), axis=axis)
        shape = (*x.shape[:axis], count, size, *x.shape[axis + 1 :])
        x = xp.moveaxis(xp.reshape(taken, shape), axis + 1, -1)
    return x


def _window_layout(layout: Layout, out: Shape, attrs: Attrs) -> Layout:
    shape, strides, steps = list(out), list(layout.strides), []
    for axis, _, step, dilation in _windows(layout.shape, attrs):
        steps.append(layout.strides[axis] * dilation)
        strides[axis] *= step
    return Layout(tuple(shape), (*strides, *steps), layout.offset)


def _slice_back(at: Taken) -> list[Tensor | None]:
    """Turned round again, with zeros between and around."""
    g, grad, shape = at.g, at.grad, tuple(at.x.shape)
    cuts = [cut for cut in cuts_of(shape, at.attrs) if cut[2]]
    turned = [axis for axis, *_, step in cuts if step < 0]
    apart = [(axis, abs(step)) for axis, _, length, step in cuts if length > 1]
    grad = g.flip(grad, turned) if turned else grad
    if any(step > 1 for _, step in apart):
        axes, steps = zip(*apart, strict=True)
        grad = g.apply("dilate", grad, axes=axes, steps=steps)
    pads = [(0, n - m) for n, m in zip(shape, grad.shape, strict=True)]
    for axis, start, length, step in cuts:
        low = min(start, start + (length - 1) * step)
        pads[axis] = low, shape[axis] - low - grad.shape[axis]
    return [g.pad(grad, pads) if pads else grad]


def _windows_back(at: Taken) -> list[Tensor | None]:
    """The last axis of each window beside its places, and both taken back as one."""
    grad, shape, g = at.grad, tuple(at.x.shape), at.g
    for axis, _, step, dilation in reversed(list(_windows(shape, at.attrs))):
        beside = g.moveaxis(grad, axis, -2)
        grad = g.moveaxis(overlapped(beside, step, dilation, shape[axis]), -1, axis)
    return [grad]


def _case(
    names: str, shape: Shape, *rows: tuple[int, ...], dtype: DType = DType.F32
) -> Sample:
    """A sample whose attributes are the columns of rows, one for each axis."""
    every = names.split()
    columns = zip(*rows, strict=True) if rows else ((),) * len(every)
    attrs = {name: tuple(column) for name, column in zip(every, columns, strict=True)}
    return Sample((Drawn(shape, dtype, -9, 9, whole=True),), attrs)


_SLICED = ("axes", "starts", "stops", "steps")
_WINDOWED = ("axes", "sizes", "steps", "dilations")
_slicing = partial(_case, " ".join(_SLICED))
_windowing = partial(_case, " ".join(_WINDOWED))
_FAR = 1 << 62
_BACK = (_FAR, -_FAR, -1)
_view = partial(Op, traits=frozenset({"view"}), flops=no_flops)

registry.register_all(
    _view(
        name="slice",
        infer=_sliced,
        reference=_slice,
        lower=View(_slice_layout),
        attrs=tuple(Attr(name, "ints") for name in _SLICED),
        unchanged=_is_whole,
        samples=(
            _slicing((1,), (0, *_BACK)),
            _slicing((5, 0), (0, 1, 4, 2), (1, *_BACK)),
            _slicing((65_537, 2), (0, *_BACK), (-1, *_BACK)),
            _slicing((4, 7, 5), (1, -1, 0, -3), (2, 1, _FAR, 2)),
            _slicing((4, 6, 12), (0, *_BACK), (2, 4, 12, 1)),
            *(
                _slicing((3, 9), (-1, 7, -_FAR, -2), (0, *_BACK), dtype=d)
                for d in (DType.I32, DType.BOOL, DType.F16, DType.I64)
            ),
        ),
        vjp=_slice_back,
        batch=one_further,
        doc="Every `step`-th element of some axes from `start` to before `stop`, with "
        "Python's bounds: negative ones count from the end, and a negative step goes "
        "backwards.",
    ),
    _view(
        name="windows",
        infer=_windowed,
        reference=_window,
        lower=View(_window_layout),
        attrs=tuple(Attr(name, "ints") for name in _WINDOWED),
        samples=(
            _windowing((1,), (0, 1, 1, 1)),
            _windowing((0, 5), (1, 3, 1, 2)),
            _windowing((65_537, 2), (0, 2, 1, 1)),
            _windowing((2, 7, 9), (1, 3, 2, 1), (-1, 2, 1, 3)),
            _windowing((2, 7, 9), (2, 3, 3, 1), (1, 2, 1, 2), dtype=DType.I32),
            _windowing((5, 9), (0, 2, 1, 1), (1, 4, 5, 1), dtype=DType.F16),
        ),
        vjp=_windows_back,
        batch=one_further,
        doc="Windows that slide along some axes: these become the windows' places, and "
        "new last axes their elements, as numpy.lib.stride_tricks.sliding_window_view; "
        "every `step`-th window, elements `dilation` apart.",
    ),
)
