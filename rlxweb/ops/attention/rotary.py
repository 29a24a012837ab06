"""Rotary position embedding: rotate pairs of elements by the angle of their position.

RoFormer (Su et al. 2021): (a, b) becomes (a cos - b sin, b cos + a sin). A pair is an
element and the one half of the turned part further on (GPT-NeoX, Llama), or two
neighbours (GPT-J). The partner of every element is a view, so that on a device all of
it is one elementwise pass. Owns no shader.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.core.errors import ShapeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import Shape, bad_shape, broadcast, format_shape
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise.op import FLOAT_DTYPES, common_dtype, require_dtypes
from rlxweb.ops.matmul.op import widen_float16
from rlxweb.ops.norm.op import widen_float16_tensors


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, cos, sin = types
    dtype = common_dtype(types)
    require_dtypes(types, FLOAT_DTYPES)
    if cos.shape != sin.shape:
        raise bad_shape(
            f"got cos {format_shape(cos.shape)} and sin {format_shape(sin.shape)}",
            "cos and sin must have the same shape",
        )
    if not x.rank or not cos.rank or cos.shape[-1] * 2 > x.shape[-1]:
        raise bad_shape(
            f"got cos and sin, each {format_shape(cos.shape)}, for x "
            f"{format_shape(x.shape)}",
            "the last axis of cos and sin may be at most half as long as that of x",
        )
    try:
        fits = broadcast(cos.shape[:-1], x.shape[:-1]) == x.shape[:-1]
    except ShapeError:
        fits = False
    if not fits:
        raise bad_shape(
            f"got cos and sin, each {format_shape(cos.shape)}, for x "
            f"{format_shape(x.shape)}",
            "all axes of cos and sin except the last must broadcast to "
            f"{format_shape(x.shape[:-1])}, those of x",
        )
    return TensorType(x.shape, dtype)


def _pair_shape(
    leading_shape: Shape, half: int, interleaved: bool
) -> tuple[Shape, int]:
    """Return the shape of the rotated part with an axis for the two elements of a pair,
    and that axis.
    """
    if interleaved:
        return (*leading_shape, half, 2), len(leading_shape) + 1
    return (*leading_shape, 2, half), len(leading_shape)


def _reference(xp: Any, attrs: Attrs, x: Any, cos: Any, sin: Any) -> Any:
    half, wide = cos.shape[-1], widen_float16(xp, x)
    cos, sin = widen_float16(xp, cos), widen_float16(xp, sin)
    leading_shape = tuple(x.shape[:-1])
    shape, axis = _pair_shape(leading_shape, half, attrs["interleaved"])
    pairs = xp.reshape(wide[..., : 2 * half], shape)
    leading_slices = (slice(None),) * axis
    a, b = pairs[(*leading_slices, 0)], pairs[(*leading_slices, 1)]
    rotated = xp.stack([a * cos - b * sin, b * cos + a * sin], axis=axis)
    rotated = xp.reshape(rotated, (*leading_shape, 2 * half))
    if 2 * half < x.shape[-1]:
        rotated = xp.concat([rotated, wide[..., 2 * half :]], axis=-1)
    return xp.asarray(rotated, dtype=x.dtype)


def _build(g: Graph, attrs: Attrs, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half, leading_shape = cos.shape[-1], x.shape[:-1]
    if not half:
        return x
    wide, cos, sin = widen_float16_tensors(g, x, cos, sin)
    shape, axis = _pair_shape(leading_shape, half, attrs["interleaved"])
    rotates_all = 2 * half == x.shape[-1]
    pairs = wide if rotates_all else g.narrow(wide, x.rank - 1, 0, 2 * half)
    pairs = g.reshape(pairs, shape)
    # Beside the two of a pair the angle is the same, but for the sign of the sine.
    angles = (*cos.shape[:-1], 1, half)
    signs = np.array([[-1.0], [1.0]])
    if attrs["interleaved"]:
        angles, signs = (*cos.shape, 1), signs[:, 0]
    partners = g.flip(pairs, axis) * g.reshape(sin, angles)
    rotated = pairs * g.reshape(cos, angles) + partners * g.constant(signs, wide.dtype)
    rotated = g.reshape(rotated, (*leading_shape, 2 * half))
    rotated = rotated if rotated.dtype is x.dtype else g.cast(rotated, x.dtype)
    if rotates_all:
        return rotated
    unrotated = g.narrow(x, x.rank - 1, 2 * half, x.shape[-1] - 2 * half)
    return g.concat([rotated, unrotated], axis=x.rank - 1)


def _case(
    shape: Shape, angles: Shape, dtype: DType = DType.F32, interleaved: bool = False
) -> Sample:
    drawn = Drawn(angles, dtype, -1, 1)
    return Sample((Drawn(shape, dtype), drawn, drawn), {"interleaved": interleaved})


_SHAPES: tuple[tuple[Shape, Shape], ...] = (
    ((2,), (1,)),
    ((7, 6), (7, 3)),
    ((2, 3, 5, 8), (5, 4)),
    ((2, 3, 5, 8), (2, 1, 5, 3)),
    ((3, 9), (3, 2)),
    ((3, 5), (0,)),
    ((0, 4), (2,)),
    ((65_537, 2), (65_537, 1)),
)

registry.register_all(
    Op(
        name="rope",
        arity=3,
        infer=_infer,
        reference=_reference,
        lower=Compose(_build),
        attrs=(Attr("interleaved", "bool", False),),
        flops=lambda inputs, out, attrs: 3.0 * out.numel,
        # Two products of numbers up to 2, whose sum may be near 0.
        tolerance=Tolerance(rtol=1e-6, atol=5e-7),
        samples=(
            *(_case(*shapes) for shapes in _SHAPES),
            *(_case(*shapes, interleaved=True) for shapes in _SHAPES),
            _case((3, 9), (3, 4), DType.F16),
            _case((3, 8), (4,), DType.F64, True),
        ),
        doc="Rotary position embedding of x [..., D] by angles, passed as their "
        "cosines and sines: the operands cos and sin, each [..., R/2]. The first R "
        "elements are rotated in pairs, one angle per pair: elements R/2 apart, or "
        "two neighbouring elements with interleaved=True; the other elements are "
        "unchanged. The leading axes of cos and sin (all but the last) must "
        "broadcast to those of x.",
    )
)
