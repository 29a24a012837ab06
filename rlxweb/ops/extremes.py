"""Where the largest and the smallest element along an axis are.

A NaN is both, as in NumPy: its place is told, the first one's. Of equal elements the
first place counts, or the last. No device is known here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rlxweb.ir import bounds
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample, spelled
from rlxweb.ir.shape import Shape, bad_shape, normal_axis, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise import NUMBERS, need
from rlxweb.ops.kinds import is_float
from rlxweb.ops.reduce import reduced_shape

_MOST = (1 << 31) - 1


def _infer(types: Types, attrs: Attrs) -> TensorType:
    need(types, NUMBERS | {DType.BOOL})
    x = types[0]
    if not x.rank:
        raise bad_shape("a number has no axis", "the rank is at least 1")
    n = x.shape[normal_axis(attrs["axis"], x.rank)]
    if not 1 <= n <= _MOST:
        raise bad_shape(
            f"axis {attrs['axis']} of {show(x.shape)} has {n:,} elements",
            f"1 to {_MOST:,} have a first place among them",
        )
    shape = reduced_shape(x.shape, (attrs["axis"],), attrs["keep_dim"])
    return TensorType(shape, DType.I32)


def _reference(name: str) -> Callable[..., Any]:
    def reference(xp: Any, attrs: Attrs, x: Any) -> Any:
        axis, keep = normal_axis(attrs["axis"], x.ndim), attrs["keep_dim"]
        if xp is np:
            lines = np.flip(x, axis) if attrs["last"] else x
            at = getattr(np, f"arg{name}")(lines, axis=axis, keepdims=keep)
            at = x.shape[axis] - 1 - at if attrs["last"] else at
            return np.asarray(at, np.int32)
        if x.dtype == xp.bool_:
            x = xp.asarray(x, dtype=xp.int32)
        return _by_places(xp, name, axis, attrs, x)

    return reference


def _by_places(xp: Any, name: str, axis: int, attrs: Attrs, x: Any) -> Any:
    """The places of all that are as large; others' argmax do not say which it gives."""
    hit = x == getattr(xp, name)(x, axis=axis, keepdims=True)
    if is_float(xp, x):
        hit = hit | xp.isnan(x)
    n, shape = x.shape[axis], [1] * x.ndim
    shape[axis] = n
    places = xp.reshape(xp.asarray(xp.arange(n), dtype=xp.int32), tuple(shape))
    nowhere = xp.zeros_like(places) + (-1 if attrs["last"] else n)
    which = xp.max if attrs["last"] else xp.min
    found = which(xp.where(hit, places, nowhere), axis=axis, keepdims=attrs["keep_dim"])
    return xp.asarray(found, dtype=xp.int32)


def _compose(name: str) -> Compose:
    def build(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
        axis, last = normal_axis(attrs["axis"], x.rank), attrs["last"]
        if x.dtype is DType.BOOL:
            x = g.cast(x, DType.I32)
        n, shape = x.shape[axis], [1] * x.rank
        shape[axis] = n
        hit = g.eq(x, g.apply(name, x, axes=(axis,), keep_dim=True))
        if x.dtype.is_float:
            hit = g.logical_or(hit, g.isnan(x))
        places = g.constant(np.arange(n, dtype=np.int32).reshape(shape))
        found = g.where(hit, places, -1 if last else n)
        how: dict[str, Any] = {"axes": (axis,), "keep_dim": attrs["keep_dim"]}
        return g.apply("max" if last else "min", found, **how)

    return Compose(build)


def _case(
    shape: Shape,
    axis: int = -1,
    dtype: DType = DType.F32,
    top: float = 3,
    **attrs: bool,
) -> Sample:
    """Whole numbers of a small range: most lines have their extreme several times."""
    low = 0 if dtype.is_unsigned or dtype is DType.BOOL else -top
    return Sample((Drawn(shape, dtype, low, top, whole=True),), {"axis": axis, **attrs})


_SAMPLES = (
    *(
        _case(shape, axis)
        for shape, (axis,) in spelled(
            "1@0 7@-1 4x9@1 4x9@0 3x5x4@1 0x3@1 3x0@0 65537x2@-1 2x65537@0 2x40009@-1"
        )
    ),
    *(_case((5, 7, 3), 1, keep_dim=True, last=last) for last in (False, True)),
    *(_case((6, 11), 1, dtype, last=last) for dtype in DType for last in (False, True)),
    _case((9, 31), 0, top=1e30),
)

_extreme = partial(
    Op,
    infer=_infer,
    attrs=(
        Attr("axis", "int", -1),
        Attr("keep_dim", "bool", False),
        Attr("last", "bool", False),
    ),
    traits=frozenset({"reduction"}),
    bounds=bounds.between(0, lambda types, _: max((1, *types[0].shape)) - 1),
    flops=lambda inputs, out, attrs: 3.0 * inputs[0].numel,
    samples=_SAMPLES,
)

registry.register_all(
    *(
        _extreme(
            name=f"arg{name}",
            reference=_reference(name),
            lower=_compose(name),
            doc=f"Where the {word} element along an axis is (i32), or a NaN; of equal "
            "ones the first, or with `last` the last.",
        )
        for name, word in (("max", "largest"), ("min", "smallest"))
    )
)
