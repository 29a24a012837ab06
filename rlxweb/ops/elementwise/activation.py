"""Unary ops: activations, exponentials, roots, trigonometry, rounding.

Each row pairs a NumPy-like reference with a WGSL expression; where WGSL's own function
promises too little (tanh, sin, cos, tan, atan) the expression calls ours from
`shaders/include/`. Every reference computes float16 in float32, as the shaders do.
"""

from __future__ import annotations

import math
from dataclasses import replace
from math import inf
from typing import Any

from rlxweb.ir import value_range_rules
from rlxweb.ir.derivative import VjpContext, zero_vjp
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import (
    Attrs,
    Op,
    SmokeRange,
    TensorType,
    Tolerance,
    Types,
    infer_same_type,
    registry,
)
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.array_dtype_checks import is_float64
from rlxweb.ops.elementwise.op import NUMERIC_DTYPES, UNSIGNED_DTYPES
from rlxweb.ops.elementwise.unary_factories import (
    exact_function_op,
    smooth_function_op,
    unary_samples,
)

# Chebyshev coefficients (ours) of (1 + 2z) exp(z^2) erfc(z) in (z - 3) / (z + 3) over
# z >= 0: all of them give 4e-15 relative, the first twelve 5e-9.
_ERFC_COEFFICIENTS = [
    float(term)
    for term in """
    1.17756257419656 0.005353904539615684 -0.09377550342284212 0.05436652555744342
    -0.018976596707845527 0.004453426061462941 -0.0006335531710556808
    1.76617195232609e-05 1.2841532864156236e-05 -2.00722856586566e-06
    -1.8075227923297632e-07 7.549828367814371e-08 1.8856683237089556e-09
    -2.6995190616219136e-09 -1.4601031494976268e-11 1.0361612901021999e-10
    1.4754064636690601e-12 -4.277551646225675e-12 -2.077982230730413e-13
    1.8166579351941436e-13 1.9526602557107253e-14 -7.142064717413632e-15
    -1.9051427102567686e-15 6.344924585732769e-16
    """.split()
]
_ERFC_TERM_COUNT_F32 = 12
_MAX_GATE_INPUT = 200.0
"""Bound of the input beyond which the slope of a gate is 0 or 1; clipping to it avoids
infinity times 0.
"""


def erfc(xp: Any, x: Any) -> Any:
    """Complementary error function, to the precision of x."""
    terms = (
        _ERFC_COEFFICIENTS
        if is_float64(xp, x)
        else _ERFC_COEFFICIENTS[:_ERFC_TERM_COUNT_F32]
    )
    z = xp.minimum(xp.abs(x), 40.0 * xp.ones_like(x))  # erfc(28) is 0 in float64
    t = (z - 3.0) / (z + 3.0)
    b1, b2 = terms[-1] * xp.ones_like(t), xp.zeros_like(t)
    for c in reversed(terms[1:-1]):
        b1, b2 = 2.0 * t * b1 - b2 + c, b1
    erfc_abs = (t * b1 - b2 + terms[0]) / (1.0 + 2.0 * z) * xp.exp(-z * z)
    return xp.where(x < 0, 2.0 - erfc_abs, erfc_abs)


def clip_far_below(xp: Any, x: Any) -> Any:
    """Clip x from below, where the activation is 0 anyway, to avoid 0 times
    -infinity.
    """
    return xp.maximum(x, -1000.0 * xp.ones_like(x))


def gelu(xp: Any, x: Any) -> Any:
    """GELU in its erf form: x times the normal distribution function."""
    x = clip_far_below(xp, x)
    return 0.5 * x * erfc(xp, x * -math.sqrt(0.5))


def gelu_approx(xp: Any, x: Any) -> Any:
    """GELU in its tanh form."""
    x = clip_far_below(xp, x)
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + xp.tanh(inner))


def sigmoid(xp: Any, x: Any) -> Any:
    """Logistic function 1 / (1 + exp(-x)), computed without the exponential of a
    positive number.
    """
    e = xp.exp(-xp.abs(x))
    return xp.where(x < 0, e, xp.ones_like(e)) / (1.0 + e)


def _relu_expression(types: Types, out: TensorType, attrs: Attrs) -> str:
    """Return the WGSL expression of relu for the type of the result."""
    return "larger(x, F(0))" if out.dtype.is_float else "max(x, X(0))"


def _gelu_slope(g: Any, x: Any, y: Any) -> Any:
    """Derivative of GELU: the normal distribution function plus x times its density."""
    x = g.clip(x, -_MAX_GATE_INPUT, _MAX_GATE_INPUT)
    cdf = 0.5 * (1.0 + g.erf(x * math.sqrt(0.5)))
    return cdf + x * g.exp(-0.5 * x * x) * (1.0 / math.sqrt(2.0 * math.pi))


def _gelu_approx_slope(g: Any, x: Any, y: Any) -> Any:
    """Derivative of GELU in its tanh form."""
    x, root = g.clip(x, -_MAX_GATE_INPUT, _MAX_GATE_INPUT), math.sqrt(2.0 / math.pi)
    t = g.tanh(root * (x + 0.044715 * x * x * x))
    inner = root * (1.0 + 3.0 * 0.044715 * x * x)
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner


def _silu_slope(g: Any, x: Any, y: Any) -> Any:
    """Derivative of SiLU."""
    x = g.clip(x, -_MAX_GATE_INPUT, _MAX_GATE_INPUT)
    s = g.sigmoid(x)
    return s * (1.0 + x * (1.0 - s))


def _rsqrt_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """Return grad · -y³ / 2 as two factors: y³ underflows where the result does not."""
    y = ctx.out
    return [(ctx.grad * y) * (y * y * -0.5)]


_GELU_TOLERANCE = Tolerance(rtol=2e-6, atol=1.5e-6)

registry.register_all(
    smooth_function_op(
        "gelu",
        "F(0.5) * max(x, F(-100)) * erfc(max(x, F(-100)) * F(-0.70710678))",
        "x times the standard normal cumulative distribution function of x (the "
        "exact form, computed with erf).",
        unary_samples(-4, 4, (-30, 30)),
        gelu,
        _GELU_TOLERANCE,
        ("erf",),
        flops_per_element=60.0,
        slope=_gelu_slope,
        smoke=SmokeRange(-inf, inf, lambda a, b: (-0.2, max(b, 0), 1.13)),
    ),
    smooth_function_op(
        "gelu_approx",
        "F(0.5) * max(x, F(-100)) * (F(1) + stable_tanh("
        "F(0.79788456) * clamp(x, F(-20), F(20)) * (F(1) + F(0.044715) "
        "* clamp(x, F(-20), F(20)) * clamp(x, F(-20), F(20)))))",
        "The tanh approximation of gelu: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 "
        "x^3))).",
        unary_samples(-4, 4, (-30, 30)),
        gelu_approx,
        _GELU_TOLERANCE,
        ("tanh",),
        flops_per_element=9.0,
        slope=_gelu_approx_slope,
        smoke=SmokeRange(-inf, inf, lambda a, b: (-0.2, max(b, 0), 1.13)),
    ),
    smooth_function_op(
        "silu",
        "max(x, F(-200)) * sigmoid(x)",
        "x times sigmoid(x).",
        unary_samples(-4, 4, (-60, 60)),
        lambda xp, x: clip_far_below(xp, x) * sigmoid(xp, x),
        uses=("sigmoid",),
        flops_per_element=11.0,
        slope=_silu_slope,
        smoke=SmokeRange(-inf, inf, lambda a, b: (-0.3, max(b, 0), 1.1)),
    ),
    exact_function_op(
        "relu",
        _relu_expression,
        lambda xp, x: xp.maximum(x, xp.zeros_like(x)),
        "The larger of x and 0.",
        NUMERIC_DTYPES,
        bounds=value_range_rules.RELU_RANGE,
        slope=lambda g, x, y: g.cast(x > 0.0, x.dtype),
        onnx=("Relu",),
        smoke=SmokeRange(-inf, inf, lambda a, b: (max(a, 0), max(b, 0), 1)),
    ),
    smooth_function_op(
        "sigmoid",
        "sigmoid(x)",
        "1 / (1 + exp(-x)).",
        unary_samples(-4, 4, (-200, 200)),
        sigmoid,
        uses=("sigmoid",),
        flops_per_element=10.0,
        slope=lambda g, x, y: y * (1.0 - y),
        onnx=("Sigmoid",),
        smoke=SmokeRange(-40, 40, lambda a, b: (0, 1, 0.25)),
    ),
    smooth_function_op(
        "tanh",
        "stable_tanh(x)",
        "The hyperbolic tangent.",
        unary_samples(-4, 4, (-1e4, 1e4), (-0.01, 0.01)),
        uses=("tanh",),
        slope=lambda g, x, y: 1.0 - y * y,
        onnx=("Tanh",),
        smoke=SmokeRange(-inf, inf, lambda a, b: (math.tanh(a), math.tanh(b), 1)),
        numpy=("tanh",),
    ),
    smooth_function_op(
        "exp",
        "exp(x)",
        "e to the power x. WGSL guarantees an error of at most 3 + 2 |x| ULP.",
        unary_samples(-4, 4, (-20, 20), (-80, 80)),
        tolerance=Tolerance(rtol=1.5e-5, atol=1e-36),
        slope=lambda g, x, y: y,
        onnx=("Exp",),
        smoke=SmokeRange(-10, 3, lambda a, b: (math.exp(a), math.exp(b), math.exp(b))),
        numpy=("exp",),
    ),
    smooth_function_op(
        "log",
        "precise_log(x)",
        "The natural logarithm: -infinity at 0, NaN for a negative x.",
        unary_samples(0.25, 4, (0.999, 1.001), (1e-30, 1e-20), (1, 1e30)),
        tolerance=Tolerance(rtol=2e-6, atol=2e-38),
        uses=("logarithms",),
        slope=lambda g, x, y: 1.0 / x,
        onnx=("Log",),
        smoke=SmokeRange(0.05, inf, lambda a, b: (math.log(a), math.log(b), 1 / a)),
        numpy=("log",),
    ),
    smooth_function_op(
        "sqrt",
        "sqrt(x)",
        "The square root; NaN for a negative x.",
        unary_samples(0, 4, (0, 1e30)),
        tolerance=Tolerance(rtol=6e-7, atol=1e-18),
        flops_per_element=1.0,
        slope=lambda g, x, y: 0.5 / y,
        onnx=("Sqrt",),
        smoke=SmokeRange(0.02, inf, lambda a, b: (a**0.5, b**0.5, 0.5 * a**-0.5)),
        numpy=("sqrt",),
    ),
    replace(
        smooth_function_op(
            "rsqrt",
            "inverseSqrt(x)",
            "1 / sqrt(x); infinity at 0, NaN for a negative x.",
            unary_samples(0.0625, 4, (1e-20, 1e-10), (1, 1e30)),
            lambda xp, x: 1.0 / xp.sqrt(x),
            Tolerance(rtol=5e-7),
            smoke=SmokeRange(0.05, inf, lambda a, b: (b**-0.5, a**-0.5, 0.5 * a**-1.5)),
        ),
        vjp=_rsqrt_vjp,
    ),
    *(
        smooth_function_op(
            name,
            f"reduced_{name}(x)",
            f"The {word}; NaN at infinity.",
            unary_samples(-4, 4, (-100, 100), (-1e4, 1e4), (-1e6, 1e6), (-3e38, 3e38)),
            uses=("trigonometry",),
            slope=slope,
            onnx=(name.title(),),
            numpy=(name,),
            smoke=SmokeRange(-30, 30, lambda a, b: (-1, 1, 1)),
        )
        for name, word, slope in (
            ("sin", "sine", lambda g, x, y: g.cos(x)),
            ("cos", "cosine", lambda g, x, y: -g.sin(x)),
        )
    ),
    smooth_function_op(
        "tan",
        "reduced_tan(x)",
        "The tangent, accurate away from its poles; NaN at infinity.",
        unary_samples(-1.25, 1.25, (1.75, 4.5)),
        uses=("trigonometry",),
        slope=lambda g, x, y: 1.0 + y * y,
        onnx=("Tan",),
        smoke=SmokeRange(-1.2, 1.2, lambda a, b: (math.tan(a), math.tan(b), 7.7)),
        numpy=("tan",),
    ),
    smooth_function_op(
        "atan",
        "precise_atan(x)",
        "The arc tangent.",
        unary_samples(-4, 4, (-1e6, 1e6), (-0.01, 0.01)),
        lambda xp, x: xp.atan(x),
        uses=("atan",),
        slope=lambda g, x, y: 1.0 / (1.0 + x * x),
        onnx=("Atan",),
        smoke=SmokeRange(-inf, inf, lambda a, b: (math.atan(a), math.atan(b), 1)),
        numpy=("arctan",),
    ),
    exact_function_op(
        "neg",
        "-x",
        lambda xp, x: -x,
        "-x.",
        NUMERIC_DTYPES - UNSIGNED_DTYPES,
        bounds=value_range_rules.NEG_RANGE,
        slope=lambda g, x, y: -1.0,
        onnx=("Neg",),
        smoke=SmokeRange(-inf, inf, lambda a, b: (-b, -a, 1)),
        numpy=("negative",),
    ),
    exact_function_op(
        "abs",
        "abs(x)",
        lambda xp, x: xp.abs(x),
        "The absolute value of x.",
        NUMERIC_DTYPES,
        bounds=value_range_rules.ABS_RANGE,
        slope=lambda g, x, y: g.sign(x),
        onnx=("Abs",),
        smoke=SmokeRange(-inf, inf, lambda a, b: (0, max(abs(a), abs(b)), 1)),
    ),
    Op(
        name="round",
        infer=infer_same_type,
        reference=lambda xp, attrs, x: xp.round(x),
        lower=Expr("round(x)"),
        range_rule=value_range_rules.ROUNDING_RANGE,
        traits=frozenset({"elementwise", "floats_only"}),
        samples=(
            *unary_samples(-3, 3, (-1e6, 1e6)),
            # Halves: the ties are what a round is judged by.
            Sample((Drawn((), DType.F32, 0.5, 0.5),)),
            *(Sample((Drawn((3,), DType.F32, x, x),)) for x in (-0.5, 2.5, -3.5)),
        ),
        onnx=("Round",),
        vjp=zero_vjp,
        doc="x rounded to the nearest integer; halves round to even.",
        numpy=("rint",),
    ),
)
