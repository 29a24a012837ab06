"""How functions of one element are declared: smooth ones of floats, exact ones.

Every reference computes float16 in float32 and rounds once, as the shaders do. Which
functions there are is said in `activation.py`, `gates.py` and `functions.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlxweb.ir.bounds import Bounds
from rlxweb.ir.derivative import Slope, flat, slopes
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types
from rlxweb.ir.sample import Drawn, Sample, spelled
from rlxweb.ir.shape import bad_attribute
from rlxweb.ops.elementwise import INTEGERS, need

Function = Callable[..., Any]
"""(xp, *arrays, **attributes) → array."""
ExprText = Callable[[Types, TensorType, Attrs], str]

SMOOTH = Tolerance(rtol=2e-6, atol=6e-7)


# ONNX has these under the same name, words joined and capitalised.
_IN_ONNX = frozenset(
    """relu sigmoid tanh exp log sqrt sin cos tan atan neg abs erf floor ceil sign
    reciprocal sinh cosh asin acos asinh acosh atanh softplus softsign mish elu celu
    selu hard_sigmoid hard_swish leaky_relu thresholded_relu shrink swish bitwise_and
    bitwise_or bitwise_xor bitwise_not""".split()
)


def onnx_of(name: str) -> tuple[str, ...]:
    """ONNX's name of an op that is exactly ours, if it has one."""
    return (name.title().replace("_", ""),) if name in _IN_ONNX else ()


def in_single(function: Function) -> Callable[..., Any]:
    """A reference that computes float16 in float32 and rounds once."""

    def reference(xp: Any, attrs: Attrs, *given: Any) -> Any:
        if given[0].dtype == xp.float16:
            wide = (xp.asarray(x, dtype=xp.float32) for x in given)
            return xp.asarray(function(xp, *wide, **attrs), dtype=xp.float16)
        return function(xp, *given, **attrs)

    return reference


_SHAPES = [shape for (shape,) in spelled("() 1 13 8x16 0x4 2x3x7 65537x2")]


def drawn(low: float, high: float, *wide: tuple[float, float]) -> tuple[Sample, ...]:
    """Every shape over [low, high], each wider range once, float64 and float16."""
    return (
        *(Sample((Drawn(s, DType.F32, low, high),)) for s in _SHAPES),
        *(Sample((Drawn((257,), DType.F32, a, b),), note="wide") for a, b in wide),
        Sample((Drawn((11,), DType.F64, low, high),)),
        Sample((Drawn((12,), DType.F16, low, high),)),
    )


# Of two operands: what broadcasts, one element, none, and more than a grid has columns.
SIZES = spelled("11x5@5 ()@() 0x3@1x3 65537@65537")


def few(
    low: float, high: float, *wide: tuple[float, float], **attrs: Any
) -> tuple[Sample, ...]:
    """`drawn` of fewer shapes: how an expression is walked is known of the others."""
    shapes = ((2, 3, 7), (), (0, 3), (65_537,))
    kinds = ((11,), DType.F64), ((12,), DType.F16)
    return (
        *(Sample((Drawn(s, DType.F32, low, high),), attrs) for s in shapes),
        *(Sample((Drawn(s, d, low, high),), attrs) for s, d in kinds),
        *(Sample((Drawn((257,), DType.F32, a, b),), attrs, "wide") for a, b in wide),
    )


def pairs(low: float, high: float, least: float, most: float) -> tuple[Sample, ...]:
    """float32 of every size in SIZES, float64 and float16: y over [least, most]."""
    kinds = [(sizes, DType.F32) for sizes in SIZES[::-1]]
    kinds += [(SIZES[0], DType.F64), (SIZES[0], DType.F16)]
    return tuple(
        Sample((Drawn(x, d, low, high), Drawn(y, d, least, most)))
        for (x, y), d in kinds
    )


_MOST = 3.4028234e38


def _check_finite(attrs: Attrs) -> None:
    """Every number among the attributes is one. Errors  AttributeRefused."""
    for name, value in attrs.items():
        if isinstance(value, float) and not abs(value) <= _MOST:
            raise bad_attribute(
                f"attribute {name}={value}", f"at most {_MOST:.6g} either way"
            )


def _same(types: Types, attrs: Attrs) -> TensorType:
    _check_finite(attrs)
    return types[0]


def smooth(
    name: str,
    text: str,
    doc: str,
    samples: tuple[Sample, ...],
    function: Function | None = None,
    tolerance: Tolerance = SMOOTH,
    uses: tuple[str, ...] = (),
    each: float = 2.0,
    attrs: tuple[Attr, ...] = (),
    slope: Slope | None = None,
) -> Op:
    """A function of floats only.

    function   xp's own of that name when left out
    slope      its derivative: (graph, x, result, **attrs) → tensor
    each       arithmetic of one element, roughly: what NumPy spends on it in units of
               an addition
    """
    return Op(
        name=name,
        infer=_same,
        reference=in_single(function or (lambda xp, x: getattr(xp, name)(x))),
        flops=lambda inputs, out, attrs: each * float(out.numel),
        lower=Expr(f"keeps_nan(x, {text})", ("nan", *uses)),
        attrs=attrs,
        traits=frozenset({"elementwise", "floats_only"}),
        tolerance=tolerance,
        samples=samples,
        onnx=onnx_of(name),
        vjp=None if slope is None else slopes(slope),
        doc=doc,
    )


def exact(
    name: str,
    text: str | ExprText,
    function: Function,
    doc: str,
    allowed: frozenset[DType],
    samples: tuple[Sample, ...] | None = None,
    bounds: Bounds | None = None,
    slope: Slope | None = None,
) -> Op:
    """A function of numbers that rounds nothing; without a slope it is flat."""
    whole = allowed & INTEGERS

    def infer(types: Types, attrs: Attrs) -> TensorType:
        need(types, allowed)
        return types[0]

    return Op(
        name=name,
        infer=infer,
        reference=lambda xp, attrs, x: function(xp, x),
        lower=Expr(text, ("nan",)),
        bounds=bounds,
        traits=frozenset({"elementwise"}),
        samples=(
            *(drawn(-3, 3, (-1e9, 1e9)) if samples is None else samples),
            *(Sample((Drawn((9, 5), d, -1000, 1000),)) for d in DType if d in whole),
        ),
        onnx=onnx_of(name),
        vjp=flat if slope is None else slopes(slope),
        doc=doc,
    )
