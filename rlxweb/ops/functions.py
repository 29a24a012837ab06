"""More functions of one number: roundings, powers, logarithms, hyperbolic ones.

They stand beside those of `activation.py`, in the same way: xp's function is the
meaning, and where WGSL's own promises too little, overflows or loses digits near 0 the
expression calls ours from `shaders/include/`.
"""

from __future__ import annotations

import math
from typing import Any

from rlxweb.ir import bounds
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ops.activation import erfc
from rlxweb.ops.elementwise import FLOATS, NUMBERS, need
from rlxweb.ops.kinds import is_float
from rlxweb.ops.unary import ExprText, exact, few, smooth

# Relative to what may be near 0 (the atol is the smallest float32 of full precision).
RELATIVE = Tolerance(rtol=2e-6, atol=2e-38)
_BIG = (-1e30, 1e30)

# erf(x) = x times the sum of these times x^2k: to 1e-16 for |x| <= 1.
_ERF = [
    2 / math.sqrt(math.pi) * (-1) ** k / (math.factorial(k) * (2 * k + 1))
    for k in range(19)
]


def erf(xp: Any, x: Any) -> Any:
    """The error function, relative to its own size near 0 too."""
    one = xp.ones_like(x)
    near = xp.minimum(xp.maximum(x, -one), one)
    square, last = near * near, _ERF[-1] * one
    for term in reversed(_ERF[:-1]):
        last = last * square + term
    far = xp.where(x < 0, erfc(xp, -x) - 1.0, 1.0 - erfc(xp, x))
    return xp.where(xp.abs(x) < 0.7, near * last, far)


def exp2(xp: Any, x: Any) -> Any:
    """2 to the power x; not every library has its own."""
    return xp.exp2(x) if hasattr(xp, "exp2") else xp.pow(2.0 * xp.ones_like(x), x)


def _sign_of(xp: Any, x: Any) -> Any:
    """NaN stays one, which not every library's sign takes care of."""
    found = xp.sign(x)
    return xp.where(xp.isnan(x), x, found) if is_float(xp, x) else found


def _sign(types: Types, out: TensorType, attrs: Attrs) -> str:
    if out.dtype.is_unsigned:
        return "min(x, X(1))"
    told = "select(select(X(0), X(1), x > X(0)), X(-1), x < X(0))"
    return f"keeps_nan(x, {told})" if out.dtype.is_float else told


def _test(name: str, text: str | ExprText, doc: str, **more: Any) -> Op:
    """A question about a float, told by its bits."""

    def infer(types: Types, attrs: Attrs) -> TensorType:
        need(types, FLOATS)
        return TensorType(types[0].shape, DType.BOOL)

    record: dict[str, Any] = {
        "reference": lambda xp, attrs, x: getattr(xp, name)(x),
        "samples": few(-2, 2),
    }
    return Op(
        name=name,
        infer=infer,
        lower=Expr(text, ("nan",)),
        traits=frozenset({"elementwise", "floats_only"}),
        doc=doc,
        **(record | more),
    )


_SIZE = "(bitcast<U>(x) & U(0x7fffffffu))"
_INFINITE = {
    (True, True): f"{_SIZE} == U(0x7f800000u)",
    (False, True): "bitcast<U>(x) == U(0x7f800000u)",
    (True, False): "bitcast<U>(x) == U(0xff800000u)",
    (False, False): "bitcast<U>(x) != bitcast<U>(x)",
}
"""By whether -infinity is asked for, and infinity."""


def _infinite(types: Types, out: TensorType, attrs: Attrs) -> str:
    return _INFINITE[attrs["negative"], attrs["positive"]]


def _isinf(xp: Any, attrs: Attrs, x: Any) -> Any:
    found = xp.isinf(x)
    if not attrs["positive"]:
        found = found & (x < 0)
    return found if attrs["negative"] else found & (x > 0)


_ROUNDED = "The nearest whole number {}."

registry.register_all(
    smooth(
        "erf",
        "erf(x)",
        "The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.",
        few(-4, 4, (-0.01, 0.01), (-30, 30)),
        erf,
        uses=("erf",),
        each=60.0,
        slope=lambda g, x, y: g.exp(-x * x) * (2.0 / math.sqrt(math.pi)),
    ),
    *(
        exact(
            name,
            f"keeps_nan(x, {name}(x))",
            lambda xp, x, name=name: getattr(xp, name)(x),
            _ROUNDED.format(which),
            FLOATS,
            few(-3, 3, (-1e6, 1e6)),
            bounds.WHOLE_NUMBERS,
        )
        for name, which in (
            ("floor", "not above x"),
            ("ceil", "not below x"),
            ("trunc", "not farther from 0 than x"),
        )
    ),
    exact(
        "sign",
        _sign,
        _sign_of,
        "-1, 0 or 1 as x is below 0, 0 or above; NaN of NaN.",
        NUMBERS,
        few(-3, 3),
        bounds.SIGN,
    ),
    smooth(
        "reciprocal",
        "opaque(F(1) / x)",
        "1 / x; infinity of 0.",
        few(0.25, 4, (-1e20, -1e10)),
        lambda xp, x: 1.0 / x,
        Tolerance(rtol=4e-7, atol=1e-37),
        ("opaque",),
        each=1.0,
        slope=lambda g, x, y: -y * y,
    ),
    smooth(
        "exp2",
        "precise_exp2(x)",
        "2 to the power x.",
        few(-4, 4, (-120, 120)),
        exp2,
        Tolerance(rtol=1.5e-5, atol=1e-36),  # JAX's strays with the size of x
        ("exponential",),
        slope=lambda g, x, y: y * math.log(2.0),
    ),
    smooth(
        "expm1",
        "precise_expm1(x)",
        "e to the power x, less 1, with all digits near 0.",
        few(-4, 4, (-1e-3, 1e-3), (-80, 80)),
        tolerance=RELATIVE,
        uses=("exponential",),
        slope=lambda g, x, y: g.exp(x),
    ),
    smooth(
        "log2",
        "precise_log2(x)",
        "The logarithm to base 2. Of 0 it is -infinity, of a negative x NaN.",
        few(0.25, 4, (0.999, 1.001), (1e-30, 1e-20), (1, 1e30)),
        tolerance=RELATIVE,
        uses=("logarithms",),
        slope=lambda g, x, y: (1.0 / math.log(2.0)) / x,
    ),
    smooth(
        "log1p",
        "precise_log1p(x)",
        "log(1 + x), with all digits near 0. Of -1 it is -infinity, below NaN.",
        few(-0.9, 4, (-1e-3, 1e-3), (1, 1e30)),
        tolerance=RELATIVE,
        uses=("logarithms",),
        slope=lambda g, x, y: 1.0 / (1.0 + x),
    ),
    smooth(
        "sinh",
        "precise_sinh(x)",
        "The hyperbolic sine.",
        few(-4, 4, (-1e-3, 1e-3), (-88, 88)),
        tolerance=RELATIVE,
        uses=("hyperbolic",),
        slope=lambda g, x, y: g.cosh(x),
    ),
    smooth(
        "cosh",
        "precise_cosh(x)",
        "The hyperbolic cosine.",
        few(-4, 4, (-88, 88)),
        tolerance=RELATIVE,
        uses=("hyperbolic",),
        slope=lambda g, x, y: g.sinh(x),
    ),
    smooth(
        "asinh",
        "precise_asinh(x)",
        "The inverse hyperbolic sine.",
        few(-4, 4, (-1e-3, 1e-3), _BIG),
        tolerance=RELATIVE,
        uses=("hyperbolic",),
        # sqrt(x² + 1), which does not overflow where x² would.
        slope=lambda g, x, y: 1.0 / g.cosh(y),
    ),
    smooth(
        "acosh",
        "precise_acosh(x)",
        "The inverse hyperbolic cosine; NaN below 1.",
        few(1, 9, (1, 1.001), (1, 1e30)),
        uses=("hyperbolic",),
        tolerance=RELATIVE,
        slope=lambda g, x, y: 1.0 / g.sinh(y),
    ),
    smooth(
        "atanh",
        "precise_atanh(x)",
        "The inverse hyperbolic tangent; infinite at 1 and -1, NaN beyond.",
        few(-0.99, 0.99, (-1e-3, 1e-3)),
        tolerance=RELATIVE,
        uses=("hyperbolic",),
        slope=lambda g, x, y: 1.0 / ((1.0 - x) * (1.0 + x)),
    ),
    smooth(
        "asin",
        "precise_asin(x)",
        "The arc sine; NaN beyond 1 and -1.",
        few(-1, 1, (-1e-3, 1e-3)),
        uses=("arcs",),
        tolerance=RELATIVE,
        slope=lambda g, x, y: g.rsqrt((1.0 - x) * (1.0 + x)),
    ),
    smooth(
        "acos",
        "precise_acos(x)",
        "The arc cosine; NaN beyond 1 and -1.",
        few(-1, 1, (0.999, 1)),
        uses=("arcs",),
        slope=lambda g, x, y: -g.rsqrt((1.0 - x) * (1.0 + x)),
    ),
    _test("isnan", "is_nan(x)", "Whether x is NaN.", onnx=("IsNaN",)),
    _test(
        "isinf",
        _infinite,
        "Whether x is infinity or -infinity; either may be left out.",
        reference=_isinf,
        attrs=tuple(Attr(name, "bool", True) for name in ("positive", "negative")),
        samples=(
            *few(-2, 2),
            *(
                Sample((Drawn((3,), DType.F32),), dict.fromkeys(left_out, False))
                for left_out in (("negative",), ("positive",), ("negative", "positive"))
            ),
        ),
    ),
    _test("isfinite", "!not_finite(x)", "Whether x is neither infinite nor NaN."),
)
