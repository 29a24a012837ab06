"""Unary functions: activations, exponentials, roots, trigonometry, rounding.

Each row pairs a NumPy-like reference with a WGSL expression; where WGSL's own function
promises too little (tanh, sin, cos, tan, atan) the expression calls ours from
`shaders/include/`. Every reference computes float16 in float32, as the shaders do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import Attrs, Op, TensorType, Tolerance, Types, one_type, registry
from rlxweb.ir.sample import Drawn, Sample, spelled
from rlxweb.ops.elementwise import INTEGERS, NUMBERS, is_double, need

Unary = Callable[[Any, Any], Any]
ExprText = Callable[[Types, TensorType, Attrs], str]

SMOOTH = Tolerance(rtol=2e-6, atol=6e-7)

# Chebyshev coefficients (ours) of (1 + 2z) exp(z^2) erfc(z) in (z - 3) / (z + 3) over
# z >= 0: all of them give 4e-15 relative, the first twelve 5e-9.
_ERFC = [
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
_ERFC_SINGLE = 12

# ONNX has these under the same name, capitalised.
_IN_ONNX = frozenset("relu sigmoid tanh exp log sqrt sin cos tan atan neg abs".split())


def _onnx(name: str) -> tuple[str, ...]:
    return (name.title(),) if name in _IN_ONNX else ()


def erfc(xp: Any, x: Any) -> Any:
    """The complementary error function, to the precision of x."""
    terms = _ERFC if is_double(xp, x) else _ERFC[:_ERFC_SINGLE]
    z = xp.minimum(xp.abs(x), 40.0 * xp.ones_like(x))  # erfc(28) is 0 in float64
    at = (z - 3.0) / (z + 3.0)
    last, sum_ = terms[-1] * xp.ones_like(at), xp.zeros_like(at)
    for c in reversed(terms[1:-1]):
        last, sum_ = 2.0 * at * last - sum_ + c, last
    tail = (at * last - sum_ + terms[0]) / (1.0 + 2.0 * z) * xp.exp(-z * z)
    return xp.where(x < 0, 2.0 - tail, tail)


def _bounded(xp: Any, x: Any) -> Any:
    """Not below where the function of it is 0 anyway: no -infinity times 0."""
    return xp.maximum(x, -1000.0 * xp.ones_like(x))


def gelu(xp: Any, x: Any) -> Any:
    """The erf form: x times the normal distribution function."""
    x = _bounded(xp, x)
    return 0.5 * x * erfc(xp, x * -math.sqrt(0.5))


def gelu_approx(xp: Any, x: Any) -> Any:
    """The tanh form of gelu."""
    x = _bounded(xp, x)
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + xp.tanh(inner))


def sigmoid(xp: Any, x: Any) -> Any:
    """1 / (1 + exp(-x)) with no exponential of a positive number."""
    e = xp.exp(-xp.abs(x))
    return xp.where(x < 0, e, xp.ones_like(e)) / (1.0 + e)


def _in_single(function: Unary) -> Callable[..., Any]:
    """A reference that computes float16 in float32 and rounds once."""

    def reference(xp: Any, attrs: Attrs, x: Any) -> Any:
        if x.dtype == xp.float16:
            wide = xp.asarray(x, dtype=xp.float32)
            return xp.asarray(function(xp, wide), dtype=xp.float16)
        return function(xp, x)

    return reference


_SHAPES = [shape for (shape,) in spelled("() 1 13 8x16 0x4 2x3x7 65537x2")]


def _drawn(low: float, high: float, *wide: tuple[float, float]) -> tuple[Sample, ...]:
    """Every shape over [low, high], each wider range once, float64 and float16."""
    return (
        *(Sample((Drawn(s, DType.F32, low, high),)) for s in _SHAPES),
        *(Sample((Drawn((257,), DType.F32, a, b),), note="wide") for a, b in wide),
        Sample((Drawn((11,), DType.F64, low, high),)),
        Sample((Drawn((12,), DType.F16, low, high),)),
    )


def _smooth(
    name: str,
    text: str,
    doc: str,
    samples: tuple[Sample, ...],
    function: Unary | None = None,
    tolerance: Tolerance = SMOOTH,
    uses: tuple[str, ...] = (),
    each: float = 2.0,
) -> Op:
    """A function of floats only.

    function   xp's own of that name when left out
    each       arithmetic of one element, roughly: what NumPy spends on it in units of
               an addition
    """
    return Op(
        name=name,
        infer=one_type,
        reference=_in_single(function or (lambda xp, x: getattr(xp, name)(x))),
        flops=lambda inputs, out, attrs: each * float(out.numel),
        lower=Expr(f"keeps_nan(x, {text})", ("nan", *uses)),
        traits=frozenset({"elementwise", "floats_only"}),
        tolerance=tolerance,
        samples=samples,
        onnx=_onnx(name),
        doc=doc,
    )


def _positive(types: Types, out: TensorType, attrs: Attrs) -> str:
    return "larger(x, F(0))" if out.dtype.is_float else "max(x, X(0))"


def _exact(
    name: str,
    text: str | ExprText,
    function: Unary,
    doc: str,
    allowed: frozenset[DType],
) -> Op:
    """A function of numbers that rounds nothing."""
    whole = allowed & INTEGERS

    def infer(types: Types, attrs: Attrs) -> TensorType:
        need(types, allowed)
        return types[0]

    return Op(
        name=name,
        infer=infer,
        reference=lambda xp, attrs, x: function(xp, x),
        lower=Expr(text, ("nan",)),
        traits=frozenset({"elementwise"}),
        samples=(
            *_drawn(-3, 3, (-1e9, 1e9)),
            *(Sample((Drawn((9, 5), d, -1000, 1000),)) for d in DType if d in whole),
        ),
        onnx=_onnx(name),
        doc=doc,
    )


_GELU = Tolerance(rtol=2e-6, atol=1.5e-6)

registry.register_all(
    _smooth(
        "gelu",
        "F(0.5) * max(x, F(-100)) * erfc(max(x, F(-100)) * F(-0.70710678))",
        "x times the normal distribution function (the erf form).",
        _drawn(-4, 4, (-30, 30)),
        gelu,
        _GELU,
        ("erf",),
        each=60.0,
    ),
    _smooth(
        "gelu_approx",
        "F(0.5) * max(x, F(-100)) * (F(1) + stable_tanh("
        "F(0.79788456) * clamp(x, F(-20), F(20)) * (F(1) + F(0.044715) "
        "* clamp(x, F(-20), F(20)) * clamp(x, F(-20), F(20)))))",
        "gelu by 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).",
        _drawn(-4, 4, (-30, 30)),
        gelu_approx,
        _GELU,
        ("tanh",),
        each=9.0,
    ),
    _smooth(
        "silu",
        "max(x, F(-200)) * sigmoid(x)",
        "x times sigmoid(x).",
        _drawn(-4, 4, (-60, 60)),
        lambda xp, x: _bounded(xp, x) * sigmoid(xp, x),
        uses=("sigmoid",),
        each=11.0,
    ),
    _exact(
        "relu",
        _positive,
        lambda xp, x: xp.maximum(x, xp.zeros_like(x)),
        "The larger of x and 0.",
        NUMBERS,
    ),
    _smooth(
        "sigmoid",
        "sigmoid(x)",
        "1 / (1 + exp(-x)).",
        _drawn(-4, 4, (-200, 200)),
        sigmoid,
        uses=("sigmoid",),
        each=10.0,
    ),
    _smooth(
        "tanh",
        "stable_tanh(x)",
        "The hyperbolic tangent.",
        _drawn(-4, 4, (-1e4, 1e4), (-0.01, 0.01)),
        uses=("tanh",),
    ),
    _smooth(
        "exp",
        "exp(x)",
        "e to the power x. WGSL promises 3 + 2 |x| ULP.",
        _drawn(-4, 4, (-20, 20), (-80, 80)),
        tolerance=Tolerance(rtol=1.5e-5, atol=1e-36),
    ),
    _smooth(
        "log",
        "whole_log(x)",
        "The natural logarithm. WGSL promises 2^-21 near 1. Of 0 it is -infinity, of a "
        "negative x NaN.",
        _drawn(0.25, 4, (1e-30, 1e-20), (1, 1e30)),
        tolerance=Tolerance(rtol=1e-6, atol=6e-7),
        uses=("log",),
    ),
    _smooth(
        "sqrt",
        "sqrt(x)",
        "The square root; NaN of a negative x.",
        _drawn(0, 4, (0, 1e30)),
        tolerance=Tolerance(rtol=6e-7, atol=1e-18),
        each=1.0,
    ),
    _smooth(
        "rsqrt",
        "inverseSqrt(x)",
        "1 / sqrt(x); infinity of 0, NaN of a negative x.",
        _drawn(0.0625, 4, (1e-20, 1e-10), (1, 1e30)),
        lambda xp, x: 1.0 / xp.sqrt(x),
        Tolerance(rtol=5e-7),
    ),
    *(
        _smooth(
            name,
            f"reduced_{name}(x)",
            f"The {word}; NaN of infinity.",
            _drawn(-4, 4, (-100, 100), (-1e4, 1e4), (-1e6, 1e6), (-3e38, 3e38)),
            uses=("trigonometry",),
        )
        for name, word in (("sin", "sine"), ("cos", "cosine"))
    ),
    _smooth(
        "tan",
        "reduced_tan(x)",
        "The tangent, to full accuracy away from its poles; NaN of infinity.",
        _drawn(-1.25, 1.25, (1.75, 4.5)),
        uses=("trigonometry",),
    ),
    _smooth(
        "atan",
        "precise_atan(x)",
        "The arc tangent.",
        _drawn(-4, 4, (-1e6, 1e6), (-0.01, 0.01)),
        lambda xp, x: xp.atan(x),
        uses=("atan",),
    ),
    _exact("neg", "-x", lambda xp, x: -x, "-x.", NUMBERS - {DType.U32}),
    _exact("abs", "abs(x)", lambda xp, x: xp.abs(x), "The magnitude of x.", NUMBERS),
    Op(
        name="round",
        infer=one_type,
        reference=lambda xp, attrs, x: xp.round(x),
        lower=Expr("round(x)"),
        traits=frozenset({"elementwise", "floats_only"}),
        samples=(
            *_drawn(-3, 3, (-1e6, 1e6)),
            # Halves: the ties are what a round is judged by.
            Sample((Drawn((), DType.F32, 0.5, 0.5),)),
            *(Sample((Drawn((3,), DType.F32, x, x),)) for x in (-0.5, 2.5, -3.5)),
        ),
        onnx=("Round",),
        doc="The nearest whole number; halves go to the even one.",
    ),
)
