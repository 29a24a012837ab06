"""Elementwise division and remainders of two operands, floored and rounded, and atan2.

As NumPy's: a rest by 0 is NaN of floats and 0 of integers, and so is a floored quotient
of integers; of floats it is what x / 0 is.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rlxweb.ir import value_range_rules
from rlxweb.ir.derivative import slopes, zero_vjp
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ops.array_dtype_checks import is_float
from rlxweb.ops.elementwise.op import (
    FLOAT_DTYPES,
    NUMERIC_DTYPES,
    divide,
    infer_broadcast_of,
)
from rlxweb.ops.elementwise.unary_factories import (
    SMOOTH_TOLERANCE,
    ArrayFunction,
    binary_samples,
    float32_reference,
)


def _needs_floor_correction(remainder: Any, y: Any) -> Any:
    """Return where a truncated quotient is one above the floored quotient."""
    return (remainder != 0) & ((remainder < 0) != (y < 0))


def fmod(xp: Any, x: Any, y: Any) -> Any:
    """Return the remainder of the truncated quotient, with the sign of x."""
    if not is_float(xp, x):
        remainder = x - y * divide(xp, {}, x, y)
        return xp.where(y == 0, xp.zeros_like(x), remainder)
    magnitude = xp.remainder(xp.abs(x), xp.abs(y))
    magnitude = xp.where(xp.isinf(y) & xp.isfinite(x), xp.abs(x), magnitude)
    return xp.where(x < 0, -magnitude, magnitude)


def mod(xp: Any, x: Any, y: Any) -> Any:
    """Return the remainder of the floored quotient, with the sign of y."""
    remainder = fmod(xp, x, y)
    return xp.where(_needs_floor_correction(remainder, y), remainder + y, remainder)


def floor_divide(xp: Any, x: Any, y: Any) -> Any:
    """Return the floor of the quotient."""
    remainder = fmod(xp, x, y)
    needs_correction = _needs_floor_correction(remainder, y)
    if not is_float(xp, x):
        return divide(xp, {}, x, y) - xp.asarray(
            needs_correction & (y != 0), dtype=x.dtype
        )
    quotient = xp.round((x - remainder) / y) - xp.asarray(
        needs_correction, dtype=x.dtype
    )
    return xp.where(y == 0, x / y, quotient)


def round_divide(xp: Any, x: Any, y: Any) -> Any:
    """Return the integer nearest to the quotient."""
    return xp.round(x / y)


def _division_expression(name: str) -> Expr:
    """Return the WGSL expression of a division function. Integer division by 0 is
    handled explicitly; for floats WGSL leaves it undefined.
    """
    float_function = {"fmod": "exact_fmod", "mod": "floored_mod"}.get(
        name, "floored_div"
    )
    is_zero_divisor = "y == X(0)"
    safe_divisor = f"select(y, X(1), {is_zero_divisor})"
    remainder = f"(x - x / {safe_divisor} * {safe_divisor})"
    needs_correction = f"({remainder} != X(0)) & (({remainder} < X(0)) != (y < X(0)))"
    integer_text = {
        "fmod": remainder,
        "mod": f"select({remainder}, {remainder} + y, {needs_correction})",
        "floor_divide": f"(x / {safe_divisor} - select(X(0), X(1), "
        f"{needs_correction}))",
    }[name]

    def emit_wgsl(types: Types, out: TensorType, attrs: Attrs) -> str:
        if out.dtype.is_float:
            return f"{float_function}(x, y)"
        return f"select({integer_text}, X(0), {is_zero_divisor})"

    return Expr(emit_wgsl, ("opaque", "quotient", "fmod"))


def _pair_sample(
    dtype: DType, low: float, high: float, *y_range: float, note: str = ""
) -> Sample:
    y_low, y_high = y_range or (low, high)
    return Sample(
        (Drawn((11, 5), dtype, low, high), Drawn((5,), dtype, y_low, y_high)), note=note
    )


_INTEGER_SAMPLES = (
    _pair_sample(DType.I32, -100, 100, -4, 4, note="zeros below"),
    _pair_sample(DType.U32, 0, (1 << 32) - 1, 0, 3, note="zeros below"),
    _pair_sample(DType.I64, -100, 100, -4, 4),
    _pair_sample(DType.U64, 0, 1 << 40, 0, 4),
)
_LARGE_QUOTIENT_SAMPLE = _pair_sample(
    DType.F32, -1e9, 1e9, 0.01, 7, note="a long division"
)


def _division_op(function: ArrayFunction, doc: str, **op_fields: Any) -> Op:
    """Return the record of a division function of two numbers, registered under the
    function's name.
    """
    name = function.__name__
    return Op(
        name=name,
        arity=2,
        infer=partial(infer_broadcast_of, NUMERIC_DTYPES),
        reference=float32_reference(function),
        lower=_division_expression(name),
        traits=frozenset({"elementwise"}),
        tolerance=Tolerance(rtol=4e-7, atol=1e-37),
        samples=(
            *binary_samples(-9, 9, 1, 3),
            _LARGE_QUOTIENT_SAMPLE,
            *_INTEGER_SAMPLES,
        ),
        doc=doc,
        **op_fields,
    )


def _unit_slope(g: Any, x: Any, y: Any, out: Any) -> float:
    """Return the constant derivative 1."""
    return 1.0


def _atan2_slopes(g: Any, y: Any, x: Any) -> tuple[Any, Any]:
    """Return x and y over x² + y², scaled so that the squares do not overflow.

    At the origin, where there is no angle, both and all their derivatives are 0.
    """
    magnitude = g.stop_gradient(g.maximum(g.abs(x), g.abs(y)))
    is_origin = magnitude.eq(0.0)
    magnitude = g.where(is_origin, 1.0, magnitude)
    scaled_x, scaled_y = (
        g.where(is_origin, 0.0, coordinate / magnitude) for coordinate in (x, y)
    )
    squared_radius = scaled_x * scaled_x + scaled_y * scaled_y
    denominator = magnitude * g.where(is_origin, 1.0, squared_radius)
    return scaled_x / denominator, scaled_y / denominator


registry.register_all(
    _division_op(
        mod,
        "The remainder of x // y, with the sign of y, like Python's %; a divisor of 0 "
        "gives 0 for integers and NaN for floats.",
        range_rule=value_range_rules.REMAINDER_RANGE,
        vjp=slopes(_unit_slope, lambda g, x, y, out: -g.floor_divide(x, y)),
        aliases=("remainder",),
        numpy=("remainder",),
    ),
    _division_op(
        fmod,
        "The remainder of the division truncated toward 0, with the sign of x, like "
        "C's fmod; a divisor of 0 gives 0 for integers and NaN for floats.",
        range_rule=value_range_rules.C_REMAINDER_RANGE,
        # The quotient that was taken, be x / y rounded to another whole number.
        vjp=slopes(_unit_slope, lambda g, x, y, out: -g.round_divide(x - out, y)),
        numpy=("fmod",),
    ),
    _division_op(
        floor_divide,
        "The largest integer not above x / y. A divisor of 0 gives 0 for integers and "
        "x / 0 for floats.",
        range_rule=value_range_rules.QUOTIENT_RANGE,
        vjp=zero_vjp,
        numpy=("floor_divide",),
    ),
    Op(
        name="round_divide",
        arity=2,
        infer=partial(infer_broadcast_of, FLOAT_DTYPES),
        reference=float32_reference(round_divide),
        flops=lambda inputs, out, attrs: 2.0 * out.numel,
        lower=Expr("rounded_quotient(x, y)", ("rounded_quotient",)),
        range_rule=value_range_rules.QUOTIENT_RANGE,
        traits=frozenset({"elementwise", "floats_only"}),
        tolerance=Tolerance(rtol=4e-7),
        samples=(*binary_samples(-90, 90, 0.1, 3), _LARGE_QUOTIENT_SAMPLE),
        vjp=zero_vjp,
        doc="x / y, rounded to the dtype of x and y and then to the nearest integer "
        "(halves to even); bit-identical to NumPy's round(x / y) on every device.",
    ),
    Op(
        name="atan2",
        arity=2,
        infer=partial(infer_broadcast_of, FLOAT_DTYPES),
        reference=float32_reference(lambda xp, y, x: xp.atan2(y, x)),
        flops=lambda inputs, out, attrs: 20.0 * out.numel,
        lower=Expr("keeps_nan(y, keeps_nan(x, precise_atan2(x, y)))", ("nan", "arcs")),
        traits=frozenset({"elementwise", "floats_only"}),
        tolerance=SMOOTH_TOLERANCE,
        samples=(*binary_samples(-9, 9, -3, 3), _LARGE_QUOTIENT_SAMPLE),
        vjp=slopes(
            lambda g, y, x, out: _atan2_slopes(g, y, x)[0],
            lambda g, y, x, out: -_atan2_slopes(g, y, x)[1],
        ),
        doc="The angle of the point (x = second operand, y = first operand), from -pi "
        "to pi.",
        numpy=("arctan2",),
    ),
)
