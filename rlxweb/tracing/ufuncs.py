"""NumPy's ufuncs over traced arrays: real ones by the ops of a graph.

The dtypes are those of NumPy's own loops, which it is asked for; operands are cast to
them and the op of the ufunc does the rest. Ops are named here by the graph's methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from rlxweb.errors import DTypeError, RlxError
from rlxweb.ir.dtype import DType
from rlxweb.ir.p_norm import norm_root
from rlxweb.ir.size import Size
from rlxweb.ir.tensor import Tensor
from rlxweb.tracing.place import placed, refused
from rlxweb.tracing.table import COMPLEX, FUNCTIONS, REAL, call_function, no_form
from rlxweb.tracing.traced import DT, Traced, changed

_WEAK = (int, float, complex)
_INT64 = np.dtype(np.int64)


def called(trace: Any, ufunc: np.ufunc, method: str, inputs: Any, how: Any) -> Any:
    """A ufunc or a method of it, with NumPy's arguments. Errors  TraceError, those of
    NumPy for dtypes it has no loop for, those of the graph.
    """
    name = f"np.{ufunc.__name__}"
    out = how.pop("out", None)
    for key in ("where", "casting", "order", "subok", "axes", "axis", "keepdims"):
        value = how.get(key, True)
        # A traced array is compared with nothing: it has no truth value.
        changes = value is not True and (
            not isinstance(value, str) or value not in ("same_kind", "K")
        )
        if method == "__call__" and changes:
            problem = f"{key}= is not taken in a traced function"
            hint = "use np.where on the result" if key == "where" else "leave it out"
            raise refused(name, problem, hint=hint)
    if method != "__call__":
        if out is not None and any(one is not None for one in out):
            raise refused(f"{name}.{method}", "out= is not taken")
        return _method(trace, ufunc, method, inputs, how)
    quick = _POWERS.get(inputs[1]) if ufunc is np.power and _is_number(inputs) else None
    if ufunc in FUNCTIONS:
        made = call_function(trace, ufunc, inputs, {})
    elif quick is not None:
        made = _applied(trace, quick, name, inputs[:1], how.get("dtype"))
    else:
        made = _applied(trace, ufunc, name, inputs, how.get("dtype"))
    return made if out is None else _stored(name, inputs, out, made)


_POWERS = {2: np.square, 1: np.positive}
"""x ** 2 is x · x, as for NumPy's arrays."""


def _is_number(inputs: Any) -> bool:
    return len(inputs) == 2 and type(inputs[1]) in (int, float)


def _method(trace: Any, ufunc: np.ufunc, method: str, inputs: Any, how: Any) -> Any:
    """np.add.reduce and its like, as the functions that do the same."""
    same = _METHODS.get((ufunc, method))
    if same is not None:
        if method == "reduce":
            how.setdefault("axis", 0)
        return call_function(trace, same, inputs, how)
    if method == "outer" and not how:
        x, y = (trace.lifted(one) for one in inputs)
        return ufunc(x.reshape((*x.shape, *(1,) * y.ndim)), y)
    raise no_form(f"np.{ufunc.__name__}.{method}")


_METHODS: dict[tuple[np.ufunc, str], Callable[..., Any]] = {
    (np.add, "reduce"): np.sum,
    (np.multiply, "reduce"): np.prod,
    (np.maximum, "reduce"): np.max,
    (np.minimum, "reduce"): np.min,
    (np.logical_and, "reduce"): np.all,
    (np.logical_or, "reduce"): np.any,
    (np.add, "accumulate"): np.cumsum,
    (np.multiply, "accumulate"): np.cumprod,
}


def _stored(name: str, inputs: Any, out: Any, made: Any) -> Any:
    """`x += y`: where x is the function's own and no other array may see it."""
    target = out[0]
    if len(out) != 1 or not inputs or target is not inputs[0]:
        raise refused(name, "out= is not taken", hint="take the result it returns")
    hint = "write x = x + y, which makes another array"
    if target.viewed:
        raise changed(f"an operator such as += ({name}) on an array", hint)
    if made.shape != target.shape:
        problem = f"{list(made.shape)} does not fit into {list(target.shape)}"
        raise refused(name, problem, hint=hint)
    if not np.can_cast(made.dtype, target.dtype, "same_kind"):
        problem = f"{made.dtype} is not stored as {target.dtype}"
        raise refused(name, problem, hint=hint)
    made = target.trace.cast(made, target.dtype)
    target.re, target.im, target.squared = made.re, made.im, made.squared
    return target


def _applied(trace: Any, ufunc: np.ufunc, name: str, given: Any, dtype: Any) -> Any:
    try:
        return _in_loop(trace, ufunc, name, given, dtype)
    except RlxError as error:
        raise placed(error, name) from error.__cause__


def _in_loop(trace: Any, ufunc: np.ufunc, name: str, given: Any, dtype: Any) -> Any:
    """The ufunc in the dtypes of the loop that NumPy would take."""
    inputs = [
        one if type(one) in (*_WEAK, Size) else trace.lifted(one) for one in given
    ]
    loop = loop_of(trace, ufunc, inputs, dtype)
    of_complex = any(kind.kind == "c" for kind in loop[: ufunc.nin])
    how = (COMPLEX if of_complex else REAL).get(ufunc)
    if how is None:
        raise no_form(f"{name} of complex numbers" if of_complex else name)
    if of_complex:
        return how(trace, *map(trace.lifted, inputs, loop))
    squared = _squared_in(ufunc, inputs, loop)
    if squared is not None:
        return Traced(trace, squared(), None, loop[-1])
    narrow = ufunc in _NARROW and _are_narrow(inputs, loop)
    operands = _operands(trace, inputs, loop, narrow)
    made = how(trace.graph, *operands)
    kinds = loop[ufunc.nin :]
    if ufunc.nout > 1:
        both = zip(made, kinds, strict=True)
        return tuple(Traced(trace, one, None, kind) for one, kind in both)
    result = Traced(trace, made, None, kinds[0])
    if ufunc in _MAGNITUDES and made.dtype.is_float:
        result.squared = partial(sum_of_squares, trace.graph, *operands)
    return result


_MAGNITUDES = (np.absolute, np.fabs, np.hypot)


def _squared_in(
    ufunc: np.ufunc, inputs: Sequence[Any], loop: Sequence[DT]
) -> Callable[[], Tensor] | None:
    """Return how the square of a magnitude is computed without the magnitude.

    |x|² is smooth, |x| is not: a product of two slopes at the kink is no derivative.
    """
    x = inputs[0]
    is_square = ufunc is np.square or (ufunc is np.multiply and inputs[1] is x)
    if not is_square or type(x) is not Traced or x.dtype != loop[0]:
        return None
    return x.squared


def sum_of_squares(g: Any, *parts: Tensor) -> Tensor:
    """Return the sum of the squares of one or more tensors."""
    made: Tensor = reduce(g.add, [g.mul(part, part) for part in parts])
    return made


def _kind(x: Any) -> Any:
    """What NumPy is told of an operand: a size that a run binds is an int."""
    if isinstance(x, Size):
        return int
    return type(x) if type(x) in _WEAK else x.dtype


def loop_of(
    trace: Any, ufunc: np.ufunc, inputs: Sequence[Any], dtype: Any = None
) -> tuple[DT, ...]:
    """The dtypes of NumPy's loop for these operands, as they are counted here."""
    kinds = [_kind(x) for x in inputs]
    outs = (None,) * ufunc.nout
    how: dict[str, Any] = {}
    if dtype is not None:
        wanted = (np.dtype(dtype),) * ufunc.nout
        how["signature"] = ((None,) * ufunc.nin) + wanted
    try:
        found = ufunc.resolve_dtypes((*kinds, *outs), **how)
    except TypeError as error:
        said = " ".join(str(error).split())
        raise DTypeError("", said, "NumPy does not compute it either") from None
    return tuple(trace.settled(kind) for kind in found)


def _are_narrow(inputs: Sequence[Any], loop: Sequence[DT]) -> bool:
    """Are all 64-bit integers here of 32 bits, so that no wider ones are needed?"""
    if loop[0] != _INT64:
        return False
    small = np.iinfo(np.int32)
    return all(
        x.re.dtype in (DType.I32, DType.BOOL)
        if isinstance(x, Traced)
        else isinstance(x, Size) or (type(x) is int and small.min <= x <= small.max)
        for x in inputs
    )


def _operands(
    trace: Any, inputs: Sequence[Any], loop: Sequence[DT], narrow: bool
) -> list[Tensor]:
    kinds = [np.dtype(np.int32)] * len(inputs) if narrow else loop
    return [trace.real(x, k) for x, k in zip(inputs, kinds, strict=False)]


# --- the table of real ufuncs ---------------------------------------------------------

_NARROW = {
    *(np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal),
    *(np.maximum, np.minimum, np.fmax, np.fmin, np.sign, np.positive),
    *(np.logical_and, np.logical_or, np.logical_xor, np.logical_not),
    *(np.bitwise_and, np.bitwise_or, np.bitwise_xor),
}
"""Those whose results have 32 bits where their operands have."""


def _named(method: str) -> Callable[..., Any]:
    return lambda g, *xs: getattr(g, method)(*xs)


def _logic(of_numbers: str, of_bools: str) -> Callable[..., Any]:
    """One op where NumPy's loop is of numbers, another where it is of bools."""

    def how(g: Any, *xs: Tensor) -> Any:
        kind = of_bools if xs[0].dtype is DType.BOOL else of_numbers
        return getattr(g, kind)(*xs)

    return how


def _compared(method: str) -> Callable[..., Any]:
    """Bools are compared as 0 and 1."""

    def how(g: Any, x: Tensor, y: Tensor) -> Any:
        if x.dtype is DType.BOOL:
            x, y = g.cast(x, DType.I32), g.cast(y, DType.I32)
        return getattr(g, method)(x, y)

    return how


def _whole(method: str) -> Callable[..., Any]:
    """What leaves integers as they are."""

    def how(g: Any, x: Tensor) -> Any:
        return getattr(g, method)(x) if x.dtype.is_float else x

    return how


def _asked(method: str, of_integers: bool) -> Callable[..., Any]:
    """What is asked of floats; integers have one answer."""

    def how(g: Any, x: Tensor) -> Any:
        if x.dtype.is_float:
            return getattr(g, method)(x)
        return g.expand(g.constant(np.bool_(of_integers)), x.shape)

    return how


def _abs(g: Any, x: Tensor) -> Any:
    if x.dtype in (DType.BOOL, DType.U32):
        return x
    return g.abs(x)


def _unnan(method: str) -> Callable[..., Any]:
    """fmax, fmin: a number beside NaN is the number."""

    def how(g: Any, x: Tensor, y: Tensor) -> Any:
        if x.dtype is DType.BOOL:
            kind = "logical_or" if method == "maximum" else "logical_and"
            return getattr(g, kind)(x, y)
        if not x.dtype.is_float:
            return getattr(g, method)(x, y)
        most = getattr(g, method)(x, y)
        return g.where(g.isnan(x), y, g.where(g.isnan(y), x, most))

    return how


def signbit(g: Any, x: Tensor) -> Any:
    """Is it below 0, or -0.0?"""
    if not x.dtype.is_float:
        return g.lt(x, 0)
    # 1 / -0.0 is -inf, and its product with a number below 1 does not overflow twice.
    zero = g.eq(x, 0)
    return g.lt(g.where(zero, g.div(1.0, g.where(zero, x, 1.0)), x), 0)


def _copysign(g: Any, x: Tensor, y: Tensor) -> Any:
    """Return x or -x, so that the slope is 1 or -1 at 0 too."""
    return g.where(g.ne(signbit(g, x), signbit(g, y)), g.neg(x), x)


def hypot(g: Any, x: Tensor, y: Tensor, root: Callable[..., Any] = norm_root) -> Any:
    """Return √(x² + y²) without overflow of the squares.

    The squares are of x and y, not of their magnitudes, which have a kink at 0. The
    result does not depend on the scale, so derivatives take that for a constant; its
    bounds keep its reciprocal a normal number.

    root  (graph, squares) → their root: that of a norm has slope 0 at the origin
    """
    a, b = g.abs(x), g.abs(y)
    least = float(np.finfo(x.dtype.numpy).tiny)
    by = g.stop_gradient(g.clip(g.maximum(a, b), least, 1 / least))
    squares = g.add(g.square(g.div(x, by)), g.square(g.div(y, by)))
    made = g.mul(by, root(g, squares))
    endless = g.logical_or(g.isinf(a), g.isinf(b))
    return g.where(endless, np.inf, made)


def _logaddexp(g: Any, x: Tensor, y: Tensor, unit: float = 1.0) -> Any:
    """Return the larger operand + log(1 + exp(-distance)), in units of some logarithm.

    Which operand is selected as the larger does not matter where they are equal: both
    sums are the same smooth function, so every derivative is right there. Two equal
    infinities have no distance, and share the slope.
    """
    less = g.lt(x, y)
    large, small = g.where(less, y, x), g.where(less, x, y)
    same = g.logical_and(g.eq(x, y), g.isinf(x))
    large = g.where(same, g.add(g.mul(x, 0.5), g.mul(y, 0.5)), large)
    apart = g.where(same, 0.0, g.sub(small, large))
    if unit == 1:
        return g.add(large, g.softplus(apart))
    return g.add(large, g.div(g.softplus(g.mul(apart, unit)), unit))


def _cbrt(g: Any, x: Tensor) -> Any:
    """Return the cube root, whose slope is infinite at 0."""
    below = signbit(g, x)
    size = g.where(below, g.neg(x), x)
    end = g.logical_or(g.eq(size, 0), g.isinf(size))
    safe = g.where(end, 1.0, size)
    root = g.pow(safe, 1 / 3)
    # One step of Newton's method restores what the power lost.
    better = g.sub(root, g.div(g.sub(root, g.div(g.div(safe, root), root)), 3.0))
    # At 0 and infinity the square root has the same value and the same slope.
    made = g.where(end, g.sqrt(g.where(end, size, 1.0)), better)
    return g.where(below, g.neg(made), made)


def _heaviside(g: Any, x: Tensor, at_zero: Tensor) -> Any:
    steps = g.where(g.lt(x, 0), 0.0, g.where(g.eq(x, 0), at_zero, 1.0))
    return g.where(g.isnan(x), x, steps) if x.dtype.is_float else steps


def _divmod(g: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return g.floor_divide(x, y), g.mod(x, y)


def _modf(g: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the fractional part, whose slope is 1, and the whole part, which is flat.

    Both differences are the same number; a zero has the sign of x.
    """
    whole, endless = g.trunc(x), g.isinf(x)
    near = g.where(endless, g.sign(x), x)
    rest = g.where(endless, near, whole)
    part = g.where(signbit(g, x), g.neg(g.sub(rest, near)), g.sub(near, rest))
    return part, whole


def _ldexp(g: Any, x: Tensor, by: Tensor) -> Any:
    return g.mul(x, g.exp2(g.cast(by, x.dtype)))


def _scaled(by: float) -> Callable[..., Any]:
    return lambda g, x: g.mul(x, by)


def _positive(g: Any, x: Tensor) -> Any:
    return x


_SAME = (
    "exp exp2 expm1 log log2 log10 log1p sqrt reciprocal sin cos tan sinh cosh tanh "
    "floor_divide fmod"
)
REAL.update({getattr(np, name): _named(name) for name in _SAME.split()})
REAL.update(
    {
        getattr(np, f"arc{name}"): _named(f"a{name}")
        for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")
    }
)
REAL.update(
    {
        np.add: _logic("add", "logical_or"),
        np.subtract: _named("sub"),
        np.multiply: _logic("mul", "logical_and"),
        np.true_divide: _named("div"),
        np.remainder: _named("mod"),
        np.power: _named("pow"),
        np.float_power: _named("pow"),
        np.negative: _named("neg"),
        np.positive: _positive,
        np.conjugate: _positive,
        np.absolute: _abs,
        np.fabs: _named("abs"),
        np.sign: _named("sign"),
        np.square: _logic("square", "logical_and"),
        np.cbrt: _cbrt,
        np.arctan2: _named("atan2"),
        np.hypot: hypot,
        np.degrees: _scaled(180 / np.pi),
        np.rad2deg: _scaled(180 / np.pi),
        np.radians: _scaled(np.pi / 180),
        np.deg2rad: _scaled(np.pi / 180),
        np.rint: _named("round"),
        np.floor: _whole("floor"),
        np.ceil: _whole("ceil"),
        np.trunc: _whole("trunc"),
        np.maximum: _logic("maximum", "logical_or"),
        np.minimum: _logic("minimum", "logical_and"),
        np.fmax: _unnan("maximum"),
        np.fmin: _unnan("minimum"),
        np.equal: _compared("eq"),
        np.not_equal: _compared("ne"),
        np.less: _compared("lt"),
        np.less_equal: _compared("le"),
        np.greater: _compared("gt"),
        np.greater_equal: _compared("ge"),
        np.logical_and: _named("logical_and"),
        np.logical_or: _named("logical_or"),
        np.logical_xor: _named("logical_xor"),
        np.logical_not: _named("logical_not"),
        np.bitwise_and: _logic("bitwise_and", "logical_and"),
        np.bitwise_or: _logic("bitwise_or", "logical_or"),
        np.bitwise_xor: _logic("bitwise_xor", "logical_xor"),
        np.invert: _logic("bitwise_not", "logical_not"),
        np.left_shift: _named("shift_left"),
        np.right_shift: _named("shift_right"),
        np.isnan: _asked("isnan", False),
        np.isinf: _asked("isinf", False),
        np.isfinite: _asked("isfinite", True),
        np.signbit: signbit,
        np.copysign: _copysign,
        np.heaviside: _heaviside,
        np.logaddexp: _logaddexp,
        np.logaddexp2: lambda g, x, y: _logaddexp(g, x, y, math.log(2)),
        np.ldexp: _ldexp,
        np.divmod: _divmod,
        np.modf: _modf,
    }
)
