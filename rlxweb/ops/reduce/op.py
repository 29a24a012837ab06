"""Sum, mean, max, min and prod over any axes.

Integers keep their dtype and wrap. A float reduction of many elements is accumulated
wider than its dtype on the CPU and in short blocks on a GPU. The passes a GPU makes are
laid out in `wgsl/plan.py`. No device is known here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rlxweb.ir import value_range_rules
from rlxweb.ir.derivative import VjpContext
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Compose, Kernel, KernelPlan
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample, parse_shape_table
from rlxweb.ir.shape_arithmetic import (
    Shape,
    bad_shape,
    format_shape,
    normalize_sorted_axes,
)
from rlxweb.ir.tensor import Axes, Tensor
from rlxweb.ir.vmap_batching import batch_axes_rule
from rlxweb.ops.array_dtype_checks import is_float
from rlxweb.ops.elementwise.op import FLOAT_DTYPES, NUMERIC_DTYPES, require_dtypes
from rlxweb.ops.reduce.wgsl.plan import ReductionKind, plan_reduction

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph

# In units of the largest result, since terms of either sign may cancel.
SUM_TOLERANCE = Tolerance(atol=3e-6, relative_to_peak=True)
PRODUCT_TOLERANCE = Tolerance(rtol=1e-5, atol=1e-30)

# NumPy adds up to this many float32 in a row without visible error.
_MAX_FLOAT32_TERMS = 512


def reduced_count(shape: Shape, axes: Sequence[int]) -> int:
    """Return the number of elements reduced to one result."""
    return math.prod(shape[a] for a in normalize_sorted_axes(axes, len(shape)))


def reduced_shape(shape: Shape, axes: Sequence[int], keep_dim: bool) -> Shape:
    """Return the shape without `axes`, or with 1 in their place. Errors  ShapeError."""
    reduced_axes = normalize_sorted_axes(axes, len(shape))
    if keep_dim:
        return tuple(1 if a in reduced_axes else size for a, size in enumerate(shape))
    return tuple(size for a, size in enumerate(shape) if a not in reduced_axes)


def _infer(
    types: Types,
    attrs: Attrs,
    allowed: frozenset[DType] = NUMERIC_DTYPES,
    may_be_empty: bool = False,
) -> TensorType:
    require_dtypes(types, allowed)
    shape = reduced_shape(types[0].shape, attrs["axes"], attrs["keep_dim"])
    if not may_be_empty and reduced_count(types[0].shape, attrs["axes"]) == 0:
        raise bad_shape(
            f"axes {attrs['axes']} of {format_shape(types[0].shape)} have 0 elements "
            "to reduce",
            "at least 1 element is required",
            "skip the reduction of empty arrays, or use sum or prod, which accept 0 "
            "elements",
        )
    return TensorType(shape, types[0].dtype)


def _terms_per_result(types: Types, out: TensorType, attrs: Attrs) -> int:
    """Return the number of terms of one result, for the range rule."""
    return reduced_count(types[0].shape, attrs["axes"])


def accumulator_dtype(xp: Any, x: Any, count: int) -> Any:
    """Return the dtype to accumulate in: wider than a float's own where rounding would
    show.
    """
    if not is_float(xp, x):
        return x.dtype
    if x.dtype == xp.float16:
        return xp.float32
    return getattr(xp, "float64", x.dtype) if count > _MAX_FLOAT32_TERMS else x.dtype


def _make_reference(name: str, wider: bool = False) -> Callable[..., Any]:
    """Return NumPy's reduction of that name; with `wider` it accumulates in
    `accumulator_dtype`.
    """

    def reference(xp: Any, attrs: Attrs, x: Any) -> Any:
        axes = normalize_sorted_axes(attrs["axes"], x.ndim)
        options = {"axis": axes, "keepdims": attrs["keep_dim"]}
        if wider:
            options["dtype"] = accumulator_dtype(xp, x, reduced_count(x.shape, axes))
        result = getattr(xp, name)(x, **options)
        return xp.asarray(result, dtype=x.dtype) if wider else result

    return reference


def _reduction_kernel(kind: ReductionKind) -> Kernel:
    """Return the kernel of a reduction; bools take the decomposition."""

    def plan(types: Types, out: TensorType, attrs: Attrs) -> KernelPlan | None:
        if out.dtype is DType.BOOL:
            return None
        axes = normalize_sorted_axes(attrs["axes"], types[0].rank)
        return plan_reduction(kind, types[0].dtype, types[0].shape, axes)

    return Kernel(plan, Compose(partial(_build_bool_reduction, kind)), reduction=kind)


def _build_bool_reduction(kind: ReductionKind, g: Any, attrs: Attrs, x: Any) -> Any:
    """Build a reduction of bools as integers, converted back."""
    return g.ne(g.apply(kind, g.cast(x, DType.I32), **attrs), 0)


def _build_mean(g: Any, attrs: Attrs, x: Any) -> Any:
    """Build the mean as a sum and a division, in f32 for f16, whose sum may
    overflow.
    """
    count = float(reduced_count(x.shape, attrs["axes"]))
    if x.dtype is DType.F16:
        wide = g.sum(g.cast(x, DType.F32), attrs["axes"], attrs["keep_dim"])
        return g.cast(g.div(wide, count), DType.F16)
    return g.div(g.sum(x, attrs["axes"], attrs["keep_dim"]), count)


def _case(
    shape: Shape,
    axes: tuple[int, ...],
    keep_dim: bool = False,
    dtype: DType = DType.F32,
    low: float = -1.0,
    high: float = 2.0,
    note: str = "",
) -> Sample:
    drawn = Drawn(shape, dtype, low, high, whole=dtype is DType.F16)
    return Sample((drawn,), {"axes": axes, "keep_dim": keep_dim}, note)


_SHORT_SHAPES = parse_shape_table(
    "()@() 1@0 5@() 13@0 4x7@1 4x7@-2 2x3x5@1 2x3x5@0x2 2x3x5@0x1x2 3x2x4x3x2@1x3 "
    "2x3x2x3x2x2x3x2@0x2x4x6 2x3x2x3x2x2x3x2@1x3x5x7 65537x2@1 0x3@1"
)
_LONG_SHAPES = parse_shape_table(
    "65537x2@0 2x65537@1 100003@0 3x1009x7@1 31x17x37x5@0x2 300x300@0x1"
)
_EMPTY_SHAPES = parse_shape_table("0@0 0x3@0 2x0x4@1")
_INTEGER_SAMPLES = tuple(
    _case(shape, (1,), dtype=dtype, low=low, high=9)
    for shape in ((6, 5), (3, 1031))
    for dtype, low in ((DType.I32, -9), (DType.U32, 0), (DType.I64, -9), (DType.U64, 0))
)
_FLOAT16_SAMPLES = (
    _case((6, 40), (1,), dtype=DType.F16),
    _case((6, 4), (0, 1), False, DType.F16),
)
_FLOAT64_SAMPLES = (_case((6, 40), (1,), dtype=DType.F64), _case((3, 700), (1,), True))


def _shape_samples(
    cases: tuple[tuple[Shape, ...], ...], low: float = -1, high: float = 2
) -> tuple[Sample, ...]:
    """Return a sample for each shape, the first eight also with `keep_dim`."""
    return (
        *(_case(s, axes, low=low, high=high) for s, axes in cases),
        *(_case(s, axes, True, low=low, high=high) for s, axes in cases[:8]),
    )


_WRAPPING_SAMPLES = tuple(
    _case((3, 41), (1,), dtype=dtype, low=low, high=2e9, note="wraps")
    for dtype, low in ((DType.I32, -2e9), (DType.U32, 0))
)
_BOOL_SAMPLES = tuple(
    _case(shape, axes, dtype=DType.BOOL, low=0, high=1)
    for shape, axes in (((6, 5), (1,)), ((3, 1031), (1,)), ((4, 3, 2), (0, 2)))
)
_ORDERED_DTYPES = NUMERIC_DTYPES | {DType.BOOL}
_FLOAT_SAMPLES = (
    *_shape_samples(_SHORT_SHAPES),
    *_shape_samples(_LONG_SHAPES),
    *_FLOAT16_SAMPLES,
    *_FLOAT64_SAMPLES,
)


def _restore_reduced_axes(ctx: VjpContext, value: Tensor) -> Tensor:
    """Reshape a tensor of the result's shape to have axes of size 1 where they were
    reduced.
    """
    axes = normalize_sorted_axes(ctx.attrs["axes"], ctx.x.rank)
    shape = [1 if a in axes else n for a, n in enumerate(ctx.x.shape)]
    return ctx.g.reshape(value, shape)


def _sum_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `sum`: broadcast the gradient over the reduced axes."""
    return [ctx.g.expand(_restore_reduced_axes(ctx, ctx.grad), ctx.x.shape)]


def _mean_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `mean`: broadcast the gradient over the reduced axes, divided by their
    size.
    """
    share = ctx.grad * (1.0 / reduced_count(ctx.x.shape, ctx.attrs["axes"]))
    return [ctx.g.expand(_restore_reduced_axes(ctx, share), ctx.x.shape)]


def _extremum_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `max` and `min`: give the gradient to the extremum; ties share it."""
    is_extremum = ctx.x.eq(_restore_reduced_axes(ctx, ctx.out)).cast(ctx.x.dtype)
    count = ctx.g.sum(is_extremum, ctx.attrs["axes"], keep_dim=True)
    return [is_extremum * (_restore_reduced_axes(ctx, ctx.grad) / count)]


def _prod_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `prod`: multiply the products of the preceding factors and of the
    following ones.

    There is no division, so zeros are like other numbers and small factors keep their
    digits in derivatives of any order.
    """
    g, shape = ctx.g, ctx.x.shape
    axes = normalize_sorted_axes(ctx.attrs["axes"], ctx.x.rank)
    order = (*(a for a in range(ctx.x.rank) if a not in axes), *axes)
    transposed = g.transpose(ctx.x, order)
    outer_shape = transposed.shape[: ctx.x.rank - len(axes)]
    flattened = g.reshape(
        transposed, (*outer_shape, reduced_count(shape, ctx.attrs["axes"]))
    )
    others = g.cumprod(flattened, exclusive=True) * g.cumprod(
        flattened, exclusive=True, reverse=True
    )
    inverse_order = [order.index(a) for a in range(ctx.x.rank)]
    slope = g.transpose(g.reshape(others, transposed.shape), inverse_order)
    return [slope * _restore_reduced_axes(ctx, ctx.grad)]


def _add_reduction(
    g: Graph, op: str, x: Tensor, axes: Axes | None = None, keep_dim: bool = False
) -> Tensor:
    """Add the reduction `op` over the axes, all of them if none are named."""
    reduced_axes = tuple(range(x.rank)) if axes is None else axes
    return g.apply(op, x, axes=reduced_axes, keep_dim=keep_dim)


_reduction_op = partial(
    Op,
    infer=_infer,
    attrs=(Attr("axes", "ints"), Attr("keep_dim", "bool", False)),
    traits=frozenset({"reduction"}),
    flops=lambda inputs, out, attrs: float(inputs[0].numel),
    samples=(*_FLOAT_SAMPLES, *_INTEGER_SAMPLES, *_WRAPPING_SAMPLES),
    calibration_cases=tuple(
        _case(s, (1,)) for s in ((4, 16), (1 << 15, 4), (256, 512))
    ),
    batch=batch_axes_rule("axes"),
    method=_add_reduction,
)

registry.register_all(
    _reduction_op(
        name="sum",
        infer=partial(_infer, may_be_empty=True),
        reference=_make_reference("sum", wider=True),
        lower=_reduction_kernel("sum"),
        range_rule=value_range_rules.sum_range(_terms_per_result),
        tolerance=SUM_TOLERANCE,
        samples=(
            *_FLOAT_SAMPLES,
            *_shape_samples(_EMPTY_SHAPES),
            *_INTEGER_SAMPLES,
            *_WRAPPING_SAMPLES,
        ),
        vjp=_sum_vjp,
        doc="The sum over axes; 0 if there are no elements. Integers wrap in their "
        "dtype.",
    ),
    _reduction_op(
        name="mean",
        infer=partial(_infer, allowed=FLOAT_DTYPES),
        reference=_make_reference("mean", wider=True),
        lower=Compose(_build_mean, reduction="mean"),
        traits=frozenset({"reduction", "floats_only"}),
        tolerance=SUM_TOLERANCE,
        samples=_FLOAT_SAMPLES,
        vjp=_mean_vjp,
        doc="The mean over axes; floats only, and at least one element is required.",
    ),
    _reduction_op(
        name="max",
        infer=partial(_infer, allowed=_ORDERED_DTYPES),
        reference=_make_reference("max"),
        lower=_reduction_kernel("max"),
        range_rule=value_range_rules.operand_hull(0),
        samples=(
            *_FLOAT_SAMPLES,
            *_INTEGER_SAMPLES,
            *_WRAPPING_SAMPLES,
            *_BOOL_SAMPLES,
        ),
        vjp=_extremum_vjp,
        doc="The largest element over axes (at least one element is required); for "
        "bool, whether any is true.",
    ),
    _reduction_op(
        name="min",
        infer=partial(_infer, allowed=_ORDERED_DTYPES),
        reference=_make_reference("min"),
        lower=_reduction_kernel("min"),
        range_rule=value_range_rules.operand_hull(0),
        samples=(
            *_FLOAT_SAMPLES,
            *_INTEGER_SAMPLES,
            *_WRAPPING_SAMPLES,
            *_BOOL_SAMPLES,
        ),
        vjp=_extremum_vjp,
        doc="The smallest element over axes (at least one element is required); for "
        "bool, whether all are true.",
    ),
    _reduction_op(
        name="prod",
        infer=partial(_infer, may_be_empty=True),
        reference=_make_reference("prod", wider=True),
        lower=_reduction_kernel("prod"),
        range_rule=value_range_rules.product_range(_terms_per_result),
        tolerance=PRODUCT_TOLERANCE,
        samples=(
            *_shape_samples(_SHORT_SHAPES, 0.5, 1.5),
            *_shape_samples(_EMPTY_SHAPES),
            _case((3, 1009, 7), (1,), low=0.9, high=1.1),
            _case((300, 300), (1,), low=0.9, high=1.1),
            *_INTEGER_SAMPLES,
            *_WRAPPING_SAMPLES,
            *_FLOAT16_SAMPLES,
            _case((6, 40), (1,), dtype=DType.F64, low=0.5, high=1.5),
        ),
        # Products that fade out are slow to compute and tell of no others.
        calibration_cases=tuple(
            _case(s, (1,), low=0.9, high=1.1)
            for s in ((4, 16), (1 << 15, 4), (256, 512))
        ),
        vjp=_prod_vjp,
        doc="The product over axes; 1 if there are no elements. Integers wrap in "
        "their dtype.",
    ),
)
