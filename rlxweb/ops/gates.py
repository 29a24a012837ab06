"""Activations of networks that take numbers of their own: slopes, sizes, thresholds.

Their defaults are ONNX's, which PyTorch's mostly are too. What is multiplied by a gate
that closes is 0 at -infinity, as in `activation.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rlxweb.ir import bounds
from rlxweb.ir.derivative import slopes
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ops import gates_back as back
from rlxweb.ops.activation import bounded, sigmoid
from rlxweb.ops.elementwise import NUMBERS, same_of
from rlxweb.ops.unary import few, pairs, smooth

SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
# What exp() is multiplied by may be near 0 beside 1, or small by itself.
GATED = Tolerance(rtol=3e-6, atol=1e-6)
_PLAIN = Tolerance(rtol=5e-7, atol=3e-7)


def _number(name: str, default: float) -> Attr:
    return Attr(name, "float", default)


def softplus(xp: Any, x: Any) -> Any:
    """log(1 + exp(x)), which neither overflows nor loses the digits of a small one."""
    return xp.maximum(x, xp.zeros_like(x)) + xp.log1p(xp.exp(-xp.abs(x)))


def mish(xp: Any, x: Any) -> Any:
    """Mish: x times the tanh of its softplus."""
    x = bounded(xp, x)
    return x * xp.tanh(softplus(xp, x))


def elu(xp: Any, x: Any, alpha: float) -> Any:
    """X above 0, alpha (exp(x) - 1) below."""
    return xp.where(x < 0, alpha * _falling(xp, x), x)


def _falling(xp: Any, x: Any) -> Any:
    return xp.expm1(xp.minimum(x, xp.zeros_like(x)))


def selu(xp: Any, x: Any, alpha: float, gamma: float) -> Any:
    """Gamma times elu."""
    return gamma * elu(xp, x, alpha)


def celu(xp: Any, x: Any, alpha: float) -> Any:
    """The elu of x / alpha, times alpha above 0 as well: smooth whatever alpha is."""
    return xp.where(x < 0, alpha * _falling(xp, x / alpha), x)


def hard_sigmoid(xp: Any, x: Any, alpha: float, beta: float) -> Any:
    """A line between 0 and 1."""
    one = xp.ones_like(x)
    return xp.maximum(xp.zeros_like(x), xp.minimum(one, alpha * x + beta))


def hard_swish(xp: Any, x: Any) -> Any:
    """X times the line from 0 at -3 to 1 at 3."""
    x = bounded(xp, x)
    return x * hard_sigmoid(xp, x, 1.0 / 6.0, 0.5)


def softsign(xp: Any, x: Any) -> Any:
    """X / (1 + |x|), 1 and -1 at the infinities."""
    far = 1e30 * xp.ones_like(x)
    x = xp.maximum(-far, xp.minimum(far, x))
    return x / (1.0 + xp.abs(x))


def thresholded_relu(xp: Any, x: Any, alpha: float) -> Any:
    """X above alpha, else 0."""
    return xp.where(x <= alpha, xp.zeros_like(x), x)


def shrink(xp: Any, x: Any, lambd: float, bias: float) -> Any:
    """X brought nearer to 0 by `bias` where it is beyond `lambd`, else 0."""
    beyond = xp.where(x > lambd, x - bias, xp.where(x < -lambd, x + bias, x))
    return xp.where(xp.abs(x) <= lambd, xp.zeros_like(x), beyond)


def swish(xp: Any, x: Any, alpha: float) -> Any:
    """X times sigmoid(alpha x)."""
    if alpha > 0:
        x = bounded(xp, x)
    return x * sigmoid(xp, alpha * x)


def _slopes(dtype: DType, low: float = -3) -> Sample:
    return Sample((Drawn((7, 5), dtype, low, 3), Drawn((5,), dtype, low, 3)))


def _prelu(types: Types, out: TensorType, attrs: Attrs) -> str:
    if out.dtype.is_float:
        return "keeps_nan(x, select(x, opaque(x * y), x < F(0)))"
    return "x" if out.dtype.is_unsigned else "select(x, x * y, x < X(0))"


# Of the large one a driver may make infinity, if it sees what it is multiplied by.
_ALPHAS = tuple(few(-1, 1, alpha=alpha)[0] for alpha in (0.5, 3e38))
_gate = partial(smooth, tolerance=GATED, each=12.0)
_line = partial(smooth, tolerance=_PLAIN, each=3.0)

registry.register_all(
    _gate(
        "softplus",
        "max(x, F(0)) + precise_log1p(precise_exp(-abs(x)))",
        "log(1 + exp(x)).",
        few(-4, 4, (-60, 60)),
        softplus,
        uses=("exponential", "logarithms"),
        slope=back.softplus,
    ),
    _gate(
        "mish",
        "gated_mish(x)",
        "x times tanh(softplus(x)).",
        few(-4, 4, (-60, 60)),
        mish,
        uses=("mish",),
        slope=back.mish,
    ),
    _gate(
        "elu",
        "select(x, F({alpha}) * opaque(precise_expm1(min(x, F(0)))), x < F(0))",
        "x above 0, alpha (exp(x) - 1) below.",
        (*few(-4, 4, (-60, 60)), *_ALPHAS),
        elu,
        uses=("exponential", "opaque"),
        attrs=(_number("alpha", 1.0),),
        slope=back.elu,
    ),
    _gate(
        "selu",
        "F({gamma}) * select(x, F({alpha}) * opaque(precise_expm1(min(x, F(0)))), "
        "x < F(0))",
        "gamma times elu(x, alpha), which keeps a network's values of size 1.",
        (*few(-4, 4, (-60, 60)), *_ALPHAS),
        selu,
        uses=("exponential", "opaque"),
        attrs=(_number("alpha", SELU_ALPHA), _number("gamma", SELU_GAMMA)),
        slope=back.selu,
    ),
    _gate(
        "celu",
        "select(x, F({alpha}) * opaque(precise_expm1(min(x / F({alpha}), F(0)))), "
        "x < F(0))",
        "x above 0, alpha (exp(x / alpha) - 1) below.",
        (*few(-4, 4, (-60, 60)), *few(-1, 1, alpha=0.5)[:1]),
        celu,
        uses=("exponential", "opaque"),
        attrs=(_number("alpha", 1.0),),
        slope=back.celu,
    ),
    _line(
        "hard_sigmoid",
        "clamp(F({alpha}) * x + F({beta}), F(0), F(1))",
        "alpha x + beta, between 0 and 1.",
        few(-4, 4, (-60, 60)),
        hard_sigmoid,
        attrs=(_number("alpha", 0.2), _number("beta", 0.5)),
        slope=back.hard_sigmoid,
    ),
    _line(
        "hard_swish",
        "max(x, F(-200)) * clamp(max(x, F(-200)) * F(0.16666667) + F(0.5), F(0), F(1))",
        "x times hard_sigmoid(x, 1/6, 1/2).",
        few(-4, 4, (-60, 60)),
        hard_swish,
        slope=back.hard_swish,
    ),
    _line(
        "softsign",
        "clamp(x, F(-1e30), F(1e30)) / (F(1) + min(abs(x), F(1e30)))",
        "x / (1 + |x|).",
        few(-4, 4, (-1e6, 1e6)),
        softsign,
        slope=back.softsign,
    ),
    _line(
        "leaky_relu",
        "select(x, opaque(F({alpha}) * x), x < F(0))",
        "x above 0, alpha x below.",
        few(-4, 4, alpha=0.2),
        lambda xp, x, alpha: xp.where(x < 0, alpha * x, x),
        uses=("opaque",),
        attrs=(_number("alpha", 0.01),),
        slope=back.leaky_relu,
    ),
    _line(
        "thresholded_relu",
        "select(x, F(0), x <= F({alpha}))",
        "x where it is above alpha, else 0.",
        few(-4, 4, alpha=0.75),
        thresholded_relu,
        attrs=(_number("alpha", 1.0),),
        slope=back.thresholded_relu,
    ),
    _line(
        "shrink",
        "select(select(select(x, opaque(x + F({bias})), x < -F({lambd})), "
        "opaque(x - F({bias})), x > F({lambd})), F(0), abs(x) <= F({lambd}))",
        "x - bias above lambd, x + bias below -lambd, else 0: a hard shrinking, and a "
        "soft one with bias = lambd.",
        few(-4, 4, lambd=1.5, bias=0.75),
        shrink,
        uses=("opaque",),
        attrs=(_number("lambd", 0.5), _number("bias", 0.0)),
        slope=back.shrink,
    ),
    _gate(
        "swish",
        "max(x, F(-1e30)) * sigmoid(F({alpha}) * x)",
        "x times sigmoid(alpha x); silu has alpha = 1.",
        few(-4, 4, (-60, 60), alpha=1.5),
        swish,
        uses=("sigmoid",),
        attrs=(_number("alpha", 1.0),),
        slope=back.swish,
    ),
    Op(
        name="prelu",
        arity=2,
        infer=partial(same_of, NUMBERS),
        reference=lambda xp, attrs, x, slope: xp.where(x < 0, slope * x, x),
        lower=Expr(_prelu, ("nan", "opaque")),
        bounds=bounds.SLOPE,
        traits=frozenset({"elementwise"}),
        tolerance=_PLAIN,
        samples=(
            *pairs(-3, 3, -3, 3),
            *map(_slopes, (DType.I32, DType.I64)),
            _slopes(DType.U32, 0),
        ),
        onnx=("PRelu",),
        vjp=slopes(back.by_x, back.by_slope),
        doc="x above 0, the second operand times x below.",
    ),
)
