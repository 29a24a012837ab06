"""Logic of truths and of the bits of whole numbers, and shifts.

`logical_…` takes bool alone; a graph's methods of those names compare numbers with 0
first, as NumPy does. `bitwise_…` takes integers, and bool, of which it is the same. A
shift by as many bits as there are, or by fewer than 0, leaves what NumPy leaves.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rlxweb.ir import bounds
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ops.elementwise import INTEGERS, same_of
from rlxweb.ops.kinds import numpy_dtype
from rlxweb.ops.unary import SIZES, onnx_of

_TRUTH = frozenset({DType.BOOL})


def _sizes(arity: int, dtype: DType, low: float, high: float) -> tuple[Sample, ...]:
    """Every hard size of one type."""
    return tuple(
        Sample(tuple(Drawn(shape, dtype, low, high) for shape in shapes[:arity]))
        for shapes in SIZES
    )


def _one(arity: int, dtype: DType, low: float, high: float) -> Sample:
    return _sizes(arity, dtype, low, high)[0]


def _bits(arity: int) -> tuple[Sample, ...]:
    return (
        *_sizes(arity, DType.I32, -(1 << 30), 1 << 30),
        _one(arity, DType.BOOL, 0, 1),
        _one(arity, DType.U32, 0, (1 << 32) - 1),
        _one(arity, DType.I64, -(1 << 40), 1 << 40),
        _one(arity, DType.U64, 0, 1 << 40),
    )


def _expression(sign: str) -> Expr:
    """WGSL has no ^ and no ~ of truths."""
    of_truth = {"^": "x != y", "~": "!x"}.get(sign, f"x {sign} y")
    of_bits = "~x" if sign == "~" else f"x {sign} y"

    def text(types: Types, out: TensorType, attrs: Attrs) -> str:
        return of_truth if out.dtype is DType.BOOL else of_bits

    return Expr(text)


def _far(xp: Any, x: Any, y: Any) -> Any:
    """Where all bits are shifted out."""
    return (y < 0) | (y >= 8 * numpy_dtype(xp, x).itemsize)


def shift_left(xp: Any, attrs: Attrs, x: Any, y: Any) -> Any:
    """X times 2 to the power y, of what bits are there."""
    far, none = _far(xp, x, y), xp.zeros_like(y)
    shifted = xp.bitwise_left_shift(x, xp.where(far, none, y))
    return xp.where(far, xp.zeros_like(shifted), shifted)


def shift_right(xp: Any, attrs: Attrs, x: Any, y: Any) -> Any:
    """X shifted down; a negative one keeps its sign."""
    far = _far(xp, x, y)
    shifted = xp.bitwise_right_shift(x, xp.where(far, xp.zeros_like(y), y))
    none = xp.zeros_like(x)
    return xp.where(far, none - xp.asarray(x < 0, dtype=x.dtype), shifted)


def _shifted(types: Types, out: TensorType, attrs: Attrs, left: bool) -> str:
    by = "(U(y) & U(31u))"
    far = "X(0)" if left or out.dtype.is_unsigned else "x >> U(31u)"
    return f"select(x {'<<' if left else '>>'} {by}, {far}, U(y) > U(31u))"


_SHIFTS = tuple(
    Sample((Drawn(shape, dtype, low, high), Drawn(by, dtype, -2 if low else 0, 40)))
    for dtype, low, high, sizes in (
        (DType.I32, -(1 << 30), 1 << 30, SIZES),
        (DType.U32, 0, (1 << 32) - 1, SIZES[:1]),
        (DType.I64, -(1 << 40), 1 << 40, SIZES[:1]),
        (DType.U64, 0, 1 << 40, SIZES[:1]),
    )
    for shape, by in sizes
)
_WORDS = {"and": ("&", "both hold"), "or": ("|", "either holds")}
_WORDS["xor"] = ("^", "just one holds")
_logic = partial(Op, traits=frozenset({"elementwise"}))

registry.register_all(
    *(
        _logic(
            name=f"logical_{word}",
            arity=2,
            infer=partial(same_of, _TRUTH),
            reference=lambda xp, a, x, y, n=f"logical_{word}": getattr(xp, n)(x, y),
            lower=_expression(sign),
            samples=_sizes(2, DType.BOOL, 0, 1),
            onnx=(word.title(),),
            doc=f"Whether {said}; of bool.",
        )
        for word, (sign, said) in _WORDS.items()
    ),
    _logic(
        name="logical_not",
        infer=partial(same_of, _TRUTH),
        reference=lambda xp, attrs, x: xp.logical_not(x),
        lower=_expression("~"),
        samples=_sizes(1, DType.BOOL, 0, 1),
        onnx=("Not",),
        doc="Whether x does not hold; of bool.",
    ),
    *(
        _logic(
            name=f"bitwise_{word}",
            arity=2,
            infer=partial(same_of, _TRUTH | INTEGERS),
            reference=lambda xp, a, x, y, n=f"bitwise_{word}": getattr(xp, n)(x, y),
            lower=_expression(sign),
            bounds=bounds.BITS,
            samples=_bits(2),
            onnx=onnx_of(f"bitwise_{word}"),
            doc=f"x {sign} y, bit by bit; of integers and of bool.",
        )
        for word, (sign, _) in _WORDS.items()
    ),
    _logic(
        name="bitwise_not",
        infer=partial(same_of, _TRUTH | INTEGERS),
        reference=lambda xp, attrs, x: xp.bitwise_invert(x),
        lower=_expression("~"),
        bounds=bounds.TURNED_BITS,
        samples=_bits(1),
        onnx=onnx_of("bitwise_not"),
        doc="~x: every bit turned; of integers and of bool.",
        aliases=("bitwise_invert",),
    ),
    _logic(
        name="shift_left",
        arity=2,
        infer=partial(same_of, INTEGERS),
        reference=shift_left,
        lower=Expr(partial(_shifted, left=True)),
        bounds=bounds.SHIFTED_UP,
        samples=_SHIFTS,
        doc="x << y; 0 where y is no smaller than the bits there are, or negative.",
        aliases=("bitwise_left_shift",),
    ),
    _logic(
        name="shift_right",
        arity=2,
        infer=partial(same_of, INTEGERS),
        reference=shift_right,
        lower=Expr(partial(_shifted, left=False)),
        bounds=bounds.SHIFTED_DOWN,
        samples=_SHIFTS,
        doc="x >> y, keeping the sign; 0, or -1 of a negative x, where y is no smaller "
        "than the bits there are, or negative.",
        aliases=("bitwise_right_shift",),
    ),
)
