"""Unary math ops: rounding, powers, logarithms, hyperbolic and inverse trigonometric
functions.

They stand beside those of `activation.py`, in the same way: xp's function is
the meaning, and where WGSL's own promises too little, overflows or loses digits near 0
the expression calls ours from `shaders/include/`.
"""

from __future__ import annotations

import math
from math import inf
from typing import Any

from rlxweb.ir import value_range_rules
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import (
    Attr,
    Attrs,
    Op,
    SmokeRange,
    TensorType,
    Tolerance,
    Types,
    registry,
)
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ops.array_dtype_checks import is_float
from rlxweb.ops.elementwise.activation import erfc
from rlxweb.ops.elementwise.op import FLOAT_DTYPES, NUMERIC_DTYPES, require_dtypes
from rlxweb.ops.elementwise.unary_factories import (
    ExpressionText,
    exact_function_op,
    fewer_unary_samples,
    smooth_function_op,
)

# Relative to what may be near 0 (the atol is the smallest float32 of full precision).
RELATIVE_TOLERANCE = Tolerance(rtol=2e-6, atol=2e-38)
_LARGE_RANGE = (-1e30, 1e30)

# erf(x) = x times the sum of these times x^2k: to 1e-16 for |x| <= 1.
_ERF_COEFFICIENTS = [
    2 / math.sqrt(math.pi) * (-1) ** k / (math.factorial(k) * (2 * k + 1))
    for k in range(19)
]


def erf(xp: Any, x: Any) -> Any:
    """Error function, accurate relative to its own size near 0 too."""
    one = xp.ones_like(x)
    near = xp.minimum(xp.maximum(x, -one), one)
    square, series = near * near, _ERF_COEFFICIENTS[-1] * one
    for term in reversed(_ERF_COEFFICIENTS[:-1]):
        series = series * square + term
    far = xp.where(x < 0, erfc(xp, -x) - 1.0, 1.0 - erfc(xp, x))
    return xp.where(xp.abs(x) < 0.7, near * series, far)


def exp2(xp: Any, x: Any) -> Any:
    """Return 2 to the power x; not every library has its own."""
    return xp.exp2(x) if hasattr(xp, "exp2") else xp.pow(2.0 * xp.ones_like(x), x)


def _sign_reference(xp: Any, x: Any) -> Any:
    """Return the sign; NaN stays NaN, which not every library's sign ensures."""
    sign = xp.sign(x)
    return xp.where(xp.isnan(x), x, sign) if is_float(xp, x) else sign


def _sign_expression(types: Types, out: TensorType, attrs: Attrs) -> str:
    """Return the WGSL expression of sign."""
    if out.dtype.is_unsigned:
        return "min(x, X(1))"
    sign = "select(select(X(0), X(1), x > X(0)), X(-1), x < X(0))"
    return f"keeps_nan(x, {sign})" if out.dtype.is_float else sign


def _predicate_op(
    name: str, text: str | ExpressionText, doc: str, **overrides: Any
) -> Op:
    """Declare a predicate of a float, decided by its bits."""

    def infer(types: Types, attrs: Attrs) -> TensorType:
        require_dtypes(types, FLOAT_DTYPES)
        return TensorType(types[0].shape, DType.BOOL)

    record: dict[str, Any] = {
        "reference": lambda xp, attrs, x: getattr(xp, name)(x),
        "samples": fewer_unary_samples(-2, 2),
    }
    return Op(
        name=name,
        infer=infer,
        lower=Expr(text, ("nan",)),
        traits=frozenset({"elementwise", "floats_only"}),
        doc=doc,
        **(record | overrides),
    )


_MAGNITUDE_BITS = "(bitcast<U>(x) & U(0x7fffffffu))"
_ISINF_EXPRESSIONS = {
    (True, True): f"{_MAGNITUDE_BITS} == U(0x7f800000u)",
    (False, True): "bitcast<U>(x) == U(0x7f800000u)",
    (True, False): "bitcast<U>(x) == U(0xff800000u)",
    (False, False): "bitcast<U>(x) != bitcast<U>(x)",
}
"""WGSL expressions by (includes -infinity, includes +infinity)."""


def _isinf_expression(types: Types, out: TensorType, attrs: Attrs) -> str:
    """Return the WGSL expression of isinf for the attributes."""
    return _ISINF_EXPRESSIONS[attrs["negative"], attrs["positive"]]


def _isinf_reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    is_infinite = xp.isinf(x)
    if not attrs["positive"]:
        is_infinite = is_infinite & (x < 0)
    return is_infinite if attrs["negative"] else is_infinite & (x > 0)


_ROUNDING_DOC = "The nearest integer {}."

registry.register_all(
    smooth_function_op(
        "erf",
        "erf(x)",
        "The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.",
        fewer_unary_samples(-4, 4, (-0.01, 0.01), (-30, 30)),
        erf,
        uses=("erf",),
        flops_per_element=60.0,
        slope=lambda g, x, y: g.exp(-x * x) * (2.0 / math.sqrt(math.pi)),
        onnx=("Erf",),
        smoke=SmokeRange(-inf, inf, lambda a, b: (-1, 1, 1.13)),
    ),
    *(
        exact_function_op(
            name,
            f"keeps_nan(x, {name}(x))",
            lambda xp, x, name=name: getattr(xp, name)(x),
            _ROUNDING_DOC.format(which),
            FLOAT_DTYPES,
            fewer_unary_samples(-3, 3, (-1e6, 1e6)),
            value_range_rules.ROUNDING_RANGE,
            onnx=onnx,
        )
        for name, which, onnx in (
            ("floor", "not above x", ("Floor",)),
            ("ceil", "not below x", ("Ceil",)),
            ("trunc", "not farther from 0 than x", ()),
        )
    ),
    exact_function_op(
        "sign",
        _sign_expression,
        _sign_reference,
        "-1, 0 or 1 for x below, equal to or above 0; NaN for NaN.",
        NUMERIC_DTYPES,
        fewer_unary_samples(-3, 3),
        value_range_rules.SIGN_RANGE,
        onnx=("Sign",),
        numpy=("sign",),
    ),
    smooth_function_op(
        "reciprocal",
        "opaque(F(1) / x)",
        "1 / x; infinity at 0.",
        fewer_unary_samples(0.25, 4, (-1e20, -1e10)),
        lambda xp, x: 1.0 / x,
        Tolerance(rtol=4e-7, atol=1e-37),
        ("opaque",),
        flops_per_element=1.0,
        slope=lambda g, x, y: -y * y,
        onnx=("Reciprocal",),
        smoke=SmokeRange(0.2, inf, lambda a, b: (1 / b, 1 / a, 1 / a**2)),
        numpy=("reciprocal",),
    ),
    smooth_function_op(
        "exp2",
        "precise_exp2(x)",
        "2 to the power x.",
        fewer_unary_samples(-4, 4, (-120, 120)),
        exp2,
        Tolerance(rtol=1.5e-5, atol=1e-36),  # JAX's strays with the size of x
        ("exponential",),
        slope=lambda g, x, y: y * math.log(2.0),
        smoke=SmokeRange(-10, 4, lambda a, b: (2**a, 2**b, 2**b)),
        numpy=("exp2",),
    ),
    smooth_function_op(
        "expm1",
        "precise_expm1(x)",
        "e to the power x, minus 1; accurate near 0.",
        fewer_unary_samples(-4, 4, (-1e-3, 1e-3), (-80, 80)),
        tolerance=RELATIVE_TOLERANCE,
        uses=("exponential",),
        slope=lambda g, x, y: g.exp(x),
        smoke=SmokeRange(
            -10, 3, lambda a, b: (math.expm1(a), math.expm1(b), math.exp(b))
        ),
        numpy=("expm1",),
    ),
    smooth_function_op(
        "log2",
        "precise_log2(x)",
        "The logarithm to base 2: -infinity at 0, NaN for a negative x.",
        fewer_unary_samples(0.25, 4, (0.999, 1.001), (1e-30, 1e-20), (1, 1e30)),
        tolerance=RELATIVE_TOLERANCE,
        uses=("logarithms",),
        slope=lambda g, x, y: (1.0 / math.log(2.0)) / x,
        smoke=SmokeRange(
            0.05, inf, lambda a, b: (math.log2(a), math.log2(b), 1.45 / a)
        ),
        numpy=("log2",),
    ),
    smooth_function_op(
        "log1p",
        "precise_log1p(x)",
        "log(1 + x), accurate near 0; -infinity at -1, NaN below -1.",
        fewer_unary_samples(-0.9, 4, (-1e-3, 1e-3), (1, 1e30)),
        tolerance=RELATIVE_TOLERANCE,
        uses=("logarithms",),
        slope=lambda g, x, y: 1.0 / (1.0 + x),
        smoke=SmokeRange(
            -0.9, inf, lambda a, b: (math.log1p(a), math.log1p(b), 1 / (1 + a))
        ),
        numpy=("log1p",),
    ),
    smooth_function_op(
        "sinh",
        "precise_sinh(x)",
        "The hyperbolic sine.",
        fewer_unary_samples(-4, 4, (-1e-3, 1e-3), (-88, 88)),
        tolerance=RELATIVE_TOLERANCE,
        uses=("hyperbolic",),
        slope=lambda g, x, y: g.cosh(x),
        onnx=("Sinh",),
        smoke=SmokeRange(-3, 3, lambda a, b: (math.sinh(a), math.sinh(b), 10.1)),
        numpy=("sinh",),
    ),
    smooth_function_op(
        "cosh",
        "precise_cosh(x)",
        "The hyperbolic cosine.",
        fewer_unary_samples(-4, 4, (-88, 88)),
        tolerance=RELATIVE_TOLERANCE,
        uses=("hyperbolic",),
        slope=lambda g, x, y: g.sinh(x),
        onnx=("Cosh",),
        smoke=SmokeRange(-3, 3, lambda a, b: (1, math.cosh(3), 10.1)),
        numpy=("cosh",),
    ),
    smooth_function_op(
        "asinh",
        "precise_asinh(x)",
        "The inverse hyperbolic sine.",
        fewer_unary_samples(-4, 4, (-1e-3, 1e-3), _LARGE_RANGE),
        tolerance=RELATIVE_TOLERANCE,
        uses=("hyperbolic",),
        # sqrt(x² + 1), which does not overflow where x² would.
        slope=lambda g, x, y: 1.0 / g.cosh(y),
        onnx=("Asinh",),
        smoke=SmokeRange(-inf, inf, lambda a, b: (math.asinh(a), math.asinh(b), 1)),
        numpy=("arcsinh",),
    ),
    smooth_function_op(
        "acosh",
        "precise_acosh(x)",
        "The inverse hyperbolic cosine; NaN below 1.",
        fewer_unary_samples(1, 9, (1, 1.001), (1, 1e30)),
        uses=("hyperbolic",),
        tolerance=RELATIVE_TOLERANCE,
        slope=lambda g, x, y: 1.0 / g.sinh(y),
        onnx=("Acosh",),
        smoke=SmokeRange(1.1, inf, lambda a, b: (math.acosh(a), math.acosh(b), 2.2)),
        numpy=("arccosh",),
    ),
    smooth_function_op(
        "atanh",
        "precise_atanh(x)",
        "The inverse hyperbolic tangent; infinite at 1 and -1, NaN outside.",
        fewer_unary_samples(-0.99, 0.99, (-1e-3, 1e-3)),
        tolerance=RELATIVE_TOLERANCE,
        uses=("hyperbolic",),
        slope=lambda g, x, y: 1.0 / ((1.0 - x) * (1.0 + x)),
        onnx=("Atanh",),
        smoke=SmokeRange(-0.9, 0.9, lambda a, b: (math.atanh(a), math.atanh(b), 5.3)),
        numpy=("arctanh",),
    ),
    smooth_function_op(
        "asin",
        "precise_asin(x)",
        "The arc sine; NaN outside -1 … 1.",
        fewer_unary_samples(-1, 1, (-1e-3, 1e-3)),
        uses=("arcs",),
        tolerance=RELATIVE_TOLERANCE,
        slope=lambda g, x, y: g.rsqrt((1.0 - x) * (1.0 + x)),
        onnx=("Asin",),
        smoke=SmokeRange(-0.9, 0.9, lambda a, b: (math.asin(a), math.asin(b), 2.3)),
        numpy=("arcsin",),
    ),
    smooth_function_op(
        "acos",
        "precise_acos(x)",
        "The arc cosine; NaN outside -1 … 1.",
        fewer_unary_samples(-1, 1, (0.999, 1)),
        uses=("arcs",),
        slope=lambda g, x, y: -g.rsqrt((1.0 - x) * (1.0 + x)),
        onnx=("Acos",),
        smoke=SmokeRange(-0.9, 0.9, lambda a, b: (math.acos(b), math.acos(a), 2.3)),
        numpy=("arccos",),
    ),
    _predicate_op("isnan", "is_nan(x)", "Whether x is NaN.", onnx=("IsNaN",)),
    _predicate_op(
        "isinf",
        _isinf_expression,
        "Whether x is infinity or -infinity; positive=False excludes infinity, "
        "negative=False excludes -infinity.",
        reference=_isinf_reference,
        attrs=tuple(Attr(name, "bool", True) for name in ("positive", "negative")),
        samples=(
            *fewer_unary_samples(-2, 2),
            *(
                Sample((Drawn((3,), DType.F32),), dict.fromkeys(left_out, False))
                for left_out in (("negative",), ("positive",), ("negative", "positive"))
            ),
        ),
    ),
    _predicate_op(
        "isfinite", "!not_finite(x)", "Whether x is neither infinite nor NaN."
    ),
)
