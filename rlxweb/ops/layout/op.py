"""Reshape, transpose, narrow, expand and concat: ops that move data and compute
nothing.

The first four are arithmetic on a Layout and cost nothing until a dense copy is needed;
concat lays its operands side by side. Every attribute is checked against the shape. No
device is known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from rlxweb.ir.derivative import VjpContext, reshape_vjp
from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import ConcatLowering, View
from rlxweb.ir.op import (
    Attr,
    Attrs,
    Op,
    TensorType,
    Types,
    has_same_type,
    no_flops,
    registry,
)
from rlxweb.ir.sample import Drawn, Sample, parse_shape_table
from rlxweb.ir.shape_arithmetic import (
    Shape,
    bad_attribute,
    bad_shape,
    format_shape,
    normalize_axis,
    solve_expand,
    solve_reshape,
)
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.vmap_batching import BatchContext, batch_axes_rule
from rlxweb.ops.elementwise.op import common_dtype


def normalize_permutation(perm: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return `perm` with axes counted from the front, each once. Errors
    AttributeRefused.
    """
    if len(perm) != rank:
        raise bad_attribute(
            f"perm {tuple(perm)} lists {len(perm)} axes", f"the operand has {rank} axes"
        )
    normalized = tuple(normalize_axis(p, rank) for p in perm)
    if sorted(normalized) != list(range(rank)):
        raise bad_attribute(
            f"perm {tuple(perm)} lists an axis twice",
            f"perm must list each axis from 0 to {rank - 1} exactly once",
        )
    return normalized


def _infer_reshape(types: Types, attrs: Attrs) -> TensorType:
    return TensorType(solve_reshape(types[0].shape, attrs["shape"]), types[0].dtype)


def _infer_transpose(types: Types, attrs: Attrs) -> TensorType:
    shape = types[0].shape
    perm = normalize_permutation(attrs["perm"], len(shape))
    return TensorType(tuple(shape[p] for p in perm), types[0].dtype)


def _infer_narrow(types: Types, attrs: Attrs) -> TensorType:
    shape = types[0].shape
    axis = normalize_axis(attrs["axis"], len(shape))
    start, length = attrs["start"], attrs["length"]
    if start < 0 or length < 0 or start + length > shape[axis]:
        raise bad_shape(
            f"start {start}, length {length} on axis {axis} of {format_shape(shape)}",
            f"expected start >= 0, length >= 0 and start + length <= {shape[axis]}",
            "check the bounds of the slice",
        )
    return TensorType((*shape[:axis], length, *shape[axis + 1 :]), types[0].dtype)


def _infer_expand(types: Types, attrs: Attrs) -> TensorType:
    return TensorType(solve_expand(types[0].shape, attrs["shape"]), types[0].dtype)


def _infer_concat(types: Types, attrs: Attrs) -> TensorType:
    dtype = common_dtype(types)
    first = types[0].shape
    if not first:
        raise bad_shape(
            "a scalar (rank 0) has no axis to concatenate along",
            hint="reshape the operands to [1]",
        )
    axis = normalize_axis(attrs["axis"], len(first))
    for index, operand in enumerate(types[1:], 1):
        agrees = operand.rank == len(first) and all(
            a == axis or have == want
            for a, (have, want) in enumerate(zip(operand.shape, first, strict=True))
        )
        if not agrees:
            raise bad_shape(
                f"operand {index} is {format_shape(operand.shape)}, operand 0 is "
                f"{format_shape(first)}",
                f"the shapes must agree on all axes except axis {axis}",
                "narrow or expand the operand that differs",
            )
    total = sum(t.shape[axis] for t in types)
    return TensorType((*first[:axis], total, *first[axis + 1 :]), dtype)


def _narrow_reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    axis = normalize_axis(attrs["axis"], x.ndim)
    start = attrs["start"]
    slices = [slice(None)] * x.ndim
    slices[axis] = slice(start, start + attrs["length"])
    return x[tuple(slices)]


def concat_part_layouts(
    out: Layout, shapes: Sequence[Shape], attrs: Attrs
) -> tuple[Layout, ...]:
    """Return the part of the output that each operand of a concat fills."""
    axis = normalize_axis(attrs["axis"], len(out.shape))
    parts, start = [], 0
    for shape in shapes:
        parts.append(out.narrow(axis, start, shape[axis]))
        start += shape[axis]
    return tuple(parts)


_WIDE_DTYPES = (DType.F64, DType.I64, DType.U64)
_SAMPLE_DTYPES = (DType.I32, DType.U32, DType.BOOL, DType.F16, *_WIDE_DTYPES)
_AXIS = Attr("axis", "int", 0)


def _case(shape: Shape, dtype: DType = DType.F32, /, **attrs: Any) -> Sample:
    return Sample((Drawn(shape, dtype, -9, 9, whole=True),), attrs)


def _cases(table: str, *attrs: str) -> tuple[Sample, ...]:
    """Return samples of each (shape, values of `attrs`) in f32, and of the last one in
    every dtype.
    """
    rows = [
        (shape, dict(zip(attrs, value if len(attrs) > 1 else (value,), strict=True)))
        for shape, value in parse_shape_table(table)
    ]
    shape, last = rows[-1]
    return (
        *(_case(s, **a) for s, a in rows),
        *(_case(shape, dtype, **last) for dtype in _SAMPLE_DTYPES),
    )


def _concat_case(
    axis: int, *shapes: Shape, dtype: DType = DType.F32, note: str = ""
) -> Sample:
    inputs = tuple(Drawn(s, dtype, -9, 9, whole=True) for s in shapes)
    return Sample(inputs, {"axis": axis}, note)


_CONCAT_SHAPES = parse_shape_table(
    "0@3 0@1@1 0@5@0@8 -1@2x3@2x4@2x1 1@3x2x5@3x7x5 0@65537x2@3x2 1@65537x1@65537x1 "
    "1@0x2@0x3"
)


def _merge_permutations(
    first_attrs: Attrs, second_attrs: Attrs, out: TensorType
) -> Attrs:
    """Merge two transposes into one."""
    before, after = (
        normalize_permutation(attrs["perm"], out.rank)
        for attrs in (first_attrs, second_attrs)
    )
    return {"perm": tuple(before[a] for a in after)}


def _is_identity_permutation(types: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether the permutation changes nothing."""
    return normalize_permutation(attrs["perm"], out.rank) == tuple(range(out.rank))


def _merge_shapes(first_attrs: Attrs, second_attrs: Attrs, out: TensorType) -> Attrs:
    """Merge two reshapes or expands into one of the last shape."""
    return {"shape": out.shape}


def _transpose_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """Transpose the gradient by the inverse permutation."""
    perm = normalize_permutation(ctx.attrs["perm"], ctx.x.rank)
    inverse = sorted(range(len(perm)), key=lambda axis: perm[axis])
    return [ctx.g.transpose(ctx.grad, inverse)]


def _narrow_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """Pad the gradient with zeros on either side."""
    axis = normalize_axis(ctx.attrs["axis"], ctx.x.rank)
    before = ctx.attrs["start"]
    after = ctx.x.shape[axis] - before - ctx.attrs["length"]
    pads = [(0, 0)] * ctx.x.rank
    pads[axis] = before, after
    return [ctx.g.pad(ctx.grad, pads)]


def _concat_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """Give each operand its part of the gradient."""
    axis, start, parts = normalize_axis(ctx.attrs["axis"], ctx.out.rank), 0, []
    for x in ctx.inputs:
        parts.append(ctx.g.narrow(ctx.grad, axis, start, x.shape[axis]))
        start += x.shape[axis]
    return list(parts)


def _batch_transpose(ctx: BatchContext) -> Tensor:
    perm = normalize_permutation(ctx.attrs["perm"], ctx.ranks[0])
    return ctx.apply(ctx.x, perm=(0, *(p + 1 for p in perm)))


def _batch_expand(ctx: BatchContext) -> Tensor:
    x = ctx.aligned_operand(0, len(ctx.shape))
    return ctx.apply(x, shape=(ctx.count, *ctx.shape))


_view_op = partial(Op, traits=frozenset({"view"}), flops=no_flops)

registry.register_all(
    _view_op(
        name="reshape",
        infer=_infer_reshape,
        reference=lambda xp, attrs, x: xp.reshape(
            x, solve_reshape(x.shape, attrs["shape"])
        ),
        lower=View(lambda layout, out, attrs: layout.reshape(out)),
        attrs=(Attr("shape", "ints"),),
        is_noop=has_same_type,
        merge_attrs=_merge_shapes,
        samples=_cases(
            "()@1x1 1x1@() 6@2x3 0x3@3x0x5 65537x2@2x65537 4x6@-1x8 2x3x4@6x-1", "shape"
        ),
        vjp=reshape_vjp,
        batch=lambda ctx: ctx.apply(ctx.x, shape=(ctx.count, *ctx.shape)),
        doc="The same elements in row-major order with a new shape; one dimension may "
        "be -1 and is inferred.",
    ),
    _view_op(
        name="transpose",
        infer=_infer_transpose,
        reference=lambda xp, attrs, x: xp.permute_dims(
            x, normalize_permutation(attrs["perm"], x.ndim)
        ),
        lower=View(
            lambda layout, out, attrs: layout.transpose(
                normalize_permutation(attrs["perm"], len(out))
            )
        ),
        attrs=(Attr("perm", "ints"),),
        is_noop=_is_identity_permutation,
        merge_attrs=_merge_permutations,
        samples=_cases(
            "()@() 5@0 0x3@1x0 65537x2@1x0 2x3x4x5@3x1x0x2 3x4@-1x0 2x3x5@2x0x1 "
            "33x40@1x0",
            "perm",
        ),
        vjp=_transpose_vjp,
        batch=_batch_transpose,
        doc="The operand with its axes in the order given by `perm`.",
    ),
    _view_op(
        name="narrow",
        infer=_infer_narrow,
        reference=_narrow_reference,
        lower=View(
            lambda layout, out, attrs: layout.narrow(
                normalize_axis(attrs["axis"], len(out)), attrs["start"], attrs["length"]
            )
        ),
        attrs=(_AXIS, Attr("start", "int"), Attr("length", "int")),
        is_noop=has_same_type,
        samples=_cases(
            "1@0x0x1 5@0x0x5 5@0x2x2 5@-1x5x0 4x7x3@-1x1x1 0x4@1x1x2 "
            "65539x2@0x1x65537 4x7x3@1x3x4",
            *("axis", "start", "length"),
        ),
        vjp=_narrow_vjp,
        batch=batch_axes_rule("axis"),
        doc="`length` elements of one axis, beginning at `start`.",
    ),
    _view_op(
        name="expand",
        infer=_infer_expand,
        reference=lambda xp, attrs, x: xp.broadcast_to(
            x, solve_expand(x.shape, attrs["shape"])
        ),
        lower=View(lambda layout, out, attrs: layout.expand(out)),
        attrs=(Attr("shape", "ints"),),
        is_noop=has_same_type,
        merge_attrs=_merge_shapes,
        samples=_cases(
            "()@() ()@3 1@0 0x1@0x3 4x1@4x6 2@65537x2 2x3x1@3x-1 3x1x5@2x3x4x5", "shape"
        ),
        vjp=lambda ctx: [ctx.grad],
        batch=_batch_expand,
        doc="The operand broadcast with `shape`: an axis of size 1, in the operand "
        "or in `shape`, takes the size of the other; new axes are added in front; "
        "-1 in `shape` keeps the size of an axis.",
    ),
    _view_op(
        name="concat",
        arity=(1, None),
        infer=_infer_concat,
        reference=lambda xp, attrs, *xs: xp.concat(xs, axis=attrs["axis"]),
        lower=ConcatLowering(concat_part_layouts),
        attrs=(_AXIS,),
        is_noop=has_same_type,  # of a single one
        traits=frozenset(),
        samples=(
            *(_concat_case(axis[0], *shapes) for axis, *shapes in _CONCAT_SHAPES),
            _concat_case(0, *[(2,)] * 12, note="more operands than bindings"),
            *(_concat_case(1, (3, 3), (3, 4), dtype=d) for d in _SAMPLE_DTYPES),
        ),
        calibration_cases=tuple(_concat_case(0, s, s) for s in ((8, 8), (256, 256))),
        vjp=_concat_vjp,
        batch=batch_axes_rule("axis"),
        doc="The operands concatenated along an axis; all other dimensions must agree.",
    ),
)
