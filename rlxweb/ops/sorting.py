"""Sorting along an axis, and searching in what is sorted.

Equal values stay in the order of their places, and NaN comes after every number, both
ways. The passes a GPU makes are laid out in `sort_calls.py`. No device is known here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir import bounds
from rlxweb.ir.batching import alike, along
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Kernel, Recipe
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, bad_shape, normal_axis, numel, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise import NUMBERS, need, same_dtype
from rlxweb.ops.kinds import is_float
from rlxweb.ops.select import around
from rlxweb.recipes.sort_calls import Lines, search_recipe, sort_recipe

_MOST = (1 << 31) - 1


def _places(types: Types, attrs: Attrs) -> TensorType:
    return TensorType(_sorted(types, attrs).shape, DType.I32)


def _sorted(types: Types, attrs: Attrs) -> TensorType:
    need(types, NUMBERS)
    (x,) = types
    if not x.shape:
        raise bad_shape("rank 0 has no axis to sort along", hint="reshape it to [1]")
    size = x.shape[normal_axis(attrs["axis"], x.rank)]
    if size > _MOST:
        raise bad_shape(f"an axis of {size} elements", f"i32 counts to {_MOST}")
    return x


def _argsort(xp: Any, attrs: Attrs, x: Any) -> Any:
    axis = normal_axis(attrs["axis"], x.ndim)
    if not attrs["descending"]:
        order = xp.argsort(x, axis=axis, stable=True)
    elif is_float(xp, x):
        order = xp.argsort(-x, axis=axis, stable=True)
    else:  # of the reversed line, reversed, so that equal values stay in order
        order = xp.argsort(xp.flip(x, axis=axis), axis=axis, stable=True)
        order = x.shape[axis] - 1 - xp.flip(order, axis=axis)
    return xp.asarray(order, dtype=xp.int32)


def _sort(xp: Any, attrs: Attrs, x: Any) -> Any:
    axis = normal_axis(attrs["axis"], x.ndim)
    if xp is np:
        falls = attrs["descending"]
        if not falls:
            return np.sort(x, axis=axis, stable=True)
        if is_float(xp, x):
            return -np.sort(-x, axis=axis, stable=True)
        return np.flip(np.sort(x, axis=axis, stable=True), axis)
    order = xp.asarray(_argsort(xp, attrs, x), dtype=xp.int64)
    return xp.take_along_axis(x, order, axis=axis)


def _build_sort(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
    order = g.apply("argsort", x, **attrs)
    return g.apply("gather_elements", x, order, axis=attrs["axis"])


def _sort_calls(types: Types, out: TensorType, attrs: Attrs) -> Recipe:
    (x,) = types
    outer, n, inner = around(x.shape, normal_axis(attrs["axis"], x.rank))
    return sort_recipe(Lines(outer, n, inner, x.dtype, attrs["descending"]))


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    size = inputs[0].shape[normal_axis(attrs["axis"], inputs[0].rank)]
    return float(inputs[0].numel * size.bit_length())


def _searched(types: Types, attrs: Attrs) -> TensorType:
    line, values = types
    same_dtype(types)
    need(types, NUMBERS)
    if not line.shape or line.shape[:-1] != values.shape[:-1] or not values.shape:
        raise bad_shape(
            f"values {show(values.shape)} are looked for in {show(line.shape)}",
            "both are rows, and all axes but the last agree",
            "g.searchsorted takes one sorted row for values of any shape, too",
        )
    if line.shape[-1] > _MOST:
        raise bad_shape(f"rows of {line.shape[-1]} elements", f"i32 counts to {_MOST}")
    return TensorType(values.shape, DType.I32)


def _search(xp: Any, attrs: Attrs, line: Any, values: Any) -> Any:
    return search(xp, line, values, attrs["side"] == "right")


def search(xp: Any, line: Any, values: Any, is_right: bool) -> Any:
    """Places by halving, all values at once; in one row of NumPy's by NumPy."""
    n = line.shape[-1]
    if xp is np and line.ndim == 1:
        side: Any = "right" if is_right else "left"
        return np.searchsorted(line, values, side).astype(np.int32)
    low = xp.zeros(tuple(values.shape), dtype=xp.int32)
    high = low + n
    for _ in range(n.bit_length() if numel(values.shape) else 0):
        half = (low + high) // 2
        at = xp.minimum(half, xp.full_like(half, max(n - 1, 0)))
        other = xp.take_along_axis(line, xp.asarray(at, dtype=xp.int64), axis=-1)
        if is_right:
            is_on = ~_before(xp, values, other)
        else:
            is_on = _before(xp, other, values)
        is_open = low < high
        low = xp.where(is_open & is_on, half + 1, low)
        high = xp.where(is_open & ~is_on, half, high)
    return xp.asarray(low, dtype=xp.int32)


def _before(xp: Any, x: Any, y: Any) -> Any:
    """Whether x is sorted in front of y."""
    return (x < y) | ((y != y) & (x == x)) if is_float(xp, x) else x < y


def _search_calls(types: Types, out: TensorType, attrs: Attrs) -> Recipe:
    line, values = types
    sizes = numel(line.shape[:-1]), line.shape[-1], values.shape[-1]
    return search_recipe(*sizes, line.dtype, attrs["side"] == "right")


# --- the records ------------------------------------------------------------------


def _case(
    shape: Shape,
    axis: int = -1,
    dtype: DType = DType.F32,
    top: float = 9,
    descending: bool = False,
) -> Sample:
    low = 0 if dtype is DType.U32 else -top
    whole = top < 1000
    drawn = Drawn(shape, dtype, low, top, whole)
    return Sample((drawn,), {"axis": axis, "descending": descending})


_SAMPLES = (
    _case((1,), 0),
    _case((2, 3, 17), 1),
    _case((3, 50), -1, descending=True),
    _case((0, 5), 1),
    _case((65_537, 2), 1),
    _case((1, 700), 1, top=1e6),
    _case((2, 40, 3), 1, DType.I32, (1 << 31) - 1, True),
    _case((4, 70), 1, DType.U32, (1 << 32) - 1),
)
_MORE = (
    _case((2, 300, 3), 1),
    _case((4, 70), 1, DType.U32, (1 << 32) - 1, True),
    _case((4, 33), 1, DType.F16),
    _case((4, 33), 1, DType.F64, descending=True),
    _case((4, 33), 1, DType.I64),
    _case((4, 33), 1, DType.I64, descending=True),
)


def _searching(
    line: Shape, count: int, dtype: DType = DType.F32, side: str = "left"
) -> Sample:
    # One number is a sorted row, and so are equal ones; the tests have others.
    low, high = (0, 4) if line[-1] == 1 else (2, 2)
    rows = Drawn(line, dtype, low, high, whole=True)
    values = Drawn((*line[:-1], count), dtype, 0, 4, whole=True)
    return Sample((rows, values), {"side": side})


_WAYS = (Attr("axis", "int", -1), Attr("descending", "bool", False))
_AGREED = "Equal values keep their order, and NaN comes after every number, both ways."

registry.register_all(
    Op(
        name="argsort",
        infer=_places,
        reference=_argsort,
        lower=Kernel(_sort_calls),
        bounds=bounds.between(0, lambda types, attrs: max((0, *types[0].shape)) - 1),
        attrs=_WAYS,
        flops=_flops,
        samples=(*_SAMPLES, *_MORE),
        telling=tuple(_case(s, top=1e6) for s in ((4, 16), (64, 512), (8, 1 << 15))),
        batch=along("axis"),
        doc="The places (i32) of the elements along an axis in sorted order. "
        f"{_AGREED}",
    ),
    Op(
        name="sort",
        infer=_sorted,
        reference=_sort,
        lower=Compose(_build_sort),
        bounds=bounds.kept(0),
        attrs=_WAYS,
        flops=_flops,
        samples=_SAMPLES,
        doc=f"The elements in sorted order along an axis. {_AGREED}",
    ),
    Op(
        name="searchsorted",
        arity=2,
        infer=_searched,
        reference=_search,
        lower=Kernel(_search_calls),
        bounds=bounds.between(0, lambda types, attrs: types[0].shape[-1]),
        attrs=(Attr("side", "str", "left", allowed=("left", "right")),),
        samples=(
            _searching((1,), 1),
            _searching((3, 13), 7, DType.I32, "right"),
            _searching((2, 3, 5), 2, DType.U32),
            _searching((2, 5), 3, DType.F16),
            _searching((2, 3), 3, DType.F64, "right"),
            _searching((2, 3), 3, DType.I64),
            _searching((4, 0), 3),
            _searching((4, 3), 0),
            _searching((50, 1), 3, side="right"),
            _searching((1,), 65_537),
        ),
        telling=(_searching((64,), 64), _searching((8, 4096), 65_536)),
        batch=alike,
        doc="Where values go into sorted rows (i32), as numpy.searchsorted and "
        "PyTorch: before their equals (`left`) or behind them (`right`). NaN is above "
        "every number.",
    ),
)
