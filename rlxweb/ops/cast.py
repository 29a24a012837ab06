"""Cast: the values of an array in another dtype.

Float to integer truncates toward zero and saturates, integer to integer wraps. Numbers
of bfloat16 are float32 wherever they are computed with, rounded to what it holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir import bounds
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape
from rlxweb.ops.elementwise import ROUNDED, WIDE_TYPES
from rlxweb.ops.kinds import is_float


def convert(xp: Any, attrs: Attrs, x: Any) -> Any:
    """Another dtype; float to integer truncates and saturates, NaN gives 0.

    Numbers of bfloat16 are float32 here, rounded to what it holds.
    """
    to: DType = attrs["to"]
    if to is DType.BOOL:
        return x != 0
    if to is DType.BF16:
        return as_bfloat16(xp, x)
    target = getattr(xp, to.numpy.name)
    if not (to.is_integer and is_float(xp, x)):
        return xp.asarray(x, dtype=target)
    if x.dtype == xp.float16:
        x = xp.asarray(x, dtype=xp.float32)
    lowest, highest = int(to.least), int(to.most)
    bits = highest.bit_length()
    whole = xp.trunc(xp.where(xp.isnan(x), xp.zeros_like(x), x))
    above, below = whole >= 2.0**bits, whole < float(lowest)
    inside = xp.where(above | below, xp.zeros_like(x), whole)
    inside = xp.asarray(inside, dtype=target)
    # by way of NumPy: not every library takes Python's integers beyond 63 bits
    most, least = (xp.asarray(np.asarray(n, to.numpy)) for n in (highest, lowest))
    return xp.where(below, least, xp.where(above, most, inside))


def as_bfloat16(xp: Any, x: Any) -> Any:
    """Numbers rounded to those of bfloat16, to nearest and halves to even, as f32.

    In the bits of a float32: half of the last place kept is added, and what is below
    that place cut off. A carry goes into the exponent, and at its end makes infinity.
    """
    x = xp.asarray(x, dtype=xp.float32)
    bits = x.view(xp.int32)
    up = bits + (((bits >> 16) & 1) + 0x7FFF)
    return xp.where(x != x, x, ((up >> 16) << 16).view(xp.float32))


def _conversion(types: Types, out: TensorType, attrs: Attrs) -> str:
    source, to = types[0].dtype, out.dtype
    if source is to:
        return "x"
    if to is DType.BOOL:
        return "(x != X(0)) | is_nan(x)" if source.is_float else "x != X(0)"
    if to is DType.BF16:
        return "bfloat(F(x))"
    if to.is_float:  # a half is rounded where it is stored
        return "F(x)"
    if to is DType.U32:
        return "to_u32(x)" if source.is_float else "U(x)"
    whole = "to_i32(x)" if source.is_float else "I(x)"
    if to is DType.I32:
        return whole
    if source.is_float:
        return f"clamp({whole}, I({int(to.least)}), I({int(to.most)}))"
    if to.is_unsigned:
        return f"{whole} & I({int(to.most)})"
    return f"({whole} << U({32 - 8 * to.nbytes}u)) >> U({32 - 8 * to.nbytes}u)"


def _cast(shape: Shape, source: DType, to: DType, top: float = 100) -> Sample:
    low = -top
    return Sample((Drawn(shape, source, low, top),), {"to": to})


_SATURATING = (
    (DType.F32, DType.I32, 1e10),
    (DType.F32, DType.U32, 1e10),
    (DType.I32, DType.F32, 2e9),
    (DType.I32, DType.U32, 2e9),
    (DType.U32, DType.I32, 4e9),
    (DType.U32, DType.F32, 4e9),
)
_GPU_TYPES = (DType.F32, DType.I32, DType.U32, DType.BOOL)
_SMALL = (DType.I8, DType.U8, DType.I16, DType.U16, DType.BF16)

registry.register_all(
    Op(
        name="cast",
        infer=lambda types, attrs: TensorType(types[0].shape, attrs["to"]),
        reference=convert,
        lower=Expr(_conversion, ("saturate", "bfloat")),
        bounds=bounds.CONVERTED,
        attrs=(Attr("to", "dtype"),),
        unchanged=lambda types, out, attrs: types[0] == out,
        traits=frozenset({"elementwise"}),
        tolerance=ROUNDED,
        samples=(
            *(_cast((3, 7), a, b) for a in _GPU_TYPES for b in _GPU_TYPES),
            *(_cast((3, 7), a, b) for a in _GPU_TYPES for b in WIDE_TYPES),
            *(_cast((3, 7), a, b) for b in _GPU_TYPES for a in WIDE_TYPES),
            *(_cast((16,), DType.F16, b) for b in _GPU_TYPES),
            *(_cast((16,), a, DType.F16) for a in (DType.I32, DType.U32, DType.BOOL)),
            *(_cast((9, 9), a, b, top) for a, b, top in _SATURATING),
            *(_cast((5, 7), a, b, 400) for a in _SMALL for b in _GPU_TYPES),
            *(_cast((5, 7), b, a, 7e4) for a in _SMALL for b in _GPU_TYPES),
            *(_cast((3, 5), a, b, 9e4) for a in _SMALL for b in _SMALL),
            _cast((70_001,), DType.I32, DType.I8, 1e6),
            _cast((), DType.F32, DType.I32),
            _cast((0, 5), DType.F32, DType.BOOL),
            _cast((65_537, 2), DType.I32, DType.F32),
        ),
        vjp=lambda at: [at.g.cast(at.grad, at.x.dtype)],
        doc="The values in another dtype. Float to integer truncates toward zero and "
        "saturates, NaN becomes 0; integer to integer wraps; to bool is != 0.",
    ),
)
