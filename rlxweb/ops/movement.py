"""Reshape, transpose, narrow, expand and concat: ops that compute nothing.

The first four are arithmetic on a Layout and cost nothing until a dense copy is needed;
concat lays its operands side by side. Every attribute is checked against the shape. No
device is known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from rlxweb.ir.batching import Examples, along
from rlxweb.ir.derivative import Taken, kept
from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import Join, View
from rlxweb.ir.op import (
    Attr,
    Attrs,
    Op,
    TensorType,
    Types,
    no_flops,
    registry,
    same_type,
)
from rlxweb.ir.sample import Drawn, Sample, spelled
from rlxweb.ir.shape import (
    Shape,
    bad_attribute,
    bad_shape,
    normal_axis,
    show,
    solve_expand,
    solve_reshape,
)
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise import same_dtype


def permutation(perm: Sequence[int], rank: int) -> tuple[int, ...]:
    """`perm` counted from the front: each axis once. Errors  AttributeRefused."""
    if len(perm) != rank:
        raise bad_attribute(
            f"perm {tuple(perm)} names {len(perm)} axes", f"the operand has {rank}"
        )
    found = tuple(normal_axis(p, rank) for p in perm)
    if sorted(found) != list(range(rank)):
        raise bad_attribute(
            f"perm {tuple(perm)} names an axis twice",
            f"it must hold each of 0 … {rank - 1} once",
        )
    return found


def _reshaped(types: Types, attrs: Attrs) -> TensorType:
    return TensorType(solve_reshape(types[0].shape, attrs["shape"]), types[0].dtype)


def _permuted(types: Types, attrs: Attrs) -> TensorType:
    shape = types[0].shape
    perm = permutation(attrs["perm"], len(shape))
    return TensorType(tuple(shape[p] for p in perm), types[0].dtype)


def _narrowed(types: Types, attrs: Attrs) -> TensorType:
    shape = types[0].shape
    axis = normal_axis(attrs["axis"], len(shape))
    start, length = attrs["start"], attrs["length"]
    if not shape or start < 0 or length < 0 or start + length > shape[axis]:
        raise bad_shape(
            f"start {start}, length {length} on axis {axis} of {show(shape)}",
            "start >= 0, length >= 0 and start + length <= "
            f"{shape[axis] if shape else 'a dimension (rank 0 has none)'}",
            "check the bounds of the slice",
        )
    return TensorType((*shape[:axis], length, *shape[axis + 1 :]), types[0].dtype)


def _expanded(types: Types, attrs: Attrs) -> TensorType:
    return TensorType(solve_expand(types[0].shape, attrs["shape"]), types[0].dtype)


def _joined(types: Types, attrs: Attrs) -> TensorType:
    dtype = same_dtype(types)
    first = types[0].shape
    if not first:
        raise bad_shape(
            "rank 0 has no axis to join on", hint="reshape the operands to [1]"
        )
    axis = normal_axis(attrs["axis"], len(first))
    for at, one in enumerate(types[1:], 1):
        same = one.rank == len(first) and all(
            a == axis or have == want
            for a, (have, want) in enumerate(zip(one.shape, first, strict=True))
        )
        if not same:
            raise bad_shape(
                f"operand {at} is {show(one.shape)}, operand 0 is {show(first)}",
                f"all dimensions but axis {axis} must agree",
                "narrow or expand the odd one",
            )
    total = sum(t.shape[axis] for t in types)
    return TensorType((*first[:axis], total, *first[axis + 1 :]), dtype)


def _narrow(xp: Any, attrs: Attrs, x: Any) -> Any:
    axis = normal_axis(attrs["axis"], x.ndim)
    start = attrs["start"]
    cut = [slice(None)] * x.ndim
    cut[axis] = slice(start, start + attrs["length"])
    return x[tuple(cut)]


def place_side_by_side(
    out: Layout, shapes: Sequence[Shape], attrs: Attrs
) -> tuple[Layout, ...]:
    """The part of the output each operand of a concat fills."""
    axis = normal_axis(attrs["axis"], len(out.shape))
    parts, at = [], 0
    for shape in shapes:
        parts.append(out.narrow(axis, at, shape[axis]))
        at += shape[axis]
    return tuple(parts)


_WIDE = (DType.F64, DType.I64, DType.U64)
_TYPES = (DType.I32, DType.U32, DType.BOOL, DType.F16, *_WIDE)
_AXIS = Attr("axis", "int", 0)


def _case(shape: Shape, dtype: DType = DType.F32, /, **attrs: Any) -> Sample:
    return Sample((Drawn(shape, dtype, -9, 9, whole=True),), attrs)


def _cases(table: str, *attrs: str) -> tuple[Sample, ...]:
    """Each (shape, values of `attrs`) in f32, the last one in every type."""
    rows = [
        (shape, dict(zip(attrs, value if len(attrs) > 1 else (value,), strict=True)))
        for shape, value in spelled(table)
    ]
    shape, last = rows[-1]
    return (
        *(_case(s, **a) for s, a in rows),
        *(_case(shape, dtype, **last) for dtype in _TYPES),
    )


def _side_by_side(
    axis: int, *shapes: Shape, dtype: DType = DType.F32, note: str = ""
) -> Sample:
    drawn = tuple(Drawn(s, dtype, -9, 9, whole=True) for s in shapes)
    return Sample(drawn, {"axis": axis}, note)


_CONCATS = spelled(
    "0@3 0@1@1 0@5@0@8 -1@2x3@2x4@2x1 1@3x2x5@3x7x5 0@65537x2@3x2 1@65537x1@65537x1 "
    "1@0x2@0x3"
)


def _reordered(first: Attrs, then: Attrs, out: TensorType) -> Attrs:
    before, after = (permutation(one["perm"], out.rank) for one in (first, then))
    return {"perm": tuple(before[a] for a in after)}


def _in_order(types: Types, out: TensorType, attrs: Attrs) -> bool:
    return permutation(attrs["perm"], out.rank) == tuple(range(out.rank))


def _last_shape(first: Attrs, then: Attrs, out: TensorType) -> Attrs:
    return {"shape": out.shape}


def _permuted_back(at: Taken) -> list[Tensor | None]:
    perm = permutation(at.attrs["perm"], at.x.rank)
    back = sorted(range(len(perm)), key=lambda axis: perm[axis])
    return [at.g.transpose(at.grad, back)]


def _narrowed_back(at: Taken) -> list[Tensor | None]:
    """Zeros on either side."""
    axis = normal_axis(at.attrs["axis"], at.x.rank)
    before = at.attrs["start"]
    after = at.x.shape[axis] - before - at.attrs["length"]
    pads = [(0, 0)] * at.x.rank
    pads[axis] = before, after
    return [at.g.pad(at.grad, pads)]


def _joined_back(at: Taken) -> list[Tensor | None]:
    """Each operand its part."""
    axis, start, parts = normal_axis(at.attrs["axis"], at.out.rank), 0, []
    for x in at.inputs:
        parts.append(at.g.narrow(at.grad, axis, start, x.shape[axis]))
        start += x.shape[axis]
    return list(parts)


def _permuted_for_all(at: Examples) -> Tensor:
    perm = permutation(at.attrs["perm"], at.ranks[0])
    return at.apply(at.x, perm=(0, *(p + 1 for p in perm)))


def _expanded_for_all(at: Examples) -> Tensor:
    x = at.aligned(0, len(at.shape))
    return at.apply(x, shape=(at.count, *at.shape))


_movement = partial(Op, traits=frozenset({"view"}), flops=no_flops)

registry.register_all(
    _movement(
        name="reshape",
        infer=_reshaped,
        reference=lambda xp, attrs, x: xp.reshape(
            x, solve_reshape(x.shape, attrs["shape"])
        ),
        lower=View(lambda layout, out, attrs: layout.reshape(out)),
        attrs=(Attr("shape", "ints"),),
        unchanged=same_type,
        joined=_last_shape,
        samples=_cases(
            "()@1x1 1x1@() 6@2x3 0x3@3x0x5 65537x2@2x65537 4x6@-1x8 2x3x4@6x-1", "shape"
        ),
        vjp=kept,
        batch=lambda at: at.apply(at.x, shape=(at.count, *at.shape)),
        doc="The same elements, row-major, under another shape; one -1 is solved.",
    ),
    _movement(
        name="transpose",
        infer=_permuted,
        reference=lambda xp, attrs, x: xp.permute_dims(
            x, permutation(attrs["perm"], x.ndim)
        ),
        lower=View(
            lambda layout, out, attrs: layout.transpose(
                permutation(attrs["perm"], len(out))
            )
        ),
        attrs=(Attr("perm", "ints"),),
        unchanged=_in_order,
        joined=_reordered,
        samples=_cases(
            "()@() 5@0 0x3@1x0 65537x2@1x0 2x3x4x5@3x1x0x2 3x4@-1x0 2x3x5@2x0x1 "
            "33x40@1x0",
            "perm",
        ),
        vjp=_permuted_back,
        batch=_permuted_for_all,
        doc="The axes in the order `perm` lists them.",
    ),
    _movement(
        name="narrow",
        infer=_narrowed,
        reference=_narrow,
        lower=View(
            lambda layout, out, attrs: layout.narrow(
                normal_axis(attrs["axis"], len(out)), attrs["start"], attrs["length"]
            )
        ),
        attrs=(_AXIS, Attr("start", "int"), Attr("length", "int")),
        unchanged=same_type,
        samples=_cases(
            "1@0x0x1 5@0x0x5 5@0x2x2 5@-1x5x0 4x7x3@-1x1x1 0x4@1x1x2 "
            "65539x2@0x1x65537 4x7x3@1x3x4",
            *("axis", "start", "length"),
        ),
        vjp=_narrowed_back,
        batch=along("axis"),
        doc="`length` elements of one axis from `start` on.",
    ),
    _movement(
        name="expand",
        infer=_expanded,
        reference=lambda xp, attrs, x: xp.broadcast_to(
            x, solve_expand(x.shape, attrs["shape"])
        ),
        lower=View(lambda layout, out, attrs: layout.expand(out)),
        attrs=(Attr("shape", "ints"),),
        unchanged=same_type,
        joined=_last_shape,
        samples=_cases(
            "()@() ()@3 1@0 0x1@0x3 4x1@4x6 2@65537x2 2x3x1@3x-1 3x1x5@2x3x4x5", "shape"
        ),
        vjp=lambda at: [at.grad],
        batch=_expanded_for_all,
        doc="Broadcast with a shape: axes of size 1 are repeated, on either side; new "
        "ones lead, and -1 leaves an axis as it is.",
    ),
    _movement(
        name="concat",
        arity=(1, None),
        infer=_joined,
        reference=lambda xp, attrs, *xs: xp.concat(xs, axis=attrs["axis"]),
        lower=Join(place_side_by_side),
        attrs=(_AXIS,),
        unchanged=same_type,  # of a single one
        traits=frozenset(),
        samples=(
            *(_side_by_side(axis[0], *shapes) for axis, *shapes in _CONCATS),
            _side_by_side(0, *[(2,)] * 12, note="more operands than bindings"),
            *(_side_by_side(1, (3, 3), (3, 4), dtype=d) for d in _TYPES),
        ),
        telling=tuple(_side_by_side(0, s, s) for s in ((8, 8), (256, 256))),
        vjp=_joined_back,
        batch=along("axis"),
        doc="The operands one after the other along an axis; the rest must agree.",
    ),
)
