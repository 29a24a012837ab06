"""Elementwise arithmetic, comparison and where: each result from one element of each
operand.

Operands broadcast as in NumPy and have one dtype: nothing is promoted. Integers wrap as
their type does; an integer division truncates toward zero and by zero gives 0. Unary
functions are in `activation.py`. No device is known here.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rlxweb.ir import value_range_rules
from rlxweb.ir.derivative import PartialDerivative, VjpContext, slopes
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import EXACT, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample, parse_shape_table
from rlxweb.ir.shape_arithmetic import Shape, bad_dtype, broadcast
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.array_dtype_checks import is_float

FLOAT_DTYPES = frozenset(d for d in DType if d.is_float)
INTEGER_DTYPES = frozenset(d for d in DType if d.is_integer)
UNSIGNED_DTYPES = frozenset(d for d in DType if d.is_unsigned)
NUMERIC_DTYPES = FLOAT_DTYPES | INTEGER_DTYPES

# One correctly rounded operation; and WGSL's 2.5 ULP division.
ROUNDING_TOLERANCE = Tolerance(rtol=2.0**-23, atol=1e-38)
DIVISION_TOLERANCE = Tolerance(rtol=4e-7, atol=1e-37)
POWER_TOLERANCE = Tolerance(rtol=4e-6, atol=1e-30)


def require_dtypes(types: Types, allowed: frozenset[DType]) -> None:
    """Require an allowed dtype of every operand. Errors  DTypeError."""
    for index, operand in enumerate(types):
        if operand.dtype not in allowed:
            names = ", ".join(d.label for d in DType if d in allowed)
            raise bad_dtype(
                f"operand {index} is {operand.dtype}",
                f"expected {names}",
                "cast the operand first",
            )


def common_dtype(types: Types) -> DType:
    """Return the one dtype that all operands have. Errors  DTypeError."""
    first = types[0].dtype
    for operand in types[1:]:
        if operand.dtype is not first:
            raise bad_dtype(
                f"the operands are {first} and {operand.dtype}",
                "all operands must have the same dtype; dtypes are not promoted",
                "cast the operands to one dtype",
            )
    return first


_SHAPE_PAIRS = parse_shape_table(
    "()@() 1@1 7@7 8x16@8x16 13@() 0x3@1x3 5x1x3@4x1 1x1x6@2x3x1 65537x2@2"
)


def _pair_cases(x: Drawn, y: Drawn) -> tuple[Sample, ...]:
    """Return every pair of shapes with the value ranges of `x` and `y`."""
    return tuple(
        Sample((replace(x, shape=a), replace(y, shape=b))) for a, b in _SHAPE_PAIRS
    )


def _single_case(x: Drawn, y: Drawn, note: str = "") -> tuple[Sample, ...]:
    """Return one broadcasting case of `x` and `y`, as a tuple."""
    return (Sample((replace(x, shape=(11, 5)), replace(y, shape=(5,))), note=note),)


def _input(dtype: DType, low: float, high: float) -> Drawn:
    return Drawn((), dtype, low, high)


def _whole_input(dtype: DType, low: float, high: float) -> Drawn:
    return Drawn((), dtype, low, high, whole=True)


_WIDE_INPUT = _input(DType.F32, -1e4, 1e4)
_I32_INPUT = _input(DType.I32, -(1 << 30), 1 << 30)
_U32_INPUT = _input(DType.U32, 0, (1 << 32) - 1)
_F16_INPUT = _whole_input(DType.F16, -30, 30)


def _wide_dtype_cases(low: float, high: float) -> tuple[Sample, ...]:
    """Return cases of the 64-bit types, which only the CPU has."""
    return tuple(
        s
        for dtype in (DType.F64, DType.I64, DType.U64)
        for s in _single_case(_input(dtype, low, high), _input(dtype, low, high))
    )


_ARITHMETIC_CASES = (
    _pair_cases(_input(DType.F32, -2, 2), _input(DType.F32, -2, 2))
    + _single_case(_WIDE_INPUT, _WIDE_INPUT, "wide")
    + _single_case(_I32_INPUT, _I32_INPUT, "wraps")
    + _single_case(_U32_INPUT, _U32_INPUT, "wraps")
    + _single_case(_F16_INPUT, _F16_INPUT)
    + _wide_dtype_cases(-100, 100)
)


def infer_broadcast(types: Types, attrs: Attrs) -> TensorType:
    """Infer the type of an elementwise op: operands of one dtype broadcast."""
    dtype = common_dtype(types)
    return TensorType(broadcast(*(t.shape for t in types)), dtype)


def infer_broadcast_of(
    allowed: frozenset[DType], types: Types, attrs: Attrs
) -> TensorType:
    """Infer a broadcast type of some dtypes only. Errors  DTypeError for another."""
    common_dtype(types)
    require_dtypes(types, allowed)
    return infer_broadcast(types, attrs)


def divide(xp: Any, attrs: Attrs, x: Any, y: Any) -> Any:
    """Return the quotient; of integers truncated toward zero, and 0 where y is 0."""
    if is_float(xp, x):
        return x / y
    safe = xp.where(y == 0, xp.ones_like(y), y)
    floor_quotient = xp.floor_divide(x, safe)
    remainder = x - floor_quotient * safe
    needs_increment = (remainder != 0) & ((remainder < 0) != (x < 0))
    return xp.where(
        y == 0,
        xp.zeros_like(x),
        floor_quotient + xp.asarray(needs_increment, dtype=floor_quotient.dtype),
    )


def power(xp: Any, attrs: Attrs, x: Any, y: Any) -> Any:
    """Return x to the power y; infinity where x is -infinity and y is 0.5, as NumPy's
    square root has it for a single 0.5.
    """
    is_infinite_root = (x == -math.inf) & (y == 0.5)
    return xp.where(is_infinite_root, xp.asarray(math.inf, dtype=x.dtype), xp.pow(x, y))


_arithmetic_op = partial(
    Op,
    arity=2,
    infer=partial(infer_broadcast_of, NUMERIC_DTYPES),
    traits=frozenset({"elementwise"}),
    tolerance=ROUNDING_TOLERANCE,
    samples=_ARITHMETIC_CASES,
)


def _divide_expression(types: Types, out: TensorType, attrs: Attrs) -> str:
    # WGSL gives x for an integer x / 0.
    if out.dtype.is_float:
        return "quotient(x, y)"
    return "select(x / select(y, X(1), y == X(0)), X(0), y == X(0))"


_DIVISION_CASES = (
    _pair_cases(_input(DType.F32, -2, 2), _input(DType.F32, 0.25, 2))
    + _single_case(_WIDE_INPUT, _input(DType.F32, -90, -0.01), "wide")
    + _single_case(
        _input(DType.I32, -100, 100), _input(DType.I32, -4, 4), "zeros below"
    )
    + _single_case(_U32_INPUT, _input(DType.U32, 0, 3), "zeros below")
    + _single_case(_input(DType.I64, -100, 100), _input(DType.I64, -4, 4))
    + _single_case(_input(DType.F64, -100, 100), _input(DType.F64, 1, 4))
)
_POWER_CASES = (
    _pair_cases(_input(DType.F32, 0.125, 8), _input(DType.F32, -3, 3))
    + _single_case(_input(DType.F32, 1e-6, 1e6), _input(DType.F32, -3, 3), "wide")
    + _single_case(
        _input(DType.F32, -5, 5), _whole_input(DType.F32, 0, 7), "signed, whole powers"
    )
    + _single_case(
        _whole_input(DType.F32, 0, 2), _whole_input(DType.F32, 0, 3), "zeros and ones"
    )
    + _single_case(_input(DType.F64, 0.5, 2), _input(DType.F64, -3, 3))
)


def _infix_expression(sign: str) -> Expr:
    """Return the expression of +, - or *, rounded by itself whatever it is fused
    with.
    """
    right = "opaque(y)" if sign == "-" else "y"

    def text(types: Types, out: TensorType, attrs: Attrs) -> str:
        return f"opaque(x {sign} {right})" if out.dtype.is_float else f"x {sign} y"

    return Expr(text, ("opaque",))


def _extreme_expression(name: str) -> Expr:
    """Return the expression of the larger or the smaller operand; NaN stays NaN."""
    nan_keeping_name = {"max": "larger", "min": "smaller"}[name]

    def text(types: Types, out: TensorType, attrs: Attrs) -> str:
        return f"{nan_keeping_name if out.dtype.is_float else name}(x, y)"

    return Expr(text, ("nan",))


def _comparison_expression(name: str) -> Expr:
    """Return the expression of a comparison: false for NaN except `ne`, decided by bits
    since a driver may assume there is no NaN.
    """
    sign = _COMPARISON_OPERATORS[name]

    def text(types: Types, out: TensorType, attrs: Attrs) -> str:
        if not types[0].dtype.is_float:
            return f"x {sign} y"
        if name == "ne":
            return "!(ordered(x, y) & (x == y))"
        return f"ordered(x, y) & (x {sign} y)"

    return Expr(text, ("nan",))


def _infer_bool(types: Types, attrs: Attrs) -> TensorType:
    return TensorType(infer_broadcast(types, attrs).shape, DType.BOOL)


def _infer_ordered_comparison(types: Types, attrs: Attrs) -> TensorType:
    require_dtypes(types, NUMERIC_DTYPES)
    return _infer_bool(types, attrs)


_COMPARISON_CASES = (
    _pair_cases(_whole_input(DType.F32, -2, 2), _whole_input(DType.F32, -2, 2))
    + _single_case(_input(DType.I32, -3, 3), _input(DType.I32, -3, 3))
    + _single_case(_U32_INPUT, _U32_INPUT, "above the signed range")
    + _single_case(_whole_input(DType.F16, -2, 2), _whole_input(DType.F16, -2, 2))
    + _wide_dtype_cases(-2, 2)
)
_BOOL_CASES = _single_case(_input(DType.BOOL, 0, 1), _input(DType.BOOL, 0, 1))


def _infer_where(types: Types, attrs: Attrs) -> TensorType:
    if types[0].dtype is not DType.BOOL:
        raise bad_dtype(
            f"the condition is {types[0].dtype}",
            "the condition must be bool",
            "compare the condition with a value, for example g.ne(condition, 0)",
        )
    return TensorType(broadcast(*(t.shape for t in types)), common_dtype(types[1:]))


def _where_case(c: Shape, x: Shape, y: Shape, dtype: DType = DType.F32) -> Sample:
    return Sample((Drawn(c, DType.BOOL), Drawn(x, dtype), Drawn(y, dtype)))


_WHERE_SHAPES = parse_shape_table(
    "()@()@() 1@1@1 8x4@8x4@8x4 5x1@7@() 0x2@2@1x1 2@65537x2@1x2"
)
WIDE_DTYPES = (DType.F64, DType.I64, DType.U64)
_WHERE_DTYPES = (DType.I32, DType.U32, DType.BOOL, DType.F16, *WIDE_DTYPES)


# Python's name of an operator that NumPy and WGSL write alike.
_ARITHMETIC_OPERATORS = {"add": "+", "sub": "-", "mul": "*"}
_ARITHMETIC_RANGES = {
    "+": value_range_rules.ADD_RANGE,
    "-": value_range_rules.SUB_RANGE,
    "*": value_range_rules.MUL_RANGE,
}
_ONNX_COMPARISONS = {
    "eq": ("Equal",),
    "lt": ("Less",),
    "le": ("LessOrEqual",),
    "gt": ("Greater",),
    "ge": ("GreaterOrEqual",),
}
_COMPARISON_OPERATORS = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}


def _pow_slope_by_base(g: Any, x: Any, y: Any, out: Any) -> Any:
    """Slope y x^(y - 1) of a power by its base: 0 for y = 0, whatever x is."""
    node = g.node(y.id)
    if node.is_literal:  # most are: squares, cubes, roots
        power = float(node.attrs["value"].array.reshape(()))
        if power in (0.0, 1.0, 2.0):
            return (0.0, 1.0, x * 2.0)[int(power)]
        return power * g.pow(x, power - 1.0)
    # At x = y = 0 it is 0 times an infinite power. Elsewhere y = 0 is no corner.
    tiny = float(np.finfo(x.dtype.numpy).tiny)
    is_zero_to_zero = g.logical_and(y.eq(0.0), g.abs(x) < tiny)
    return g.where(
        is_zero_to_zero, 0.0, y * g.pow(x, g.where(is_zero_to_zero, 1.0, y - 1.0))
    )


def _pow_slope_by_exponent(g: Any, x: Any, y: Any, out: Any) -> Any:
    """Slope x^y log(x) of a power by its exponent: 0 for x = 0, NaN for a negative
    x.
    """
    is_zero_base = g.logical_and(x.eq(0.0), y >= 0.0)
    return g.where(is_zero_base, 0.0, out * g.log(g.where(is_zero_base, 1.0, x)))


def _extreme_slopes(comparison: str) -> tuple[PartialDerivative, PartialDerivative]:
    """Slopes of maximum or minimum: 1 for the operand that is chosen, half each if
    equal.
    """

    def slope(g: Any, mine: Any, other: Any) -> Any:
        is_mine = getattr(g, comparison)(mine, other).cast(mine.dtype)
        return is_mine + 0.5 * mine.eq(other).cast(mine.dtype)

    return (
        lambda g, x, y, out: slope(g, x, y),
        lambda g, x, y, out: slope(g, y, x),
    )


def _where_vjp(ctx: VjpContext) -> list[Tensor | None]:
    zero = ctx.g.constant(0, ctx.grad.dtype)
    c = ctx.inputs[0]
    return [None, ctx.g.where(c, ctx.grad, zero), ctx.g.where(c, zero, ctx.grad)]


_ARITHMETIC_SLOPES: dict[str, tuple[PartialDerivative, PartialDerivative]] = {
    "add": (lambda g, x, y, out: 1.0, lambda g, x, y, out: 1.0),
    "sub": (lambda g, x, y, out: 1.0, lambda g, x, y, out: -1.0),
    "mul": (lambda g, x, y, out: y, lambda g, x, y, out: x),
}


def _operator_reference(name: str) -> Callable[..., Any]:
    function = getattr(operator, name)
    return lambda xp, attrs, x, y: function(x, y)


def _calibration_cases(slow_dtype: DType) -> tuple[Sample, ...]:
    """Return calibration cases of two sizes, preceded by the larger one in a dtype that
    NumPy is slow with.
    """
    cases = (((1 << 17,), slow_dtype), ((64,), DType.F32), ((1 << 17,), DType.F32))
    return tuple(Sample((Drawn(s, d, 1.0, 9.0),) * 2) for s, d in cases)


registry.register_all(
    *(
        _arithmetic_op(
            name=name,
            reference=_operator_reference(name),
            lower=_infix_expression(sign),
            range_rule=_ARITHMETIC_RANGES[sign],
            calibration_cases=_calibration_cases(DType.F16) if name == "mul" else (),
            onnx=(name.title(),),
            vjp=slopes(*_ARITHMETIC_SLOPES[name]),
            numpy=("subtract",) if name == "sub" else (),
            doc=f"x {sign} y; integers wrap.",
        )
        for name, sign in _ARITHMETIC_OPERATORS.items()
    ),
    _arithmetic_op(
        name="div",
        reference=divide,
        lower=Expr(_divide_expression, ("opaque", "quotient")),
        range_rule=value_range_rules.QUOTIENT_RANGE,
        tolerance=DIVISION_TOLERANCE,
        samples=_DIVISION_CASES,
        calibration_cases=_calibration_cases(DType.I32),
        onnx=("Div",),
        vjp=slopes(lambda g, x, y, out: 1.0 / y, lambda g, x, y, out: -out / y),
        doc="x / y. Integers truncate toward zero; an integer divided by 0 gives 0.",
        numpy=("true_divide",),
    ),
    _arithmetic_op(
        name="maximum",
        reference=lambda xp, a, x, y: xp.maximum(x, y),
        lower=_extreme_expression("max"),
        range_rule=value_range_rules.MAXIMUM_RANGE,
        tolerance=EXACT,
        vjp=slopes(*_extreme_slopes("gt")),
        doc="The larger of x and y; NaN if either is NaN.",
    ),
    _arithmetic_op(
        name="minimum",
        reference=lambda xp, a, x, y: xp.minimum(x, y),
        lower=_extreme_expression("min"),
        range_rule=value_range_rules.MINIMUM_RANGE,
        tolerance=EXACT,
        vjp=slopes(*_extreme_slopes("lt")),
        doc="The smaller of x and y; NaN if either is NaN.",
    ),
    _arithmetic_op(
        name="pow",
        reference=power,
        lower=Expr("signed_pow(x, y)", ("pow",)),
        traits=frozenset({"elementwise", "floats_only"}),
        tolerance=POWER_TOLERANCE,
        samples=_POWER_CASES,
        vjp=slopes(_pow_slope_by_base, _pow_slope_by_exponent),
        doc="x to the power y, for floats only, with the special cases of C's pow: x "
        "** 0 and 1 ** y are always 1, 0 to a negative power is infinity, and a "
        "finite negative x to a fractional power is NaN.",
        numpy=("power", "float_power"),
    ),
    *(
        Op(
            name=name,
            arity=2,
            infer=_infer_bool if name in ("eq", "ne") else _infer_ordered_comparison,
            reference=_operator_reference(name),
            lower=_comparison_expression(name),
            traits=frozenset({"elementwise"}),
            samples=_COMPARISON_CASES + (_BOOL_CASES if name in ("eq", "ne") else ()),
            onnx=_ONNX_COMPARISONS.get(name, ()),
            doc=f"Whether x {sign} y, as bool; {name == 'ne'} if either is NaN.",
        )
        for name, sign in _COMPARISON_OPERATORS.items()
    ),
    Op(
        name="where",
        arity=3,
        infer=_infer_where,
        reference=lambda xp, a, c, x, y: xp.where(c, x, y),
        lower=Expr("select(z, y, x)"),
        range_rule=value_range_rules.operand_hull(1, 2),
        traits=frozenset({"elementwise"}),
        onnx=("Where",),
        vjp=_where_vjp,
        samples=(
            *(_where_case(c, x, y) for c, x, y in _WHERE_SHAPES),
            *(_where_case((3, 5), (5,), (3, 1), dtype) for dtype in _WHERE_DTYPES),
        ),
        doc="x where the bool condition is true, else y; all three broadcast.",
    ),
)
