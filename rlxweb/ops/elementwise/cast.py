"""Cast: the values of an array in another dtype.

Float to integer truncates toward zero and saturates, integer to integer wraps. Numbers
of bfloat16 are float32 wherever they are computed with, rounded to what it holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir import value_range_rules
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.ops.array_dtype_checks import is_float
from rlxweb.ops.elementwise.op import ROUNDING_TOLERANCE, WIDE_DTYPES


def cast_values(xp: Any, attrs: Attrs, x: Any) -> Any:
    """Convert an array to another dtype; float to integer truncates and saturates, NaN
    gives 0.

    Numbers of bfloat16 are float32 here, rounded to what it holds.
    """
    to: DType = attrs["to"]
    if to is DType.BOOL:
        return x != 0
    if to is DType.BF16:
        return round_to_bfloat16(xp, x)
    target = getattr(xp, to.numpy.name)
    if not (to.is_integer and is_float(xp, x)):
        return xp.asarray(x, dtype=target)
    if x.dtype == xp.float16:
        x = xp.asarray(x, dtype=xp.float32)
    lowest, highest = int(to.min_value), int(to.max_value)
    bits = highest.bit_length()
    truncated = xp.trunc(xp.where(xp.isnan(x), xp.zeros_like(x), x))
    is_above, is_below = truncated >= 2.0**bits, truncated < float(lowest)
    in_range = xp.where(is_above | is_below, xp.zeros_like(x), truncated)
    in_range = xp.asarray(in_range, dtype=target)
    # by way of NumPy: not every library takes Python's integers beyond 63 bits
    max_value, min_value = (
        xp.asarray(np.asarray(n, to.numpy)) for n in (highest, lowest)
    )
    return xp.where(is_below, min_value, xp.where(is_above, max_value, in_range))


def round_to_bfloat16(xp: Any, x: Any) -> Any:
    """Round numbers to bfloat16, to nearest with halves to even, and return them as
    f32.

    In the bits of a float32: half of the last place kept is added, and what is below
    that place cut off. A carry goes into the exponent, and at its end makes infinity.
    """
    x = xp.asarray(x, dtype=xp.float32)
    bits = x.view(xp.int32)
    rounded = bits + (((bits >> 16) & 1) + 0x7FFF)
    return xp.where(x != x, x, ((rounded >> 16) << 16).view(xp.float32))


def _cast_expression(types: Types, out: TensorType, attrs: Attrs) -> str:
    """Return the WGSL expression of a cast."""
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
    as_integer = "to_i32(x)" if source.is_float else "I(x)"
    if to is DType.I32:
        return as_integer
    if source.is_float:
        return f"clamp({as_integer}, I({int(to.min_value)}), I({int(to.max_value)}))"
    if to.is_unsigned:
        return f"{as_integer} & I({int(to.max_value)})"
    return f"({as_integer} << U({32 - 8 * to.nbytes}u)) >> U({32 - 8 * to.nbytes}u)"


def _case(shape: Shape, source: DType, to: DType, high: float = 100) -> Sample:
    low = -high
    return Sample((Drawn(shape, source, low, high),), {"to": to})


_SATURATING_CASES = (
    (DType.F32, DType.I32, 1e10),
    (DType.F32, DType.U32, 1e10),
    (DType.I32, DType.F32, 2e9),
    (DType.I32, DType.U32, 2e9),
    (DType.U32, DType.I32, 4e9),
    (DType.U32, DType.F32, 4e9),
)
_GPU_TYPES = (DType.F32, DType.I32, DType.U32, DType.BOOL)
_NARROW_TYPES = (DType.I8, DType.U8, DType.I16, DType.U16, DType.BF16)

registry.register_all(
    Op(
        name="cast",
        infer=lambda types, attrs: TensorType(types[0].shape, attrs["to"]),
        reference=cast_values,
        lower=Expr(_cast_expression, ("saturate", "bfloat")),
        range_rule=value_range_rules.CAST_RANGE,
        attrs=(Attr("to", "dtype"),),
        is_noop=lambda types, out, attrs: types[0] == out,
        traits=frozenset({"elementwise"}),
        tolerance=ROUNDING_TOLERANCE,
        samples=(
            *(_case((3, 7), a, b) for a in _GPU_TYPES for b in _GPU_TYPES),
            *(_case((3, 7), a, b) for a in _GPU_TYPES for b in WIDE_DTYPES),
            *(_case((3, 7), a, b) for b in _GPU_TYPES for a in WIDE_DTYPES),
            *(_case((16,), DType.F16, b) for b in _GPU_TYPES),
            *(_case((16,), a, DType.F16) for a in (DType.I32, DType.U32, DType.BOOL)),
            *(_case((9, 9), a, b, top) for a, b, top in _SATURATING_CASES),
            *(_case((5, 7), a, b, 400) for a in _NARROW_TYPES for b in _GPU_TYPES),
            *(_case((5, 7), b, a, 7e4) for a in _NARROW_TYPES for b in _GPU_TYPES),
            *(_case((3, 5), a, b, 9e4) for a in _NARROW_TYPES for b in _NARROW_TYPES),
            _case((70_001,), DType.I32, DType.I8, 1e6),
            _case((), DType.F32, DType.I32),
            _case((0, 5), DType.F32, DType.BOOL),
            _case((65_537, 2), DType.I32, DType.F32),
        ),
        vjp=lambda ctx: [ctx.g.cast(ctx.grad, ctx.x.dtype)],
        doc="The values converted to another dtype. From float to integer, values are "
        "truncated toward zero and saturate, and NaN becomes 0; from integer to "
        "integer, values wrap; to bool, every value except 0 becomes true.",
    ),
)
