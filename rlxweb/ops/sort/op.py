"""Sorting along an axis, and binary search in sorted rows.

Equal values stay in the order of their places, and NaN comes after every number, both
ways. The passes a GPU makes are laid out in `wgsl/plan.py`. No device is
known here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir import value_range_rules
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Kernel, KernelPlan
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import (
    Shape,
    bad_shape,
    format_shape,
    normalize_axis,
    numel,
)
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.vmap_batching import batch_all_operands, batch_axes_rule
from rlxweb.ops.array_dtype_checks import is_float
from rlxweb.ops.elementwise.op import NUMERIC_DTYPES, common_dtype, require_dtypes
from rlxweb.ops.gather.op import sizes_around_axis
from rlxweb.ops.sort.wgsl.plan import (
    SortLines,
    plan_searchsorted,
    plan_sort,
)

_MAX_AXIS_LENGTH = (1 << 31) - 1


def _infer_argsort(types: Types, attrs: Attrs) -> TensorType:
    return TensorType(_infer_sort(types, attrs).shape, DType.I32)


def _infer_sort(types: Types, attrs: Attrs) -> TensorType:
    require_dtypes(types, NUMERIC_DTYPES)
    (x,) = types
    if not x.shape:
        raise bad_shape(
            "a scalar (rank 0) has no axis to sort along", hint="reshape it to [1]"
        )
    size = x.shape[normalize_axis(attrs["axis"], x.rank)]
    if size > _MAX_AXIS_LENGTH:
        raise bad_shape(
            f"the axis has {size:,} elements",
            f"i32 indices support at most {_MAX_AXIS_LENGTH:,} elements",
        )
    return x


def _argsort_reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    axis = normalize_axis(attrs["axis"], x.ndim)
    if not attrs["descending"]:
        order = xp.argsort(x, axis=axis, stable=True)
    elif is_float(xp, x):
        order = xp.argsort(-x, axis=axis, stable=True)
    else:  # of the reversed line, reversed, so that equal values stay in order
        order = xp.argsort(xp.flip(x, axis=axis), axis=axis, stable=True)
        order = x.shape[axis] - 1 - xp.flip(order, axis=axis)
    return xp.asarray(order, dtype=xp.int32)


def _sort_reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    axis = normalize_axis(attrs["axis"], x.ndim)
    if xp is np:
        is_descending = attrs["descending"]
        if not is_descending:
            return np.sort(x, axis=axis, stable=True)
        if is_float(xp, x):
            return -np.sort(-x, axis=axis, stable=True)
        return np.flip(np.sort(x, axis=axis, stable=True), axis)
    order = xp.asarray(_argsort_reference(xp, attrs, x), dtype=xp.int64)
    return xp.take_along_axis(x, order, axis=axis)


def _build_sort(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
    order = g.apply("argsort", x, **attrs)
    return g.apply("gather_elements", x, order, axis=attrs["axis"])


def _plan_sort(types: Types, out: TensorType, attrs: Attrs) -> KernelPlan:
    (x,) = types
    outer, n, inner = sizes_around_axis(x.shape, normalize_axis(attrs["axis"], x.rank))
    return plan_sort(SortLines(outer, n, inner, x.dtype, attrs["descending"]))


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    size = inputs[0].shape[normalize_axis(attrs["axis"], inputs[0].rank)]
    return float(inputs[0].numel * size.bit_length())


def _infer_search(types: Types, attrs: Attrs) -> TensorType:
    sorted_rows, values = types
    common_dtype(types)
    require_dtypes(types, NUMERIC_DTYPES)
    if (
        not sorted_rows.shape
        or sorted_rows.shape[:-1] != values.shape[:-1]
        or not values.shape
    ):
        raise bad_shape(
            f"got values {format_shape(values.shape)} for sorted rows "
            f"{format_shape(sorted_rows.shape)}",
            "the values and the sorted rows must have rank >= 1 and agree on all "
            "axes except the last",
            "pass one sorted row [n] to graph.searchsorted to look up values of any "
            "shape",
        )
    if sorted_rows.shape[-1] > _MAX_AXIS_LENGTH:
        raise bad_shape(
            f"the sorted rows have {sorted_rows.shape[-1]:,} elements",
            f"i32 indices support at most {_MAX_AXIS_LENGTH:,} elements",
        )
    return TensorType(values.shape, DType.I32)


def _search_reference(xp: Any, attrs: Attrs, sorted_rows: Any, values: Any) -> Any:
    return binary_search(xp, sorted_rows, values, attrs["side"] == "right")


def binary_search(xp: Any, sorted_rows: Any, values: Any, is_right: bool) -> Any:
    """Return insertion positions by bisection of all values at once; NumPy itself
    searches a single row.
    """
    n = sorted_rows.shape[-1]
    if xp is np and sorted_rows.ndim == 1:
        side: Any = "right" if is_right else "left"
        return np.searchsorted(sorted_rows, values, side).astype(np.int32)
    low = xp.zeros(tuple(values.shape), dtype=xp.int32)
    high = low + n
    for _ in range(n.bit_length() if numel(values.shape) else 0):
        middle = (low + high) // 2
        clamped = xp.minimum(middle, xp.full_like(middle, max(n - 1, 0)))
        element = xp.take_along_axis(
            sorted_rows, xp.asarray(clamped, dtype=xp.int64), axis=-1
        )
        if is_right:
            goes_right = ~_is_before(xp, values, element)
        else:
            goes_right = _is_before(xp, element, values)
        is_searching = low < high
        low = xp.where(is_searching & goes_right, middle + 1, low)
        high = xp.where(is_searching & ~goes_right, middle, high)
    return xp.asarray(low, dtype=xp.int32)


def _is_before(xp: Any, x: Any, y: Any) -> Any:
    """Return whether x sorts before y, NaN after every number."""
    return (x < y) | ((y != y) & (x == x)) if is_float(xp, x) else x < y


def _plan_search(types: Types, out: TensorType, attrs: Attrs) -> KernelPlan:
    sorted_rows, values = types
    sizes = numel(sorted_rows.shape[:-1]), sorted_rows.shape[-1], values.shape[-1]
    return plan_searchsorted(*sizes, sorted_rows.dtype, attrs["side"] == "right")


# --- the records ------------------------------------------------------------------


def _case(
    shape: Shape,
    axis: int = -1,
    dtype: DType = DType.F32,
    max_value: float = 9,
    descending: bool = False,
) -> Sample:
    low = 0 if dtype is DType.U32 else -max_value
    whole = max_value < 1000
    drawn = Drawn(shape, dtype, low, max_value, whole)
    return Sample((drawn,), {"axis": axis, "descending": descending})


_SORT_SAMPLES = (
    _case((1,), 0),
    _case((2, 3, 17), 1),
    _case((3, 50), -1, descending=True),
    _case((0, 5), 1),
    _case((65_537, 2), 1),
    _case((1, 700), 1, max_value=1e6),
    _case((2, 40, 3), 1, DType.I32, (1 << 31) - 1, True),
    _case((4, 70), 1, DType.U32, (1 << 32) - 1),
)
_ARGSORT_SAMPLES = (
    _case((2, 700, 3), 1),
    _case((4, 70), 1, DType.U32, (1 << 32) - 1, True),
    _case((4, 33), 1, DType.F16),
    _case((4, 33), 1, DType.F64, descending=True),
    _case((4, 33), 1, DType.I64),
    _case((4, 33), 1, DType.I64, descending=True),
)


def _search_case(
    rows_shape: Shape, count: int, dtype: DType = DType.F32, side: str = "left"
) -> Sample:
    # One number is a sorted row, and so are equal ones; the tests have others.
    low, high = (0, 4) if rows_shape[-1] == 1 else (2, 2)
    rows = Drawn(rows_shape, dtype, low, high, whole=True)
    values = Drawn((*rows_shape[:-1], count), dtype, 0, 4, whole=True)
    return Sample((rows, values), {"side": side})


_SORT_ATTRS = (Attr("axis", "int", -1), Attr("descending", "bool", False))
_ORDER_DOC = (
    "In ascending and in descending order, equal values keep their original order "
    "and NaN comes last."
)

registry.register_all(
    Op(
        name="argsort",
        infer=_infer_argsort,
        reference=_argsort_reference,
        lower=Kernel(_plan_sort),
        range_rule=value_range_rules.range_up_to(
            0, lambda types, attrs: max((0, *types[0].shape)) - 1
        ),
        attrs=_SORT_ATTRS,
        flops=_flops,
        samples=(*_SORT_SAMPLES, *_ARGSORT_SAMPLES),
        calibration_cases=tuple(
            _case(s, max_value=1e6) for s in ((4, 16), (64, 512), (8, 1 << 15))
        ),
        batch=batch_axes_rule("axis"),
        doc=f"The indices (i32) that sort the elements along an axis. {_ORDER_DOC}",
    ),
    Op(
        name="sort",
        infer=_infer_sort,
        reference=_sort_reference,
        lower=Compose(_build_sort),
        range_rule=value_range_rules.operand_hull(0),
        attrs=_SORT_ATTRS,
        flops=_flops,
        samples=_SORT_SAMPLES,
        doc=f"The elements along an axis in sorted order. {_ORDER_DOC}",
    ),
    Op(
        name="searchsorted",
        arity=2,
        infer=_infer_search,
        reference=_search_reference,
        lower=Kernel(_plan_search),
        range_rule=value_range_rules.range_up_to(
            0, lambda types, attrs: types[0].shape[-1]
        ),
        attrs=(Attr("side", "str", "left", allowed=("left", "right")),),
        samples=(
            _search_case((1,), 1),
            _search_case((3, 13), 7, DType.I32, "right"),
            _search_case((2, 3, 5), 2, DType.U32),
            _search_case((2, 5), 3, DType.F16),
            _search_case((2, 3), 3, DType.F64, "right"),
            _search_case((2, 3), 3, DType.I64),
            _search_case((4, 0), 3),
            _search_case((4, 3), 0),
            _search_case((50, 1), 3, side="right"),
            _search_case((1,), 65_537),
        ),
        calibration_cases=(_search_case((64,), 64), _search_case((8, 4096), 65_536)),
        batch=batch_all_operands,
        doc="The positions (i32) at which values are inserted into sorted rows, like "
        "numpy.searchsorted and torch.searchsorted: before equal elements with "
        'side="left", after them with side="right". NaN is above every number.',
    ),
)
