"""Gather, cumsum and cumprod: ops whose results depend on the positions of values.

Gather refuses an index outside its table on every device; sums and products run along
one axis. The passes a GPU makes are laid
out in `wgsl/plan.py`. No device is known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from rlxweb.core.errors import Unsupported
from rlxweb.core.message_text import Advice
from rlxweb.ir import value_range_rules
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Compose, Kernel, KernelPlan
from rlxweb.ir.op import (
    Attr,
    Attrs,
    Op,
    TensorType,
    Tolerance,
    Types,
    ValueGuard,
    no_flops,
    registry,
)
from rlxweb.ir.sample import Drawn, Sample, parse_shape_table
from rlxweb.ir.shape_arithmetic import (
    Shape,
    bad_shape,
    format_shape,
    normalize_axis,
    numel,
)
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.vmap_batching import BatchContext, batch_axes_rule
from rlxweb.ops.elementwise.op import NUMERIC_DTYPES, require_dtypes
from rlxweb.ops.gather.cumsum_cumprod_vjp import cumprod_vjp, cumsum_vjp
from rlxweb.ops.gather.index_validation import (
    as_int64,
    as_take_indices,
    first_invalid_index,
    invalid_index_error,
    require_index_dtype,
)
from rlxweb.ops.gather.vjp import gather_vjp
from rlxweb.ops.gather.wgsl.plan import (
    plan_cumulative,
    plan_gather,
)
from rlxweb.ops.reduce.op import SUM_TOLERANCE, accumulator_dtype
from rlxweb.ops.reduce.wgsl.plan import ReductionKind


def sizes_around_axis(shape: Shape, axis: int) -> tuple[int, int, int]:
    """Return the (outer, axis, inner) sizes of a dense tensor around one axis."""
    return numel(shape[:axis]), shape[axis], numel(shape[axis + 1 :])


def _infer_gather(types: Types, attrs: Attrs) -> TensorType:
    table, indices = types
    require_index_dtype(indices)
    if not table.shape:
        raise bad_shape("the table has rank 0", "the table must have an axis to index")
    axis = normalize_axis(attrs["axis"], table.rank)
    if table.shape[axis] == 0 and indices.numel:
        raise bad_shape(
            f"axis {axis} of the table {format_shape(table.shape)} is empty",
            f"got {indices.numel} indices, but an empty axis has no valid index",
        )
    shape = (*table.shape[:axis], *indices.shape, *table.shape[axis + 1 :])
    return TensorType(shape, table.dtype)


def _gather_reference(xp: Any, attrs: Attrs, table: Any, indices: Any) -> Any:
    if bool(xp.any(_is_outside(xp, attrs, table, indices))):
        first_invalid = _first_invalid_index(xp, attrs, table, indices)
        shapes = (tuple(table.shape), tuple(indices.shape))
        _raise_if_invalid(shapes, attrs, (int(first_invalid[0]), int(first_invalid[1])))
    return _gather_rows(xp, attrs, table, indices)


def _is_outside(xp: Any, attrs: Attrs, table: Any, indices: Any) -> Any:
    """Return which indices are out of range."""
    rows, signed_indices = table.shape[attrs["axis"]], as_int64(xp, indices)
    return (signed_indices < -rows) | (signed_indices >= rows)


def _first_invalid_index(xp: Any, attrs: Attrs, table: Any, indices: Any) -> Any:
    """Return the position and value of the first index out of range, or -1."""
    return first_invalid_index(xp, _is_outside(xp, attrs, table, indices), indices)


def _raise_if_invalid(
    shapes: Sequence[Shape], attrs: Attrs, first_invalid: Sequence[int]
) -> None:
    """Raise IndexRefused if an index is out of range."""
    if first_invalid[0] < 0:
        return
    table, indices = shapes
    axis = normalize_axis(attrs["axis"], len(table))
    axis_label = f"axis {axis} of {format_shape(table)}"
    rows = table[axis]
    raise invalid_index_error(
        "gather", indices, (first_invalid[0], first_invalid[1]), -rows, rows, axis_label
    )


def _gather_rows(xp: Any, attrs: Attrs, table: Any, indices: Any) -> Any:
    """Gather rows without an index check."""
    axis = normalize_axis(attrs["axis"], table.ndim)
    rows = table.shape[axis]
    flat_indices = as_take_indices(
        xp, xp.reshape(indices, (numel(indices.shape),)), rows
    )
    flat_indices = xp.where(flat_indices < 0, flat_indices + rows, flat_indices)
    shape = (*table.shape[:axis], *indices.shape, *table.shape[axis + 1 :])
    return xp.reshape(xp.take(table, flat_indices, axis=axis), shape)


def _plan_gather(types: Types, out: TensorType, attrs: Attrs) -> KernelPlan:
    table, indices = types
    axis = normalize_axis(attrs["axis"], table.rank)
    return plan_gather(sizes_around_axis(table.shape, axis), indices.numel)


def _build_gather_in_f32(g: Any, attrs: Attrs, table: Any, indices: Any) -> Any:
    """Build the gather of an f16 table through f32, whose reads can share one binding
    where bindings are few.
    """
    if table.dtype is not DType.F16:
        raise Unsupported(
            f"gather from a table of {table.dtype}",
            "no kernel of this op fits the device",
            hint=Advice("run with {}", device="cpu"),
        )
    rows = g.gather(g.cast(table, DType.F32), indices, attrs["axis"])
    return g.cast(rows, DType.F16)


def _gather_case(
    table: Shape,
    indices: Shape,
    axis: int = 0,
    dtype: DType = DType.F32,
    index_dtype: DType = DType.I32,
) -> Sample:
    rows = table[axis]
    return Sample(
        (
            Drawn(table, dtype, -9, 9, whole=True),
            Drawn(indices, index_dtype, -rows, rows - 1),
        ),
        {"axis": axis},
    )


def _gather_work_item(
    inputs: Types, out: TensorType, attrs: Attrs
) -> tuple[str, dict[str, int]]:
    """Return the work of a gather: only the bytes of the gathered rows and the indices,
    not of the whole table.
    """
    moved_bytes = 2 * out.nbytes + inputs[1].nbytes
    return "gather", {"cells": out.numel, "bytes": moved_bytes}


_GATHER_SHAPES = parse_shape_table(
    "5@()@0 1@1@0 7x3@4@0 7x3@2x5@0 4x7x3@5@1 4x7x3@2x2@-1 4x7@0@0 0x7@3@1 "
    "65537x2@11@0 3x2@65537@0 65537x2@3@1"
)


def _batch_gather(ctx: BatchContext) -> Tensor:
    """Batch a gather: rows of one table, the same rows of many tables, or each
    example's own rows of its own table.
    """
    axis = normalize_axis(ctx.attrs["axis"], ctx.ranks[0])
    g, (table, indices) = ctx.g, ctx.inputs
    if all(ctx.is_batched):
        # Each index is one of its own example's table: it is refused by that.
        table = g.moveaxis(table, axis + 1, 1)
        index_rows = g.reshape(indices, (ctx.count, -1, 1))
        result = g.apply("gather_nd", table, index_rows, batch_dims=1)
        result = g.reshape(result, (*indices.shape, *table.shape[2:]))
        rank = ctx.ranks[1]
        ends = [1 + n for n in range(rank)], [1 + axis + n for n in range(rank)]
        return g.moveaxis(result, *ends)
    if ctx.is_batched[0]:
        return ctx.apply(table, indices, axis=axis + 1)
    result = ctx.apply(table, indices, axis=axis)
    return g.moveaxis(result, axis, 0)


_GATHER = Op(
    name="gather",
    arity=2,
    infer=_infer_gather,
    reference=_gather_reference,
    guard=ValueGuard(_first_invalid_index, _raise_if_invalid, _gather_rows),
    lower=Kernel(_plan_gather, fallback=Compose(_build_gather_in_f32)),
    range_rule=value_range_rules.operand_hull(0),
    attrs=(Attr("axis", "int", 0),),
    flops=no_flops,
    samples=(
        *(
            _gather_case(table, indices, axis)
            for table, indices, (axis,) in _GATHER_SHAPES
        ),
        _gather_case((7, 3), (4,), 0, index_dtype=DType.U32),
        _gather_case((7, 3), (4,), 0, index_dtype=DType.I64),
        _gather_case((7, 3), (4,), 0, index_dtype=DType.U64),
        *(_gather_case((4, 6), (5,), 1, d) for d in DType if d is not DType.F32),
    ),
    work=_gather_work_item,
    calibration_cases=(
        _gather_case((16, 4), (16,), 0),
        _gather_case((1024, 128), (1024,), 0),
    ),
    vjp=gather_vjp,
    batch=_batch_gather,
    doc="Rows of a table selected by index along one axis, in the order of the "
    "indices. A negative index counts from the end; an index out of range is an "
    "error.",
)


def _infer_scan(types: Types, attrs: Attrs) -> TensorType:
    require_dtypes(types, NUMERIC_DTYPES)
    if not types[0].shape:
        raise bad_shape(
            "a scalar (rank 0) has no axis to accumulate along",
            hint="reshape it to [1]",
        )
    normalize_axis(attrs["axis"], types[0].rank)
    return types[0]


def _cumsum_reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    axis = normalize_axis(attrs["axis"], x.ndim)
    dtype = accumulator_dtype(xp, x, x.shape[axis])
    return _finish_scan(xp, attrs, x, xp.cumsum(x, axis=axis, dtype=dtype), 0)


def _axis_length(types: Types, out: TensorType, attrs: Attrs) -> int:
    """Return the length of the scanned axis, for the range rule."""
    return types[0].shape[attrs["axis"]]


def _cumprod_reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    axis = normalize_axis(attrs["axis"], x.ndim)
    dtype = accumulator_dtype(xp, x, x.shape[axis])
    return _finish_scan(xp, attrs, x, xp.cumprod(x, axis=axis, dtype=dtype), 1)


def _finish_scan(xp: Any, attrs: Attrs, x: Any, scanned: Any, identity: int) -> Any:
    """Convert a finished scan to the dtype of x, and shift it by one if it is
    exclusive.
    """
    scanned = xp.asarray(scanned, dtype=x.dtype)
    if not attrs["exclusive"]:
        return scanned
    # Moved on by one: to take x away again would lose what is small beside it.
    leading_slices = (slice(None),) * normalize_axis(attrs["axis"], x.ndim)
    first = xp.full_like(scanned[(*leading_slices, slice(0, 1))], identity)
    rest = scanned[(*leading_slices, slice(0, -1))]
    return xp.concat([first, rest], axis=normalize_axis(attrs["axis"], x.ndim))


def _plan_scan(
    kind: ReductionKind, types: Types, out: TensorType, attrs: Attrs
) -> KernelPlan:
    x = types[0]
    sizes = sizes_around_axis(x.shape, normalize_axis(attrs["axis"], x.rank))
    return plan_cumulative(sizes, x.dtype, attrs["exclusive"], kind)


def _scan_case(
    shape: Shape,
    axis: int = -1,
    exclusive: bool = False,
    dtype: DType = DType.F32,
    low: float = -1.0,
    high: float = 2.0,
) -> Sample:
    drawn = Drawn(shape, dtype, low, high, whole=dtype is DType.F16)
    return Sample((drawn,), {"axis": axis, "exclusive": exclusive})


_SCAN_SHAPES = parse_shape_table(
    "1@0 13@-1 3x8@1 4x5x6@1 4x5x6@0 0x4@1 4x0@1 65537x2@1 65537x2@0 3x5003@-1 "
    "2x1000x3@1"
)
_SCAN_ATTRS = (Attr("axis", "int", -1), Attr("exclusive", "bool", False))
_EXCLUSIVE_DOC = (
    "with `exclusive`, a result does not include the element at its own position."
)
_CUMSUM = Op(
    name="cumsum",
    infer=_infer_scan,
    reference=_cumsum_reference,
    lower=Kernel(partial(_plan_scan, "sum")),
    range_rule=value_range_rules.sum_range(_axis_length, can_be_partial=True),
    attrs=_SCAN_ATTRS,
    tolerance=SUM_TOLERANCE,
    samples=(
        *(
            _scan_case(shape, axis, exclusive)
            for exclusive in (False, True)
            for shape, (axis,) in _SCAN_SHAPES
        ),
        _scan_case((4, 33), 1, True, DType.I32, -9, 9),
        _scan_case((4, 2000), 1, False, DType.I32, -2e9, 2e9),
        _scan_case((4, 33), 0, False, DType.U32, 0, 4e9),
        _scan_case((4, 33), 1, True, DType.F16),
        _scan_case((4, 33), 1, False, DType.F64),
        _scan_case((4, 33), 1, False, DType.I64, -9, 9),
        _scan_case((4, 33), 1, False, DType.U64, 0, 9),
    ),
    calibration_cases=tuple(_scan_case(s) for s in ((4, 16), (1 << 15, 4), (256, 512))),
    vjp=cumsum_vjp,
    batch=batch_axes_rule("axis"),
    doc=f"Running sums along an axis; {_EXCLUSIVE_DOC}",
)
_CUMPROD = Op(
    name="cumprod",
    infer=_infer_scan,
    reference=_cumprod_reference,
    lower=Kernel(partial(_plan_scan, "prod")),
    range_rule=value_range_rules.product_range(_axis_length, can_be_partial=True),
    attrs=_SCAN_ATTRS,
    tolerance=Tolerance(rtol=1e-4, atol=1e-6, relative_to_peak=True),
    samples=(
        *(
            # Near 1, so that a product of thousands is a number yet.
            _scan_case(shape, axis, axis == 1, DType.F32, 0.99, 1.01)
            for shape, (axis,) in _SCAN_SHAPES
        ),
        _scan_case((4, 13), 1, low=-2.0),
        _scan_case((4, 33), 1, True, DType.I32, -9, 9),
        _scan_case((4, 2000), 1, False, DType.I32, -2e9, 2e9),
        _scan_case((4, 33), 0, False, DType.U32, 0, 4e9),
        _scan_case((4, 10), 1, True, DType.F16),
        _scan_case((4, 33), 1, False, DType.F64),
        _scan_case((4, 33), 1, False, DType.I64, -9, 9),
    ),
    calibration_cases=tuple(_scan_case(s) for s in ((4, 16), (1 << 15, 4), (256, 512))),
    vjp=cumprod_vjp,
    batch=batch_axes_rule("axis"),
    doc=f"Running products along an axis; {_EXCLUSIVE_DOC} Integers wrap in their "
    f"dtype.",
)

registry.register_all(_GATHER, _CUMSUM, _CUMPROD)
