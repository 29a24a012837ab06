"""Declaration of index-map ops, whose result is built axis by axis from positions of
the operand.

Such an op is a rule from shape and attributes to what becomes of each axis: positions
of the operand, or -1 where a value that is given stands. Which ops there are is said in
`pad_tile_roll.py`; the pass that a GPU makes is in `wgsl/index_map.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Kernel, KernelPlan
from rlxweb.ir.op import Attrs, Op, TensorType, Types, no_flops
from rlxweb.ir.shape_arithmetic import Shape, as_shape, bad_dtype, bad_shape
from rlxweb.ir.value_range_rules import Interval, RangeRule, hull
from rlxweb.ops.layout.index_map_vjp import index_map_vjp
from rlxweb.ops.layout.wgsl.index_map import IndexTable, plan_index_map

MAX_AXIS_LENGTH = (1 << 31) - 1
"""Largest number of elements of an axis that an i32 index table can address."""


class AxisMap(NamedTuple):
    """Map of one axis of a result: which position of the operand each element comes
    from.

    table   → where each position comes from, -1: the value; made when it is needed
    runs    the same as neighbours, (first, count) each; none where they are many
    """

    length: int
    table: Callable[[], IndexTable]
    runs: Sequence[tuple[int, int]] = ()


AxisMapRule = Callable[[Shape, Attrs], Sequence[AxisMap | None]]
"""Rule from (operand's shape, attributes) to the map of each axis; None: the axis
stays.
"""


def axis_map_from_runs(*runs: tuple[int, int]) -> AxisMap:
    """Return the map of an axis built from runs (first, count); -1 repeats the fill
    value.
    """

    def table() -> IndexTable:
        return np.concatenate(
            [
                np.full(count, -1) if first < 0 else np.arange(first, first + count)
                for first, count in ((0, 0), *nonempty_runs)
            ]
        ).astype(np.int32)

    nonempty_runs = [run for run in runs if run[1]]
    return AxisMap(sum(count for _, count in nonempty_runs), table, nonempty_runs)


def pad_or_crop_axis(size: int, before: int, length: int) -> AxisMap | None:
    """Return the map that pads or crops an axis of `size` to `length`, with `before`
    fill values in front (negative: elements left out); None if it stays.
    """
    if not before and length == size:
        return None
    lead_count, first = min(max(before, 0), length), max(-before, 0)
    kept_count = max(min(size, length - before) - first, 0)
    return axis_map_from_runs(
        (-1, lead_count), (first, kept_count), (-1, length - lead_count - kept_count)
    )


def _value_range(
    intervals: Sequence[Interval], types: Types, out: TensorType, attrs: Attrs
) -> Interval:
    """Return the range of results: the operand's interval and the fill value."""
    fill_value = _fill_value(attrs)
    return hull(intervals[0], (fill_value, fill_value))


def axis_map_op(name: str, rule: AxisMapRule, **record: Any) -> Op:
    """Create the record of an op whose axes are built by `rule`.

    Where a table says -1 its attribute `value` stands, or 0.
    """

    def infer(types: Types, attrs: Attrs) -> TensorType:
        shape, dtype = types[0].shape, types[0].dtype
        check_fill_value(dtype, _fill_value(attrs))
        pairs = zip(shape, rule(shape, attrs), strict=True)
        dims = [
            n if axis_map is None else _checked_length(n, axis_map)
            for n, axis_map in pairs
        ]
        return TensorType(as_shape(dims), dtype)

    def reference(xp: Any, attrs: Attrs, x: Any) -> Any:
        for axis, axis_map in enumerate(rule(tuple(x.shape), attrs)):
            if axis_map is not None:
                x = apply_axis_map(xp, x, axis, axis_map, _fill_value(attrs))
        return x

    def plan(types: Types, out: TensorType, attrs: Attrs) -> KernelPlan:
        shape = types[0].shape
        tables = [
            None if axis_map is None else axis_map.table()
            for axis_map in rule(shape, attrs)
        ]
        return plan_index_map(shape, tables, out.dtype, _fill_value(attrs))

    return Op(
        name=name,
        infer=infer,
        reference=reference,
        lower=Kernel(plan),
        range_rule=RangeRule(_value_range, "monotone"),
        flops=no_flops,
        **({"vjp": index_map_vjp(rule)} | record),
    )


def _fill_value(attrs: Attrs) -> float:
    """Return the fill value of the attributes, or 0."""
    return float(attrs.get("value", 0.0))


def _checked_length(size: int, axis_map: AxisMap) -> int:
    """Return the length of the mapped axis. Errors  ShapeError if it is too long for a
    table.
    """
    if max(size, axis_map.length) > MAX_AXIS_LENGTH:
        raise bad_shape(
            f"an axis of {size:,} elements would become {axis_map.length:,} elements "
            "long",
            f"both lengths must be at most {MAX_AXIS_LENGTH:,}",
            "process the axis in parts",
        )
    return axis_map.length


def check_fill_value(dtype: DType, value: float) -> None:
    """Check that a dtype holds the fill value. Errors  DTypeError."""
    if dtype.is_float:
        max_value = dtype.max_value
        if np.isfinite(value) and abs(value) > max_value:
            raise bad_dtype(
                f"the value {value:g} does not fit {dtype}",
                f"the value must be infinite or at most {max_value:g} in magnitude",
            )
        return
    min_value, max_value = dtype.min_value, dtype.max_value
    if not (min_value <= value <= max_value and value == int(value)):
        raise bad_dtype(
            f"the value {value:g} does not fit {dtype}",
            f"the value must be an integer from {min_value} to {max_value}",
            "cast the operand, or pass a value that its dtype can represent",
        )


def apply_axis_map(xp: Any, x: Any, axis: int, axis_map: AxisMap, value: float) -> Any:
    """Apply the map of one axis, by slices and blocks of the fill value or by an index
    table.
    """

    def block(count: int) -> Any:
        return _full_block(xp, (*x.shape[:axis], count, *x.shape[axis + 1 :]), value, x)

    if axis_map.runs:
        leading = (slice(None),) * axis
        parts = [
            block(count) if first < 0 else x[(*leading, slice(first, first + count))]
            for first, count in axis_map.runs
        ]
        return xp.concat(parts, axis=axis) if len(parts) > 1 else parts[0]
    table = axis_map.table()
    is_inside = table >= 0
    if not is_inside.any():
        return block(len(table))
    x = xp.take(x, xp.asarray(np.maximum(table, 0)), axis=axis)
    if is_inside.all():
        return x
    is_inside = np.reshape(is_inside, (-1, *(1,) * (x.ndim - axis - 1)))
    return xp.where(xp.asarray(is_inside), x, _full_block(xp, (1,) * x.ndim, value, x))


def _full_block(xp: Any, shape: Shape, value: float, like: Any) -> Any:
    """Return a block filled with the value."""
    element = xp.zeros((1,) * len(shape), dtype=like.dtype)
    return xp.broadcast_to(xp.full_like(element, value), shape)
