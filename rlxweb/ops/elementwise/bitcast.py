"""Bitcast op: the bits of numbers read as another type of the same size."""

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
    has_same_type,
    no_flops,
    registry,
)
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import bad_dtype
from rlxweb.ops.array_dtype_checks import is_float64, numpy_dtype

_SUPPORTED_NBYTES = (4, 8)
"""Byte sizes of the types that can be bitcast; a shader stores halves wider than 2
bytes.
"""
_WGSL_TYPES = {DType.F32: "F", DType.I32: "I", DType.U32: "U"}


def _infer(types: Types, attrs: Attrs) -> TensorType:
    source, to = types[0].dtype, attrs["to"]
    if source.nbytes != to.nbytes or source.nbytes not in _SUPPORTED_NBYTES:
        raise bad_dtype(
            f"cannot reinterpret {source} ({source.nbytes} bytes) as {to} "
            f"({to.nbytes} bytes)",
            "both dtypes must have the same size, 4 or 8 bytes",
            "use cast to convert values",
        )
    return TensorType(types[0].shape, to)


def _reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    """Reinterpret the bits of x; floats that were widened to f64 are first rounded to
    f32.
    """
    to: DType = attrs["to"]
    if to.nbytes == numpy_dtype(xp, x).itemsize:
        return x.view(getattr(xp, to.numpy.name))
    if is_float64(xp, x):
        return xp.asarray(x, dtype=xp.float32).view(getattr(xp, to.numpy.name))
    return x.view(xp.float32)


def _bitcast_expression(types: Types, out: TensorType, attrs: Attrs) -> str:
    return f"bitcast<{_WGSL_TYPES.get(out.dtype, 'X')}>(x)"


def _case(source: DType, to: DType, *shape: int) -> Sample:
    """Return a sample of numbers whose bits are numbers in the other type too."""
    low, high = (1.0, 4.0) if source.is_float else (1 << 29, 1 << 30)
    return Sample((Drawn(shape, source, low, high),), {"to": to})


registry.register_all(
    Op(
        name="bitcast",
        infer=_infer,
        reference=_reference,
        lower=Expr(_bitcast_expression),
        attrs=(Attr("to", "dtype"),),
        traits=frozenset({"elementwise"}),
        flops=no_flops,
        is_noop=has_same_type,
        samples=(
            *(_case(a, b, 3, 7) for a in _WGSL_TYPES for b in _WGSL_TYPES),
            _case(DType.F64, DType.I64, 5),
            _case(DType.I64, DType.F64, 5),
            _case(DType.F32, DType.U32),
            _case(DType.F32, DType.I32, 0, 5),
            _case(DType.U32, DType.F32, 65_537, 2),
        ),
        onnx=("BitCast",),
        doc="The bits of each number reinterpreted as another dtype of the same size, "
        "4 or 8 bytes.",
    ),
)
