"""Pooling ops: maximum of each window, its index, sum, mean and p-norm.

Windows are those of `windows.py`; what lies in the padding is never taken. Kernels of
GPUs are planned in `wgsl.py`. No device is known here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rlxweb.ir import value_range_rules
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Kernel
from rlxweb.ir.op import EXACT, Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.p_norm import absolute_power, norm_root
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import Shape, bad_attribute, bad_shape, numel
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.vmap_batching import batch_as_first_axis
from rlxweb.ops.array_dtype_checks import is_float, numpy_dtype
from rlxweb.ops.conv.windows import SlidingWindows
from rlxweb.ops.elementwise.op import FLOAT_DTYPES, NUMERIC_DTYPES, require_dtypes
from rlxweb.ops.layout.numpy_sliding_windows import extract_windows
from rlxweb.ops.matmul.op import widen_float16
from rlxweb.ops.norm.op import widen_float16_tensors
from rlxweb.ops.pool.vjp import max_pool_vjp, sum_pool_vjp
from rlxweb.ops.pool.wgsl import plan_max_pool_indices, window_reduction_rule
from rlxweb.ops.pool.windows import (
    WINDOW_ATTRS,
    average_divisors,
    has_empty_window,
    is_uniform,
    lowest_value,
    pool_windows,
    window_volume,
)
from rlxweb.ops.reduce.op import SUM_TOLERANCE


def _infer(
    types: Types, attrs: Attrs, allowed: frozenset[DType] = NUMERIC_DTYPES
) -> TensorType:
    (x,) = types
    require_dtypes(types, allowed)
    w = pool_windows(x.shape, attrs)
    if has_empty_window(w):
        raise bad_attribute(
            f"pads={attrs['pads']} with windows of {w.kernel}",
            "each window must contain an element of the array",
            "use pads smaller than the windows, or call pad on the array first",
        )
    return TensorType((*x.shape[:2], *w.out_shape), x.dtype)


def _infer_indices(types: Types, attrs: Attrs) -> TensorType:
    shape = _infer(types, attrs).shape
    if numel(types[0].shape[2:]) >= 1 << 31:
        raise bad_shape(
            f"the spatial axes have {numel(types[0].shape[2:]):,} positions",
            f"i32 indices support at most {(1 << 31) - 1:,} positions",
        )
    return TensorType(shape, DType.I32)


def _infer_norm(types: Types, attrs: Attrs) -> TensorType:
    return _infer(types, attrs, FLOAT_DTYPES)


def _window_elements(xp: Any, w: SlidingWindows, x: Any, fill: float) -> Any:
    """Return the elements of each window: [N, C, out…, window elements]."""
    windows = extract_windows(xp, x, w, fill)
    return xp.reshape(windows, (*windows.shape[: x.ndim], window_volume(w)))


def _array_windows(attrs: Attrs, x: Any) -> SlidingWindows:
    """Return the pooling windows over an array."""
    return pool_windows(tuple(x.shape), attrs)


def _max_last_axis(xp: Any, elements: Any) -> Any:
    """Return the maximum along the last axis, with an explicit NaN check because XLA
    may lose one.
    """
    maxima = xp.max(elements, axis=-1, keepdims=True)
    if not is_float(xp, elements):
        return maxima
    has_nan = xp.any(elements != elements, axis=-1, keepdims=True)
    return xp.where(has_nan, xp.full_like(maxima, np.nan), maxima)


def _max_pool(xp: Any, attrs: Attrs, x: Any) -> Any:
    elements = _window_elements(
        xp, _array_windows(attrs, x), x, lowest_value(numpy_dtype(xp, x))
    )
    return (_max_last_axis(xp, elements) if 0 not in elements.shape else elements)[
        ..., 0
    ]


def _max_pool_indices(xp: Any, attrs: Attrs, x: Any) -> Any:
    """Reference of `max_pool_indices`."""
    w = _array_windows(attrs, x)
    size = tuple(x.shape[2:])
    elements = _window_elements(xp, w, x, lowest_value(numpy_dtype(xp, x)))
    positions = xp.asarray(xp.arange(numel(size)), dtype=xp.int32)
    positions = _window_elements(xp, w, xp.reshape(positions, (1, 1, *size)), -1)
    if 0 in elements.shape:
        return xp.asarray(elements[..., 0], dtype=xp.int32)
    largest = _max_last_axis(xp, elements)
    is_largest = (elements == largest) | ((largest != largest) & (elements != elements))
    is_largest = is_largest & (positions >= 0)
    first = xp.argmax(xp.asarray(is_largest, dtype=xp.int32), axis=-1, keepdims=True)
    positions = xp.broadcast_to(positions, elements.shape)
    return xp.asarray(
        xp.take_along_axis(positions, first, axis=-1)[..., 0], dtype=xp.int32
    )


def _sum_pool(xp: Any, attrs: Attrs, x: Any) -> Any:
    elements = _window_elements(xp, _array_windows(attrs, x), widen_float16(xp, x), 0)
    return xp.asarray(xp.sum(elements, axis=-1), dtype=x.dtype)


def _avg_pool(xp: Any, attrs: Attrs, x: Any) -> Any:
    wide = widen_float16(xp, x)
    counts = xp.asarray(average_divisors(tuple(x.shape), attrs), dtype=wide.dtype)
    result = _sum_pool(xp, attrs, wide) / counts
    return xp.asarray(result, dtype=x.dtype)


def _lp_pool(xp: Any, attrs: Attrs, x: Any) -> Any:
    p, wide = attrs["p"], widen_float16(xp, x)
    sums = _sum_pool(xp, attrs, xp.pow(xp.abs(wide), xp.full_like(wide, p)))
    result = xp.pow(sums, xp.full_like(sums, 1.0 / p))
    return xp.asarray(result, dtype=x.dtype)


def _window_attrs(attrs: Attrs) -> dict[str, Any]:
    """Return only the window attributes."""
    return {attr.name: attrs[attr.name] for attr in WINDOW_ATTRS}


def _build_avg(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
    """Build the mean as a sum and a division, in f32 for f16, whose sum may
    overflow.
    """
    counts = average_divisors(x.shape, attrs)
    (wide,) = widen_float16_tensors(g, x)
    sums = g.apply("sum_pool", wide, **_window_attrs(attrs))
    if is_uniform(counts):
        result = sums / float(counts.flat[0])
    else:
        result = sums / g.constant(counts.astype(sums.dtype.numpy))
    return result if result.dtype is x.dtype else g.cast(result, x.dtype)


def _build_lp(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
    """Build the p-norm of each window from a sum of powers, in f32 for f16."""
    p = attrs["p"]
    (wide,) = widen_float16_tensors(g, x)
    sums = g.apply("sum_pool", absolute_power(g, wide, p), **_window_attrs(attrs))
    result = norm_root(g, sums, p)
    return result if result.dtype is x.dtype else g.cast(result, x.dtype)


def _case(
    shape: Shape,
    kernel: int | tuple[int, ...],
    dtype: DType = DType.F32,
    low: float = -2.0,
    note: str = "",
    **attrs: Any,
) -> Sample:
    drawn = Drawn(shape, dtype, low, 2.0, whole=dtype is DType.F16)
    return Sample((drawn,), {"kernel": kernel, **attrs}, note)


_BASE_SAMPLES = (
    _case((1, 3, 7, 9), 2, strides=2, pads=1),
    _case((2, 2, 8, 9), (3, 2), strides=(2, 3), pads=(1, 0, 1, 1), ceil_mode=True),
    _case((1, 1, 9, 8, 7), 2, dilations=(2, 1, 3)),
    _case((0, 2, 5), 2),
    _case((1, 1, 1), 1),
    _case((65_537, 1, 2), 2, note="many rows"),
    _case((1, 2, 6, 6), 3, DType.F16, pads=1),
    _case((1, 2, 6, 6), 3, DType.F64, strides=2, ceil_mode=True),
)
_SAMPLES = (
    *_BASE_SAMPLES,
    _case((2, 3, 17), 5, strides=2, pads=2, dilations=2),
    _case((1, 2, 37, 41), (5, 3), strides=(1, 2), pads=1, note="pieces"),
    _case((1, 1, 1400), 1300, note="a long window"),
)
_INTEGER_SAMPLES = tuple(
    _case((1, 2, 6, 7), 3, dtype, low, pads=1)
    for dtype, low in ((DType.I32, -9), (DType.U32, 0), (DType.I64, -9))
)
_TIE_SAMPLE = _case((1, 2, 7), 3, low=2.0, strides=2, pads=1, note="ties: the first")


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return float(out.numel * window_volume(pool_windows(inputs[0].shape, attrs)))


def _window_volume(types: Types, out: TensorType, attrs: Attrs) -> int:
    """Return the number of elements in a window."""
    return window_volume(pool_windows(types[0].shape, attrs))


_pool_op = partial(
    Op,
    infer=_infer,
    attrs=WINDOW_ATTRS,
    traits=frozenset({"reduction"}),
    flops=_flops,
    calibration_cases=(_case((1, 4, 32), 3), _case((1, 64, 64, 64), 3)),
)
_float_pool_op: Callable[..., Op] = partial(
    _pool_op,
    calibration_cases=(),
    infer=partial(_infer, allowed=FLOAT_DTYPES),
    traits=frozenset({"reduction", "floats_only"}),
    tolerance=SUM_TOLERANCE,
    samples=_BASE_SAMPLES,
)

registry.register_all(
    _pool_op(
        name="max_pool",
        reference=_max_pool,
        lower=Kernel(window_reduction_rule("max")),
        range_rule=value_range_rules.operand_hull(0),
        tolerance=EXACT,
        samples=(*_SAMPLES, *_INTEGER_SAMPLES),
        vjp=max_pool_vjp,
        batch=batch_as_first_axis,
        doc="The largest element of each window of an array [N, C, …]; padding is "
        "ignored, and a NaN in a window gives NaN. With `ceil_mode`, there are also "
        "windows that begin inside the array and extend beyond it.",
    ),
    _pool_op(
        name="max_pool_indices",
        infer=_infer_indices,
        reference=_max_pool_indices,
        lower=Kernel(plan_max_pool_indices),
        range_rule=value_range_rules.range_up_to(
            0, lambda types, _: numel(types[0].shape[2:]) - 1
        ),
        samples=(*_SAMPLES, *_INTEGER_SAMPLES, _TIE_SAMPLE),
        batch=batch_as_first_axis,
        doc="The index (i32, flat over the spatial axes of an image) of the largest "
        "element of each window, or of the first NaN in the window. Among equal "
        "elements, the first is taken.",
    ),
    _pool_op(
        name="sum_pool",
        reference=_sum_pool,
        lower=Kernel(window_reduction_rule("sum")),
        range_rule=value_range_rules.sum_range(_window_volume, can_be_partial=True),
        tolerance=SUM_TOLERANCE,
        samples=(*_SAMPLES, *_INTEGER_SAMPLES),
        vjp=sum_pool_vjp,
        batch=batch_as_first_axis,
        doc="The sum of each window of an array [N, C, …]. Integers wrap in their "
        "dtype.",
    ),
    _float_pool_op(
        name="avg_pool",
        reference=_avg_pool,
        lower=Compose(_build_avg),
        attrs=(*WINDOW_ATTRS, Attr("count_include_pad", "bool", False)),
        samples=(
            *_BASE_SAMPLES,
            _case((1, 2, 6, 7), 3, strides=2, pads=1, count_include_pad=True),
            _case(
                (1, 1, 6), 4, pads=1, strides=3, ceil_mode=True, count_include_pad=True
            ),
        ),
        doc="The mean of each window of an array [N, C, …] over the elements inside "
        "the array; with `count_include_pad`, the padding counts as zeros.",
    ),
    _float_pool_op(
        name="lp_pool",
        infer=_infer_norm,
        reference=_lp_pool,
        lower=Compose(_build_lp),
        attrs=(*WINDOW_ATTRS, Attr("p", "float", 2.0, above=0, at_most=3.4e38)),
        tolerance=replace(SUM_TOLERANCE, rtol=1e-5),
        samples=(
            *_BASE_SAMPLES,
            _case((1, 2, 6), 3, p=3.0, strides=2),
            _case((1, 2, 6), 3, p=1.0),
        ),
        doc="(sum of |x|ᵖ)^(1/p) of each window of an array [N, C, …]; the "
        "derivative is 0 for a window of zeros, as in PyTorch.",
    ),
)
