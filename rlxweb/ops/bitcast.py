"""The bits of numbers read as another type of the same size."""

from __future__ import annotations

from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import (
    Attr,
    Attrs,
    Op,
    TensorType,
    Types,
    no_flops,
    registry,
    same_type,
)
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import bad_dtype
from rlxweb.ops.kinds import is_double, numpy_dtype

_SIZES = (4, 8)
"""Bytes of the types that are read as others: in a shader a half is wider than that."""
_IN_WGSL = {DType.F32: "F", DType.I32: "I", DType.U32: "U"}


def _infer(types: Types, attrs: Attrs) -> TensorType:
    have, to = types[0].dtype, attrs["to"]
    if have.nbytes != to.nbytes or have.nbytes not in _SIZES:
        raise bad_dtype(
            f"{have} of {have.nbytes} bytes is read as {to} of {to.nbytes}",
            "both have 4 bytes, or both 8",
            "cast converts values",
        )
    return TensorType(types[0].shape, to)


def _reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    """Where floats are computed in f64, to judge others, the bits are those of f32."""
    to: DType = attrs["to"]
    if to.nbytes == numpy_dtype(xp, x).itemsize:
        return x.view(getattr(xp, to.numpy.name))
    if is_double(xp, x):
        return xp.asarray(x, dtype=xp.float32).view(getattr(xp, to.numpy.name))
    return x.view(xp.float32)


def _read(types: Types, out: TensorType, attrs: Attrs) -> str:
    return f"bitcast<{_IN_WGSL.get(out.dtype, 'X')}>(x)"


def _case(source: DType, to: DType, *shape: int) -> Sample:
    """Numbers whose bits are numbers too."""
    low, high = (1.0, 4.0) if source.is_float else (1 << 29, 1 << 30)
    return Sample((Drawn(shape, source, low, high),), {"to": to})


registry.register_all(
    Op(
        name="bitcast",
        infer=_infer,
        reference=_reference,
        lower=Expr(_read),
        attrs=(Attr("to", "dtype"),),
        traits=frozenset({"elementwise"}),
        flops=no_flops,
        unchanged=same_type,
        samples=(
            *(_case(a, b, 3, 7) for a in _IN_WGSL for b in _IN_WGSL),
            _case(DType.F64, DType.I64, 5),
            _case(DType.I64, DType.F64, 5),
            _case(DType.F32, DType.U32),
            _case(DType.F32, DType.I32, 0, 5),
            _case(DType.U32, DType.F32, 65_537, 2),
        ),
        onnx=("BitCast",),
        doc="The bits of each number as those of another type of the same size, 4 or 8 "
        "bytes.",
    ),
    family="elementwise",
)
