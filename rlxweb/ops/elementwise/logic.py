"""Logical ops of bools, bitwise ops of integers, and shifts.

`logical_…` takes bool alone; a graph's methods of those names compare numbers with 0
first, as NumPy does. `bitwise_…` takes integers, and bool, of which it is the same. A
shift by as many bits as there are, or by fewer than 0, leaves what NumPy leaves.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rlxweb.ir import value_range_rules
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import Attrs, Op, TensorType, Types, registry
from rlxweb.ir.op_methods import add_logical
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ops.array_dtype_checks import numpy_dtype
from rlxweb.ops.elementwise.op import INTEGER_DTYPES, infer_broadcast_of
from rlxweb.ops.elementwise.unary_factories import BINARY_SHAPES

_BOOL_DTYPE = frozenset({DType.BOOL})


def _size_cases(
    arity: int, dtype: DType, low: float, high: float
) -> tuple[Sample, ...]:
    """Return samples of every difficult size, of one dtype."""
    return tuple(
        Sample(tuple(Drawn(shape, dtype, low, high) for shape in shapes[:arity]))
        for shapes in BINARY_SHAPES
    )


def _single_case(arity: int, dtype: DType, low: float, high: float) -> Sample:
    return _size_cases(arity, dtype, low, high)[0]


def _bitwise_cases(arity: int) -> tuple[Sample, ...]:
    return (
        *_size_cases(arity, DType.I32, -(1 << 30), 1 << 30),
        _single_case(arity, DType.BOOL, 0, 1),
        _single_case(arity, DType.U32, 0, (1 << 32) - 1),
        _single_case(arity, DType.I64, -(1 << 40), 1 << 40),
        _single_case(arity, DType.U64, 0, 1 << 40),
    )


def _logic_expression(sign: str) -> Expr:
    """Return the expression of an operator; for bools WGSL has neither ^ nor ~."""
    bool_text = {"^": "x != y", "~": "!x"}.get(sign, f"x {sign} y")
    integer_text = "~x" if sign == "~" else f"x {sign} y"

    def text(types: Types, out: TensorType, attrs: Attrs) -> str:
        return bool_text if out.dtype is DType.BOOL else integer_text

    return Expr(text)


def _shifts_all_out(xp: Any, x: Any, y: Any) -> Any:
    """Return where a shift moves all bits out."""
    return (y < 0) | (y >= 8 * numpy_dtype(xp, x).itemsize)


def shift_left(xp: Any, attrs: Attrs, x: Any, y: Any) -> Any:
    """Shift x left by y bits; 0 where all bits are shifted out."""
    is_far, zero = _shifts_all_out(xp, x, y), xp.zeros_like(y)
    shifted = xp.bitwise_left_shift(x, xp.where(is_far, zero, y))
    return xp.where(is_far, xp.zeros_like(shifted), shifted)


def shift_right(xp: Any, attrs: Attrs, x: Any, y: Any) -> Any:
    """Shift x right by y bits, keeping the sign of a negative x."""
    is_far = _shifts_all_out(xp, x, y)
    shifted = xp.bitwise_right_shift(x, xp.where(is_far, xp.zeros_like(y), y))
    zero = xp.zeros_like(x)
    return xp.where(is_far, zero - xp.asarray(x < 0, dtype=x.dtype), shifted)


def _shift_expression(types: Types, out: TensorType, attrs: Attrs, left: bool) -> str:
    amount = "(U(y) & U(31u))"
    far_value = "X(0)" if left or out.dtype.is_unsigned else "x >> U(31u)"
    return f"select(x {'<<' if left else '>>'} {amount}, {far_value}, U(y) > U(31u))"


_SHIFT_CASES = tuple(
    Sample((Drawn(shape, dtype, low, high), Drawn(by, dtype, -2 if low else 0, 40)))
    for dtype, low, high, sizes in (
        (DType.I32, -(1 << 30), 1 << 30, BINARY_SHAPES),
        (DType.U32, 0, (1 << 32) - 1, BINARY_SHAPES[:1]),
        (DType.I64, -(1 << 40), 1 << 40, BINARY_SHAPES[:1]),
        (DType.U64, 0, 1 << 40, BINARY_SHAPES[:1]),
    )
    for shape, by in sizes
)
_BINARY_OPERATORS = {
    "and": ("&", "both operands are true"),
    "or": ("|", "at least one operand is true"),
}
_BINARY_OPERATORS["xor"] = ("^", "exactly one operand is true")
_logic_op = partial(Op, traits=frozenset({"elementwise"}))

registry.register_all(
    *(
        _logic_op(
            name=f"logical_{word}",
            arity=2,
            infer=partial(infer_broadcast_of, _BOOL_DTYPE),
            reference=lambda xp, a, x, y, n=f"logical_{word}": getattr(xp, n)(x, y),
            lower=_logic_expression(sign),
            samples=_size_cases(2, DType.BOOL, 0, 1),
            onnx=(word.title(),),
            numpy=(f"logical_{word}",),
            method=add_logical,
            doc=f"Whether {meaning}; for bool operands.",
        )
        for word, (sign, meaning) in _BINARY_OPERATORS.items()
    ),
    _logic_op(
        name="logical_not",
        infer=partial(infer_broadcast_of, _BOOL_DTYPE),
        reference=lambda xp, attrs, x: xp.logical_not(x),
        lower=_logic_expression("~"),
        samples=_size_cases(1, DType.BOOL, 0, 1),
        onnx=("Not",),
        doc="Whether x is false; for bool operands.",
        numpy=("logical_not",),
        method=add_logical,
    ),
    *(
        _logic_op(
            name=f"bitwise_{word}",
            arity=2,
            infer=partial(infer_broadcast_of, _BOOL_DTYPE | INTEGER_DTYPES),
            reference=lambda xp, a, x, y, n=f"bitwise_{word}": getattr(xp, n)(x, y),
            lower=_logic_expression(sign),
            range_rule=value_range_rules.BITWISE_RANGE,
            samples=_bitwise_cases(2),
            onnx=(f"Bitwise{word.title()}",),
            doc=f"x {sign} y, bit by bit; for integers and bool.",
        )
        for word, (sign, _) in _BINARY_OPERATORS.items()
    ),
    _logic_op(
        name="bitwise_not",
        infer=partial(infer_broadcast_of, _BOOL_DTYPE | INTEGER_DTYPES),
        reference=lambda xp, attrs, x: xp.bitwise_invert(x),
        lower=_logic_expression("~"),
        range_rule=value_range_rules.BITWISE_NOT_RANGE,
        samples=_bitwise_cases(1),
        onnx=("BitwiseNot",),
        doc="~x: every bit inverted; for integers and bool.",
        aliases=("bitwise_invert",),
    ),
    _logic_op(
        name="shift_left",
        arity=2,
        infer=partial(infer_broadcast_of, INTEGER_DTYPES),
        reference=shift_left,
        lower=Expr(partial(_shift_expression, left=True)),
        range_rule=value_range_rules.SHIFT_LEFT_RANGE,
        samples=_SHIFT_CASES,
        doc="x << y; where y is negative or not below the number of bits, the result "
        "is 0.",
        aliases=("bitwise_left_shift",),
        numpy=("left_shift",),
    ),
    _logic_op(
        name="shift_right",
        arity=2,
        infer=partial(infer_broadcast_of, INTEGER_DTYPES),
        reference=shift_right,
        lower=Expr(partial(_shift_expression, left=False)),
        range_rule=value_range_rules.SHIFT_RIGHT_RANGE,
        samples=_SHIFT_CASES,
        doc="x >> y, keeping the sign; where y is negative or not below the number of "
        "bits, the result is 0, or -1 for a negative x.",
        aliases=("bitwise_right_shift",),
        numpy=("right_shift",),
    ),
)
