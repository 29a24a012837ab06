"""Floored division, its rest, C's rest, and the angle of a point: functions of two.

As NumPy's: a rest by 0 is NaN of floats and 0 of integers, and so is a floored quotient
of integers; of floats it is what x / 0 is.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rlxweb.ir import bounds
from rlxweb.ir.derivative import flat, slopes
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ops.elementwise import FLOATS, NUMBERS, divide, same_of
from rlxweb.ops.kinds import is_float
from rlxweb.ops.unary import SMOOTH, Function, in_single, pairs


def _turned(rest: Any, y: Any) -> Any:
    return (rest != 0) & ((rest < 0) != (y < 0))


def fmod(xp: Any, x: Any, y: Any) -> Any:
    """The rest of the truncated quotient, of the sign of x."""
    if not is_float(xp, x):
        rest = x - y * divide(xp, {}, x, y)
        return xp.where(y == 0, xp.zeros_like(x), rest)
    left = xp.remainder(xp.abs(x), xp.abs(y))
    left = xp.where(xp.isinf(y) & xp.isfinite(x), xp.abs(x), left)
    return xp.where(x < 0, -left, left)


def mod(xp: Any, x: Any, y: Any) -> Any:
    """The rest of the floored quotient, of the sign of y."""
    rest = fmod(xp, x, y)
    return xp.where(_turned(rest, y), rest + y, rest)


def floor_divide(xp: Any, x: Any, y: Any) -> Any:
    """The quotient downward."""
    rest = fmod(xp, x, y)
    turned = _turned(rest, y)
    if not is_float(xp, x):
        return divide(xp, {}, x, y) - xp.asarray(turned & (y != 0), dtype=x.dtype)
    whole = xp.round((x - rest) / y) - xp.asarray(turned, dtype=x.dtype)
    return xp.where(y == 0, x / y, whole)


def round_divide(xp: Any, x: Any, y: Any) -> Any:
    """The whole number nearest to the quotient."""
    return xp.round(x / y)


def _expression(name: str) -> Expr:
    """Of integers the divisor 0 is told apart; WGSL leaves that of floats open."""
    of_floats = {"fmod": "exact_fmod", "mod": "floored_mod"}.get(name, "floored_div")
    none = "y == X(0)"
    safe = f"select(y, X(1), {none})"
    rest = f"(x - x / {safe} * {safe})"
    turned = f"({rest} != X(0)) & (({rest} < X(0)) != (y < X(0)))"
    of_whole = {
        "fmod": rest,
        "mod": f"select({rest}, {rest} + y, {turned})",
        "floor_divide": f"(x / {safe} - select(X(0), X(1), {turned}))",
    }[name]

    def text(types: Types, out: TensorType, attrs: Attrs) -> str:
        if out.dtype.is_float:
            return f"{of_floats}(x, y)"
        return f"select({of_whole}, X(0), {none})"

    return Expr(text, ("opaque", "quotient", "fmod"))


def _pair(
    dtype: DType, low: float, high: float, *over: float, note: str = ""
) -> Sample:
    least, most = over or (low, high)
    return Sample(
        (Drawn((11, 5), dtype, low, high), Drawn((5,), dtype, least, most)), note=note
    )


_WHOLE = (
    _pair(DType.I32, -100, 100, -4, 4, note="zeros below"),
    _pair(DType.U32, 0, (1 << 32) - 1, 0, 3, note="zeros below"),
    _pair(DType.I64, -100, 100, -4, 4),
    _pair(DType.U64, 0, 1 << 40, 0, 4),
)
_LONG = _pair(DType.F32, -1e9, 1e9, 0.01, 7, note="a long division")


def _divided(function: Function, doc: str, **more: Any) -> Op:
    """The record of a function of two numbers, under its own name."""
    name = function.__name__
    return Op(
        name=name,
        arity=2,
        infer=partial(same_of, NUMBERS),
        reference=in_single(function),
        lower=_expression(name),
        traits=frozenset({"elementwise"}),
        tolerance=Tolerance(rtol=4e-7, atol=1e-37),
        samples=(*pairs(-9, 9, 1, 3), _LONG, *_WHOLE),
        doc=doc,
        **more,
    )


def _one(g: Any, x: Any, y: Any, out: Any) -> float:
    return 1.0


def _turning(g: Any, y: Any, x: Any) -> tuple[Any, Any]:
    """Return x and y over x² + y², scaled so that the squares do not overflow.

    At the origin, where there is no angle, both and all their derivatives are 0.
    """
    size = g.stop_gradient(g.maximum(g.abs(x), g.abs(y)))
    origin = size.eq(0.0)
    size = g.where(origin, 1.0, size)
    width, height = (g.where(origin, 0.0, one / size) for one in (x, y))
    square = width * width + height * height
    far = size * g.where(origin, 1.0, square)
    return width / far, height / far


registry.register_all(
    _divided(
        mod,
        "What x // y leaves, of the sign of y, as Python's %; by 0 it is 0 of "
        "integers and NaN of floats.",
        bounds=bounds.REST,
        vjp=slopes(_one, lambda g, x, y, out: -g.floor_divide(x, y)),
        aliases=("remainder",),
    ),
    _divided(
        fmod,
        "What the division truncated toward 0 leaves, of the sign of x, as C's "
        "fmod; by 0 it is 0 of integers and NaN of floats.",
        bounds=bounds.C_REST,
        # The quotient that was taken, be x / y rounded to another whole number.
        vjp=slopes(_one, lambda g, x, y, out: -g.round_divide(x - out, y)),
    ),
    _divided(
        floor_divide,
        "The whole number not above x / y; an integer divided by 0 is 0, a float "
        "what x / 0 is.",
        bounds=bounds.QUOTIENT,
        vjp=flat,
    ),
    Op(
        name="round_divide",
        arity=2,
        infer=partial(same_of, FLOATS),
        reference=in_single(round_divide),
        flops=lambda inputs, out, attrs: 2.0 * out.numel,
        lower=Expr("rounded_quotient(x, y)", ("rounded_quotient",)),
        bounds=bounds.QUOTIENT,
        traits=frozenset({"elementwise", "floats_only"}),
        tolerance=Tolerance(rtol=4e-7),
        samples=(*pairs(-90, 90, 0.1, 3), _LONG),
        vjp=flat,
        doc="x / y, rounded as its type is, then to the nearest whole number, halves "
        "to the even one: NumPy's round(x / y) to the last bit on every device.",
    ),
    Op(
        name="atan2",
        arity=2,
        infer=partial(same_of, FLOATS),
        reference=in_single(lambda xp, y, x: xp.atan2(y, x)),
        flops=lambda inputs, out, attrs: 20.0 * out.numel,
        lower=Expr("keeps_nan(y, keeps_nan(x, precise_atan2(x, y)))", ("nan", "arcs")),
        traits=frozenset({"elementwise", "floats_only"}),
        tolerance=SMOOTH,
        samples=(*pairs(-9, 9, -3, 3), _LONG),
        vjp=slopes(
            lambda g, y, x, out: _turning(g, y, x)[0],
            lambda g, y, x, out: -_turning(g, y, x)[1],
        ),
        doc="The angle of the point (second operand, first operand), from -pi to pi.",
    ),
)
