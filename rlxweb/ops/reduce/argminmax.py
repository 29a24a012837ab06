"""Argmax and argmin: index of the largest and of the smallest element along an axis.

A NaN is both, as in NumPy: its place is told, the first one's. Of equal elements the
first place counts, or the last. No device is known here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rlxweb.ir import value_range_rules
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample, parse_shape_table
from rlxweb.ir.shape_arithmetic import Shape, bad_shape, format_shape, normalize_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.array_dtype_checks import is_float
from rlxweb.ops.elementwise.op import NUMERIC_DTYPES, require_dtypes
from rlxweb.ops.reduce.op import reduced_shape

_MAX_AXIS_LENGTH = (1 << 31) - 1


def _infer(types: Types, attrs: Attrs) -> TensorType:
    require_dtypes(types, NUMERIC_DTYPES | {DType.BOOL})
    x = types[0]
    if not x.rank:
        raise bad_shape("a scalar (rank 0) has no axis", "the rank must be at least 1")
    n = x.shape[normalize_axis(attrs["axis"], x.rank)]
    if not 1 <= n <= _MAX_AXIS_LENGTH:
        raise bad_shape(
            f"axis {attrs['axis']} of {format_shape(x.shape)} has {n:,} elements",
            f"the axis must have 1 to {_MAX_AXIS_LENGTH:,} elements",
        )
    shape = reduced_shape(x.shape, (attrs["axis"],), attrs["keep_dim"])
    return TensorType(shape, DType.I32)


def _reference(name: str) -> Callable[..., Any]:
    def reference(xp: Any, attrs: Attrs, x: Any) -> Any:
        axis, keep_dim = normalize_axis(attrs["axis"], x.ndim), attrs["keep_dim"]
        if xp is np:
            rows = np.flip(x, axis) if attrs["last"] else x
            index = getattr(np, f"arg{name}")(rows, axis=axis, keepdims=keep_dim)
            index = x.shape[axis] - 1 - index if attrs["last"] else index
            return np.asarray(index, np.int32)
        if x.dtype == xp.bool_:
            x = xp.asarray(x, dtype=xp.int32)
        return _arg_extreme_by_position(xp, name, axis, attrs, x)

    return reference


def _arg_extreme_by_position(
    xp: Any, name: str, axis: int, attrs: Attrs, x: Any
) -> Any:
    """Find the index by comparison, since other libraries' argmax do not say which of
    equal elements they give.
    """
    is_extreme = x == getattr(xp, name)(x, axis=axis, keepdims=True)
    if is_float(xp, x):
        is_extreme = is_extreme | xp.isnan(x)
    n, shape = x.shape[axis], [1] * x.ndim
    shape[axis] = n
    positions = xp.reshape(xp.asarray(xp.arange(n), dtype=xp.int32), tuple(shape))
    sentinel = xp.zeros_like(positions) + (-1 if attrs["last"] else n)
    reduce = xp.max if attrs["last"] else xp.min
    result = reduce(
        xp.where(is_extreme, positions, sentinel), axis=axis, keepdims=attrs["keep_dim"]
    )
    return xp.asarray(result, dtype=xp.int32)


def _compose(name: str) -> Compose:
    def build(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
        axis, last = normalize_axis(attrs["axis"], x.rank), attrs["last"]
        if x.dtype is DType.BOOL:
            x = g.cast(x, DType.I32)
        n, shape = x.shape[axis], [1] * x.rank
        shape[axis] = n
        is_extreme = g.eq(x, g.apply(name, x, axes=(axis,), keep_dim=True))
        if x.dtype.is_float:
            is_extreme = g.logical_or(is_extreme, g.isnan(x))
        positions = g.constant(np.arange(n, dtype=np.int32).reshape(shape))
        candidates = g.where(is_extreme, positions, -1 if last else n)
        options: dict[str, Any] = {"axes": (axis,), "keep_dim": attrs["keep_dim"]}
        return g.apply("max" if last else "min", candidates, **options)

    return Compose(build)


def _case(
    shape: Shape,
    axis: int = -1,
    dtype: DType = DType.F32,
    high: float = 3,
    **attrs: bool,
) -> Sample:
    """Return a sample of whole numbers of a small range, so that most rows hold their
    extreme several times.
    """
    low = 0 if dtype.is_unsigned or dtype is DType.BOOL else -high
    return Sample(
        (Drawn(shape, dtype, low, high, whole=True),), {"axis": axis, **attrs}
    )


_SAMPLES = (
    *(
        _case(shape, axis)
        for shape, (axis,) in parse_shape_table(
            "1@0 7@-1 4x9@1 4x9@0 3x5x4@1 0x3@1 3x0@0 65537x2@-1 2x65537@0 2x40009@-1"
        )
    ),
    *(_case((5, 7, 3), 1, keep_dim=True, last=last) for last in (False, True)),
    *(_case((6, 11), 1, dtype, last=last) for dtype in DType for last in (False, True)),
    _case((9, 31), 0, high=1e30),
)

_arg_extreme_op = partial(
    Op,
    infer=_infer,
    attrs=(
        Attr("axis", "int", -1),
        Attr("keep_dim", "bool", False),
        Attr("last", "bool", False),
    ),
    traits=frozenset({"reduction"}),
    range_rule=value_range_rules.range_up_to(
        0, lambda types, _: max((1, *types[0].shape)) - 1
    ),
    flops=lambda inputs, out, attrs: 3.0 * inputs[0].numel,
    samples=_SAMPLES,
)

registry.register_all(
    *(
        _arg_extreme_op(
            name=f"arg{name}",
            reference=_reference(name),
            lower=_compose(name),
            doc=f"The index (i32) of the {word} element along an axis, or of a NaN "
            "if the axis has one. Among equal elements, the first is taken, or the "
            "last with last=True.",
        )
        for name, word in (("max", "largest"), ("min", "smallest"))
    )
)
