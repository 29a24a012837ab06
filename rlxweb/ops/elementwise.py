"""Arithmetic, comparison, where and cast: one output element from one of each operand.

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

from rlxweb.ir import bounds
from rlxweb.ir.derivative import Slope, Taken, slopes
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import EXACT, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample, spelled
from rlxweb.ir.shape import Shape, bad_dtype, broadcast
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.kinds import is_float

FLOATS = frozenset(d for d in DType if d.is_float)
INTEGERS = frozenset(d for d in DType if d.is_integer)
UNSIGNED = frozenset(d for d in DType if d.is_unsigned)
NUMBERS = FLOATS | INTEGERS

# One correctly rounded operation; and WGSL's 2.5 ULP division.
ROUNDED = Tolerance(rtol=2.0**-23, atol=1e-38)
DIVIDED = Tolerance(rtol=4e-7, atol=1e-37)
POWER = Tolerance(rtol=4e-6, atol=1e-30)


def need(types: Types, allowed: frozenset[DType]) -> None:
    """Every operand is of an allowed dtype. Errors  DTypeError."""
    for at, one in enumerate(types):
        if one.dtype not in allowed:
            names = ", ".join(d.label for d in DType if d in allowed)
            raise bad_dtype(
                f"operand {at} is {one.dtype}",
                f"it takes {names}",
                "cast the operand first",
            )


def same_dtype(types: Types) -> DType:
    """The one dtype of all operands. Errors  DTypeError."""
    first = types[0].dtype
    for one in types[1:]:
        if one.dtype is not first:
            raise bad_dtype(
                f"operands are {first} and {one.dtype}",
                "all must have one dtype; nothing is promoted",
                "cast one of them",
            )
    return first


_SHAPES = spelled(
    "()@() 1@1 7@7 8x16@8x16 13@() 0x3@1x3 5x1x3@4x1 1x1x6@2x3x1 65537x2@2"
)


def _pairs(x: Drawn, y: Drawn) -> tuple[Sample, ...]:
    """Every pair of shapes with the value ranges of `x` and `y`."""
    return tuple(Sample((replace(x, shape=a), replace(y, shape=b))) for a, b in _SHAPES)


def _one(x: Drawn, y: Drawn, note: str = "") -> tuple[Sample, ...]:
    return (Sample((replace(x, shape=(11, 5)), replace(y, shape=(5,))), note=note),)


def _of(dtype: DType, low: float, high: float) -> Drawn:
    return Drawn((), dtype, low, high)


def _whole(dtype: DType, low: float, high: float) -> Drawn:
    return Drawn((), dtype, low, high, whole=True)


_WIDE = _of(DType.F32, -1e4, 1e4)
_INTS = _of(DType.I32, -(1 << 30), 1 << 30)
_UINTS = _of(DType.U32, 0, (1 << 32) - 1)
_HALF = _whole(DType.F16, -30, 30)


def _on_cpu_too(low: float, high: float) -> tuple[Sample, ...]:
    """Types that only the CPU has."""
    return tuple(
        s
        for dtype in (DType.F64, DType.I64, DType.U64)
        for s in _one(_of(dtype, low, high), _of(dtype, low, high))
    )


_ARITHMETIC = (
    _pairs(_of(DType.F32, -2, 2), _of(DType.F32, -2, 2))
    + _one(_WIDE, _WIDE, "wide")
    + _one(_INTS, _INTS, "wraps")
    + _one(_UINTS, _UINTS, "wraps")
    + _one(_HALF, _HALF)
    + _on_cpu_too(-100, 100)
)


def same_shape(types: Types, attrs: Attrs) -> TensorType:
    """The shape rule of elementwise ops: operands of one dtype broadcast."""
    dtype = same_dtype(types)
    return TensorType(broadcast(*(t.shape for t in types)), dtype)


def same_of(allowed: frozenset[DType], types: Types, attrs: Attrs) -> TensorType:
    """`same_shape` of some dtypes. Errors  DTypeError for another."""
    same_dtype(types)
    need(types, allowed)
    return same_shape(types, attrs)


def divide(xp: Any, attrs: Attrs, x: Any, y: Any) -> Any:
    """The quotient; of integers truncated toward zero, and 0 where y is 0."""
    if is_float(xp, x):
        return x / y
    safe = xp.where(y == 0, xp.ones_like(y), y)
    low = xp.floor_divide(x, safe)
    rest = x - low * safe
    up = (rest != 0) & ((rest < 0) != (x < 0))
    return xp.where(y == 0, xp.zeros_like(x), low + xp.asarray(up, dtype=low.dtype))


def power(xp: Any, attrs: Attrs, x: Any, y: Any) -> Any:
    """The power; beside a single 0.5 NumPy takes the root, of -infinity too."""
    endless = (x == -math.inf) & (y == 0.5)
    return xp.where(endless, xp.asarray(math.inf, dtype=x.dtype), xp.pow(x, y))


_arithmetic = partial(
    Op,
    arity=2,
    infer=partial(same_of, NUMBERS),
    traits=frozenset({"elementwise"}),
    tolerance=ROUNDED,
    samples=_ARITHMETIC,
)


def _quotient(types: Types, out: TensorType, attrs: Attrs) -> str:
    # WGSL gives x for an integer x / 0.
    if out.dtype.is_float:
        return "quotient(x, y)"
    return "select(x / select(y, X(1), y == X(0)), X(0), y == X(0))"


_DIVISIONS = (
    _pairs(_of(DType.F32, -2, 2), _of(DType.F32, 0.25, 2))
    + _one(_WIDE, _of(DType.F32, -90, -0.01), "wide")
    + _one(_of(DType.I32, -100, 100), _of(DType.I32, -4, 4), "zeros below")
    + _one(_UINTS, _of(DType.U32, 0, 3), "zeros below")
    + _one(_of(DType.I64, -100, 100), _of(DType.I64, -4, 4))
    + _one(_of(DType.F64, -100, 100), _of(DType.F64, 1, 4))
)
_POWERS = (
    _pairs(_of(DType.F32, 0.125, 8), _of(DType.F32, -3, 3))
    + _one(_of(DType.F32, 1e-6, 1e6), _of(DType.F32, -3, 3), "wide")
    + _one(_of(DType.F32, -5, 5), _whole(DType.F32, 0, 7), "signed, whole powers")
    + _one(_whole(DType.F32, 0, 2), _whole(DType.F32, 0, 3), "zeros and ones")
    + _one(_of(DType.F64, 0.5, 2), _of(DType.F64, -3, 3))
)


def _sign(sign: str) -> Expr:
    """+, - or *: each rounded by itself, whatever stands beside it in a region."""
    second = "opaque(y)" if sign == "-" else "y"

    def text(types: Types, out: TensorType, attrs: Attrs) -> str:
        return f"opaque(x {sign} {second})" if out.dtype.is_float else f"x {sign} y"

    return Expr(text, ("opaque",))


def _extreme(name: str) -> Expr:
    """The larger or the smaller, in which a NaN stays one."""
    kept = {"max": "larger", "min": "smaller"}[name]

    def text(types: Types, out: TensorType, attrs: Attrs) -> str:
        return f"{kept if out.dtype.is_float else name}(x, y)"

    return Expr(text, ("nan",))


def _comparison(name: str) -> Expr:
    """False beside a NaN, but for `ne`: told by bits, as a driver may see none."""
    sign = _COMPARED[name]

    def text(types: Types, out: TensorType, attrs: Attrs) -> str:
        if not types[0].dtype.is_float:
            return f"x {sign} y"
        if name == "ne":
            return "!(ordered(x, y) & (x == y))"
        return f"ordered(x, y) & (x {sign} y)"

    return Expr(text, ("nan",))


def _truth(types: Types, attrs: Attrs) -> TensorType:
    return TensorType(same_shape(types, attrs).shape, DType.BOOL)


def _ordered(types: Types, attrs: Attrs) -> TensorType:
    need(types, NUMBERS)
    return _truth(types, attrs)


_COMPARISONS = (
    _pairs(_whole(DType.F32, -2, 2), _whole(DType.F32, -2, 2))
    + _one(_of(DType.I32, -3, 3), _of(DType.I32, -3, 3))
    + _one(_UINTS, _UINTS, "above the signed range")
    + _one(_whole(DType.F16, -2, 2), _whole(DType.F16, -2, 2))
    + _on_cpu_too(-2, 2)
)
_TRUTHS = _one(_of(DType.BOOL, 0, 1), _of(DType.BOOL, 0, 1))


def _chosen(types: Types, attrs: Attrs) -> TensorType:
    if types[0].dtype is not DType.BOOL:
        raise bad_dtype(
            f"the condition is {types[0].dtype}",
            "a condition is bool",
            "compare it with something: g.ne(condition, 0)",
        )
    return TensorType(broadcast(*(t.shape for t in types)), same_dtype(types[1:]))


def _choice(c: Shape, x: Shape, y: Shape, dtype: DType = DType.F32) -> Sample:
    return Sample((Drawn(c, DType.BOOL), Drawn(x, dtype), Drawn(y, dtype)))


_CHOICES = spelled("()@()@() 1@1@1 8x4@8x4@8x4 5x1@7@() 0x2@2@1x1 2@65537x2@1x2")
WIDE_TYPES = (DType.F64, DType.I64, DType.U64)
_CHOSEN_TYPES = (DType.I32, DType.U32, DType.BOOL, DType.F16, *WIDE_TYPES)


# Python's name of an operator that NumPy and WGSL write alike.
_COMPUTED = {"add": "+", "sub": "-", "mul": "*"}
_FAR = {"+": bounds.ADDED, "-": bounds.SUBTRACTED, "*": bounds.MULTIPLIED}
_ONNX_COMPARED = {
    "eq": ("Equal",),
    "lt": ("Less",),
    "le": ("LessOrEqual",),
    "gt": ("Greater",),
    "ge": ("GreaterOrEqual",),
}
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _by_power(g: Any, x: Any, y: Any, out: Any) -> Any:
    """The slope y x^(y - 1): of y = 0 it is 0, whatever x is."""
    node = g.node(y.id)
    if node.is_literal:  # most are: squares, cubes, roots
        power = float(node.attrs["value"].array.reshape(()))
        if power in (0.0, 1.0, 2.0):
            return (0.0, 1.0, x * 2.0)[int(power)]
        return power * g.pow(x, power - 1.0)
    # At x = y = 0 it is 0 times an infinite power. Elsewhere y = 0 is no corner.
    tiny = float(np.finfo(x.dtype.numpy).tiny)
    flat = g.logical_and(y.eq(0.0), g.abs(x) < tiny)
    return g.where(flat, 0.0, y * g.pow(x, g.where(flat, 1.0, y - 1.0)))


def _by_exponent(g: Any, x: Any, y: Any, out: Any) -> Any:
    """The slope x^y log(x): of x = 0 it is 0, and of a negative x NaN."""
    nothing = g.logical_and(x.eq(0.0), y >= 0.0)
    return g.where(nothing, 0.0, out * g.log(g.where(nothing, 1.0, x)))


def _share(better: str) -> tuple[Slope, Slope]:
    """Of the larger or the smaller operand: 1 where it is this one, half if equal."""

    def share(g: Any, mine: Any, other: Any) -> Any:
        is_mine = getattr(g, better)(mine, other).cast(mine.dtype)
        return is_mine + 0.5 * mine.eq(other).cast(mine.dtype)

    return (
        lambda g, x, y, out: share(g, x, y),
        lambda g, x, y, out: share(g, y, x),
    )


def _chosen_back(at: Taken) -> list[Tensor | None]:
    zero = at.g.constant(0, at.grad.dtype)
    c = at.inputs[0]
    return [None, at.g.where(c, at.grad, zero), at.g.where(c, zero, at.grad)]


_SLOPES: dict[str, tuple[Slope, Slope]] = {
    "add": (lambda g, x, y, out: 1.0, lambda g, x, y, out: 1.0),
    "sub": (lambda g, x, y, out: 1.0, lambda g, x, y, out: -1.0),
    "mul": (lambda g, x, y, out: y, lambda g, x, y, out: x),
}


def _operator(name: str) -> Callable[..., Any]:
    how = getattr(operator, name)
    return lambda xp, attrs, x, y: how(x, y)


def _telling(slow: DType) -> tuple[Sample, ...]:
    """Two sizes, and before them the larger of numbers that NumPy is slow with."""
    cases = (((1 << 17,), slow), ((64,), DType.F32), ((1 << 17,), DType.F32))
    return tuple(Sample((Drawn(s, d, 1.0, 9.0),) * 2) for s, d in cases)


registry.register_all(
    *(
        _arithmetic(
            name=name,
            reference=_operator(name),
            lower=_sign(sign),
            bounds=_FAR[sign],
            telling=_telling(DType.F16) if name == "mul" else (),
            onnx=(name.title(),),
            vjp=slopes(*_SLOPES[name]),
            doc=f"x {sign} y; integers wrap.",
        )
        for name, sign in _COMPUTED.items()
    ),
    _arithmetic(
        name="div",
        reference=divide,
        lower=Expr(_quotient, ("opaque", "quotient")),
        bounds=bounds.QUOTIENT,
        tolerance=DIVIDED,
        samples=_DIVISIONS,
        telling=_telling(DType.I32),
        onnx=("Div",),
        vjp=slopes(lambda g, x, y, out: 1.0 / y, lambda g, x, y, out: -out / y),
        doc="x / y. Integers truncate toward zero; an integer divided by 0 is 0.",
    ),
    _arithmetic(
        name="maximum",
        reference=lambda xp, a, x, y: xp.maximum(x, y),
        lower=_extreme("max"),
        bounds=bounds.LARGER,
        tolerance=EXACT,
        vjp=slopes(*_share("gt")),
        doc="The larger of x and y; NaN where either is.",
    ),
    _arithmetic(
        name="minimum",
        reference=lambda xp, a, x, y: xp.minimum(x, y),
        lower=_extreme("min"),
        bounds=bounds.SMALLER,
        tolerance=EXACT,
        vjp=slopes(*_share("lt")),
        doc="The smaller of x and y; NaN where either is.",
    ),
    _arithmetic(
        name="pow",
        reference=power,
        lower=Expr("signed_pow(x, y)", ("pow",)),
        traits=frozenset({"elementwise", "floats_only"}),
        tolerance=POWER,
        samples=_POWERS,
        vjp=slopes(_by_power, _by_exponent),
        doc="x to the power y, floats only, with the edges of C's pow: x ** 0 and "
        "1 ** y are 1 whatever the other is, 0 to a negative power is infinity, and a "
        "finite negative x to a fraction is NaN.",
    ),
    *(
        Op(
            name=name,
            arity=2,
            infer=_truth if name in ("eq", "ne") else _ordered,
            reference=_operator(name),
            lower=_comparison(name),
            traits=frozenset({"elementwise"}),
            samples=_COMPARISONS + (_TRUTHS if name in ("eq", "ne") else ()),
            onnx=_ONNX_COMPARED.get(name, ()),
            doc=f"Whether x {sign} y, as bool; {name == 'ne'} beside a NaN.",
        )
        for name, sign in _COMPARED.items()
    ),
    Op(
        name="where",
        arity=3,
        infer=_chosen,
        reference=lambda xp, a, c, x, y: xp.where(c, x, y),
        lower=Expr("select(z, y, x)"),
        bounds=bounds.kept(1, 2),
        traits=frozenset({"elementwise"}),
        onnx=("Where",),
        vjp=_chosen_back,
        samples=(
            *(_choice(c, x, y) for c, x, y in _CHOICES),
            *(_choice((3, 5), (5,), (3, 1), dtype) for dtype in _CHOSEN_TYPES),
        ),
        doc="x where the bool condition holds, else y; all three broadcast.",
    ),
)
