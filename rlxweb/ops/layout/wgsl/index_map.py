"""Index-map kernel plans: one pass that gathers a tensor through an index table per
axis.

The element of a result stands where the tables of its positions say; -1 is a value that
is given. Padding, tiling, rolling, resizing to the nearest and stuffing with zeros are
tables, and nothing else. Pure arithmetic; knows no op's meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rlxweb.codegen.wgsl_entry_point import MAIN_LINES
from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import row_major_strides
from rlxweb.ir.lowering import (
    BufferRef,
    IterationAxis,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
    encode_uniform,
)
from rlxweb.ir.shape_arithmetic import Shape, numel

IndexTable = npt.NDArray[np.int32]
"""Map from positions of the result along an axis to positions of the operand; -1
selects the fill value.
"""
_IN, _OUT = BufferRef("in"), BufferRef("out")


class _MergedAxis(NamedTuple):
    """One axis with a table, or neighbouring axes without tables merged into one."""

    out_size: int
    source_size: int
    table: IndexTable | None


def shift_table(size: int, before: int, length: int) -> IndexTable | None:
    """Return the index table of an axis padded by `before` fills in front, `length`
    long in all; a negative `before` drops elements. None if nothing changes.
    """
    if not before and length == size:
        return None
    positions = np.arange(-before, length - before)
    return np.where((positions >= 0) & (positions < size), positions, -1).astype(
        np.int32
    )


def contiguous_run(table: IndexTable) -> tuple[int, int, int] | None:
    """Return (fills in front, first source position, run length) of a table that is one
    contiguous run between fills, or None.
    """
    mapped_positions = np.flatnonzero(table >= 0)
    if not len(mapped_positions):
        return None
    first, start = int(mapped_positions[0]), int(table[mapped_positions[0]])
    inside = table[first : int(mapped_positions[-1]) + 1]
    is_run = np.array_equal(inside, np.arange(start, start + len(inside)))
    return (first, start, len(inside)) if is_run else None


def plan_index_map(
    shape: Shape,
    tables: Sequence[IndexTable | None],
    dtype: DType,
    fill: float = 0.0,
    *,
    target: BufferRef = _OUT,
    first_table: int = 0,
) -> KernelPlan:
    """Return the plan from `shape` to the lengths of its tables; None is an axis
    without a table.

    target   where the result lies
    first_table  the number of the first table, among those of a plan that has others
    """
    merged_axes = _merge_axes(shape, tables)
    out_shape = [merged_axis.out_size for merged_axis in merged_axes]
    value, fill_wgsl = encode_uniform(fill, dtype, "fill")
    if not numel(shape):
        return KernelPlan((_fill_dispatch(target, numel(out_shape), value, fill_wgsl),))
    mapped_axes = [
        a for a, merged_axis in enumerate(merged_axes) if merged_axis.table is not None
    ]
    axes = [
        IterationAxis(f"o{a}", merged_axis.out_size)
        for a, merged_axis in enumerate(merged_axes)
    ]
    axes += [
        IterationAxis(f"t{a}", merged_axes[a].source_size, "serial")
        for a in mapped_axes
    ]
    read_strides = row_major_strides(
        [merged_axis.source_size for merged_axis in merged_axes]
    )
    write_strides = row_major_strides(out_shape)
    serial_strides = (0,) * len(mapped_axes)
    input_strides = tuple(
        0 if a in mapped_axes else stride for a, stride in enumerate(read_strides)
    )
    accesses = [
        OperandAccess(_IN, (*input_strides, *(read_strides[a] for a in mapped_axes))),
        OperandAccess(target, (*write_strides, *serial_strides), "update"),
    ]
    for number, a in enumerate(mapped_axes):
        strides = tuple(int(b == a) for b in range(len(axes)))
        accesses.append(
            OperandAccess(BufferRef("table", first_table + number), strides)
        )
    step_uniforms = {f"x{a}": stride for a, stride in enumerate(read_strides)}
    step_uniforms |= {f"y{a}": stride for a, stride in enumerate(write_strides)}
    axis_tables = (merged_axes[a].table for a in mapped_axes)
    dispatch = KernelDispatch(
        shader="remap",
        axes=tuple(axes),
        accesses=tuple(accesses),
        grid=tuple((f"o{a}", 1) for a in range(len(merged_axes))),
        uniforms={**step_uniforms, "fill": value},
        source=_index_map_wgsl(len(merged_axes), mapped_axes, fill_wgsl),
        iterations=0.0,
    )
    return KernelPlan(
        (dispatch,), tables=tuple(t for t in axis_tables if t is not None)
    )


def _merge_axes(shape: Shape, tables: Sequence[IndexTable | None]) -> list[_MergedAxis]:
    """Return the axes, with neighbours that have no table merged into one."""
    merged_axes: list[_MergedAxis] = []
    for size, table in zip(shape, tables, strict=True):
        if table is not None:
            merged_axes.append(
                _MergedAxis(len(table), size, np.ascontiguousarray(table, np.int32))
            )
        elif merged_axes and merged_axes[-1].table is None:
            merged_axes[-1] = _MergedAxis(
                merged_axes[-1].out_size * size,
                merged_axes[-1].source_size * size,
                None,
            )
        elif size != 1:
            merged_axes.append(_MergedAxis(size, size, None))
    return merged_axes or [_MergedAxis(1, 1, None)]


def _fill_dispatch(
    target: BufferRef, count: int, value: int | float, fill_wgsl: str
) -> KernelDispatch:
    """Return the dispatch that fills the whole result because the operand is empty."""
    return KernelDispatch(
        shader="remap",
        axes=(IterationAxis("o0", count),),
        accesses=(OperandAccess(target, (1,), "write"),),
        grid=(("o0", 1),),
        uniforms={"fill": value},
        source="\n".join([*MAIN_LINES, f"  st0(item, {fill_wgsl});", "}"]),
    )


def _index_map_wgsl(count: int, mapped_axes: Sequence[int], fill_wgsl: str) -> str:
    """Return the WGSL of the pass. Each chunk writes the operand elements it holds; the
    first chunk writes the fill value.
    """
    lines = [*MAIN_LINES, "  var rest = item;"]
    for a in range(count - 1, 0, -1):
        lines.append(f"  let i{a} = rest % u.o{a}; rest = rest / u.o{a};")
    lines.append("  let i0 = rest;")
    out_index = " + ".join(f"i{a} * u.y{a}" for a in range(count))
    lines.append(f"  let place = {out_index};")
    for number, a in enumerate(mapped_axes):
        lines.append(f"  let s{a} = ld{2 + number}(i{a});")
    if mapped_axes:
        is_fill = " || ".join(f"s{a} < 0" for a in mapped_axes)
        is_first_chunk = " && ".join(f"u.at_t{a} == 0u" for a in mapped_axes)
        lines += [
            f"  if ({is_fill}) {{",
            f"    if ({is_first_chunk}) {{ st1(place, {fill_wgsl}); }}",
        ]
        lines += ["    return;", "  }"]
    for a in mapped_axes:
        lines.append(f"  let l{a} = u32(s{a}) - u.at_t{a};")
        lines.append(f"  if (l{a} >= u.t{a}) {{ return; }}")
    source_terms = [
        f"{'l' if a in mapped_axes else 'i'}{a} * u.x{a}" for a in range(count)
    ]
    return "\n".join([*lines, f"  st1(place, ld0({' + '.join(source_terms)}));", "}"])
