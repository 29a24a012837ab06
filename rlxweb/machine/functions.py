"""Functions of floats that processors have no instruction for, in single precision.

Ranges are reduced by exact steps and polynomials do the rest, all lanes at once without
a branch. The coefficients are our own fits. What a function is of NaN is the business
of whoever asks: ops say it by `keeps_nan`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlxweb.machine.text import Value, Writer

# exp(r) = 1 + r + r²·P(r) on ±log(2)/2: 5e-11 relative, before rounding.
_EXP = (0.5, 0.16666666, 0.041666295, 0.0083334967, 0.001394466, 0.0001979035)
# exp(r) = 1 + r·P(r), there too: 2e-9.
_EXP_OF_ONE = (
    1.0,
    0.49999994,
    0.16666432,
    0.041668002,
    0.0083741555,
    0.0013843654,
)
# log(1 + f) = f - f²/2 + f³·P(f) from sqrt(1/2) to sqrt(2): 8e-10 relative.
_LOG = (
    0.33333313,
    -0.2500001,
    0.20002134,
    -0.16668007,
    0.14219223,
    -0.124051377,
    0.11890336,
    -0.116796434,
    0.067465596,
)
# log(2) in two parts; a whole number of up to 11 bits times the first is exact.
_LOG2_HIGH, _LOG2_LOW = 0.693359375, math.log(2.0) - 0.693359375
_MAGIC, _MAGIC_BITS = 1.5 * 2.0**23, 0x4B400000
_LEAST_NORMAL = -87.0  # powers of e below are 0 to `exp_falling`
_LEAST, _MOST = -150.0, 130.0  # powers of two below are 0, above infinity


def _whole(w: Writer) -> str:
    return f"<{w.shape.lanes} x i32>"


def _splat(w: Writer, number: int) -> Value:
    return f"<{', '.join([f'i32 {number}'] * w.shape.lanes)}>"


def intrinsic(w: Writer, name: str, *operands: Value) -> Value:
    """One of LLVM's functions on vectors of floats."""
    vector = w.shape.vector
    given = ", ".join(f"{vector} {one}" for one in operands)
    return w.let(f"call {vector} @llvm.{name}.v{w.shape.lanes}f32({given})")


def fused(w: Writer, a: Value, b: Value, c: Value) -> Value:
    """A · b + c, rounded once where the processor can."""
    return intrinsic(w, "fmuladd", a, b, c)


def polynomial(w: Writer, x: Value, terms: Sequence[float]) -> Value:
    """The sum of terms[i] · x**i."""
    last = w.shape.splat(terms[-1])
    for term in reversed(terms[:-1]):
        last = fused(w, last, x, w.shape.splat(term))
    return last


def at_most(w: Writer, x: Value, most: float) -> Value:
    """The smaller of x and a number; a NaN stays one."""
    limit, vector = w.shape.splat(most), w.shape.vector
    above = w.let(f"fcmp ogt {vector} {x}, {limit}")
    return w.let(f"select {w.shape.mask} {above}, {vector} {limit}, {vector} {x}")


def at_least(w: Writer, x: Value, least: float) -> Value:
    """The larger of x and a number; a NaN stays one."""
    limit, vector = w.shape.splat(least), w.shape.vector
    below = w.let(f"fcmp olt {vector} {x}, {limit}")
    return w.let(f"select {w.shape.mask} {below}, {vector} {limit}, {vector} {x}")


def _rounded(w: Writer, x: Value) -> tuple[Value, Value]:
    """The nearest whole number of a small x, as a float and as an integer.

    Added to 1.5 · 2**23 it stands in the last bits of the sum. Of a NaN the integer is
    any.
    """
    whole, vector = _whole(w), w.shape.vector
    sum_ = w.let(f"fadd {vector} {x}, {w.shape.splat(_MAGIC)}")
    number = w.let(f"fsub {vector} {sum_}, {w.shape.splat(_MAGIC)}")
    bits = w.let(f"bitcast {vector} {sum_} to {whole}")
    return number, w.let(f"sub {whole} {bits}, {_splat(w, _MAGIC_BITS)}")


def _power_of_two(w: Writer, n: Value) -> Value:
    """2**n of whole numbers from -126 to 127; of more bits the last ones count."""
    whole = _whole(w)
    bits = w.let(f"shl {whole} {n}, {_splat(w, 23)}")
    biased = w.let(f"add {whole} {bits}, {_splat(w, 127 << 23)}")
    return w.let(f"bitcast {whole} {biased} to {w.shape.vector}")


def _scaled(w: Writer, x: Value, n: Value) -> Value:
    """Numbers times 2**n in two steps: neither overflows alone."""
    whole = _whole(w)
    half = w.let(f"ashr {whole} {n}, {_splat(w, 1)}")
    rest = w.let(f"sub {whole} {n}, {half}")
    return w.times(w.times(x, _power_of_two(w, half)), _power_of_two(w, rest))


def _one_plus(w: Writer, r: Value) -> Value:
    """exp(r) of small r."""
    square = w.times(r, r)
    tail = fused(w, square, polynomial(w, r, _EXP), r)
    return w.plus(tail, w.shape.splat(1.0))


def exp(w: Writer, x: Value) -> Value:
    """e**x to 1 unit in the last place; 0 and infinity where it is past the range."""
    x = at_least(w, at_most(w, x, 89.0), -104.0)
    number, n = _rounded(w, w.scaled(x, 1.0 / math.log(2.0)))
    r = fused(w, number, w.shape.splat(-_LOG2_HIGH), x)
    r = fused(w, number, w.shape.splat(-_LOG2_LOW), r)
    return _scaled(w, _one_plus(w, r), n)


def exp_falling(w: Writer, x: Value) -> Value:
    """e**x of x ≤ 0, in two thirds of the steps: 0 where it would be denormal.

    To 1 unit in the last place near 0 and 2 where it is smallest.
    """
    whole, vector, mask = _whole(w), w.shape.vector, w.shape.mask
    least = w.shape.splat(_LEAST_NORMAL)
    is_nothing = w.let(f"fcmp olt {vector} {x}, {least}")
    near = w.shape.splat(1.0 / math.log(2.0))
    sum_ = fused(w, x, near, w.shape.splat(_MAGIC))
    number = w.let(f"fsub {vector} {sum_}, {w.shape.splat(_MAGIC)}")
    r = fused(w, number, w.shape.splat(-math.log(2.0)), x)
    power = fused(w, r, polynomial(w, r, _EXP_OF_ONE), w.shape.splat(1.0))
    # The whole number in the last bits, moved to where the exponent stands.
    bits = w.let(f"bitcast {vector} {sum_} to {whole}")
    scaled = w.times(power, _power_of_two(w, bits))
    return w.let(
        f"select {mask} {is_nothing}, {vector} zeroinitializer, {vector} {scaled}"
    )


def exp2(w: Writer, x: Value) -> Value:
    """2**x, as `exp`."""
    x = at_least(w, at_most(w, x, _MOST), _LEAST)
    number, n = _rounded(w, x)
    r = w.scaled(w.minus(x, number), math.log(2.0))
    return _scaled(w, _one_plus(w, r), n)


def log(w: Writer, x: Value) -> Value:
    """The natural logarithm of x > 0, denormal numbers among them."""
    whole, vector, mask = _whole(w), w.shape.vector, w.shape.mask
    small = w.let(f"fcmp olt {vector} {x}, {w.shape.splat(2.0**-126)}")
    larger = w.scaled(x, 2.0**23)
    x = w.let(f"select {mask} {small}, {vector} {larger}, {vector} {x}")
    bits = w.let(f"bitcast {vector} {x} to {whole}")
    # x = m · 2**e with m from sqrt(1/2) to sqrt(2).
    above = w.let(f"sub {whole} {bits}, {_splat(w, 0x3F3504F3)}")
    e = w.let(f"ashr {whole} {above}, {_splat(w, 23)}")
    shifted = w.let(f"shl {whole} {e}, {_splat(w, 23)}")
    m = w.let(f"sub {whole} {bits}, {shifted}")
    f = w.minus(w.let(f"bitcast {whole} {m} to {vector}"), w.shape.splat(1.0))
    part = w.let(f"sitofp {whole} {e} to {vector}")
    less = w.minus(part, w.shape.splat(23.0))
    e_float = w.let(f"select {mask} {small}, {vector} {less}, {vector} {part}")
    square = w.times(f, f)
    tail = w.times(w.times(square, f), polynomial(w, f, _LOG))
    tail = fused(w, e_float, w.shape.splat(_LOG2_LOW), tail)
    tail = fused(w, square, w.shape.splat(-0.5), tail)
    return fused(w, e_float, w.shape.splat(_LOG2_HIGH), w.plus(tail, f))
