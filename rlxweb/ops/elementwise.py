"""Arithmetic, comparison, where and cast: one output element from one of each operand.

Operands broadcast as in NumPy and have one dtype: nothing is promoted. Integers wrap as
their type does; an integer division truncates toward zero and by zero gives 0. Unary
functions are in `activation.py`. No device is known here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlxweb.errors import DTypeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import EXACT, Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, broadcast

FLOATS = frozenset({DType.F16, DType.F32, DType.F64})
INTEGERS = frozenset({DType.I32, DType.U32, DType.I64})
NUMBERS = FLOATS | INTEGERS

# One correctly rounded operation; and WGSL's 2.5 ULP division.
ROUNDED = Tolerance(rtol=2.0**-23, atol=1e-38)
DIVIDED = Tolerance(rtol=4e-7, atol=1e-37)
POWER = Tolerance(rtol=4e-6, atol=1e-30)


def is_float(xp: Any, x: Any) -> bool:
    """Whether an array of namespace `xp` holds floats."""
    return any(x.dtype == t for t in (xp.float32, xp.float64, xp.float16))


def need(types: Types, allowed: frozenset[DType]) -> None:
    """Every operand is of an allowed dtype. Errors  DTypeError."""
    for at, one in enumerate(types):
        if one.dtype not in allowed:
            names = ", ".join(d.label for d in DType if d in allowed)
            raise DTypeError(
                "",
                f"operand {at} is {one.dtype}",
                f"it takes {names}",
                "cast the operand first",
            )


def same_dtype(types: Types) -> DType:
    """The one dtype of all operands. Errors  DTypeError."""
    first = types[0].dtype
    for one in types[1:]:
        if one.dtype is not first:
            raise DTypeError(
                "",
                f"operands are {first} and {one.dtype}",
                "all must have one dtype; nothing is promoted",
                "cast one of them",
            )
    return first


_SHAPES: tuple[tuple[Shape, Shape], ...] = (
    ((), ()),
    ((1,), (1,)),
    ((7,), (7,)),
    ((8, 16), (8, 16)),
    ((13,), ()),
    ((0, 3), (1, 3)),
    ((5, 1, 3), (4, 1)),
    ((1, 1, 6), (2, 3, 1)),
    ((65_537, 2), (2,)),
)


def _pairs(x: Drawn, y: Drawn) -> tuple[Sample, ...]:
    """Every pair of shapes with the value ranges of `x` and `y`."""
    return tuple(Sample((_shaped(x, a), _shaped(y, b))) for a, b in _SHAPES)


def _one(x: Drawn, y: Drawn, note: str = "") -> tuple[Sample, ...]:
    return (Sample((_shaped(x, (11, 5)), _shaped(y, (5,))), note=note),)


def _shaped(one: Drawn, shape: Shape) -> Drawn:
    return Drawn(shape, one.dtype, one.low, one.high, one.whole)


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
        for dtype in (DType.F64, DType.I64)
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


def _same_type(types: Types, attrs: Attrs) -> TensorType:
    dtype = same_dtype(types)
    need(types, NUMBERS)
    return TensorType(broadcast(*(t.shape for t in types)), dtype)


def divide(xp: Any, attrs: Attrs, x: Any, y: Any) -> Any:
    """The quotient; of integers truncated toward zero, and 0 where y is 0."""
    if is_float(xp, x):
        return x / y
    safe = xp.where(y == 0, xp.ones_like(y), y)
    low = xp.floor_divide(x, safe)
    rest = x - low * safe
    up = (rest != 0) & ((rest < 0) != (x < 0))
    return xp.where(y == 0, xp.zeros_like(x), low + up.astype(low.dtype))


def _arithmetic(
    name: str,
    text: str | Callable[..., str],
    reference: Callable[..., Any],
    doc: str,
    tolerance: Tolerance = ROUNDED,
    samples: tuple[Sample, ...] = _ARITHMETIC,
    uses: tuple[str, ...] = (),
    floats: bool = False,
) -> Op:
    return Op(
        name=name,
        arity=2,
        infer=_same_type,
        reference=reference,
        lower=Expr(text, uses),
        traits=frozenset({"elementwise", *(("floats_only",) if floats else ())}),
        tolerance=tolerance,
        samples=samples,
        doc=doc,
    )


def _quotient(types: Types, out: TensorType, attrs: Attrs) -> str:
    # WGSL gives x for an integer x / 0.
    if out.dtype.is_float:
        return "x / y"
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

_ARITHMETIC_OPS = [
    _arithmetic("add", "x + y", lambda xp, a, x, y: x + y, "x + y; integers wrap."),
    _arithmetic("sub", "x - y", lambda xp, a, x, y: x - y, "x - y; integers wrap."),
    _arithmetic("mul", "x * y", lambda xp, a, x, y: x * y, "x * y; integers wrap."),
    _arithmetic(
        "div",
        _quotient,
        divide,
        "x / y. Integers truncate toward zero; an integer divided by 0 is 0.",
        DIVIDED,
        _DIVISIONS,
    ),
    _arithmetic(
        "maximum",
        "max(x, y)",
        lambda xp, a, x, y: xp.maximum(x, y),
        "The larger of x and y.",
        EXACT,
    ),
    _arithmetic(
        "minimum",
        "min(x, y)",
        lambda xp, a, x, y: xp.minimum(x, y),
        "The smaller of x and y.",
        EXACT,
    ),
    _arithmetic(
        "pow",
        "signed_pow(x, y)",
        lambda xp, a, x, y: xp.power(x, y),
        "x to the power y, floats only; x ** 0 = 1 and a negative x takes whole "
        "powers. A negative x to a fraction and 0 to a negative power are NaN and "
        "infinity on the CPU and unspecified on a GPU.",
        POWER,
        _POWERS,
        ("pow",),
        floats=True,
    ),
]


def _truth(types: Types, attrs: Attrs) -> TensorType:
    same_dtype(types)
    return TensorType(broadcast(*(t.shape for t in types)), DType.BOOL)


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


def _comparison(
    name: str, sign: str, reference: Callable[..., Any], bools: bool = False
) -> Op:
    return Op(
        name=name,
        arity=2,
        infer=_truth if bools else _ordered,
        reference=reference,
        lower=Expr(f"x {sign} y"),
        traits=frozenset({"elementwise"}),
        samples=_COMPARISONS + (_TRUTHS if bools else ()),
        doc=f"Whether x {sign} y, as bool.",
    )


_COMPARISON_OPS = [
    _comparison("eq", "==", lambda xp, a, x, y: x == y, bools=True),
    _comparison("ne", "!=", lambda xp, a, x, y: x != y, bools=True),
    _comparison("lt", "<", lambda xp, a, x, y: x < y),
    _comparison("le", "<=", lambda xp, a, x, y: x <= y),
    _comparison("gt", ">", lambda xp, a, x, y: x > y),
    _comparison("ge", ">=", lambda xp, a, x, y: x >= y),
]


def _chosen(types: Types, attrs: Attrs) -> TensorType:
    if types[0].dtype is not DType.BOOL:
        raise DTypeError(
            "",
            f"the condition is {types[0].dtype}",
            "a condition is bool",
            "compare it with something: g.ne(condition, 0)",
        )
    dtype = same_dtype(types[1:])
    return TensorType(broadcast(*(t.shape for t in types)), dtype)


def _choice(c: Shape, x: Shape, y: Shape, dtype: DType = DType.F32) -> Sample:
    return Sample((Drawn(c, DType.BOOL), Drawn(x, dtype), Drawn(y, dtype)))


_WHERE = Op(
    name="where",
    arity=3,
    infer=_chosen,
    reference=lambda xp, a, c, x, y: xp.where(c, x, y),
    lower=Expr("select(z, y, x)"),
    traits=frozenset({"elementwise"}),
    samples=(
        _choice((), (), ()),
        _choice((1,), (1,), (1,)),
        _choice((8, 4), (8, 4), (8, 4)),
        _choice((5, 1), (7,), ()),
        _choice((0, 2), (2,), (1, 1)),
        _choice((2,), (65_537, 2), (1, 2)),
        _choice((3, 5), (5,), (3, 1), DType.I32),
        _choice((3, 5), (5,), (3, 1), DType.U32),
        _choice((3, 5), (5,), (3, 1), DType.BOOL),
        _choice((3, 5), (5,), (3, 1), DType.F16),
        _choice((3, 5), (5,), (3, 1), DType.F64),
        _choice((3, 5), (5,), (3, 1), DType.I64),
    ),
    doc="x where the bool condition holds, else y; all three broadcast.",
)


def _converted(types: Types, attrs: Attrs) -> TensorType:
    return TensorType(types[0].shape, attrs["to"])


def convert(xp: Any, attrs: Attrs, x: Any) -> Any:
    """Another dtype; float to integer truncates and saturates, NaN gives 0."""
    to: DType = attrs["to"]
    if to is DType.BOOL:
        return x != 0
    target = getattr(xp, to.numpy.name)
    if not (to.is_integer and is_float(xp, x)):
        return x.astype(target)
    if x.dtype == xp.float16:
        x = x.astype(xp.float32)
    bits = {DType.I32: 31, DType.U32: 32, DType.I64: 63}[to]
    lowest, highest = (0 if to is DType.U32 else -(1 << bits)), (1 << bits) - 1
    whole = xp.trunc(xp.where(xp.isnan(x), xp.zeros_like(x), x))
    above, below = whole >= 2.0**bits, whole < lowest
    inside = xp.where(above | below, xp.zeros_like(x), whole).astype(target)
    capped = xp.where(above, xp.asarray(highest, dtype=target), inside)
    return xp.where(below, xp.asarray(lowest, dtype=target), capped)


def _conversion(types: Types, out: TensorType, attrs: Attrs) -> str:
    source, to = types[0].dtype, out.dtype
    if source is to:
        return "x"
    if to is DType.BOOL:
        return "x != X(0)"
    if to is DType.F16:
        return "quantizeToF16(F(x))"
    if to is DType.F32:
        return "F(x)"
    name, alias = ("to_i32", "I") if to is DType.I32 else ("to_u32", "U")
    return f"{name}(x)" if source.is_float else f"{alias}(x)"


def _cast(shape: Shape, source: DType, to: DType, top: float = 100) -> Sample:
    low = -top if source is not DType.U32 else 0
    return Sample((Drawn(shape, source, low, top),), {"to": to})


_GPU_TYPES = (DType.F32, DType.I32, DType.U32, DType.BOOL)

_CAST = Op(
    name="cast",
    arity=1,
    infer=_converted,
    reference=convert,
    lower=Expr(_conversion, ("saturate",)),
    attrs=(Attr("to", "dtype"),),
    traits=frozenset({"elementwise"}),
    tolerance=ROUNDED,
    samples=(
        *(_cast((3, 7), a, b) for a in _GPU_TYPES for b in _GPU_TYPES),
        *(_cast((3, 7), a, b) for a in _GPU_TYPES for b in (DType.F64, DType.I64)),
        *(_cast((3, 7), a, b) for b in _GPU_TYPES for a in (DType.F64, DType.I64)),
        *(_cast((16,), DType.F16, b) for b in _GPU_TYPES),
        *(_cast((16,), a, DType.F16) for a in (DType.I32, DType.U32, DType.BOOL)),
        _cast((9, 9), DType.F32, DType.I32, 1e10),
        _cast((9, 9), DType.F32, DType.U32, 1e10),
        _cast((9, 9), DType.I32, DType.F32, 2e9),
        _cast((9, 9), DType.I32, DType.U32, 2e9),
        _cast((9, 9), DType.U32, DType.I32, 4e9),
        _cast((9, 9), DType.U32, DType.F32, 4e9),
        _cast((), DType.F32, DType.I32),
        _cast((0, 5), DType.F32, DType.BOOL),
        _cast((65_537, 2), DType.I32, DType.F32),
    ),
    doc="The values in another dtype. Float to integer truncates toward zero and "
    "saturates, NaN becomes 0; integer to integer wraps; to bool is != 0.",
)

registry.register_all([*_ARITHMETIC_OPS, *_COMPARISON_OPS, _WHERE, _CAST])
