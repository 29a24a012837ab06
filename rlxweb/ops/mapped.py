"""How ops are declared whose results are made axis by axis of what lies elsewhere.

Such an op is a rule from shape and attributes to what becomes of each axis: positions
of the operand, or -1 where a value that is given stands. Which ops there are is said in
`remapped.py`; the pass that a GPU makes is in `recipes/remap_calls.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlxweb.ir.bounds import Bounds, Interval, hull
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Kernel, Recipe
from rlxweb.ir.op import Attrs, Op, TensorType, Types, no_flops
from rlxweb.ir.shape import Shape, as_shape, bad_dtype, bad_shape
from rlxweb.ops.places_back import moved_back
from rlxweb.recipes.remap_calls import Table, remap_recipe

MOST = (1 << 31) - 1
"""Elements of an axis that a table has places for: i32."""


class Mapped(NamedTuple):
    """What an axis of a result is made of.

    table   → where each position comes from, -1: the value; made when it is needed
    runs    the same as neighbours, (first, count) each; none where they are many
    """

    length: int
    table: Callable[[], Table]
    runs: Sequence[tuple[int, int]] = ()


Rule = Callable[[Shape, Attrs], Sequence[Mapped | None]]
"""(operand's shape, attributes) → what becomes of each axis, None: it stays."""


def in_runs(*runs: tuple[int, int]) -> Mapped:
    """An axis of neighbours, (first, count) each; -1: so many times the value."""

    def table() -> Table:
        return np.concatenate(
            [
                np.full(count, -1) if first < 0 else np.arange(first, first + count)
                for first, count in ((0, 0), *kept)
            ]
        ).astype(np.int32)

    kept = [run for run in runs if run[1]]
    return Mapped(sum(count for _, count in kept), table, kept)


def within(size: int, before: int, length: int) -> Mapped | None:
    """An axis with so many values in front of its elements, `length` in all; below 0 as
    many are left out. None: it stays.
    """
    if not before and length == size:
        return None
    lead, first = min(max(before, 0), length), max(-before, 0)
    inside = max(min(size, length - before) - first, 0)
    return in_runs((-1, lead), (first, inside), (-1, length - lead - inside))


def _reached(
    given: Sequence[Interval], types: Types, out: TensorType, attrs: Attrs
) -> Interval:
    value = _value(attrs)
    return hull(given[0], (value, value))


def remapped(name: str, rule: Rule, **record: Any) -> Op:
    """The record of an op whose axes are made by that rule.

    Where a table says -1 its attribute `value` stands, or 0.
    """

    def infer(types: Types, attrs: Attrs) -> TensorType:
        shape, dtype = types[0].shape, types[0].dtype
        must_hold(dtype, _value(attrs))
        found = zip(shape, rule(shape, attrs), strict=True)
        dims = [n if one is None else _length(n, one) for n, one in found]
        return TensorType(as_shape(dims), dtype)

    def reference(xp: Any, attrs: Attrs, x: Any) -> Any:
        for axis, mapped in enumerate(rule(tuple(x.shape), attrs)):
            if mapped is not None:
                x = along(xp, x, axis, mapped, _value(attrs))
        return x

    def recipe(types: Types, out: TensorType, attrs: Attrs) -> Recipe:
        shape = types[0].shape
        tables = [None if one is None else one.table() for one in rule(shape, attrs)]
        return remap_recipe(shape, tables, out.dtype, _value(attrs))

    return Op(
        name=name,
        infer=infer,
        reference=reference,
        lower=Kernel(recipe),
        bounds=Bounds(_reached, "monotone"),
        flops=no_flops,
        **({"vjp": moved_back(rule)} | record),
    )


def _value(attrs: Attrs) -> float:
    return float(attrs.get("value", 0.0))


def _length(size: int, mapped: Mapped) -> int:
    """Errors  ShapeError for an axis too long for a table."""
    if max(size, mapped.length) > MOST:
        raise bad_shape(
            f"an axis of {size:,} elements becomes one of {mapped.length:,}",
            f"either has at most {MOST:,}",
            "work on a part of it at a time",
        )
    return mapped.length


def must_hold(dtype: DType, value: float) -> None:
    """Errors  DTypeError for a value that the type has not."""
    if dtype.is_float:
        most = dtype.most
        if np.isfinite(value) and abs(value) > most:
            raise bad_dtype(
                f"the value {value:g} among {dtype} elements",
                f"they are at most {most:g} either way, or infinite",
            )
        return
    least, most = dtype.least, dtype.most
    if not (least <= value <= most and value == int(value)):
        raise bad_dtype(
            f"the value {value:g} among {dtype} elements",
            f"they are whole numbers from {least} to {most}",
            "cast the operand, or give a value its type can hold",
        )


def along(xp: Any, x: Any, axis: int, mapped: Mapped, value: float) -> Any:
    """One axis: slices and blocks of the value side by side, or place by place."""

    def block(count: int) -> Any:
        return _filled(xp, (*x.shape[:axis], count, *x.shape[axis + 1 :]), value, x)

    if mapped.runs:
        cut = (slice(None),) * axis
        parts = [
            block(count) if first < 0 else x[(*cut, slice(first, first + count))]
            for first, count in mapped.runs
        ]
        return xp.concat(parts, axis=axis) if len(parts) > 1 else parts[0]
    table = mapped.table()
    inside = table >= 0
    if not inside.any():
        return block(len(table))
    x = xp.take(x, xp.asarray(np.maximum(table, 0)), axis=axis)
    if inside.all():
        return x
    inside = np.reshape(inside, (-1, *(1,) * (x.ndim - axis - 1)))
    return xp.where(xp.asarray(inside), x, _filled(xp, (1,) * x.ndim, value, x))


def _filled(xp: Any, shape: Shape, value: float, like: Any) -> Any:
    one = xp.zeros((1,) * len(shape), dtype=like.dtype)
    return xp.broadcast_to(xp.full_like(one, value), shape)
