"""Other shapes of ops that only move elements, for GPUs: gather and strided copies.

Rows of a table move four neighbours at a time; a copy across the rows of its source
goes through tiles in workgroup memory, so that both sides are touched along their rows.
Deleting any of them changes no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref
from rlxweb.ir.op import TensorType, Types, registry
from rlxweb.limits import Limits

# shaders/transpose_tiles.wgsl: side of a tile, its cells with padding, invocations.
TILE, CELLS, GROUP = 32, 32 * 33, 256
BATCH_AXES = 2
_SCALARS = {DType.F16: "f32", DType.F32: "f32", DType.I32: "i32", DType.U32: "u32"}


def gather_rows(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> Recipe | None:
    """Gather by fours; None where a row's length is no multiple of four."""
    made = registry.get("gather").recipe(inputs, out, attrs)
    if made is None:
        return None
    (call,) = made.calls
    inner = next(axis.size for axis in call.axes if axis.name == "inner")
    if inner % 4 or inner == 0 or inputs[0].dtype is DType.BOOL:
        return None
    table, indices, target = call.accesses
    wide = (replace(table, wide=True), indices, replace(target, wide=True))
    grid = (("outer", 1), ("index", 1), ("inner", 4))
    new = replace(call, shader="gather_rows", accesses=wide, grid=grid)
    return Recipe((new,))


def tiled_copy(
    source: Layout, target: Layout, dtype: DType, limits: Limits
) -> Call | None:
    """A copy between two layouts of one shape, by tiles of 32 by 32.

    None unless the target's rows run across rows of the source and both are long enough
    for a tile.
    """
    out, read = target.coalesced(source)
    rank = len(out.shape)
    if dtype not in _SCALARS or not 2 <= rank <= BATCH_AXES + 2:
        return None
    last = rank - 1
    ways = [a for a in range(last) if read.strides[a] == 1]
    if out.strides[last] != 1 or read.strides[last] <= 1 or not ways:
        return None
    m = max(ways, key=lambda a: out.shape[a])
    room = limits.workgroup_lanes
    if min(out.shape[m], out.shape[last]) < TILE or room < GROUP:
        return None
    batch = [a for a in range(last) if a != m]
    return _tiles(out, read, [*batch, m, last], dtype)


def _tiles(out: Layout, read: Layout, order: list[int], dtype: DType) -> Call:
    """The call over (b0, b1, m, n), the axes of the layouts in `order`."""
    pad = BATCH_AXES + 2 - len(order)
    sizes = (*(1,) * pad, *(out.shape[a] for a in order))
    x = (*(0,) * pad, *(read.strides[a] for a in order))
    y = (*(0,) * pad, *(out.strides[a] for a in order))
    names = ("b0", "b1", "m", "n")
    values = {f"x_{name}": x[at] for at, name in enumerate(names) if name != "m"}
    values |= {f"y_{name}": y[at] for at, name in enumerate(names) if name != "n"}
    return Call(
        shader="transpose_tiles",
        axes=tuple(Axis(name, size) for name, size in zip(names, sizes, strict=True)),
        accesses=(
            Access(Ref("in", 0), x, "read", read.offset),
            Access(Ref("out"), y, "write", out.offset),
        ),
        grid=(("b0", 1), ("b1", 1), ("m", TILE), ("n", TILE)),
        per="workgroup",
        workgroup=GROUP,
        values=values,
        uses=(f"cell_{_SCALARS[dtype]}",),
        shared_bytes=4 * CELLS,
        turns=2 * TILE * TILE / GROUP,
    )
