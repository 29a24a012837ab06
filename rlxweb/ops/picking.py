"""Gather and scatter by element and by rows of several axes, as ONNX and PyTorch do.

A negative index counts from the end of its axis; one outside is refused on every
device. What is put in at one place several times is put in in order: the last one wins,
and a sum is that of NumPy. The calls a GPU makes are laid out in `pick_calls.py`. No
device is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlxweb.ir import bounds
from rlxweb.ir.batching import Examples, along
from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import row_major
from rlxweb.ir.lowering import Kernel, Recipe
from rlxweb.ir.op import Attr, Attrs, Guard, Op, TensorType, Types, no_flops, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, bad_attribute, bad_shape, normal_axis, numel, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.combined import combined, last_wins
from rlxweb.ops.elementwise import NUMBERS, need, same_dtype
from rlxweb.ops.outside import as_places, first_outside, need_indices, refused, signed
from rlxweb.ops.picks_back import put_back, taken_back
from rlxweb.ops.reduce import SUMMED
from rlxweb.recipes.pick_calls import COMBINED, Picks

REDUCTIONS = tuple(COMBINED)
How = Callable[[Shape, Shape, DType, Attrs], Picks]
"""(operand's shape, indices' shape and type, attributes) → how they name its rows."""


def _along_axis(shape: Shape, at: Shape, index: DType, attrs: Attrs) -> Picks:
    """One index for each element: all axes but one agree. Errors  ShapeError."""
    if not shape or len(at) != len(shape):
        raise bad_shape(
            f"indices of rank {len(at)} for an operand of rank {len(shape)}",
            "both have the same rank, at least 1",
            "`take` picks whole rows by indices of any rank",
        )
    axis = normal_axis(attrs["axis"], len(shape))
    for a, (have, want) in enumerate(zip(at, shape, strict=True)):
        if a != axis and have != want:
            raise bad_shape(
                f"indices {show(at)} along axis {axis} of {show(shape)}",
                f"axis {a} is {have} of one and {want} of the other",
                "expand or narrow one of them, or use the graph's method",
            )
    outer, inner = numel(shape[:axis]), numel(shape[axis + 1 :])
    picks = Picks(outer, (shape[axis],), inner, at[axis], True, index)
    return _filled(picks, at, shape)


def _by_tuples(shape: Shape, at: Shape, index: DType, attrs: Attrs) -> Picks:
    """The last axis of the indices names so many axes. Errors  ShapeError."""
    batch = attrs["batch_dims"]
    if not at or not 0 <= batch < len(at) or batch > len(shape):
        raise bad_attribute(
            f"batch_dims={batch} for indices {show(at)} and an operand {show(shape)}",
            "0 <= batch_dims < rank of the indices, and <= rank of the operand",
        )
    if at[:batch] != shape[:batch]:
        raise bad_shape(
            f"indices {show(at)} for {show(shape)}",
            f"the first {batch} axes, the batch, agree",
        )
    named = at[-1]
    if not 1 <= named <= len(shape) - batch:
        raise bad_shape(
            f"the last axis of the indices {show(at)} names {named} axes",
            f"the operand {show(shape)} has {len(shape) - batch} behind its batch",
        )
    dims, rest = shape[batch : batch + named], shape[batch + named :]
    picks = Picks(
        numel(shape[:batch]), dims, numel(rest), numel(at[batch:-1]), False, index
    )
    return _filled(picks, at, shape)


def _filled(picks: Picks, at: Shape, shape: Shape) -> Picks:
    if not picks.rows and numel(at):
        raise bad_shape(
            f"axes of {show(picks.dims)} elements are indexed",
            f"none of the {numel(at)} indices can be inside nothing",
        )
    return picks


def _wide(xp: Any, picks: Picks, indices: Any) -> tuple[Any, Any]:
    """Indices as (outer, count, K, inner or 1), and the sizes of the K axes beside."""
    last = picks.inner if picks.apart else 1
    shape = (picks.outer, picks.count, len(picks.dims), last)
    sizes = xp.reshape(xp.asarray(np.asarray(picks.dims, np.int64)), (1, 1, -1, 1))
    return xp.reshape(signed(xp, indices), shape), sizes


def _rows(xp: Any, picks: Picks, indices: Any) -> Any:
    """The rows that the indices name, counted through: (outer, count, inner or 1)."""
    wide, sizes = _wide(xp, picks, indices)
    found = xp.where(wide < 0, wide + sizes, wide)
    rows = xp.reshape(xp.arange(picks.outer), (picks.outer, 1, 1)) * picks.rows
    for k, step in enumerate(row_major(picks.dims)):
        rows = rows + found[:, :, k, :] * step
    return rows


def _places(xp: Any, picks: Picks, indices: Any) -> Any:
    """The places in the operand of all that the indices name, one behind the other."""
    inner = xp.reshape(xp.arange(picks.inner), (1, 1, picks.inner))
    places = _rows(xp, picks, indices) * picks.inner + inner
    count = picks.outer * picks.count * picks.inner
    most = picks.outer * picks.rows * picks.inner
    return as_places(xp, xp.reshape(places, (count,)), most)


def _look(how: How, xp: Any, attrs: Attrs, x: Any, indices: Any, *rest: Any) -> Any:
    picks = how(tuple(x.shape), tuple(indices.shape), DType.I64, attrs)
    wide, sizes = _wide(xp, picks, indices)
    return first_outside(xp, (wide < -sizes) | (wide >= sizes), indices)


def _judge(
    name: str, how: How, shapes: Sequence[Shape], attrs: Attrs, found: Sequence[int]
) -> None:
    if found[0] < 0:
        return
    shape, at = shapes[:2]
    picks = how(shape, at, DType.I64, attrs)
    k = found[0] % len(picks.dims) if not picks.apart else 0
    first = attrs["axis"] % len(shape) if picks.apart else attrs["batch_dims"]
    size, of = picks.dims[k], f"axis {first + k} of {show(shape)}"
    raise refused(name, at, (found[0], found[1]), -size, size, of)


def _picking(name: str, how: How, then: Callable[..., Any], **record: Any) -> Op:
    """The record of an op whose indices are looked at before it is done."""

    def reference(xp: Any, attrs: Attrs, *arrays: Any) -> Any:
        found = _look(how, xp, attrs, *arrays)
        shapes = tuple(tuple(one.shape) for one in arrays)
        _judge(name, how, shapes, attrs, (int(found[0]), int(found[1])))
        return then(how, xp, attrs, *arrays)

    guard = Guard(partial(_look, how), partial(_judge, name, how), partial(then, how))
    return Op(name=name, reference=reference, guard=guard, flops=no_flops, **record)


def _taken(how: How, xp: Any, attrs: Attrs, x: Any, indices: Any) -> Any:
    shape, at = tuple(x.shape), tuple(indices.shape)
    picks = how(shape, at, DType.I64, attrs)
    if picks.apart:
        flat = xp.reshape(x, (numel(shape),))
        found = xp.take(flat, _places(xp, picks, indices), axis=0)
    else:
        every = picks.outer * picks.rows
        rows = xp.reshape(_rows(xp, picks, indices), (picks.outer * picks.count,))
        table = xp.reshape(x, (every, picks.inner))
        found = xp.take(table, as_places(xp, rows, every), axis=0)
    return xp.reshape(found, _taken_shape(shape, at, picks, attrs))


def _taken_shape(shape: Shape, at: Shape, picks: Picks, attrs: Attrs) -> Shape:
    if picks.apart:
        return at
    return (*at[:-1], *shape[attrs["batch_dims"] + at[-1] :])


def _gathered(how: How, types: Types, attrs: Attrs) -> TensorType:
    x, at = types
    need_indices(at)
    picks = how(x.shape, at.shape, at.dtype, attrs)
    return TensorType(_taken_shape(x.shape, at.shape, picks, attrs), x.dtype)


def _gather_calls(how: How, types: Types, out: TensorType, attrs: Attrs) -> Recipe:
    x, at = types
    return how(x.shape, at.shape, at.dtype, attrs).gather()


def _scattered(how: How, types: Types, attrs: Attrs) -> TensorType:
    x, at, values = types
    need_indices(at)
    dtype = same_dtype((x, values))
    if attrs["reduction"] != "none":
        need((x,), NUMBERS)
    picks = how(x.shape, at.shape, at.dtype, attrs)
    want = _taken_shape(x.shape, at.shape, picks, attrs)
    if values.shape != want:
        raise bad_shape(
            f"values {show(values.shape)} are put in by indices {show(at.shape)}",
            f"they are {show(want)}",
            "expand the values",
        )
    return TensorType(x.shape, dtype)


def _scatter_calls(how: How, types: Types, out: TensorType, attrs: Attrs) -> Recipe:
    x, at, _ = types
    picks = how(x.shape, at.shape, at.dtype, attrs)
    return picks.scatter(attrs["reduction"], x.dtype)


def _put(how: How, xp: Any, attrs: Attrs, x: Any, indices: Any, values: Any) -> Any:
    shape = tuple(x.shape)
    count = numel(values.shape)
    if not count:
        return x
    picks = how(shape, tuple(indices.shape), DType.I64, attrs)
    places = _places(xp, picks, indices)
    flat, put = xp.reshape(x, (numel(shape),)), xp.reshape(values, (count,))
    if attrs["reduction"] == "none":
        made = last_wins(xp, flat, places, put)
    else:
        made = combined(xp, flat, places, put, attrs["reduction"])
    return xp.reshape(made, shape)


# --- the records ------------------------------------------------------------------


def _case(
    shape: Shape,
    at: tuple[Shape, int],
    dtype: DType,
    index: DType,
    put: tuple[str, Shape, float],
    **attrs: Any,
) -> Sample:
    """Indices of axes of one size, negative ones too, and what is put in there.

    at    the shape of the indices and the size
    put   how, "" for nothing; the shape of the values and the largest of them
    """
    (places, size), (reduction, values, high) = at, put
    drawn = [
        Drawn(shape, dtype, -9, 9, whole=True),
        Drawn(places, index, -size, size - 1, whole=True),
    ]
    if reduction:
        drawn.append(Drawn(values, dtype, -high, high, whole=True))
        attrs["reduction"] = reduction
    return Sample(tuple(drawn), attrs)


def _elements(
    shape: Shape,
    count: int,
    axis: int = 0,
    dtype: DType = DType.F32,
    index: DType = DType.I32,
    put: str = "",
) -> Sample:
    """So many indices of an axis for each line along it."""
    on = axis % len(shape)
    at = (*shape[:on], count, *shape[on + 1 :])
    # A place is often named several times; a product of many would not stay small.
    high = 2 if put == "mul" else 9
    return _case(shape, (at, shape[on]), dtype, index, (put, at, high), axis=axis)


def _tuples(
    shape: Shape,
    at: Shape,
    batch: int = 0,
    dtype: DType = DType.F32,
    index: DType = DType.I32,
    put: str = "",
) -> Sample:
    named, rest = shape[batch : batch + at[-1]], shape[batch + at[-1] :]
    values = (*at[:-1], *rest)
    how = (put, values, 2)
    return _case(shape, (at, min(named)), dtype, index, how, batch_dims=batch)


_AXIS, _BATCH = Attr("axis", "int", 0), Attr("batch_dims", "int", 0)
_REDUCTION = Attr("reduction", "str", "none", allowed=REDUCTIONS)
_AGREED = "A negative index counts from the end; one outside is refused."
_ORDER = (
    "A copy of the operand with values put in: `none` (of several the last), or "
    "combined with what is there by add, mul, max or min, one after the other. "
)


def _batched(at: Examples) -> Tensor:
    every = (at.repeated(i) for i in range(len(at.inputs)))
    return at.apply(*every, batch_dims=at.attrs["batch_dims"] + 1)


_gather = partial(_picking, then=_taken, arity=2, bounds=bounds.kept(0))
_scatter = partial(_picking, then=_put, arity=3, tolerance=SUMMED, bounds=bounds.PUT_IN)

registry.register_all(
    _gather(
        "gather_elements",
        _along_axis,
        infer=partial(_gathered, _along_axis),
        lower=Kernel(partial(_gather_calls, _along_axis)),
        attrs=(_AXIS,),
        vjp=taken_back("scatter_elements"),
        batch=along("axis"),
        samples=(
            _elements((1,), 1),
            _elements((3, 5), 7, 1),
            _elements((3, 5, 2), 4, -2, DType.I32),
            _elements((4, 3), 0),
            _elements((0, 3), 2, 1),
            _elements((2, 65_537), 1),
            _elements((7, 3), 4, index=DType.U32),
            _elements((7, 3), 4, index=DType.I64),
            _elements((7, 3), 4, index=DType.U64),
            _elements((4, 6), 5, 1, DType.BOOL),
            _elements((4, 6), 5, 1, DType.F16),
        ),
        telling=(_elements((16, 4), 16), _elements((1024, 128), 1024)),
        doc="Elements of one axis by an index for each, as numpy.take_along_axis and "
        f"PyTorch's gather; the other axes agree. {_AGREED}",
    ),
    _gather(
        "gather_nd",
        _by_tuples,
        infer=partial(_gathered, _by_tuples),
        lower=Kernel(partial(_gather_calls, _by_tuples)),
        attrs=(_BATCH,),
        vjp=taken_back("scatter_nd"),
        batch=_batched,
        samples=(
            _tuples((1,), (1,)),
            _tuples((4, 5, 3), (7, 2)),
            _tuples((2, 4, 5), (2, 3, 1), 1, DType.I32),
            _tuples((3, 4, 5), (2, 3, 3), index=DType.I64),
            _tuples((3, 0), (2, 1)),
            _tuples((3, 65_537), (1, 1)),
            _tuples((3, 5), (4, 2), dtype=DType.BOOL, index=DType.U32),
        ),
        telling=(_tuples((8, 8), (16, 2)), _tuples((64, 64, 32), (4096, 2))),
        onnx=("GatherND",),
        doc="Rows by indices of several axes at once, which the last axis of the "
        f"indices holds; `batch_dims` axes of both go together. {_AGREED}",
    ),
    _scatter(
        "scatter_elements",
        _along_axis,
        infer=partial(_scattered, _along_axis),
        lower=Kernel(partial(_scatter_calls, _along_axis)),
        attrs=(_AXIS, _REDUCTION),
        vjp=put_back("gather_elements", "scatter_elements"),
        batch=along("axis"),
        samples=(
            _elements((1,), 1, put="none"),
            _elements((3, 5), 9, 1, put="none"),
            _elements((3, 5), 9, 1, put="add"),
            _elements((3, 5, 2), 4, -2, DType.I32, put="mul"),
            _elements((3, 5), 4, 1, DType.F16, put="max"),
            _elements((5, 3), 4, 0, DType.I32, DType.I64, put="min"),
            _elements((4, 3), 0, put="add"),
            _elements((0, 3), 2, 1, put="none"),
            _elements((2, 65_537), 1, put="add"),
            _elements((7, 3), 4, 0, DType.BOOL, DType.U32, put="none"),
            _elements((1500,), 2100, put="add"),
        ),
        telling=tuple(_elements(s, s[0], put="add") for s in ((16, 4), (256, 512))),
        doc=f"{_ORDER}Each value has an index of one axis, as PyTorch's scatter; the "
        f"other axes agree. {_AGREED}",
    ),
    _scatter(
        "scatter_nd",
        _by_tuples,
        infer=partial(_scattered, _by_tuples),
        lower=Kernel(partial(_scatter_calls, _by_tuples)),
        attrs=(_BATCH, _REDUCTION),
        vjp=put_back("gather_nd", "scatter_nd"),
        batch=_batched,
        samples=(
            _tuples((1,), (1,), put="none"),
            _tuples((4, 5, 3), (7, 2), put="add"),
            _tuples((2, 4, 5), (2, 6, 1), 1, DType.I32, put="none"),
            _tuples((3, 3, 5), (2, 3, 2), put="mul", index=DType.I64),
            _tuples((3, 5), (4, 1), put="max"),
            _tuples((3, 5), (4, 1), put="min", dtype=DType.U32, index=DType.U32),
            _tuples((3, 0), (2, 1), put="none"),
            _tuples((3, 65_537), (1, 1), put="none"),
        ),
        telling=(
            _tuples((8, 8), (16, 1), put="add"),
            _tuples((512, 256), (512, 1), put="add"),
        ),
        doc=f"{_ORDER}The last axis of the indices names rows of several axes. "
        f"{_AGREED}",
    ),
)
