"""A tensor put together from another by a small table for each axis, in one pass.

The element of a result stands where the tables of its positions say; -1 is a value that
is given. Padding, tiling, rolling, resizing to the nearest and stuffing with zeros are
tables, and nothing else. Pure arithmetic; knows no op's meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import row_major
from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref, as_uniform
from rlxweb.ir.shape import Shape, numel
from rlxweb.recipes.entry import MAIN_LINES

Table = npt.NDArray[np.int32]
"""Positions of the result along an axis → positions of the operand, -1: the fill."""
_IN, _OUT = Ref("in"), Ref("out")


class _Line(NamedTuple):
    """Neighbouring axes as one: those without a table between two that have one."""

    out: int
    source: int
    table: Table | None


def shifted(size: int, before: int, length: int) -> Table | None:
    """The table of an axis with so many fills in front of its elements, `length` in
    all; below 0 as many are left out. None: it is as it was.
    """
    if not before and length == size:
        return None
    at = np.arange(-before, length - before)
    return np.where((at >= 0) & (at < size), at, -1).astype(np.int32)


def run_of(table: Table) -> tuple[int, int, int] | None:
    """Fills in front of a run of neighbours, the first of these and how many they are,
    for a table that is a run between fills and no more than that.
    """
    there = np.flatnonzero(table >= 0)
    if not len(there):
        return None
    first, start = int(there[0]), int(table[there[0]])
    inside = table[first : int(there[-1]) + 1]
    is_run = np.array_equal(inside, np.arange(start, start + len(inside)))
    return (first, start, len(inside)) if is_run else None


def remap_recipe(
    shape: Shape,
    tables: Sequence[Table | None],
    dtype: DType,
    fill: float = 0.0,
    *,
    target: Ref = _OUT,
    first: int = 0,
) -> Recipe:
    """The pass from `shape` to the lengths of its tables; None is an axis as it is.

    target   where the result lies
    first    the number of the first table, among those of a recipe that has others
    """
    lines = _lines(shape, tables)
    out = [line.out for line in lines]
    value, filled = as_uniform(fill, dtype, "fill")
    if not numel(shape):
        return Recipe((_nothing(target, numel(out), value, filled),))
    mapped = [a for a, line in enumerate(lines) if line.table is not None]
    axes = [Axis(f"o{a}", line.out) for a, line in enumerate(lines)]
    axes += [Axis(f"t{a}", lines[a].source, "serial") for a in mapped]
    reads, writes = row_major([line.source for line in lines]), row_major(out)
    still = (0,) * len(mapped)
    x = tuple(0 if a in mapped else stride for a, stride in enumerate(reads))
    accesses = [
        Access(_IN, (*x, *(reads[a] for a in mapped))),
        Access(target, (*writes, *still), "update"),
    ]
    for at, a in enumerate(mapped):
        strides = tuple(int(b == a) for b in range(len(axes)))
        accesses.append(Access(Ref("table", first + at), strides))
    steps = {f"x{a}": stride for a, stride in enumerate(reads)}
    steps |= {f"y{a}": stride for a, stride in enumerate(writes)}
    found = (lines[a].table for a in mapped)
    call = Call(
        shader="remap",
        axes=tuple(axes),
        accesses=tuple(accesses),
        grid=tuple((f"o{a}", 1) for a in range(len(lines))),
        values={**steps, "fill": value},
        source=_text(len(lines), mapped, filled),
        turns=0.0,
    )
    return Recipe((call,), tables=tuple(t for t in found if t is not None))


def _lines(shape: Shape, tables: Sequence[Table | None]) -> list[_Line]:
    """The axes with those that have no table joined with their neighbours."""
    lines: list[_Line] = []
    for size, table in zip(shape, tables, strict=True):
        if table is not None:
            lines.append(_Line(len(table), size, np.ascontiguousarray(table, np.int32)))
        elif lines and lines[-1].table is None:
            lines[-1] = _Line(lines[-1].out * size, lines[-1].source * size, None)
        elif size != 1:
            lines.append(_Line(size, size, None))
    return lines or [_Line(1, 1, None)]


def _nothing(target: Ref, count: int, value: int | float, filled: str) -> Call:
    """The fill everywhere: nothing of the operand is there."""
    return Call(
        shader="remap",
        axes=(Axis("o0", count),),
        accesses=(Access(target, (1,), "write"),),
        grid=(("o0", 1),),
        values={"fill": value},
        source="\n".join([*MAIN_LINES, f"  st0(item, {filled});", "}"]),
    )


def _text(count: int, mapped: Sequence[int], filled: str) -> str:
    """A piece holds some of the operand and writes what it finds of it; an element of
    the fill is written by the first piece.
    """
    lines = [*MAIN_LINES, "  var rest = item;"]
    for a in range(count - 1, 0, -1):
        lines.append(f"  let i{a} = rest % u.o{a}; rest = rest / u.o{a};")
    lines.append("  let i0 = rest;")
    place = " + ".join(f"i{a} * u.y{a}" for a in range(count))
    lines.append(f"  let place = {place};")
    for at, a in enumerate(mapped):
        lines.append(f"  let s{a} = ld{2 + at}(i{a});")
    if mapped:
        none = " || ".join(f"s{a} < 0" for a in mapped)
        first = " && ".join(f"u.at_t{a} == 0u" for a in mapped)
        lines += [f"  if ({none}) {{", f"    if ({first}) {{ st1(place, {filled}); }}"]
        lines += ["    return;", "  }"]
    for a in mapped:
        lines.append(f"  let l{a} = u32(s{a}) - u.at_t{a};")
        lines.append(f"  if (l{a} >= u.t{a}) {{ return; }}")
    found = [f"{'l' if a in mapped else 'i'}{a} * u.x{a}" for a in range(count)]
    return "\n".join([*lines, f"  st1(place, ld0({' + '.join(found)}));", "}"])
