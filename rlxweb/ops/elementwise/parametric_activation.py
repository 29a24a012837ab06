"""Activations with parameters of their own: slopes, sizes, thresholds.

Their defaults are ONNX's, which PyTorch's mostly are too. What is multiplied by a gate
that closes is 0 at -infinity, as in `activation.py`.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any

from rlxweb.ir import value_range_rules
from rlxweb.ir.derivative import slopes
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
from rlxweb.ops.elementwise import parametric_activation_vjp
from rlxweb.ops.elementwise.activation import clip_far_below, sigmoid
from rlxweb.ops.elementwise.op import NUMERIC_DTYPES, infer_broadcast_of
from rlxweb.ops.elementwise.unary_factories import (
    binary_samples,
    fewer_unary_samples,
    smooth_function_op,
)

SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
# What exp() is multiplied by may be near 0 beside 1, or small by itself.
GATE_TOLERANCE = Tolerance(rtol=3e-6, atol=1e-6)
_LINEAR_TOLERANCE = Tolerance(rtol=5e-7, atol=3e-7)


def _float_attr(name: str, default: float) -> Attr:
    return Attr(name, "float", default)


def softplus(xp: Any, x: Any) -> Any:
    """Softplus log(1 + exp(x)), without overflow and with all digits of a small
    result.
    """
    return xp.maximum(x, xp.zeros_like(x)) + xp.log1p(xp.exp(-xp.abs(x)))


def mish(xp: Any, x: Any) -> Any:
    """Mish: x times the tanh of its softplus."""
    x = clip_far_below(xp, x)
    return x * xp.tanh(softplus(xp, x))


def elu(xp: Any, x: Any, alpha: float) -> Any:
    """ELU: x above 0, alpha (exp(x) - 1) below."""
    return xp.where(x < 0, alpha * _expm1_below_zero(xp, x), x)


def _expm1_below_zero(xp: Any, x: Any) -> Any:
    """Return exp(x) - 1 for x below 0, and 0 above."""
    return xp.expm1(xp.minimum(x, xp.zeros_like(x)))


def selu(xp: Any, x: Any, alpha: float, gamma: float) -> Any:
    """SELU: gamma times elu."""
    return gamma * elu(xp, x, alpha)


def celu(xp: Any, x: Any, alpha: float) -> Any:
    """CELU: the elu of x / alpha, times alpha above 0 as well; smooth for any alpha."""
    return xp.where(x < 0, alpha * _expm1_below_zero(xp, x / alpha), x)


def hard_sigmoid(xp: Any, x: Any, alpha: float, beta: float) -> Any:
    """Hard sigmoid: alpha x + beta, clipped to 0 … 1."""
    one = xp.ones_like(x)
    return xp.maximum(xp.zeros_like(x), xp.minimum(one, alpha * x + beta))


def hard_swish(xp: Any, x: Any) -> Any:
    """Hard swish: x times the line from 0 at -3 to 1 at 3."""
    x = clip_far_below(xp, x)
    return x * hard_sigmoid(xp, x, 1.0 / 6.0, 0.5)


def softsign(xp: Any, x: Any) -> Any:
    """Softsign x / (1 + |x|), which is 1 and -1 at the infinities."""
    limit = 1e30 * xp.ones_like(x)
    x = xp.maximum(-limit, xp.minimum(limit, x))
    return x / (1.0 + xp.abs(x))


def thresholded_relu(xp: Any, x: Any, alpha: float) -> Any:
    """Thresholded ReLU: x above alpha, else 0."""
    return xp.where(x <= alpha, xp.zeros_like(x), x)


def shrink(xp: Any, x: Any, lambd: float, bias: float) -> Any:
    """Shrinkage: x moved toward 0 by `bias` where it is beyond `lambd`, else 0."""
    beyond = xp.where(x > lambd, x - bias, xp.where(x < -lambd, x + bias, x))
    return xp.where(xp.abs(x) <= lambd, xp.zeros_like(x), beyond)


def swish(xp: Any, x: Any, alpha: float) -> Any:
    """Swish: x times sigmoid(alpha x)."""
    if alpha > 0:
        x = clip_far_below(xp, x)
    return x * sigmoid(xp, alpha * x)


def _prelu_case(dtype: DType, low: float = -3) -> Sample:
    return Sample((Drawn((7, 5), dtype, low, 3), Drawn((5,), dtype, low, 3)))


def _prelu_expression(types: Types, out: TensorType, attrs: Attrs) -> str:
    """Return the WGSL expression of prelu."""
    if out.dtype.is_float:
        return "keeps_nan(x, select(x, opaque(x * y), x < F(0)))"
    return "x" if out.dtype.is_unsigned else "select(x, x * y, x < X(0))"


# Of the large one a driver may make infinity, if it sees what it is multiplied by.
_ALPHA_CASES = tuple(
    fewer_unary_samples(-1, 1, alpha=alpha)[0] for alpha in (0.5, 3e38)
)
_gate_op = partial(smooth_function_op, tolerance=GATE_TOLERANCE, flops_per_element=12.0)
_linear_op = partial(
    smooth_function_op, tolerance=_LINEAR_TOLERANCE, flops_per_element=3.0
)

registry.register_all(
    _gate_op(
        "softplus",
        "max(x, F(0)) + precise_log1p(precise_exp(-abs(x)))",
        "log(1 + exp(x)).",
        fewer_unary_samples(-4, 4, (-60, 60)),
        softplus,
        uses=("exponential", "logarithms"),
        slope=parametric_activation_vjp.softplus_slope,
        onnx=("Softplus",),
        smoke=SmokeRange(-inf, inf, lambda a, b: (0, max(b, 0) + 1, 1)),
    ),
    _gate_op(
        "mish",
        "gated_mish(x)",
        "x times tanh(softplus(x)).",
        fewer_unary_samples(-4, 4, (-60, 60)),
        mish,
        uses=("mish",),
        slope=parametric_activation_vjp.mish_slope,
        onnx=("Mish",),
        smoke=SmokeRange(-inf, inf, lambda a, b: (-0.4, max(b, 0), 1.1)),
    ),
    _gate_op(
        "elu",
        "select(x, F({alpha}) * opaque(precise_expm1(min(x, F(0)))), x < F(0))",
        "x where x > 0, else alpha (exp(x) - 1).",
        (*fewer_unary_samples(-4, 4, (-60, 60)), *_ALPHA_CASES),
        elu,
        uses=("exponential", "opaque"),
        attrs=(_float_attr("alpha", 1.0),),
        slope=parametric_activation_vjp.elu_slope,
        onnx=("Elu",),
        smoke=SmokeRange(-inf, inf, lambda a, b: (-1, max(b, 0), 1)),
    ),
    _gate_op(
        "selu",
        "F({gamma}) * select(x, F({alpha}) * opaque(precise_expm1(min(x, F(0)))), "
        "x < F(0))",
        "gamma times elu(x, alpha), which keeps the scale of a network's activations "
        "near 1.",
        (*fewer_unary_samples(-4, 4, (-60, 60)), *_ALPHA_CASES),
        selu,
        uses=("exponential", "opaque"),
        attrs=(_float_attr("alpha", SELU_ALPHA), _float_attr("gamma", SELU_GAMMA)),
        slope=parametric_activation_vjp.selu_slope,
        onnx=("Selu",),
        smoke=SmokeRange(-inf, inf, lambda a, b: (-1.8, max(1.06 * b, 0), 1.8)),
    ),
    _gate_op(
        "celu",
        "select(x, F({alpha}) * opaque(precise_expm1(min(x / F({alpha}), F(0)))), "
        "x < F(0))",
        "x where x > 0, else alpha (exp(x / alpha) - 1).",
        (
            *fewer_unary_samples(-4, 4, (-60, 60)),
            *fewer_unary_samples(-1, 1, alpha=0.5)[:1],
        ),
        celu,
        uses=("exponential", "opaque"),
        attrs=(_float_attr("alpha", 1.0),),
        slope=parametric_activation_vjp.celu_slope,
        onnx=("Celu",),
        smoke=SmokeRange(-inf, inf, lambda a, b: (-1, max(b, 0), 1)),
    ),
    _linear_op(
        "hard_sigmoid",
        "clamp(F({alpha}) * x + F({beta}), F(0), F(1))",
        "alpha x + beta, clamped to 0 … 1.",
        fewer_unary_samples(-4, 4, (-60, 60)),
        hard_sigmoid,
        attrs=(_float_attr("alpha", 0.2), _float_attr("beta", 0.5)),
        slope=parametric_activation_vjp.hard_sigmoid_slope,
        onnx=("HardSigmoid",),
        smoke=SmokeRange(-inf, inf, lambda a, b: (0, 1, 0.2)),
    ),
    _linear_op(
        "hard_swish",
        "max(x, F(-200)) * clamp(max(x, F(-200)) * F(0.16666667) + F(0.5), F(0), F(1))",
        "x times hard_sigmoid(x, 1/6, 1/2).",
        fewer_unary_samples(-4, 4, (-60, 60)),
        hard_swish,
        slope=parametric_activation_vjp.hard_swish_slope,
        onnx=("HardSwish",),
        smoke=SmokeRange(-inf, inf, lambda a, b: (-0.4, max(b, 0), 1.5)),
    ),
    _linear_op(
        "softsign",
        "clamp(x, F(-1e30), F(1e30)) / (F(1) + min(abs(x), F(1e30)))",
        "x / (1 + |x|).",
        fewer_unary_samples(-4, 4, (-1e6, 1e6)),
        softsign,
        slope=parametric_activation_vjp.softsign_slope,
        onnx=("Softsign",),
        smoke=SmokeRange(-inf, inf, lambda a, b: (-1, 1, 1)),
    ),
    _linear_op(
        "leaky_relu",
        "select(x, opaque(F({alpha}) * x), x < F(0))",
        "x where x > 0, else alpha x.",
        fewer_unary_samples(-4, 4, alpha=0.2),
        lambda xp, x, alpha: xp.where(x < 0, alpha * x, x),
        uses=("opaque",),
        attrs=(_float_attr("alpha", 0.01),),
        slope=parametric_activation_vjp.leaky_relu_slope,
        onnx=("LeakyRelu",),
        smoke=SmokeRange(-inf, inf, lambda a, b: (min(a, 0), max(b, 0), 1)),
    ),
    _linear_op(
        "thresholded_relu",
        "select(x, F(0), x <= F({alpha}))",
        "x where x > alpha, else 0.",
        fewer_unary_samples(-4, 4, alpha=0.75),
        thresholded_relu,
        attrs=(_float_attr("alpha", 1.0),),
        slope=parametric_activation_vjp.thresholded_relu_slope,
        onnx=("ThresholdedRelu",),
    ),
    _linear_op(
        "shrink",
        "select(select(select(x, opaque(x + F({bias})), x < -F({lambd})), "
        "opaque(x - F({bias})), x > F({lambd})), F(0), abs(x) <= F({lambd}))",
        "x - bias where x > lambd, x + bias where x < -lambd, else 0: hard shrinkage "
        "with bias = 0, soft shrinkage with bias = lambd.",
        fewer_unary_samples(-4, 4, lambd=1.5, bias=0.75),
        shrink,
        uses=("opaque",),
        attrs=(_float_attr("lambd", 0.5), _float_attr("bias", 0.0)),
        slope=parametric_activation_vjp.shrink_slope,
        onnx=("Shrink",),
    ),
    _gate_op(
        "swish",
        "max(x, F(-1e30)) * sigmoid(F({alpha}) * x)",
        "x times sigmoid(alpha x); silu has alpha = 1.",
        fewer_unary_samples(-4, 4, (-60, 60), alpha=1.5),
        swish,
        uses=("sigmoid",),
        attrs=(_float_attr("alpha", 1.0),),
        slope=parametric_activation_vjp.swish_slope,
        onnx=("Swish",),
        smoke=SmokeRange(-inf, inf, lambda a, b: (-0.3, max(b, 0), 1.1)),
    ),
    Op(
        name="prelu",
        arity=2,
        infer=partial(infer_broadcast_of, NUMERIC_DTYPES),
        reference=lambda xp, attrs, x, slope: xp.where(x < 0, slope * x, x),
        lower=Expr(_prelu_expression, ("nan", "opaque")),
        range_rule=value_range_rules.PRELU_RANGE,
        traits=frozenset({"elementwise"}),
        tolerance=_LINEAR_TOLERANCE,
        samples=(
            *binary_samples(-3, 3, -3, 3),
            *map(_prelu_case, (DType.I32, DType.I64)),
            _prelu_case(DType.U32, 0),
        ),
        onnx=("PRelu",),
        vjp=slopes(
            parametric_activation_vjp.prelu_slope_by_x,
            parametric_activation_vjp.prelu_slope_by_slope,
        ),
        doc="x where x > 0, else the second operand times x.",
    ),
)
