"""Ops that a table for each axis says all about: pad, tile, repeat, roll, dilate.

An op here is a rule from shape and attributes to tables of places in the operand, -1
where a value that is given stands. `remapped` makes the record of one; the pass that a
GPU makes is in `recipes/remap_calls.py`. No device is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Kernel, Recipe
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, no_flops, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import (
    Shape,
    as_shape,
    bad_attribute,
    bad_dtype,
    bad_shape,
    distinct_axes,
    show,
)
from rlxweb.ops.slices import as_many
from rlxweb.recipes.remap_calls import Table, remap_recipe, run_of, shifted

Tables = Callable[[Shape, Attrs], Sequence[Table | None]]
"""(operand's shape, attributes) → a table for each axis, None for one as it is."""
Value = Callable[[Attrs], float]


def _no_value(attrs: Attrs) -> float:
    return 0.0


def remapped(
    name: str, tables: Tables, *, value: Value = _no_value, **record: Any
) -> Op:
    """The record of an op whose tables are made by that rule.

    value   what stands where a table says -1
    """

    def infer(types: Types, attrs: Attrs) -> TensorType:
        shape, dtype = types[0].shape, types[0].dtype
        must_hold(dtype, value(attrs))
        found = zip(shape, tables(shape, attrs), strict=True)
        return TensorType(
            as_shape([n if t is None else len(t) for n, t in found]), dtype
        )

    def reference(xp: Any, attrs: Attrs, x: Any) -> Any:
        every = tables(tuple(x.shape), attrs)
        for axis, table in enumerate(every):
            if table is not None:
                x = along(xp, x, axis, table, value(attrs))
        return x

    def recipe(types: Types, out: TensorType, attrs: Attrs) -> Recipe:
        shape = types[0].shape
        return remap_recipe(shape, tables(shape, attrs), out.dtype, value(attrs))

    return Op(
        name=name,
        infer=infer,
        reference=reference,
        lower=Kernel(recipe),
        flops=no_flops,
        **record,
    )


def must_hold(dtype: DType, value: float) -> None:
    """Errors  DTypeError for a value that the type has not."""
    if dtype.is_float:
        return
    least, most = (0, 1) if dtype is DType.BOOL else _bounds(dtype)
    if not (least <= value <= most and value == int(value)):
        raise bad_dtype(
            f"the value {value:g} among {dtype} elements",
            f"they are whole numbers from {least} to {most}",
            "cast the operand, or give a value its type can hold",
        )


def _bounds(dtype: DType) -> tuple[int, int]:
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


def along(xp: Any, x: Any, axis: int, table: Table, value: float) -> Any:
    """One axis by its table: a slice between two blocks of the value, where it is no
    more than that.
    """
    shape = (*x.shape[:axis], len(table), *x.shape[axis + 1 :])
    is_there = table >= 0
    if not is_there.any():
        return _filled(xp, shape, value, x)
    if run := run_of(table):
        first, start, kept = run
        made = x[(*(slice(None),) * axis, slice(start, start + kept))]
        blocks = [
            _filled(xp, (*shape[:axis], width, *shape[axis + 1 :]), value, x)
            for width in (first, len(table) - first - kept)
        ]
        parts = [one for one in (blocks[0], made, blocks[1]) if one.shape[axis]]
        return xp.concat(parts, axis=axis) if len(parts) > 1 else parts[0]
    x = xp.take(x, xp.asarray(np.maximum(table, 0)), axis=axis)
    if is_there.all():
        return x
    inside = np.reshape(is_there, (-1, *(1,) * (len(shape) - axis - 1)))
    return xp.where(xp.asarray(inside), x, _filled(xp, (1,) * len(shape), value, x))


def _filled(xp: Any, shape: Shape, value: float, like: Any) -> Any:
    one = np.full((1,) * len(shape), value).astype(numpy_dtype(xp, like))
    return xp.broadcast_to(xp.asarray(one), shape)


def numpy_dtype(xp: Any, x: Any) -> Any:
    """NumPy's dtype of an array of `xp`."""
    return next(d.numpy for d in DType if _is(xp, x, d))


def _is(xp: Any, x: Any, dtype: DType) -> bool:
    name = "bool_" if dtype is DType.BOOL else dtype.numpy.name
    return hasattr(xp, name) and bool(x.dtype == getattr(xp, name))


def on_axes(
    shape: Shape, axes: Sequence[int], tables: Sequence[Table | None]
) -> list[Table | None]:
    """Tables of some axes as those of all."""
    every: list[Table | None] = [None] * len(shape)
    for axis, table in zip(distinct_axes(axes, len(shape)), tables, strict=True):
        every[axis] = table
    return every


# --- the rules --------------------------------------------------------------------

MODES = ("constant", "reflect", "edge", "wrap", "symmetric")


def padded(size: int, before: int, after: int, mode: str) -> Table | None:
    """Where the elements of a padded axis come from, as numpy.pad has it."""
    if mode == "constant":
        return shifted(size, before, size + before + after)
    at = np.arange(-before, size + after)
    if size == 0 and len(at):
        raise bad_shape(
            f"an axis of 0 elements is to be padded by {mode}",
            "there is nothing to repeat",
            'pad it with mode="constant"',
        )
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


def _pad(shape: Shape, attrs: Attrs) -> list[Table | None]:
    as_many(attrs, "axes", "before", "after")
    axes = distinct_axes(attrs["axes"], len(shape))
    tables: list[Table | None] = []
    for axis, before, after in zip(axes, attrs["before"], attrs["after"], strict=True):
        if shape[axis] + before + after < 0:
            raise bad_shape(
                f"{before} before and {after} after axis {axis} of {show(shape)}",
                f"they take away more than the {shape[axis]} that are there",
            )
        tables.append(padded(shape[axis], before, after, attrs["mode"]))
    return on_axes(shape, axes, tables)


def _tile(shape: Shape, attrs: Attrs) -> list[Table | None]:
    repeats = as_shape(attrs["repeats"])
    if len(repeats) != len(shape):
        raise bad_attribute(
            f"{len(repeats)} repeats for {show(shape)}", "there is one for each axis"
        )
    return [
        None if r == 1 else np.tile(np.arange(n, dtype=np.int32), r)
        for n, r in zip(shape, repeats, strict=True)
    ]


def _repeat(shape: Shape, attrs: Attrs) -> list[Table | None]:
    (axis,) = distinct_axes((attrs["axis"],), len(shape))
    repeats = (
        as_shape(attrs["repeats"]) if len(attrs["repeats"]) < 9 else attrs["repeats"]
    )
    if len(repeats) not in (1, shape[axis]) or min(repeats, default=0) < 0:
        raise bad_attribute(
            f"{len(repeats)} repeats for {shape[axis]} elements of axis {axis}",
            "one for all or one for each, at least 0",
        )
    each = repeats[0] if len(repeats) == 1 else repeats
    return on_axes(
        shape, (axis,), [np.repeat(np.arange(shape[axis], dtype=np.int32), each)]
    )


def _roll(shape: Shape, attrs: Attrs) -> list[Table | None]:
    as_many(attrs, "shifts", "axes")
    axes = distinct_axes(attrs["axes"], len(shape))
    sizes = [shape[axis] for axis in axes]
    tables = [
        np.roll(np.arange(n, dtype=np.int32), shift % max(n, 1))
        for n, shift in zip(sizes, attrs["shifts"], strict=True)
    ]
    return on_axes(shape, axes, tables)


def _dilate(shape: Shape, attrs: Attrs) -> list[Table | None]:
    as_many(attrs, "axes", "steps")
    axes, tables = distinct_axes(attrs["axes"], len(shape)), []
    for axis, step in zip(axes, attrs["steps"], strict=True):
        if step < 1:
            raise bad_attribute(f"step {step} on axis {axis}", "it is at least 1")
        at = np.arange(max((shape[axis] - 1) * step + 1, 0))
        tables.append(np.where(at % step == 0, at // step, -1).astype(np.int32))
    return on_axes(shape, axes, tables)


def _remap(shape: Shape, attrs: Attrs) -> list[Table | None]:
    axes, sizes = distinct_axes(attrs["axes"], len(shape)), as_shape(attrs["sizes"])
    places = np.asarray(attrs["places"], np.int64)
    if len(axes) != len(sizes) or sum(sizes) != len(places):
        raise bad_attribute(
            f"{len(axes)} axes, {len(sizes)} sizes that are {sum(sizes)} together, and "
            f"{len(places)} places",
            "a size for each axis, and a place for each position",
        )
    tables = np.split(places, np.cumsum(sizes)[:-1]) if axes else []
    for axis, table in zip(axes, tables, strict=True):
        outside = (table < -1) | (table >= shape[axis])
        if outside.any():
            at = int(np.argmax(outside))
            raise bad_attribute(
                f"place {table[at]} at position {at} of axis {axis}",
                f"-1 (the value) or 0 <= place < {shape[axis]}",
            )
    return on_axes(shape, axes, [t.astype(np.int32) for t in tables])


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
        value=lambda attrs: float(attrs["value"]),
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
        doc="The elements moved along some axes; what leaves at an end comes back at "
        "the other, as numpy.roll.",
    ),
    remapped(
        "dilate",
        _dilate,
        value=lambda attrs: float(attrs["value"]),
        attrs=(Attr("axes", "ints"), Attr("steps", "ints"), _VALUE),
        samples=(
            _case((1,), axes=(0,), steps=(4,)),
            _case((0, 3), axes=(0, 1), steps=(2, 3)),
            _case((65_537, 2), axes=(1,), steps=(2,)),
            _case((2, 3, 5), axes=(1, -1), steps=(2, 3), value=-1.5),
            _case((2, 3), DType.I32, axes=(1,), steps=(3,), value=7),
        ),
        telling=tuple(_case(s, axes=(0, 1), steps=(2, 2)) for s in _SIZES),
        doc="`step` - 1 times a value between neighbours of some axes, for transposed "
        "convolutions.",
    ),
    remapped(
        "remap",
        _remap,
        value=lambda attrs: float(attrs["value"]),
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
        doc="Elements by tables of places along some axes: `sizes` of them, one behind "
        "the other in `places`; -1 is the value.",
    ),
)
