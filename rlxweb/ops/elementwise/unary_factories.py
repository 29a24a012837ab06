"""Factories of unary function ops: smooth functions of floats, and exact functions.

Every reference computes float16 in float32 and rounds once, as the shaders do. Which
functions there are is said in `activation.py`, `parametric_activation.py` and
`unary_math.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlxweb.ir.derivative import PartialDerivative, slopes, zero_vjp
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import Attr, Attrs, Op, SmokeRange, TensorType, Tolerance, Types
from rlxweb.ir.sample import Drawn, Sample, parse_shape_table
from rlxweb.ir.shape_arithmetic import bad_attribute
from rlxweb.ir.value_range_rules import RangeRule
from rlxweb.ops.elementwise.op import INTEGER_DTYPES, require_dtypes

ArrayFunction = Callable[..., Any]
"""Function of arrays: (xp, *arrays, **attributes) → array."""
ExpressionText = Callable[[Types, TensorType, Attrs], str]

SMOOTH_TOLERANCE = Tolerance(rtol=2e-6, atol=6e-7)


def float32_reference(function: ArrayFunction) -> Callable[..., Any]:
    """Return a reference that computes float16 in float32 and rounds once."""

    def reference(xp: Any, attrs: Attrs, *arrays: Any) -> Any:
        if arrays[0].dtype == xp.float16:
            wide = (xp.asarray(x, dtype=xp.float32) for x in arrays)
            return xp.asarray(function(xp, *wide, **attrs), dtype=xp.float16)
        return function(xp, *arrays, **attrs)

    return reference


_SHAPES = [shape for (shape,) in parse_shape_table("() 1 13 8x16 0x4 2x3x7 65537x2")]


def unary_samples(
    low: float, high: float, *wider_ranges: tuple[float, float]
) -> tuple[Sample, ...]:
    """Return samples of every shape over [low, high], of each wider range, and of
    float64 and float16.
    """
    return (
        *(Sample((Drawn(s, DType.F32, low, high),)) for s in _SHAPES),
        *(
            Sample((Drawn((257,), DType.F32, a, b),), note="wide")
            for a, b in wider_ranges
        ),
        Sample((Drawn((11,), DType.F64, low, high),)),
        Sample((Drawn((12,), DType.F16, low, high),)),
    )


# Of two operands: what broadcasts, one element, none, and more than a grid has columns.
BINARY_SHAPES = parse_shape_table("11x5@5 ()@() 0x3@1x3 65537@65537")


def fewer_unary_samples(
    low: float, high: float, *wider_ranges: tuple[float, float], **attrs: Any
) -> tuple[Sample, ...]:
    """Return samples of fewer shapes than `unary_samples`, which suffice for further
    expressions.
    """
    shapes = ((2, 3, 7), (), (0, 3), (65_537,))
    kinds = ((11,), DType.F64), ((12,), DType.F16)
    return (
        *(Sample((Drawn(s, DType.F32, low, high),), attrs) for s in shapes),
        *(Sample((Drawn(s, d, low, high),), attrs) for s, d in kinds),
        *(
            Sample((Drawn((257,), DType.F32, a, b),), attrs, "wide")
            for a, b in wider_ranges
        ),
    )


def binary_samples(
    low: float, high: float, y_low: float, y_high: float
) -> tuple[Sample, ...]:
    """Return samples of two operands: float32 in every shape of BINARY_SHAPES, float64
    and float16, with y over [least, most].
    """
    kinds = [(sizes, DType.F32) for sizes in BINARY_SHAPES[::-1]]
    kinds += [(BINARY_SHAPES[0], DType.F64), (BINARY_SHAPES[0], DType.F16)]
    return tuple(
        Sample((Drawn(x, dtype, low, high), Drawn(y, dtype, y_low, y_high)))
        for (x, y), dtype in kinds
    )


_MAX_FLOAT32 = 3.4028234e38


def _check_finite(attrs: Attrs) -> None:
    """Check that every float attribute is a finite float32. Errors
    AttributeRefused.
    """
    for name, value in attrs.items():
        if isinstance(value, float) and not abs(value) <= _MAX_FLOAT32:
            raise bad_attribute(
                f"attribute {name}={value}",
                f"the magnitude of {name} must be at most {_MAX_FLOAT32:.6g}",
            )


def _infer_same(types: Types, attrs: Attrs) -> TensorType:
    _check_finite(attrs)
    return types[0]


def smooth_function_op(
    name: str,
    text: str,
    doc: str,
    samples: tuple[Sample, ...],
    function: ArrayFunction | None = None,
    tolerance: Tolerance = SMOOTH_TOLERANCE,
    uses: tuple[str, ...] = (),
    flops_per_element: float = 2.0,
    attrs: tuple[Attr, ...] = (),
    slope: PartialDerivative | None = None,
    onnx: tuple[str, ...] = (),
    numpy: tuple[str, ...] = (),
    smoke: SmokeRange | None = None,
) -> Op:
    """Return the record of a function of floats only.

    function   xp's own of that name when left out
    slope      its derivative: (graph, x, result, **attrs) → tensor
    flops_per_element  arithmetic of one element, roughly: what NumPy spends on it in
                       units of an addition
    """
    return Op(
        name=name,
        infer=_infer_same,
        reference=float32_reference(function or (lambda xp, x: getattr(xp, name)(x))),
        flops=lambda inputs, out, attrs: flops_per_element * float(out.numel),
        lower=Expr(f"keeps_nan(x, {text})", ("nan", *uses)),
        attrs=attrs,
        traits=frozenset({"elementwise", "floats_only"}),
        tolerance=tolerance,
        samples=samples,
        onnx=onnx,
        vjp=None if slope is None else slopes(slope),
        numpy=numpy,
        smoke=smoke,
        doc=doc,
    )


def exact_function_op(
    name: str,
    text: str | ExpressionText,
    function: ArrayFunction,
    doc: str,
    allowed: frozenset[DType],
    samples: tuple[Sample, ...] | None = None,
    bounds: RangeRule | None = None,
    slope: PartialDerivative | None = None,
    onnx: tuple[str, ...] = (),
    numpy: tuple[str, ...] = (),
    smoke: SmokeRange | None = None,
) -> Op:
    """Return the record of a function of numbers that rounds nothing; without a slope
    its derivative is zero.
    """
    integer_dtypes = allowed & INTEGER_DTYPES

    def infer(types: Types, attrs: Attrs) -> TensorType:
        require_dtypes(types, allowed)
        return types[0]

    return Op(
        name=name,
        infer=infer,
        reference=lambda xp, attrs, x: function(xp, x),
        lower=Expr(text, ("nan",)),
        range_rule=bounds,
        traits=frozenset({"elementwise"}),
        samples=(
            *(unary_samples(-3, 3, (-1e9, 1e9)) if samples is None else samples),
            *(
                Sample((Drawn((9, 5), d, -1000, 1000),))
                for d in DType
                if d in integer_dtypes
            ),
        ),
        onnx=onnx,
        vjp=zero_vjp if slope is None else slopes(slope),
        numpy=numpy,
        smoke=smoke,
        doc=doc,
    )
