"""Gated linear unit: one half of an axis times an activation of the other half.

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
from rlxweb.ir.shape_arithmetic import Shape, bad_shape, format_shape, normalize_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise.op import FLOAT_DTYPES, require_dtypes
from rlxweb.ops.elementwise.parametric_activation import GATE_TOLERANCE
from rlxweb.ops.matmul.op import widen_float16
from rlxweb.ops.norm.op import widen_float16_tensors

GATE_ACTIVATIONS = (
    "sigmoid",
    "silu",
    "gelu",
    "gelu_approx",
    "relu",
    "tanh",
    "identity",
)


def _infer(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    require_dtypes(types, FLOAT_DTYPES)
    axis = normalize_axis(attrs["axis"], x.rank)
    if x.shape[axis] % 2:
        raise bad_shape(
            f"cannot halve axis {axis} of {format_shape(x.shape)}",
            "the length of the axis must be even",
        )
    half = x.shape[axis] // 2
    return TensorType((*x.shape[:axis], half, *x.shape[axis + 1 :]), x.dtype)


def _reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    axis = normalize_axis(attrs["axis"], x.ndim)
    half, wide = x.shape[axis] // 2, widen_float16(xp, x)
    lead = (slice(None),) * axis
    low, high = wide[(*lead, slice(0, half))], wide[(*lead, slice(half, None))]
    values, gate = (high, low) if attrs["gate_first"] else (low, high)
    if attrs["activation"] != "identity":
        gate = registry.get(attrs["activation"]).reference(xp, {}, gate)
    return xp.asarray(values * gate, dtype=x.dtype)


def _build(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
    axis = normalize_axis(attrs["axis"], x.rank)
    half = x.shape[axis] // 2
    (wide,) = widen_float16_tensors(g, x)
    low, high = (g.narrow(wide, axis, start, half) for start in (0, half))
    values, gate = (high, low) if attrs["gate_first"] else (low, high)
    if attrs["activation"] != "identity":
        gate = g.activation(attrs["activation"], gate)
    result = values * gate
    return result if wide is x else g.cast(result, x.dtype)


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
            Attr("activation", "str", "sigmoid", allowed=GATE_ACTIVATIONS),
            Attr("gate_first", "bool", False),
        ),
        flops=lambda inputs, out, attrs: 12.0 * out.numel,
        tolerance=GATE_TOLERANCE,
        samples=(
            *(_case((3, 10), activation=gate) for gate in GATE_ACTIVATIONS),
            *(
                _case((6, 5), axis=0, activation=g, gate_first=True)
                for g in GATE_ACTIVATIONS
            ),
            _case((2, 6, 4, 3), axis=1),
            _case((2,)),
            _case((3, 0)),
            _case((0, 4), activation="silu"),
            _case((65_537, 2), activation="silu", gate_first=True),
            _case((3, 8), DType.F16, activation="silu"),
            _case((3, 8), DType.F64, activation="gelu"),
        ),
        doc="Gated linear unit: an axis is split into two halves, the value and the "
        "gate, and the result is value · activation(gate). The gate is the second "
        "half, or the first half with gate_first=True. SwiGLU uses "
        "activation='silu', GEGLU 'gelu'.",
    )
)
