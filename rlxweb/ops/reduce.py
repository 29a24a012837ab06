"""Sum, mean, max, min and prod over any axes.

Integers keep their dtype and wrap. A float reduction of many elements is accumulated
wider than its dtype on the CPU and in short blocks on a GPU. The passes a GPU makes are
laid out in `reduce_calls.py`. No device is known here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from rlxweb.errors import ShapeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Compose, Kernel, Lowering, Recipe
from rlxweb.ir.op import (
    EXACT,
    Attr,
    Attrs,
    Op,
    TensorType,
    Tolerance,
    Trait,
    Types,
    registry,
)
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, normal_axes, show
from rlxweb.ops.elementwise import FLOATS, NUMBERS, is_float, need
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


def _infer(types: Types, attrs: Attrs) -> TensorType:
    need(types, NUMBERS)
    shape = reduced_shape(types[0].shape, attrs["axes"], attrs["keep_dim"])
    return TensorType(shape, types[0].dtype)


def _infer_nonempty(types: Types, attrs: Attrs) -> TensorType:
    found = _infer(types, attrs)
    if count_of(types[0].shape, attrs["axes"]) == 0:
        raise ShapeError(
            "",
            f"nothing to reduce: axes {attrs['axes']} of {show(types[0].shape)}",
            "the reduced axes hold 0 elements; at least 1 is needed",
            "leave the empty case out, or use sum or prod",
        )
    return found


def _infer_mean(types: Types, attrs: Attrs) -> TensorType:
    need(types, FLOATS)
    return _infer_nonempty(types, attrs)


def accumulator(xp: Any, x: Any, count: int) -> Any:
    """The dtype to add up in: wider than a float's own when that would show."""
    if not is_float(xp, x):
        return x.dtype
    if x.dtype == xp.float16:
        return xp.float32
    return getattr(xp, "float64", x.dtype) if count > _FEW else x.dtype


def _accumulated(name: str) -> Callable[..., Any]:
    def reference(xp: Any, attrs: Attrs, x: Any) -> Any:
        axes = normal_axes(attrs["axes"], x.ndim)
        wide = accumulator(xp, x, count_of(x.shape, axes))
        keep = attrs["keep_dim"]
        return getattr(xp, name)(x, axis=axes, dtype=wide, keepdims=keep).astype(
            x.dtype
        )

    return reference


def _extreme(name: str) -> Callable[..., Any]:
    def reference(xp: Any, attrs: Attrs, x: Any) -> Any:
        axes = normal_axes(attrs["axes"], x.ndim)
        return getattr(xp, name)(x, axis=axes, keepdims=attrs["keep_dim"])

    return reference


def _recipe(kind: Kind) -> Kernel:
    def recipe(types: Types, out: TensorType, attrs: Attrs) -> Recipe:
        axes = normal_axes(attrs["axes"], types[0].rank)
        return reduction(kind, types[0].dtype, types[0].shape, axes)

    return Kernel(recipe)


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


_SHORT: tuple[tuple[Shape, tuple[int, ...]], ...] = (
    ((), ()),
    ((1,), (0,)),
    ((5,), ()),
    ((13,), (0,)),
    ((4, 7), (1,)),
    ((4, 7), (-2,)),
    ((2, 3, 5), (1,)),
    ((2, 3, 5), (0, 2)),
    ((2, 3, 5), (0, 1, 2)),
    ((3, 2, 4, 3, 2), (1, 3)),
    ((2, 3, 2, 3, 2, 2, 3, 2), (0, 2, 4, 6)),
    ((2, 3, 2, 3, 2, 2, 3, 2), (1, 3, 5, 7)),
    ((65_537, 2), (1,)),
    ((0, 3), (1,)),
)
_LONG: tuple[tuple[Shape, tuple[int, ...]], ...] = (
    ((65_537, 2), (0,)),
    ((2, 65_537), (1,)),
    ((100_003,), (0,)),
    ((3, 1009, 7), (1,)),
    ((31, 17, 37, 5), (0, 2)),
    ((300, 300), (0, 1)),
)
_EMPTY: tuple[tuple[Shape, tuple[int, ...]], ...] = (
    ((0,), (0,)),
    ((0, 3), (0,)),
    ((2, 0, 4), (1,)),
)
_INTS = tuple(
    _case(shape, (1,), dtype=dtype, low=low, high=9)
    for shape in ((6, 5), (3, 1031))
    for dtype, low in ((DType.I32, -9), (DType.U32, 0), (DType.I64, -9))
)
_HALF = (_case((6, 40), (1,), dtype=DType.F16), _case((6, 4), (0, 1), False, DType.F16))
_DOUBLE = (_case((6, 40), (1,), dtype=DType.F64), _case((3, 700), (1,), True))


def _of(
    every: tuple[tuple[Shape, tuple[int, ...]], ...], low: float = -1, high: float = 2
) -> tuple[Sample, ...]:
    return (
        *(_case(s, axes, low=low, high=high) for s, axes in every),
        *(_case(s, axes, True, low=low, high=high) for s, axes in every[:8]),
    )


_WRAPPING = tuple(
    _case((3, 41), (1,), dtype=dtype, low=low, high=2e9, note="wraps")
    for dtype, low in ((DType.I32, -2e9), (DType.U32, 0))
)
_FLOAT_SAMPLES = (*_of(_SHORT), *_of(_LONG), *_HALF, *_DOUBLE)


def _reduce(
    name: str,
    reference: Callable[..., Any],
    lower: Lowering,
    doc: str,
    samples: tuple[Sample, ...],
    infer: Callable[[Types, Attrs], TensorType] = _infer_nonempty,
    tolerance: Tolerance = EXACT,
    traits: tuple[Trait, ...] = ("reduction",),
) -> Op:
    return Op(
        name=name,
        infer=infer,
        reference=reference,
        lower=lower,
        attrs=(Attr("axes", "ints"), Attr("keep_dim", "bool", False)),
        traits=frozenset(traits),
        flops=lambda inputs, out, attrs: float(inputs[0].numel),
        tolerance=tolerance,
        samples=samples,
        doc=doc,
    )


registry.register_all(
    _reduce(
        "sum",
        _accumulated("sum"),
        _recipe("sum"),
        "The sum over axes; 0 over none. Integers wrap in their dtype.",
        (*_FLOAT_SAMPLES, *_of(_EMPTY), *_INTS, *_WRAPPING),
        _infer,
        SUMMED,
    ),
    _reduce(
        "mean",
        _accumulated("mean"),
        Compose(_build_mean),
        "The mean over axes of at least one element; floats only.",
        _FLOAT_SAMPLES,
        _infer_mean,
        SUMMED,
        ("reduction", "floats_only"),
    ),
    _reduce(
        "max",
        _extreme("max"),
        _recipe("max"),
        "The largest element over axes of at least one.",
        (*_FLOAT_SAMPLES, *_INTS, *_WRAPPING),
    ),
    _reduce(
        "min",
        _extreme("min"),
        _recipe("min"),
        "The smallest element over axes of at least one.",
        (*_FLOAT_SAMPLES, *_INTS, *_WRAPPING),
    ),
    _reduce(
        "prod",
        _accumulated("prod"),
        _recipe("prod"),
        "The product over axes; 1 over none. Integers wrap in their dtype.",
        (
            *_of(_SHORT, 0.5, 1.5),
            *_of(_EMPTY),
            _case((3, 1009, 7), (1,), low=0.9, high=1.1),
            _case((300, 300), (1,), low=0.9, high=1.1),
            *_INTS,
            *_WRAPPING,
            *_HALF,
            _case((6, 40), (1,), dtype=DType.F64, low=0.5, high=1.5),
        ),
        _infer,
        MULTIPLIED,
    ),
)
