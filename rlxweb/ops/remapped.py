"""Ops that a table for each axis says all about: pad, tile, repeat, roll, dilate.

The rules of what becomes of each axis, and the records made of them. No device is known
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from rlxweb.ir.batching import along
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attr, Attrs, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import (
    Shape,
    as_shape,
    bad_attribute,
    bad_shape,
    distinct_axes,
    show,
)
from rlxweb.ops.mapped import Mapped, in_runs, remapped, within
from rlxweb.ops.places_back import one_further
from rlxweb.ops.remapped_back import (
    dilated_back,
    padded_back,
    repeated_back,
    rolled_back,
    tiled_back,
)
from rlxweb.ops.slices import as_many
from rlxweb.recipes.remap_calls import Table

_FEW = 16
"""Times of a tile that are put together one by one."""

MODES = ("constant", "reflect", "edge", "wrap", "symmetric")


def _on_axes(
    shape: Shape, axes: Sequence[int], found: Sequence[Mapped | None]
) -> list[Mapped | None]:
    """What becomes of some distinct axes, beside those that stay."""
    every: list[Mapped | None] = [None] * len(shape)
    for axis, one in zip(axes, found, strict=True):
        every[axis] = one
    return every


def padded(size: int, before: int, after: int, mode: str) -> Table:
    """Where the elements of an axis padded by itself come from, as numpy.pad has it."""
    at = np.arange(-before, size + after)
    if mode == "edge":
        at = np.clip(at, 0, max(size - 1, 0))
    elif mode == "wrap":
        at = at % max(size, 1)
    else:  # there and back again; the turning points once or twice
        twice = int(mode == "symmetric")
        period = max(2 * size - 2 + 2 * twice, 1)
        at = at % period
        at = np.where(at < size, at, period - at - twice)
    return at.astype(np.int32)


def _pad(shape: Shape, attrs: Attrs) -> list[Mapped | None]:
    as_many(attrs, "axes", "before", "after")
    axes, mode = distinct_axes(attrs["axes"], len(shape)), attrs["mode"]
    found: list[Mapped | None] = []
    for axis, before, after in zip(axes, attrs["before"], attrs["after"], strict=True):
        size = shape[axis]
        length = size + before + after
        if length < 0:
            raise bad_shape(
                f"{before} before and {after} after axis {axis} of {show(shape)}",
                f"they take away more than the {size} that are there",
            )
        if mode == "constant":
            found.append(within(size, before, length))
            continue
        if size == 0 and length:
            raise bad_shape(
                f"an axis of 0 elements is to be padded by {mode}",
                "there is nothing to repeat",
                'pad it with mode="constant"',
            )
        found.append(Mapped(length, partial(padded, size, before, after, mode)))
    return _on_axes(shape, axes, found)


def _tile(shape: Shape, attrs: Attrs) -> list[Mapped | None]:
    repeats = as_shape(attrs["repeats"])
    if len(repeats) != len(shape):
        raise bad_attribute(
            f"{len(repeats)} repeats for {show(shape)}", "there is one for each axis"
        )
    return [
        None if r == 1 else _again(n, r) for n, r in zip(shape, repeats, strict=True)
    ]


def _again(size: int, times: int) -> Mapped:
    def table() -> Table:
        return np.tile(np.arange(size, dtype=np.int32), times)

    few = times if times <= _FEW and size else 0
    return Mapped(size * times, table, ((0, size),) * few)


def _repeat(shape: Shape, attrs: Attrs) -> list[Mapped | None]:
    (axis,) = distinct_axes((attrs["axis"],), len(shape))
    size, repeats = shape[axis], attrs["repeats"]
    if len(repeats) not in (1, size):
        raise bad_attribute(
            f"{len(repeats)} repeats for {size} elements of axis {axis}",
            "one for all or one for each",
        )
    if min(repeats, default=0) < 0:
        raise bad_attribute(f"{min(repeats)} repeats", "at least 0")
    length = size * repeats[0] if len(repeats) == 1 else sum(repeats)

    def table() -> Table:
        return np.repeat(np.arange(size, dtype=np.int32), repeats)

    return _on_axes(shape, (axis,), [Mapped(length, table)])


def _roll(shape: Shape, attrs: Attrs) -> list[Mapped | None]:
    as_many(attrs, "shifts", "axes")
    axes, found = distinct_axes(attrs["axes"], len(shape)), []
    for axis, shift in zip(axes, attrs["shifts"], strict=True):
        size = shape[axis]
        by = shift % max(size, 1)
        found.append(in_runs((size - by, by), (0, size - by)))
    return _on_axes(shape, axes, found)


def _dilate(shape: Shape, attrs: Attrs) -> list[Mapped | None]:
    as_many(attrs, "axes", "steps")
    axes, found = distinct_axes(attrs["axes"], len(shape)), []
    for axis, step in zip(axes, attrs["steps"], strict=True):
        if step < 1:
            raise bad_attribute(f"step {step} on axis {axis}", "it is at least 1")
        length = max((shape[axis] - 1) * step + 1, 0)
        found.append(Mapped(length, partial(_apart, length, step)))
    return _on_axes(shape, axes, found)


def _apart(length: int, step: int) -> Table:
    at = np.arange(length)
    return np.where(at % step == 0, at // step, -1).astype(np.int32)


def _remap(shape: Shape, attrs: Attrs) -> list[Mapped | None]:
    axes, sizes = distinct_axes(attrs["axes"], len(shape)), as_shape(attrs["sizes"])
    places = attrs["places"]
    if len(axes) != len(sizes) or sum(sizes) != len(places):
        raise bad_attribute(
            f"{len(axes)} axes, {len(sizes)} sizes that are {sum(sizes)} together, and "
            f"{len(places)} places",
            "a size for each axis, and a place for each position",
        )
    found, begin = [], 0
    for axis, size in zip(axes, sizes, strict=True):
        own, begin = places[begin : begin + size], begin + size
        if own and not (-1 <= min(own) and max(own) < shape[axis]):
            at = next(n for n, p in enumerate(own) if not -1 <= p < shape[axis])
            raise bad_attribute(
                f"place {own[at]} at position {at} of axis {axis}",
                f"-1 (the value) or 0 <= place < {shape[axis]}",
            )
        found.append(Mapped(size, partial(np.array, own, np.int32)))
    return _on_axes(shape, axes, found)


# --- the records ------------------------------------------------------------------


def _case(shape: Shape, dtype: DType = DType.F32, /, **attrs: Any) -> Sample:
    return Sample((Drawn(shape, dtype, -9, 9, whole=True),), attrs)


def _padding(
    shape: Shape,
    *rows: tuple[int, int, int],
    mode: str = "constant",
    value: float = 0.0,
    dtype: DType = DType.F32,
) -> Sample:
    axes, before, after = zip(*rows, strict=True) if rows else ((), (), ())
    how = {"axes": axes, "before": before, "after": after}
    return _case(shape, dtype, **how, mode=mode, value=value)


_VALUE = Attr("value", "float", 0.0)
_SIZES = ((8, 8), (256, 256))

registry.register_all(
    remapped(
        "pad",
        _pad,
        attrs=(
            *(Attr(name, "ints") for name in ("axes", "before", "after")),
            Attr("mode", "str", "constant", allowed=MODES),
            _VALUE,
        ),
        samples=(
            _padding((1,), (0, 1, 2), value=-2.5),
            _padding((3, 0), (1, 2, 1), (0, 0, 1), value=7),
            _padding((65_537, 2), (1, 1, 0)),
            _padding((2, 5, 7), (1, 2, 1), (-1, -1, 3), value=float("inf")),
            _padding((2, 5, 7), (1, 6, 9), (2, 2, 0), mode="reflect"),
            _padding((5, 1, 3), (1, 2, 2), (0, 0, 3), mode="edge"),
            _padding((2, 3, 5), (2, 7, -1), (1, 1, 1), mode="wrap"),
            _padding((4, 3), (1, 4, 2), (0, 1, -1), mode="symmetric"),
            _padding((3, 4), (0, 1, 0), (1, 1, 1), value=-3, dtype=DType.I32),
            _padding((3, 4), (0, 1, 0), (1, 1, 1), value=1, dtype=DType.BOOL),
            _padding((3, 4), (0, 1, 0), (1, 1, 1), value=0.5, dtype=DType.F16),
            _padding((3, 4), (0, 1, 1), value=9, dtype=DType.I64),
        ),
        telling=tuple(_padding(s, (0, 1, 1), (1, 1, 1)) for s in _SIZES),
        vjp=padded_back(padded),
        batch=one_further,
        doc="More elements before and after some axes, as numpy.pad: of a `value`, or "
        "of what is there. Negative counts take elements away.",
    ),
    remapped(
        "tile",
        _tile,
        attrs=(Attr("repeats", "ints"),),
        samples=(
            _case((1,), repeats=(3,)),
            _case((0, 2), repeats=(2, 1)),
            _case((3, 5), repeats=(2, 0)),
            _case((65_537, 2), repeats=(1, 2)),
            _case((2, 3, 5), DType.I32, repeats=(3, 1, 2)),
            _case((2, 3), DType.BOOL, repeats=(1, 2)),
        ),
        telling=tuple(_case(s, repeats=(2, 1)) for s in _SIZES),
        vjp=tiled_back,
        batch=lambda at: at.apply(at.x, repeats=(1, *at.attrs["repeats"])),
        doc="The operand again and again along each axis, as numpy.tile.",
    ),
    remapped(
        "repeat",
        _repeat,
        attrs=(Attr("repeats", "ints"), Attr("axis", "int", 0)),
        samples=(
            _case((1,), repeats=(3,)),
            _case((0, 2), repeats=(2,)),
            _case((65_537, 2), repeats=(2,), axis=-1),
            _case((2, 3), DType.I32, repeats=(2, 0, 5), axis=1),
            _case((3, 2, 2), DType.F16, repeats=(2,), axis=1),
        ),
        telling=tuple(_case(s, repeats=(2,), axis=1) for s in _SIZES),
        vjp=repeated_back,
        batch=along("axis"),
        doc="Each element of an axis so many times, as numpy.repeat: one count for "
        "all or one for each.",
    ),
    remapped(
        "roll",
        _roll,
        attrs=(Attr("shifts", "ints"), Attr("axes", "ints")),
        samples=(
            _case((1,), shifts=(3,), axes=(0,)),
            _case((0, 2), shifts=(2, 1), axes=(0, 1)),
            _case((65_537, 2), shifts=(-1,), axes=(1,)),
            _case((2, 3, 5), DType.I32, shifts=(1, -7), axes=(-1, 1)),
            _case((2, 3), DType.BOOL, shifts=(-1,), axes=(1,)),
        ),
        telling=tuple(_case(s, shifts=(3,), axes=(1,)) for s in _SIZES),
        vjp=rolled_back,
        batch=one_further,
        doc="The elements moved along some axes; what leaves at an end comes back at "
        "the other, as numpy.roll.",
    ),
    remapped(
        "dilate",
        _dilate,
        attrs=(Attr("axes", "ints"), Attr("steps", "ints"), _VALUE),
        samples=(
            _case((1,), axes=(0,), steps=(4,)),
            _case((0, 3), axes=(0, 1), steps=(2, 3)),
            _case((65_537, 2), axes=(1,), steps=(2,)),
            _case((2, 3, 5), axes=(1, -1), steps=(2, 3), value=-1.5),
            _case((2, 3), DType.I32, axes=(1,), steps=(3,), value=7),
        ),
        telling=tuple(_case(s, axes=(0, 1), steps=(2, 2)) for s in _SIZES),
        vjp=dilated_back,
        batch=one_further,
        doc="`step` - 1 times a value between neighbours of some axes, for transposed "
        "convolutions.",
    ),
    remapped(
        "remap",
        _remap,
        attrs=(*(Attr(n, "ints") for n in ("axes", "sizes", "places")), _VALUE),
        samples=(
            _case((1,), axes=(0,), sizes=(3,), places=(0, -1, 0)),
            _case((0, 3), axes=(1,), sizes=(2,), places=(2, 1)),
            _case((32_769, 2), axes=(1,), sizes=(3,), places=(1, -1, 0), value=2.5),
            _case((3, 2, 5), axes=(-1, 0), sizes=(2, 3), places=(4, -1, 2, 2, 0)),
            _case((3, 2), DType.U32, axes=(0,), sizes=(2,), places=(-1, 1), value=3),
        ),
        telling=tuple(
            _case(s, axes=(1,), sizes=s[1:], places=tuple(reversed(range(s[1]))))
            for s in _SIZES
        ),
        batch=one_further,
        doc="Elements by tables of places along some axes: `sizes` of them, one behind "
        "the other in `places`; -1 is the value.",
    ),
)
