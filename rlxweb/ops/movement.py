"""Reshape, transpose, narrow, expand and concat: ops that compute nothing.

The first four are arithmetic on a Layout and cost nothing until a dense copy is needed;
concat lays its operands side by side. Every attribute is checked against the shape. No
device is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlxweb.errors import AttributeRefused, ShapeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import Join, Lowering, View
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Trait, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, as_shape, normal_axis, show, solve_reshape
from rlxweb.ops.elementwise import same_dtype


def permutation(perm: Sequence[int], rank: int) -> tuple[int, ...]:
    """`perm` counted from the front: each axis once. Errors  AttributeRefused."""
    if len(perm) != rank:
        raise AttributeRefused(
            "", f"perm {tuple(perm)} names {len(perm)} axes", f"the operand has {rank}"
        )
    found = tuple(normal_axis(p, rank) for p in perm)
    if sorted(found) != list(range(rank)):
        raise AttributeRefused(
            "",
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
        raise ShapeError(
            "",
            f"start {start}, length {length} on axis {axis} of {show(shape)}",
            "start >= 0, length >= 0 and start + length <= "
            f"{shape[axis] if shape else 'a dimension (rank 0 has none)'}",
            "check the bounds of the slice",
        )
    return TensorType((*shape[:axis], length, *shape[axis + 1 :]), types[0].dtype)


def _expanded(types: Types, attrs: Attrs) -> TensorType:
    shape, target = types[0].shape, as_shape(attrs["shape"])
    tail = target[len(target) - len(shape) :] if len(target) >= len(shape) else ()
    if len(target) < len(shape) or any(
        have not in (1, want) for have, want in zip(shape, tail, strict=True)
    ):
        raise ShapeError(
            "",
            f"cannot expand {show(shape)} to {show(target)}",
            "right-aligned, each dimension must be 1 or the target's",
            "reshape it first so that the axes line up",
        )
    return TensorType(target, types[0].dtype)


def _joined(types: Types, attrs: Attrs) -> TensorType:
    dtype = same_dtype(types)
    first = types[0].shape
    if not first:
        raise ShapeError(
            "", "rank 0 has no axis to join on", hint="reshape the operands to [1]"
        )
    axis = normal_axis(attrs["axis"], len(first))
    for at, one in enumerate(types[1:], 1):
        same = one.rank == len(first) and all(
            a == axis or have == want
            for a, (have, want) in enumerate(zip(one.shape, first, strict=True))
        )
        if not same:
            raise ShapeError(
                "",
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


def _concat(xp: Any, attrs: Attrs, *xs: Any) -> Any:
    return xp.concatenate(xs, axis=attrs["axis"])


def _reshape(xp: Any, attrs: Attrs, x: Any) -> Any:
    return xp.reshape(x, solve_reshape(x.shape, attrs["shape"]))


def _transpose(xp: Any, attrs: Attrs, x: Any) -> Any:
    return xp.transpose(x, permutation(attrs["perm"], x.ndim))


def _expand(xp: Any, attrs: Attrs, x: Any) -> Any:
    return xp.broadcast_to(x, attrs["shape"])


def _view_narrow(layout: Layout, out: Shape, attrs: Attrs) -> Layout:
    axis = normal_axis(attrs["axis"], len(out))
    return layout.narrow(axis, attrs["start"], attrs["length"])


def _view_transpose(layout: Layout, out: Shape, attrs: Attrs) -> Layout:
    return layout.transpose(permutation(attrs["perm"], len(out)))


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


_GPU_TYPES = (DType.I32, DType.U32, DType.BOOL)
_ALL_TYPES = (*_GPU_TYPES, DType.F16, DType.F64, DType.I64)


def _case(shape: Shape, dtype: DType = DType.F32, /, **attrs: Any) -> Sample:
    return Sample((Drawn(shape, dtype, -9, 9, whole=True),), attrs)


def _cases(
    attr: str, every: tuple[tuple[Shape, tuple[int, ...]], ...]
) -> tuple[Sample, ...]:
    """Each (shape, value of `attr`) in f32, the last one in every type."""
    shape, value = every[-1]
    return (
        *(_case(s, **{attr: v}) for s, v in every),
        *(_case(shape, dtype, **{attr: value}) for dtype in _ALL_TYPES),
    )


def _movement(
    name: str,
    infer: Callable[[Types, Attrs], TensorType],
    reference: Callable[..., Any],
    lower: Lowering,
    attrs: tuple[Attr, ...],
    samples: tuple[Sample, ...],
    doc: str,
    arity: int | tuple[int, int | None] = 1,
    traits: tuple[Trait, ...] = ("view",),
) -> Op:
    return Op(
        name=name,
        arity=arity,
        infer=infer,
        reference=reference,
        lower=lower,
        attrs=attrs,
        traits=frozenset(traits),
        flops=lambda inputs, out, attrs: 0.0,
        samples=samples,
        doc=doc,
    )


_AXIS = Attr("axis", "int", 0)

_NARROWS = (
    _case((1,), axis=0, start=0, length=1),
    _case((5,), axis=0, start=0, length=5),
    _case((5,), axis=0, start=2, length=2),
    _case((5,), axis=-1, start=5, length=0),
    _case((4, 7, 3), axis=1, start=3, length=4),
    _case((4, 7, 3), axis=-1, start=1, length=1),
    _case((0, 4), axis=1, start=1, length=2),
    _case((65_539, 2), axis=0, start=1, length=65_537),
    *(_case((3, 8), d, axis=1, start=3, length=4) for d in _ALL_TYPES),
)


def _side_by_side(
    axis: int, *shapes: Shape, dtype: DType = DType.F32, note: str = ""
) -> Sample:
    drawn = tuple(Drawn(s, dtype, -9, 9, whole=True) for s in shapes)
    return Sample(drawn, {"axis": axis}, note)


_CONCATS = (
    _side_by_side(0, (3,)),
    _side_by_side(0, (1,), (1,)),
    _side_by_side(0, (5,), (0,), (8,)),
    _side_by_side(-1, (2, 3), (2, 4), (2, 1)),
    _side_by_side(1, (3, 2, 5), (3, 7, 5)),
    _side_by_side(0, (65_537, 2), (3, 2)),
    _side_by_side(1, (65_537, 1), (65_537, 1)),
    _side_by_side(1, (0, 2), (0, 3)),
    _side_by_side(0, *[(2,)] * 12, note="more operands than bindings"),
    *(_side_by_side(1, (3, 3), (3, 4), dtype=d) for d in _ALL_TYPES),
)

registry.register_all(
    [
        _movement(
            "reshape",
            _reshaped,
            _reshape,
            View(lambda layout, out, attrs: layout.reshape(out)),
            (Attr("shape", "ints"),),
            _cases(
                "shape",
                (
                    ((), (1, 1)),
                    ((1, 1), ()),
                    ((6,), (2, 3)),
                    ((0, 3), (3, 0, 5)),
                    ((65_537, 2), (2, 65_537)),
                    ((4, 6), (-1, 8)),
                    ((2, 3, 4), (6, -1)),
                ),
            ),
            "The same elements, row-major, under another shape; one -1 is solved.",
        ),
        _movement(
            "transpose",
            _permuted,
            _transpose,
            View(_view_transpose),
            (Attr("perm", "ints"),),
            _cases(
                "perm",
                (
                    ((), ()),
                    ((5,), (0,)),
                    ((0, 3), (1, 0)),
                    ((65_537, 2), (1, 0)),
                    ((2, 3, 4, 5), (3, 1, 0, 2)),
                    ((3, 4), (-1, 0)),
                    ((2, 3, 5), (2, 0, 1)),
                ),
            ),
            "The axes in the order `perm` lists them.",
        ),
        _movement(
            "narrow",
            _narrowed,
            _narrow,
            View(_view_narrow),
            (_AXIS, Attr("start", "int"), Attr("length", "int")),
            _NARROWS,
            "`length` elements of one axis from `start` on.",
        ),
        _movement(
            "expand",
            _expanded,
            _expand,
            View(lambda layout, out, attrs: layout.expand(out)),
            (Attr("shape", "ints"),),
            _cases(
                "shape",
                (
                    ((), ()),
                    ((), (3,)),
                    ((1,), (0,)),
                    ((0, 1), (0, 3)),
                    ((4, 1), (4, 6)),
                    ((2,), (65_537, 2)),
                    ((3, 1, 5), (2, 3, 4, 5)),
                ),
            ),
            "Broadcast to a shape: axes of size 1 are repeated, new ones lead.",
        ),
        _movement(
            "concat",
            _joined,
            _concat,
            Join(place_side_by_side),
            (_AXIS,),
            _CONCATS,
            "The operands one after the other along an axis; the rest must agree.",
            arity=(1, None),
            traits=(),
        ),
    ]
)
