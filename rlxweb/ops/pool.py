"""Pooling: the largest element of each window, its place, sums, averages and p-norms.

Windows are those of `recipes/windows.py`; what lies in the padding is never taken. On a
device a pool is the reduction of `reduce_calls.py`, whose reduced axes are a window's.
No device is known here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np

from rlxweb.ir import bounds
from rlxweb.ir.batching import folded
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.layout import row_major
from rlxweb.ir.lowering import Access, Axis, Call, Compose, Kernel, Recipe, Ref, Scratch
from rlxweb.ir.op import EXACT, Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.p_norm import absolute_power, norm_root
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, bad_attribute, bad_shape, numel
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise import FLOATS, NUMBERS, need
from rlxweb.ops.kinds import is_float, numpy_dtype
from rlxweb.ops.linalg import widened
from rlxweb.ops.norm import in_f32
from rlxweb.ops.reduce import SUMMED
from rlxweb.ops.windows import windows_in
from rlxweb.ops.windows_back import max_pool_back, sum_pool_back
from rlxweb.recipes.reduce_calls import (
    Kept,
    Pass,
    Reduced,
    pass_call,
    scalar_of,
    type_include,
)
from rlxweb.recipes.windows import (
    CEIL,
    DILATIONS,
    PADS,
    STRIDES,
    Windows,
    any_is_empty,
    divisors,
    is_even,
    lowest,
    padded,
    pool_windows,
    volume,
)

KERNEL = Attr("kernel", "ints")
_GEOMETRY = (KERNEL, STRIDES, DILATIONS, PADS, CEIL)


def _infer(
    types: Types, attrs: Attrs, allowed: frozenset[DType] = NUMBERS
) -> TensorType:
    (x,) = types
    need(types, allowed)
    w = pool_windows(x.shape, attrs)
    if any_is_empty(w):
        raise bad_attribute(
            f"pads={attrs['pads']} around windows of {w.kernel}",
            "each window holds an element of the array",
            "pad less than a window, or pad the array itself",
        )
    return TensorType((*x.shape[:2], *w.out), x.dtype)


def _infer_places(types: Types, attrs: Attrs) -> TensorType:
    shape = _infer(types, attrs).shape
    if numel(types[0].shape[2:]) >= 1 << 31:
        raise bad_shape(f"{numel(types[0].shape[2:])} places", "i32 holds 2**31 - 1")
    return TensorType(shape, DType.I32)


def _infer_norm(types: Types, attrs: Attrs) -> TensorType:
    if not 0.0 < attrs["p"] < np.inf:
        raise bad_attribute(f"p={attrs['p']}", "p is finite and > 0")
    return _infer(types, attrs, FLOATS)


def _of_window(xp: Any, w: Windows, x: Any, fill: float) -> Any:
    """[N, C, out…, elements of a window]"""
    cut = windows_in(xp, x, w, fill)
    return xp.reshape(cut, (*cut.shape[: x.ndim], volume(w)))


def _windows_of(attrs: Attrs, x: Any) -> Windows:
    return pool_windows(tuple(x.shape), attrs)


def _largest(xp: Any, cut: Any) -> Any:
    """Along the last axis; XLA loses a NaN among few, so that is looked for."""
    made = xp.max(cut, axis=-1, keepdims=True)
    if not is_float(xp, cut):
        return made
    odd = xp.any(cut != cut, axis=-1, keepdims=True)
    return xp.where(odd, xp.full_like(made, np.nan), made)


def _max_pool(xp: Any, attrs: Attrs, x: Any) -> Any:
    cut = _of_window(xp, _windows_of(attrs, x), x, lowest(numpy_dtype(xp, x)))
    return (_largest(xp, cut) if 0 not in cut.shape else cut)[..., 0]


def _places(xp: Any, attrs: Attrs, x: Any) -> Any:
    w = _windows_of(attrs, x)
    size = tuple(x.shape[2:])
    cut = _of_window(xp, w, x, lowest(numpy_dtype(xp, x)))
    at = xp.asarray(xp.arange(numel(size)), dtype=xp.int32)
    at = _of_window(xp, w, xp.reshape(at, (1, 1, *size)), -1)
    if 0 in cut.shape:
        return xp.asarray(cut[..., 0], dtype=xp.int32)
    largest = _largest(xp, cut)
    best = (cut == largest) | ((largest != largest) & (cut != cut))
    best = best & (at >= 0)
    first = xp.argmax(xp.asarray(best, dtype=xp.int32), axis=-1, keepdims=True)
    at = xp.broadcast_to(at, cut.shape)
    return xp.asarray(xp.take_along_axis(at, first, axis=-1)[..., 0], dtype=xp.int32)


def _sum_pool(xp: Any, attrs: Attrs, x: Any) -> Any:
    cut = _of_window(xp, _windows_of(attrs, x), widened(xp, x), 0)
    return xp.asarray(xp.sum(cut, axis=-1), dtype=x.dtype)


def _avg_pool(xp: Any, attrs: Attrs, x: Any) -> Any:
    wide = widened(xp, x)
    counts = xp.asarray(divisors(tuple(x.shape), attrs), dtype=wide.dtype)
    made = _sum_pool(xp, attrs, wide) / counts
    return xp.asarray(made, dtype=x.dtype)


def _lp_pool(xp: Any, attrs: Attrs, x: Any) -> Any:
    p, wide = attrs["p"], widened(xp, x)
    sums = _sum_pool(xp, attrs, xp.pow(xp.abs(wide), xp.full_like(wide, p)))
    made = xp.pow(sums, xp.full_like(sums, 1.0 / p))
    return xp.asarray(made, dtype=x.dtype)


def _reduction(kind: Literal["sum", "max"]) -> Kernel:
    def recipe(inputs: Types, out: TensorType, attrs: Attrs) -> Recipe:
        (x,) = inputs
        w = pool_windows(x.shape, attrs).in_three()
        lead, made = numel(x.shape[:2]), row_major((numel(x.shape[:2]), *w.out))
        fill = lowest(x.dtype.numpy) if kind == "max" else 0
        source = padded(w, lead, x.dtype, fill)
        at = row_major((lead, *source.extents))
        kept = [Kept(lead, at[0], made[0])]
        for axis in range(3):
            step = w.strides[axis] * at[axis + 1]
            kept.append(Kept(w.out[axis], step, made[axis + 1]))
        gone = [
            Reduced(size, d * step)
            for size, d, step in zip(w.kernel, w.dilations, at[1:], strict=True)
        ]
        walk = Pass(source.ref, Ref("out"), tuple(kept), tuple(gone))
        call = pass_call(kind, walk, type_include(x.dtype))
        return Recipe((*source.calls, call), source.scratch, source.tables)

    return Kernel(recipe)


def _places_recipe(inputs: Types, out: TensorType, attrs: Attrs) -> Recipe:
    """The places of the largest; what they are lies beside them in a temporary, from
    which a piece of a window carries on.
    """
    (x,) = inputs
    w = pool_windows(x.shape, attrs).in_three()
    lead = numel(x.shape[:2])
    source = padded(w, lead, x.dtype, lowest(x.dtype.numpy))
    at, made = row_major((lead, *source.extents)), row_major((lead, *w.out))
    steps = tuple(s * t for s, t in zip(w.strides, at[1:], strict=True))
    taps = tuple(d * t for d, t in zip(w.dilations, at[1:], strict=True))
    names = ("lead", "o0", "o1", "o2", "k0", "k1", "k2")
    walk, target = (at[0], *steps, *taps), (*made, 0, 0, 0)
    values = {f"x_{n}": s for n, s in zip(names, walk, strict=True)}
    values |= {f"z_{n}": s for n, s in zip(names, target, strict=True)}
    for axis in range(3):
        values |= {
            f"stride{axis}": w.strides[axis],
            f"dilation{axis}": w.dilations[axis],
            f"before{axis}": w.before[axis],
            f"size{axis}": w.size[axis],
        }
    best = len(source.scratch)
    call = Call(
        "max_pool_indices",
        axes=tuple(
            Axis(name, size, "serial" if name[0] == "k" else "parallel")
            for name, size in zip(names, (lead, *w.out, *w.kernel), strict=True)
        ),
        accesses=(
            Access(source.ref, walk),
            Access(Ref("scratch", best), target, "update"),
            Access(Ref("out"), target, "update"),
        ),
        grid=tuple((name, 1) for name in names[:4]),
        values=values,
        uses=(type_include(x.dtype),),
    )
    scratch = Scratch(out.numel, scalar_of(x.dtype))
    calls, temporaries = (*source.calls, call), (*source.scratch, scratch)
    return Recipe(calls, temporaries, source.tables)


def _geometry(attrs: Attrs) -> dict[str, Any]:
    return {one.name: attrs[one.name] for one in _GEOMETRY}


def _build_avg(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
    """Sum, then divide; in f32 for f16, whose sum may overflow."""
    counts = divisors(x.shape, attrs)
    (wide,) = in_f32(g, x)
    sums = g.apply("sum_pool", wide, **_geometry(attrs))
    if is_even(counts):
        made = sums / float(counts.flat[0])
    else:
        made = sums / g.constant(counts.astype(sums.dtype.numpy))
    return made if made.dtype is x.dtype else g.cast(made, x.dtype)


def _build_lp(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
    p = attrs["p"]
    (wide,) = in_f32(g, x)
    sums = g.apply("sum_pool", absolute_power(g, wide, p), **_geometry(attrs))
    made = norm_root(g, sums, p)
    return made if made.dtype is x.dtype else g.cast(made, x.dtype)


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


_FEW = (
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
    *_FEW,
    _case((2, 3, 17), 5, strides=2, pads=2, dilations=2),
    _case((1, 2, 37, 41), (5, 3), strides=(1, 2), pads=1, note="pieces"),
    _case((1, 1, 1400), 1300, note="a long window"),
)
_WHOLE = tuple(
    _case((1, 2, 6, 7), 3, dtype, low, pads=1)
    for dtype, low in ((DType.I32, -9), (DType.U32, 0), (DType.I64, -9))
)
_TIES = _case((1, 2, 7), 3, low=2.0, strides=2, pads=1, note="ties: the first")


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return float(out.numel * volume(pool_windows(inputs[0].shape, attrs)))


def _in_a_window(types: Types, out: TensorType, attrs: Attrs) -> int:
    return volume(pool_windows(types[0].shape, attrs))


_pool = partial(
    Op,
    infer=_infer,
    attrs=_GEOMETRY,
    traits=frozenset({"reduction"}),
    flops=_flops,
    telling=(_case((1, 4, 32), 3), _case((1, 64, 64, 64), 3)),
)
_floats: Callable[..., Op] = partial(
    _pool,
    telling=(),
    infer=partial(_infer, allowed=FLOATS),
    traits=frozenset({"reduction", "floats_only"}),
    tolerance=SUMMED,
    samples=_FEW,
)

registry.register_all(
    _pool(
        name="max_pool",
        reference=_max_pool,
        lower=_reduction("max"),
        bounds=bounds.kept(0),
        tolerance=EXACT,
        samples=(*_SAMPLES, *_WHOLE),
        vjp=max_pool_back,
        batch=folded,
        doc="The largest element of each window of [N, C, …]; padding is never taken, "
        "NaN stays. ceil_mode: also windows that begin inside and reach out.",
    ),
    _pool(
        name="max_pool_indices",
        infer=_infer_places,
        reference=_places,
        lower=Kernel(_places_recipe),
        bounds=bounds.between(0, lambda types, _: numel(types[0].shape[2:]) - 1),
        samples=(*_SAMPLES, *_WHOLE, _TIES),
        batch=folded,
        doc="Where in its image (flat over the spatial axes, i32) the largest element "
        "of each window stands; the first of equal ones, of NaN if there is one.",
    ),
    _pool(
        name="sum_pool",
        reference=_sum_pool,
        lower=_reduction("sum"),
        bounds=bounds.counted(_in_a_window, partly=True),
        tolerance=SUMMED,
        samples=(*_SAMPLES, *_WHOLE),
        vjp=sum_pool_back,
        batch=folded,
        doc="The sum of each window of [N, C, …]. Integers wrap in their dtype.",
    ),
    _floats(
        name="avg_pool",
        reference=_avg_pool,
        lower=Compose(_build_avg),
        attrs=(*_GEOMETRY, Attr("count_include_pad", "bool", False)),
        samples=(
            *_FEW,
            _case((1, 2, 6, 7), 3, strides=2, pads=1, count_include_pad=True),
            _case(
                (1, 1, 6), 4, pads=1, strides=3, ceil_mode=True, count_include_pad=True
            ),
        ),
        doc="The mean of each window of [N, C, …], over the elements inside; with "
        "count_include_pad over the padding too.",
    ),
    _floats(
        name="lp_pool",
        infer=_infer_norm,
        reference=_lp_pool,
        lower=Compose(_build_lp),
        attrs=(*_GEOMETRY, Attr("p", "float", 2.0)),
        tolerance=replace(SUMMED, rtol=1e-5),
        samples=(
            *_FEW,
            _case((1, 2, 6), 3, p=3.0, strides=2),
            _case((1, 2, 6), 3, p=1.0),
        ),
        doc="(sum of |x|ᵖ)^(1/p) of each window of [N, C, …], with slope 0 for a "
        "window of zeros, as in PyTorch.",
    ),
)
