"""Rotary position embedding: pairs of elements turned by the angle of their position.

RoFormer (Su et al. 2021): (a, b) becomes (a cos - b sin, b cos + a sin). A pair is an
element and the one half of the turned part further on (GPT-NeoX, Llama), or two
neighbours (GPT-J). The partner of every element is a view, so that on a device all of
it is one elementwise pass. Owns no shader.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.errors import ShapeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, bad_shape, broadcast, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise import FLOATS, need, same_dtype
from rlxweb.ops.linalg import widened
from rlxweb.ops.norm import in_f32


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, cos, sin = types
    dtype = same_dtype(types)
    need(types, FLOATS)
    if cos.shape != sin.shape:
        raise bad_shape(
            f"cosines {show(cos.shape)} beside sines {show(sin.shape)}", "one of each"
        )
    if not x.rank or not cos.rank or cos.shape[-1] * 2 > x.shape[-1]:
        raise bad_shape(
            f"angles {show(cos.shape)} for {show(x.shape)}",
            "one angle for two elements of the last axis, or fewer",
        )
    try:
        fits = broadcast(cos.shape[:-1], x.shape[:-1]) == x.shape[:-1]
    except ShapeError:
        fits = False
    if not fits:
        raise bad_shape(
            f"angles {show(cos.shape)} for {show(x.shape)}",
            f"the axes before the last broadcast to {show(x.shape[:-1])}",
        )
    return TensorType(x.shape, dtype)


def _pairs(lead: Shape, half: int, interleaved: bool) -> tuple[Shape, int]:
    """The turned part with an axis of the two of a pair, and which axis that is."""
    if interleaved:
        return (*lead, half, 2), len(lead) + 1
    return (*lead, 2, half), len(lead)


def _reference(xp: Any, attrs: Attrs, x: Any, cos: Any, sin: Any) -> Any:
    half, wide = cos.shape[-1], widened(xp, x)
    cos, sin = widened(xp, cos), widened(xp, sin)
    lead = tuple(x.shape[:-1])
    shape, axis = _pairs(lead, half, attrs["interleaved"])
    pairs = xp.reshape(wide[..., : 2 * half], shape)
    before = (slice(None),) * axis
    a, b = pairs[(*before, 0)], pairs[(*before, 1)]
    made = xp.stack([a * cos - b * sin, b * cos + a * sin], axis=axis)
    made = xp.reshape(made, (*lead, 2 * half))
    if 2 * half < x.shape[-1]:
        made = xp.concat([made, wide[..., 2 * half :]], axis=-1)
    return xp.asarray(made, dtype=x.dtype)


def _build(g: Graph, attrs: Attrs, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half, lead = cos.shape[-1], x.shape[:-1]
    if not half:
        return x
    wide, cos, sin = in_f32(g, x, cos, sin)
    shape, axis = _pairs(lead, half, attrs["interleaved"])
    whole = 2 * half == x.shape[-1]
    pairs = wide if whole else g.narrow(wide, x.rank - 1, 0, 2 * half)
    pairs = g.reshape(pairs, shape)
    # Beside the two of a pair the angle is the same, but for the sign of the sine.
    angles = (*cos.shape[:-1], 1, half)
    signs = np.array([[-1.0], [1.0]])
    if attrs["interleaved"]:
        angles, signs = (*cos.shape, 1), signs[:, 0]
    turned = g.flip(pairs, axis) * g.reshape(sin, angles)
    made = pairs * g.reshape(cos, angles) + turned * g.constant(signs, wide.dtype)
    made = g.reshape(made, (*lead, 2 * half))
    made = made if made.dtype is x.dtype else g.cast(made, x.dtype)
    if whole:
        return made
    rest = g.narrow(x, x.rank - 1, 2 * half, x.shape[-1] - 2 * half)
    return g.concat([made, rest], axis=x.rank - 1)


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
            *(_case(*one) for one in _SHAPES),
            *(_case(*one, interleaved=True) for one in _SHAPES),
            _case((3, 9), (3, 4), DType.F16),
            _case((3, 8), (4,), DType.F64, True),
        ),
        doc="Rotary position embedding of x [..., D] by the cosines and sines "
        "[..., R/2] of its angles: of the first R elements, each and the one R/2 "
        "further on, or two neighbours when interleaved, are turned by one angle; the "
        "rest stays. The axes of the angles before the last broadcast to those of x.",
    )
)
