"""Gather, topk, cumsum and cumprod: results that depend on where values stand.

Gather refuses an index outside its table on every device; topk gives indices, ties to
the smaller one; sums and products run along one axis. The passes a GPU makes are laid
out in `select_calls.py`. No device is known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from rlxweb.advice import Advice
from rlxweb.errors import Unsupported
from rlxweb.ir import bounds
from rlxweb.ir.batching import Examples, along, together
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Compose, Kernel, Recipe
from rlxweb.ir.op import (
    Attr,
    Attrs,
    Guard,
    Op,
    TensorType,
    Tolerance,
    Types,
    no_flops,
    registry,
)
from rlxweb.ir.sample import Drawn, Sample, spelled
from rlxweb.ir.shape import (
    Shape,
    bad_attribute,
    bad_shape,
    normal_axis,
    numel,
    show,
)
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise import NUMBERS, need
from rlxweb.ops.kinds import is_float
from rlxweb.ops.outside import as_places, first_outside, need_indices, refused, signed
from rlxweb.ops.picks_back import gathered_back
from rlxweb.ops.reduce import SUMMED, accumulator
from rlxweb.ops.runs_back import multiplied_back, summed_back
from rlxweb.recipes.reduce_calls import Kind
from rlxweb.recipes.select_calls import gather_recipe, scan_recipe, topk_recipe


def around(shape: Shape, axis: int) -> tuple[int, int, int]:
    """(outer, axis, inner) sizes of a dense tensor seen along one axis."""
    return numel(shape[:axis]), shape[axis], numel(shape[axis + 1 :])


def _gathered(types: Types, attrs: Attrs) -> TensorType:
    table, indices = types
    need_indices(indices)
    if not table.shape:
        raise bad_shape("the table has rank 0", "it needs an axis to index")
    axis = normal_axis(attrs["axis"], table.rank)
    if table.shape[axis] == 0 and indices.numel:
        raise bad_shape(
            f"axis {axis} of the table {show(table.shape)} is empty",
            f"none of the {indices.numel} indices can be inside 0 rows",
        )
    shape = (*table.shape[:axis], *indices.shape, *table.shape[axis + 1 :])
    return TensorType(shape, table.dtype)


def _gather(xp: Any, attrs: Attrs, table: Any, indices: Any) -> Any:
    if bool(xp.any(_outside(xp, attrs, table, indices))):
        found = _first_outside(xp, attrs, table, indices)
        shapes = (tuple(table.shape), tuple(indices.shape))
        _refuse_outside(shapes, attrs, (int(found[0]), int(found[1])))
    return _rows(xp, attrs, table, indices)


def _outside(xp: Any, attrs: Attrs, table: Any, indices: Any) -> Any:
    rows, wide = table.shape[attrs["axis"]], signed(xp, indices)
    return (wide < -rows) | (wide >= rows)


def _first_outside(xp: Any, attrs: Attrs, table: Any, indices: Any) -> Any:
    return first_outside(xp, _outside(xp, attrs, table, indices), indices)


def _refuse_outside(
    shapes: Sequence[Shape], attrs: Attrs, found: Sequence[int]
) -> None:
    if found[0] < 0:
        return
    table, indices = shapes
    axis = normal_axis(attrs["axis"], len(table))
    of = f"axis {axis} of {show(table)}"
    rows = table[axis]
    raise refused("gather", indices, (found[0], found[1]), -rows, rows, of)


def _rows(xp: Any, attrs: Attrs, table: Any, indices: Any) -> Any:
    axis = normal_axis(attrs["axis"], table.ndim)
    rows = table.shape[axis]
    flat = as_places(xp, xp.reshape(indices, (numel(indices.shape),)), rows)
    flat = xp.where(flat < 0, flat + rows, flat)
    shape = (*table.shape[:axis], *indices.shape, *table.shape[axis + 1 :])
    return xp.reshape(xp.take(table, flat, axis=axis), shape)


def _gather_calls(types: Types, out: TensorType, attrs: Attrs) -> Recipe:
    table, indices = types
    axis = normal_axis(attrs["axis"], table.rank)
    return gather_recipe(around(table.shape, axis), indices.numel)


def _gather_wider(g: Any, attrs: Attrs, table: Any, indices: Any) -> Any:
    """Through f32, whose reads can share one binding where bindings are few."""
    if table.dtype is not DType.F16:
        raise Unsupported(
            f"gather from a table of {table.dtype}",
            "it does not fit the device",
            hint=Advice("run it with {}", device="cpu"),
        )
    found = g.gather(g.cast(table, DType.F32), indices, attrs["axis"])
    return g.cast(found, DType.F16)


def _gathering(
    table: Shape,
    indices: Shape,
    axis: int = 0,
    dtype: DType = DType.F32,
    index: DType = DType.I32,
) -> Sample:
    rows = table[axis]
    return Sample(
        (
            Drawn(table, dtype, -9, 9, whole=True),
            Drawn(indices, index, -rows, rows - 1),
        ),
        {"axis": axis},
    )


def _taken(inputs: Types, out: TensorType, attrs: Attrs) -> tuple[str, dict[str, int]]:
    """The rows that are taken, not the table they come from."""
    moved = 2 * out.nbytes + inputs[1].nbytes
    return "gather", {"cells": out.numel, "bytes": moved}


_GATHERED = spelled(
    "5@()@0 1@1@0 7x3@4@0 7x3@2x5@0 4x7x3@5@1 4x7x3@2x2@-1 4x7@0@0 0x7@3@1 "
    "65537x2@11@0 3x2@65537@0 65537x2@3@1"
)


def _gathered_for_all(at: Examples) -> Tensor:
    """Rows of one table, or the same rows of many, or each example's of its own."""
    axis = normal_axis(at.attrs["axis"], at.ranks[0])
    g, (table, indices) = at.g, at.inputs
    if all(at.varies):
        # Each index is one of its own example's table: it is refused by that.
        table = g.moveaxis(table, axis + 1, 1)
        lines = g.reshape(indices, (at.count, -1, 1))
        made = g.apply("gather_nd", table, lines, batch_dims=1)
        made = g.reshape(made, (*indices.shape, *table.shape[2:]))
        rank = at.ranks[1]
        ends = [1 + n for n in range(rank)], [1 + axis + n for n in range(rank)]
        return g.moveaxis(made, *ends)
    if at.varies[0]:
        return at.apply(table, indices, axis=axis + 1)
    made = at.apply(table, indices, axis=axis)
    return g.moveaxis(made, axis, 0)


_GATHER = Op(
    name="gather",
    arity=2,
    infer=_gathered,
    reference=_gather,
    guard=Guard(_first_outside, _refuse_outside, _rows),
    lower=Kernel(_gather_calls, otherwise=Compose(_gather_wider)),
    bounds=bounds.kept(0),
    attrs=(Attr("axis", "int", 0),),
    flops=no_flops,
    samples=(
        *(_gathering(table, indices, axis) for table, indices, (axis,) in _GATHERED),
        _gathering((7, 3), (4,), 0, index=DType.U32),
        _gathering((7, 3), (4,), 0, index=DType.I64),
        _gathering((7, 3), (4,), 0, index=DType.U64),
        *(_gathering((4, 6), (5,), 1, d) for d in DType if d is not DType.F32),
    ),
    work=_taken,
    telling=(_gathering((16, 4), (16,), 0), _gathering((1024, 128), (1024,), 0)),
    vjp=gathered_back,
    batch=_gathered_for_all,
    doc="Rows of a table by index along one axis, in the order the indices give. "
    "A negative index counts from the end; one outside the table is refused.",
)


def _top(types: Types, attrs: Attrs) -> TensorType:
    need(types, NUMBERS)
    shape, k = types[0].shape, attrs["k"]
    if not shape:
        raise bad_shape("rank 0 has no last axis", hint="reshape it to [1]")
    if not 1 <= k <= shape[-1]:
        raise bad_attribute(
            f"k is {k}", f"1 <= k <= {shape[-1]}, the last axis of {show(shape)}"
        )
    return TensorType((*shape[:-1], k), DType.I32)


def _ranked(xp: Any, x: Any) -> Any:
    """Indices of floats, largest first, equal ones in order, NaN last."""
    return xp.argsort(-x, axis=-1, stable=True)


def _topk(xp: Any, attrs: Attrs, x: Any) -> Any:
    # Sorting the reversed line and reversing the result keeps equal values in order.
    n = x.shape[-1]
    if is_float(xp, x):
        # NumPy sorts NaN above every number; here it stands behind, as in power_peaks.
        return xp.asarray(_ranked(xp, x)[..., : attrs["k"]], dtype=xp.int32)
    order = xp.argsort(xp.flip(x, axis=-1), axis=-1, stable=True)
    order = xp.flip(order, axis=-1)[..., : attrs["k"]]
    return xp.asarray(n - 1 - order, dtype=xp.int32)


def _topk_calls(types: Types, out: TensorType, attrs: Attrs) -> Recipe:
    x = types[0]
    return topk_recipe(numel(x.shape[:-1]), x.shape[-1], attrs["k"], x.dtype)


def _ranking(
    shape: Shape, k: int, dtype: DType = DType.F32, top: float = 9, whole: bool = True
) -> Sample:
    low = 0 if dtype.is_unsigned else -top
    return Sample((Drawn(shape, dtype, low, top, whole),), {"k": k})


_TOPK = Op(
    name="topk",
    infer=_top,
    reference=_topk,
    lower=Kernel(_topk_calls),
    bounds=bounds.between(0, lambda types, attrs: types[0].shape[-1] - 1),
    attrs=(Attr("k", "int"),),
    traits=frozenset({"reduction"}),
    flops=lambda inputs, out, attrs: float(inputs[0].numel),
    samples=(
        _ranking((1,), 1),
        _ranking((13,), 13),
        _ranking((13,), 4, top=1000, whole=False),
        _ranking((3, 50), 7),
        _ranking((997,), 510, top=1000, whole=False),
        _ranking((2, 3, 17), 2),
        _ranking((0, 5), 2),
        _ranking((65_537, 2), 1),
        _ranking((2, 5003), 16, top=1e6, whole=False),
        _ranking((2, 5003), 16),
        _ranking((1, 100_003), 5, top=50),
        _ranking((4, 33), 5, DType.I32, 3),
        _ranking((4, 33), 5, DType.I32, (1 << 31) - 1),
        _ranking((4, 33), 5, DType.U32, (1 << 32) - 1),
        _ranking((4, 33), 5, DType.F16),
        _ranking((4, 33), 5, DType.F64),
        _ranking((4, 33), 5, DType.I64),
        _ranking((4, 33), 5, DType.U64),
    ),
    telling=(
        _ranking((128, 1024), 8, DType.I32),
        *(_ranking(s, 8, whole=False) for s in ((4, 16), (128, 1024))),
    ),
    batch=together,
    doc="Indices (i32) of the k largest values of each row, largest first; of equal "
    "values the smaller index comes first, and NaN comes after every number.",
)


def _running(types: Types, attrs: Attrs) -> TensorType:
    need(types, NUMBERS)
    if not types[0].shape:
        raise bad_shape("rank 0 has no axis to run along", hint="reshape to [1]")
    normal_axis(attrs["axis"], types[0].rank)
    return types[0]


def _cumsum(xp: Any, attrs: Attrs, x: Any) -> Any:
    axis = normal_axis(attrs["axis"], x.ndim)
    wide = accumulator(xp, x, x.shape[axis])
    return _ran(xp, attrs, x, xp.cumsum(x, axis=axis, dtype=wide), 0)


def _along(types: Types, out: TensorType, attrs: Attrs) -> int:
    return types[0].shape[attrs["axis"]]


def _cumprod(xp: Any, attrs: Attrs, x: Any) -> Any:
    axis = normal_axis(attrs["axis"], x.ndim)
    wide = accumulator(xp, x, x.shape[axis])
    return _ran(xp, attrs, x, xp.cumprod(x, axis=axis, dtype=wide), 1)


def _ran(xp: Any, attrs: Attrs, x: Any, total: Any, start: int) -> Any:
    """What has run along the axis, in the type of x."""
    total = xp.asarray(total, dtype=x.dtype)
    if not attrs["exclusive"]:
        return total
    # Moved on by one: to take x away again would lose what is small beside it.
    lead = (slice(None),) * normal_axis(attrs["axis"], x.ndim)
    first = xp.full_like(total[(*lead, slice(0, 1))], start)
    rest = total[(*lead, slice(0, -1))]
    return xp.concat([first, rest], axis=normal_axis(attrs["axis"], x.ndim))


def _scan_calls(kind: Kind, types: Types, out: TensorType, attrs: Attrs) -> Recipe:
    x = types[0]
    sizes = around(x.shape, normal_axis(attrs["axis"], x.rank))
    return scan_recipe(sizes, x.dtype, attrs["exclusive"], kind)


def _scanning(
    shape: Shape,
    axis: int = -1,
    exclusive: bool = False,
    dtype: DType = DType.F32,
    low: float = -1.0,
    high: float = 2.0,
) -> Sample:
    drawn = Drawn(shape, dtype, low, high, whole=dtype is DType.F16)
    return Sample((drawn,), {"axis": axis, "exclusive": exclusive})


_SCANNED = spelled(
    "1@0 13@-1 3x8@1 4x5x6@1 4x5x6@0 0x4@1 4x0@1 65537x2@1 65537x2@0 3x5003@-1 "
    "2x1000x3@1"
)
_RUN = (Attr("axis", "int", -1), Attr("exclusive", "bool", False))
_EXCLUSIVE = "`exclusive` leaves each element's own value out."
_CUMSUM = Op(
    name="cumsum",
    infer=_running,
    reference=_cumsum,
    lower=Kernel(partial(_scan_calls, "sum")),
    bounds=bounds.counted(_along, partly=True),
    attrs=_RUN,
    tolerance=SUMMED,
    samples=(
        *(
            _scanning(shape, axis, exclusive)
            for exclusive in (False, True)
            for shape, (axis,) in _SCANNED
        ),
        _scanning((4, 33), 1, True, DType.I32, -9, 9),
        _scanning((4, 2000), 1, False, DType.I32, -2e9, 2e9),
        _scanning((4, 33), 0, False, DType.U32, 0, 4e9),
        _scanning((4, 33), 1, True, DType.F16),
        _scanning((4, 33), 1, False, DType.F64),
        _scanning((4, 33), 1, False, DType.I64, -9, 9),
        _scanning((4, 33), 1, False, DType.U64, 0, 9),
    ),
    telling=tuple(_scanning(s) for s in ((4, 16), (1 << 15, 4), (256, 512))),
    vjp=summed_back,
    batch=along("axis"),
    doc=f"Running sums along an axis; {_EXCLUSIVE}",
)
_CUMPROD = Op(
    name="cumprod",
    infer=_running,
    reference=_cumprod,
    lower=Kernel(partial(_scan_calls, "prod")),
    bounds=bounds.products(_along, partly=True),
    attrs=_RUN,
    tolerance=Tolerance(rtol=1e-4, atol=1e-6, relative_to_peak=True),
    samples=(
        *(
            # Near 1, so that a product of thousands is a number yet.
            _scanning(shape, axis, axis == 1, DType.F32, 0.99, 1.01)
            for shape, (axis,) in _SCANNED
        ),
        _scanning((4, 13), 1, low=-2.0),
        _scanning((4, 33), 1, True, DType.I32, -9, 9),
        _scanning((4, 2000), 1, False, DType.I32, -2e9, 2e9),
        _scanning((4, 33), 0, False, DType.U32, 0, 4e9),
        _scanning((4, 10), 1, True, DType.F16),
        _scanning((4, 33), 1, False, DType.F64),
        _scanning((4, 33), 1, False, DType.I64, -9, 9),
    ),
    telling=tuple(_scanning(s) for s in ((4, 16), (1 << 15, 4), (256, 512))),
    vjp=multiplied_back,
    batch=along("axis"),
    doc=f"Running products along an axis; {_EXCLUSIVE} Integers wrap in their dtype.",
)

registry.register_all(_GATHER, _TOPK, _CUMSUM, _CUMPROD)
