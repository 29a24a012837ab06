"""Gated linear units: one half of an axis times what a function makes of the other.

With SiLU it is SwiGLU, with GELU GEGLU (Shazeer 2020). Both halves are views, so that
on a device all of it is one elementwise pass. Owns no shader.
"""

from __future__ import annotations

from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, bad_shape, normal_axis, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise import FLOATS, need
from rlxweb.ops.gates import GATED
from rlxweb.ops.linalg import widened
from rlxweb.ops.norm import in_f32

GATES = ("sigmoid", "silu", "gelu", "gelu_approx", "relu", "tanh", "identity")


def _infer(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    need(types, FLOATS)
    axis = normal_axis(attrs["axis"], x.rank)
    if x.shape[axis] % 2:
        raise bad_shape(
            f"axis {axis} of {show(x.shape)} is halved", "its length is even"
        )
    half = x.shape[axis] // 2
    return TensorType((*x.shape[:axis], half, *x.shape[axis + 1 :]), x.dtype)


def _reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    axis = normal_axis(attrs["axis"], x.ndim)
    half, wide = x.shape[axis] // 2, widened(xp, x)
    lead = (slice(None),) * axis
    low, high = wide[(*lead, slice(0, half))], wide[(*lead, slice(half, None))]
    up, gate = (high, low) if attrs["gate_first"] else (low, high)
    if attrs["activation"] != "identity":
        gate = registry.get(attrs["activation"]).reference(xp, {}, gate)
    return xp.asarray(up * gate, dtype=x.dtype)


def _build(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
    axis = normal_axis(attrs["axis"], x.rank)
    half = x.shape[axis] // 2
    (wide,) = in_f32(g, x)
    low, high = (g.narrow(wide, axis, at, half) for at in (0, half))
    up, gate = (high, low) if attrs["gate_first"] else (low, high)
    if attrs["activation"] != "identity":
        gate = g.activation(attrs["activation"], gate)
    made = up * gate
    return made if wide is x else g.cast(made, x.dtype)


def _case(shape: Shape, dtype: DType = DType.F32, **attrs: Any) -> Sample:
    return Sample((Drawn(shape, dtype),), attrs)


registry.register_all(
    Op(
        name="glu",
        infer=_infer,
        reference=_reference,
        lower=Compose(_build),
        attrs=(
            Attr("axis", "int", -1),
            Attr("activation", "str", "sigmoid", allowed=GATES),
            Attr("gate_first", "bool", False),
        ),
        flops=lambda inputs, out, attrs: 12.0 * out.numel,
        tolerance=GATED,
        samples=(
            *(_case((3, 10), activation=gate) for gate in GATES),
            *(_case((6, 5), axis=0, activation=g, gate_first=True) for g in GATES),
            _case((2, 6, 4, 3), axis=1),
            _case((2,)),
            _case((3, 0)),
            _case((0, 4), activation="silu"),
            _case((65_537, 2), activation="silu", gate_first=True),
            _case((3, 8), DType.F16, activation="silu"),
            _case((3, 8), DType.F64, activation="gelu"),
        ),
        doc="Gated linear unit: one half of an axis times activation(the other), which "
        "is the second half unless gate_first. SwiGLU has silu, GEGLU gelu.",
    )
)
