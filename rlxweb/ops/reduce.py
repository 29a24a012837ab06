"""Sum, mean, max, min and prod over any axes.

Integers keep their dtype and wrap. A float reduction of many elements is accumulated
wider than its dtype on the CPU and in short blocks on a GPU. The passes a GPU makes are
laid out in `reduce_calls.py`. No device is known here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rlxweb.ir import bounds
from rlxweb.ir.batching import along
from rlxweb.ir.derivative import Taken
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Compose, Kernel, Recipe
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample, spelled
from rlxweb.ir.shape import Shape, bad_shape, normal_axes, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise import FLOATS, NUMBERS, need
from rlxweb.ops.kinds import is_float
from rlxweb.recipes.reduce_calls import Kind, reduction

# In units of the largest result, since terms of either sign may cancel.
SUMMED = Tolerance(atol=3e-6, relative_to_peak=True)
MULTIPLIED = Tolerance(rtol=1e-5, atol=1e-30)

# NumPy adds up to this many float32 in a row without visible error.
_FEW = 512


def count_of(shape: Shape, axes: Sequence[int]) -> int:
    """How many elements go into one result."""
    return math.prod(shape[a] for a in normal_axes(axes, len(shape)))


def reduced_shape(shape: Shape, axes: Sequence[int], keep_dim: bool) -> Shape:
    """The shape without `axes`, or with 1 in their place. Errors  ShapeError."""
    gone = normal_axes(axes, len(shape))
    if keep_dim:
        return tuple(1 if a in gone else d for a, d in enumerate(shape))
    return tuple(d for a, d in enumerate(shape) if a not in gone)


def _infer(
    types: Types,
    attrs: Attrs,
    allowed: frozenset[DType] = NUMBERS,
    may_be_empty: bool = False,
) -> TensorType:
    need(types, allowed)
    shape = reduced_shape(types[0].shape, attrs["axes"], attrs["keep_dim"])
    if not may_be_empty and count_of(types[0].shape, attrs["axes"]) == 0:
        raise bad_shape(
            f"nothing to reduce: axes {attrs['axes']} of {show(types[0].shape)}",
            "the reduced axes hold 0 elements; at least 1 is needed",
            "leave the empty case out, or use sum or prod",
        )
    return TensorType(shape, types[0].dtype)


def _together(types: Types, out: TensorType, attrs: Attrs) -> int:
    return count_of(types[0].shape, attrs["axes"])


def accumulator(xp: Any, x: Any, count: int) -> Any:
    """The dtype to add up in: wider than a float's own when that would show."""
    if not is_float(xp, x):
        return x.dtype
    if x.dtype == xp.float16:
        return xp.float32
    return getattr(xp, "float64", x.dtype) if count > _FEW else x.dtype


def _reducer(name: str, wider: bool = False) -> Callable[..., Any]:
    """NumPy's reduction of that name; a `wider` one adds up in `accumulator`."""

    def reference(xp: Any, attrs: Attrs, x: Any) -> Any:
        axes = normal_axes(attrs["axes"], x.ndim)
        how = {"axis": axes, "keepdims": attrs["keep_dim"]}
        if wider:
            how["dtype"] = accumulator(xp, x, count_of(x.shape, axes))
        found = getattr(xp, name)(x, **how)
        return xp.asarray(found, dtype=x.dtype) if wider else found

    return reference


def _recipe(kind: Kind) -> Kernel:
    def recipe(types: Types, out: TensorType, attrs: Attrs) -> Recipe | None:
        if out.dtype is DType.BOOL:
            return None
        axes = normal_axes(attrs["axes"], types[0].rank)
        return reduction(kind, types[0].dtype, types[0].shape, axes)

    return Kernel(recipe, Compose(partial(_build_truth, kind)), folds=kind)


def _build_truth(kind: Kind, g: Any, attrs: Attrs, x: Any) -> Any:
    """Bools as whole numbers and back."""
    return g.ne(g.apply(kind, g.cast(x, DType.I32), **attrs), 0)


def _build_mean(g: Any, attrs: Attrs, x: Any) -> Any:
    """Sum, then divide; in f32 for f16, whose sum may overflow."""
    count = float(count_of(x.shape, attrs["axes"]))
    if x.dtype is DType.F16:
        wide = g.sum(g.cast(x, DType.F32), attrs["axes"], attrs["keep_dim"])
        return g.cast(g.div(wide, count), DType.F16)
    return g.div(g.sum(x, attrs["axes"], attrs["keep_dim"]), count)


def _case(
    shape: Shape,
    axes: tuple[int, ...],
    keep: bool = False,
    dtype: DType = DType.F32,
    low: float = -1.0,
    high: float = 2.0,
    note: str = "",
) -> Sample:
    drawn = Drawn(shape, dtype, low, high, whole=dtype is DType.F16)
    return Sample((drawn,), {"axes": axes, "keep_dim": keep}, note)


_SHORT = spelled(
    "()@() 1@0 5@() 13@0 4x7@1 4x7@-2 2x3x5@1 2x3x5@0x2 2x3x5@0x1x2 3x2x4x3x2@1x3 "
    "2x3x2x3x2x2x3x2@0x2x4x6 2x3x2x3x2x2x3x2@1x3x5x7 65537x2@1 0x3@1"
)
_LONG = spelled("65537x2@0 2x65537@1 100003@0 3x1009x7@1 31x17x37x5@0x2 300x300@0x1")
_EMPTY = spelled("0@0 0x3@0 2x0x4@1")
_INTS = tuple(
    _case(shape, (1,), dtype=dtype, low=low, high=9)
    for shape in ((6, 5), (3, 1031))
    for dtype, low in ((DType.I32, -9), (DType.U32, 0), (DType.I64, -9), (DType.U64, 0))
)
_HALF = (_case((6, 40), (1,), dtype=DType.F16), _case((6, 4), (0, 1), False, DType.F16))
_DOUBLE = (_case((6, 40), (1,), dtype=DType.F64), _case((3, 700), (1,), True))


def _of(
    every: tuple[tuple[Shape, ...], ...], low: float = -1, high: float = 2
) -> tuple[Sample, ...]:
    return (
        *(_case(s, axes, low=low, high=high) for s, axes in every),
        *(_case(s, axes, True, low=low, high=high) for s, axes in every[:8]),
    )


_WRAPPING = tuple(
    _case((3, 41), (1,), dtype=dtype, low=low, high=2e9, note="wraps")
    for dtype, low in ((DType.I32, -2e9), (DType.U32, 0))
)
_TRUTHS = tuple(
    _case(shape, axes, dtype=DType.BOOL, low=0, high=1)
    for shape, axes in (((6, 5), (1,)), ((3, 1031), (1,)), ((4, 3, 2), (0, 2)))
)
_ORDERED = NUMBERS | {DType.BOOL}
_FLOAT_SAMPLES = (*_of(_SHORT), *_of(_LONG), *_HALF, *_DOUBLE)


def _kept_axes(at: Taken, value: Tensor) -> Tensor:
    """What is of the result's shape, with axes of size 1 where they were reduced."""
    axes = normal_axes(at.attrs["axes"], at.x.rank)
    shape = [1 if a in axes else n for a, n in enumerate(at.x.shape)]
    return at.g.reshape(value, shape)


def _spread(at: Taken) -> list[Tensor | None]:
    return [at.g.expand(_kept_axes(at, at.grad), at.x.shape)]


def _spread_evenly(at: Taken) -> list[Tensor | None]:
    share = at.grad * (1.0 / count_of(at.x.shape, at.attrs["axes"]))
    return [at.g.expand(_kept_axes(at, share), at.x.shape)]


def _to_the_best(at: Taken) -> list[Tensor | None]:
    """Equal ones share."""
    best = at.x.eq(_kept_axes(at, at.out)).cast(at.x.dtype)
    count = at.g.sum(best, at.attrs["axes"], keep_dim=True)
    return [best * (_kept_axes(at, at.grad) / count)]


def _to_factors(at: Taken) -> list[Tensor | None]:
    """Multiply the products of the factors in front and of those behind.

    There is no division, so zeros are like other numbers and small factors keep their
    digits in derivatives of any order.
    """
    g, shape = at.g, at.x.shape
    axes = normal_axes(at.attrs["axes"], at.x.rank)
    order = (*(a for a in range(at.x.rank) if a not in axes), *axes)
    turned = g.transpose(at.x, order)
    lead = turned.shape[: at.x.rank - len(axes)]
    line = g.reshape(turned, (*lead, count_of(shape, at.attrs["axes"])))
    others = g.cumprod(line, exclusive=True) * g.cumprod(
        line, exclusive=True, reverse=True
    )
    back = [order.index(a) for a in range(at.x.rank)]
    slope = g.transpose(g.reshape(others, turned.shape), back)
    return [slope * _kept_axes(at, at.grad)]


_reduce = partial(
    Op,
    infer=_infer,
    attrs=(Attr("axes", "ints"), Attr("keep_dim", "bool", False)),
    traits=frozenset({"reduction"}),
    flops=lambda inputs, out, attrs: float(inputs[0].numel),
    samples=(*_FLOAT_SAMPLES, *_INTS, *_WRAPPING),
    telling=tuple(_case(s, (1,)) for s in ((4, 16), (1 << 15, 4), (256, 512))),
    batch=along("axes"),
)

registry.register_all(
    _reduce(
        name="sum",
        infer=partial(_infer, may_be_empty=True),
        reference=_reducer("sum", wider=True),
        lower=_recipe("sum"),
        bounds=bounds.counted(_together),
        tolerance=SUMMED,
        samples=(*_FLOAT_SAMPLES, *_of(_EMPTY), *_INTS, *_WRAPPING),
        vjp=_spread,
        doc="The sum over axes; 0 over none. Integers wrap in their dtype.",
    ),
    _reduce(
        name="mean",
        infer=partial(_infer, allowed=FLOATS),
        reference=_reducer("mean", wider=True),
        lower=Compose(_build_mean),
        traits=frozenset({"reduction", "floats_only"}),
        tolerance=SUMMED,
        samples=_FLOAT_SAMPLES,
        vjp=_spread_evenly,
        doc="The mean over axes of at least one element; floats only.",
    ),
    _reduce(
        name="max",
        infer=partial(_infer, allowed=_ORDERED),
        reference=_reducer("max"),
        lower=_recipe("max"),
        bounds=bounds.kept(0),
        samples=(*_FLOAT_SAMPLES, *_INTS, *_WRAPPING, *_TRUTHS),
        vjp=_to_the_best,
        doc="The largest element over axes of at least one; of bools if any holds.",
    ),
    _reduce(
        name="min",
        infer=partial(_infer, allowed=_ORDERED),
        reference=_reducer("min"),
        lower=_recipe("min"),
        bounds=bounds.kept(0),
        samples=(*_FLOAT_SAMPLES, *_INTS, *_WRAPPING, *_TRUTHS),
        vjp=_to_the_best,
        doc="The smallest element over axes of at least one; of bools if all hold.",
    ),
    _reduce(
        name="prod",
        infer=partial(_infer, may_be_empty=True),
        reference=_reducer("prod", wider=True),
        lower=_recipe("prod"),
        bounds=bounds.products(_together),
        tolerance=MULTIPLIED,
        samples=(
            *_of(_SHORT, 0.5, 1.5),
            *_of(_EMPTY),
            _case((3, 1009, 7), (1,), low=0.9, high=1.1),
            _case((300, 300), (1,), low=0.9, high=1.1),
            *_INTS,
            *_WRAPPING,
            *_HALF,
            _case((6, 40), (1,), dtype=DType.F64, low=0.5, high=1.5),
        ),
        # Products that fade out are slow to compute and tell of no others.
        telling=tuple(
            _case(s, (1,), low=0.9, high=1.1)
            for s in ((4, 16), (1 << 15, 4), (256, 512))
        ),
        vjp=_to_factors,
        doc="The product over axes; 1 over none. Integers wrap in their dtype.",
    ),
)
