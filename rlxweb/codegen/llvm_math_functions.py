"""Elementary functions in single precision, as vectorized LLVM IR: exp, exp2, log.

Ranges are reduced by exact steps and polynomials do the rest, all lanes at once without
a branch. The coefficients are our own fits. What a function is of NaN is the business
of whoever asks: ops say it by `keeps_nan`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlxweb.codegen.llvm_builder import IRBuilder, Value

# exp(r) = 1 + r + r²·P(r) on ±log(2)/2: 5e-11 relative, before rounding.
_EXP_TERMS = (0.5, 0.16666666, 0.041666295, 0.0083334967, 0.001394466, 0.0001979035)
# exp(r) = 1 + r·P(r), there too: 2e-9.
_EXP_NONPOSITIVE_TERMS = (
    1.0,
    0.49999994,
    0.16666432,
    0.041668002,
    0.0083741555,
    0.0013843654,
)
# log(1 + f) = f - f²/2 + f³·P(f) from sqrt(1/2) to sqrt(2): 8e-10 relative.
_LOG_TERMS = (
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
_ROUNDING_MAGIC, _ROUNDING_MAGIC_BITS = 1.5 * 2.0**23, 0x4B400000
_MIN_EXP_ARGUMENT = -87.0  # powers of e below are 0 to `exp_nonpositive`
_MIN_EXP2_ARGUMENT, _MAX_EXP2_ARGUMENT = (
    -150.0,
    130.0,
)  # powers of two below are 0, above infinity


def _int_vector_type(ir: IRBuilder) -> str:
    return f"<{ir.vector_type.lanes} x i32>"


def _splat_int(ir: IRBuilder, number: int) -> Value:
    return f"<{', '.join([f'i32 {number}'] * ir.vector_type.lanes)}>"


def intrinsic(ir: IRBuilder, name: str, *operands: Value) -> Value:
    """Emit a call of an LLVM intrinsic on float vectors."""
    vector = ir.vector_type.llvm_type
    arguments = ", ".join(f"{vector} {operand}" for operand in operands)
    return ir.emit_value(
        f"call {vector} @llvm.{name}.v{ir.vector_type.lanes}f32({arguments})"
    )


def multiply_add(ir: IRBuilder, a: Value, b: Value, c: Value) -> Value:
    """Return a · b + c, rounded once if the processor can."""
    return intrinsic(ir, "fmuladd", a, b, c)


def polynomial(ir: IRBuilder, x: Value, terms: Sequence[float]) -> Value:
    """Return the sum of terms[i] · x**i, by Horner's rule."""
    value = ir.vector_type.splat(terms[-1])
    for term in reversed(terms[:-1]):
        value = multiply_add(ir, value, x, ir.vector_type.splat(term))
    return value


def clamp_above(ir: IRBuilder, x: Value, maximum: float) -> Value:
    """Return the smaller of x and a constant; NaN is propagated."""
    limit, vector = ir.vector_type.splat(maximum), ir.vector_type.llvm_type
    above = ir.emit_value(f"fcmp ogt {vector} {x}, {limit}")
    return ir.emit_value(
        f"select {ir.vector_type.llvm_mask_type} {above}, {vector} {limit}, {vector} "
        f"{x}"
    )


def clamp_below(ir: IRBuilder, x: Value, minimum: float) -> Value:
    """Return the larger of x and a constant; NaN is propagated."""
    limit, vector = ir.vector_type.splat(minimum), ir.vector_type.llvm_type
    below = ir.emit_value(f"fcmp olt {vector} {x}, {limit}")
    return ir.emit_value(
        f"select {ir.vector_type.llvm_mask_type} {below}, {vector} {limit}, {vector} "
        f"{x}"
    )


def _round_to_int(ir: IRBuilder, x: Value) -> tuple[Value, Value]:
    """Round a small x to the nearest integer; return it as a float and as an integer.

    Added to 1.5 · 2**23 it stands in the last bits of the sum. Of a NaN the integer is
    any.
    """
    int_type, vector = _int_vector_type(ir), ir.vector_type.llvm_type
    sum_ = ir.emit_value(f"fadd {vector} {x}, {ir.vector_type.splat(_ROUNDING_MAGIC)}")
    number = ir.emit_value(
        f"fsub {vector} {sum_}, {ir.vector_type.splat(_ROUNDING_MAGIC)}"
    )
    bits = ir.emit_value(f"bitcast {vector} {sum_} to {int_type}")
    return number, ir.emit_value(
        f"sub {int_type} {bits}, {_splat_int(ir, _ROUNDING_MAGIC_BITS)}"
    )


def _power_of_two(ir: IRBuilder, n: Value) -> Value:
    """Return 2**n for integers n from -126 to 127; excess high bits are ignored."""
    int_type = _int_vector_type(ir)
    bits = ir.emit_value(f"shl {int_type} {n}, {_splat_int(ir, 23)}")
    biased = ir.emit_value(f"add {int_type} {bits}, {_splat_int(ir, 127 << 23)}")
    return ir.emit_value(f"bitcast {int_type} {biased} to {ir.vector_type.llvm_type}")


def _scale_by_power_of_two(ir: IRBuilder, x: Value, n: Value) -> Value:
    """Multiply x by 2**n in two steps, so that neither overflows alone."""
    int_type = _int_vector_type(ir)
    half = ir.emit_value(f"ashr {int_type} {n}, {_splat_int(ir, 1)}")
    other_half = ir.emit_value(f"sub {int_type} {n}, {half}")
    return ir.multiply(
        ir.multiply(x, _power_of_two(ir, half)), _power_of_two(ir, other_half)
    )


def _exp_small(ir: IRBuilder, r: Value) -> Value:
    """Return exp(r) for small r."""
    r_squared = ir.multiply(r, r)
    excess = multiply_add(ir, r_squared, polynomial(ir, r, _EXP_TERMS), r)
    return ir.add_reals(excess, ir.vector_type.splat(1.0))


def exp(ir: IRBuilder, x: Value) -> Value:
    """Return e**x to 1 unit in the last place; 0 and infinity outside the range."""
    x = clamp_below(ir, clamp_above(ir, x, 89.0), -104.0)
    number, n = _round_to_int(ir, ir.scale_real(x, 1.0 / math.log(2.0)))
    r = multiply_add(ir, number, ir.vector_type.splat(-_LOG2_HIGH), x)
    r = multiply_add(ir, number, ir.vector_type.splat(-_LOG2_LOW), r)
    return _scale_by_power_of_two(ir, _exp_small(ir, r), n)


def exp_nonpositive(ir: IRBuilder, x: Value) -> Value:
    """Return e**x for x ≤ 0 in two thirds of the steps: 0 where the result would be
    denormal.

    To 1 unit in the last place near 0 and 2 where it is smallest.
    """
    int_type = _int_vector_type(ir)
    vector = ir.vector_type.llvm_type
    mask = ir.vector_type.llvm_mask_type
    minimum = ir.vector_type.splat(_MIN_EXP_ARGUMENT)
    underflows = ir.emit_value(f"fcmp olt {vector} {x}, {minimum}")
    log2_e = ir.vector_type.splat(1.0 / math.log(2.0))
    sum_ = multiply_add(ir, x, log2_e, ir.vector_type.splat(_ROUNDING_MAGIC))
    number = ir.emit_value(
        f"fsub {vector} {sum_}, {ir.vector_type.splat(_ROUNDING_MAGIC)}"
    )
    r = multiply_add(ir, number, ir.vector_type.splat(-math.log(2.0)), x)
    power = multiply_add(
        ir, r, polynomial(ir, r, _EXP_NONPOSITIVE_TERMS), ir.vector_type.splat(1.0)
    )
    # The whole number in the last bits, moved to where the exponent stands.
    bits = ir.emit_value(f"bitcast {vector} {sum_} to {int_type}")
    scaled = ir.multiply(power, _power_of_two(ir, bits))
    return ir.emit_value(
        f"select {mask} {underflows}, {vector} zeroinitializer, {vector} {scaled}"
    )


def exp2(ir: IRBuilder, x: Value) -> Value:
    """Return 2**x, with the accuracy of `exp`."""
    x = clamp_below(ir, clamp_above(ir, x, _MAX_EXP2_ARGUMENT), _MIN_EXP2_ARGUMENT)
    number, n = _round_to_int(ir, x)
    r = ir.scale_real(ir.subtract_reals(x, number), math.log(2.0))
    return _scale_by_power_of_two(ir, _exp_small(ir, r), n)


def log(ir: IRBuilder, x: Value) -> Value:
    """Return the natural logarithm of x > 0, including denormal numbers."""
    int_type = _int_vector_type(ir)
    vector = ir.vector_type.llvm_type
    mask = ir.vector_type.llvm_mask_type
    is_denormal = ir.emit_value(
        f"fcmp olt {vector} {x}, {ir.vector_type.splat(2.0**-126)}"
    )
    larger = ir.scale_real(x, 2.0**23)
    x = ir.emit_value(f"select {mask} {is_denormal}, {vector} {larger}, {vector} {x}")
    bits = ir.emit_value(f"bitcast {vector} {x} to {int_type}")
    # x = m · 2**e with m from sqrt(1/2) to sqrt(2).
    above = ir.emit_value(f"sub {int_type} {bits}, {_splat_int(ir, 0x3F3504F3)}")
    e = ir.emit_value(f"ashr {int_type} {above}, {_splat_int(ir, 23)}")
    shifted = ir.emit_value(f"shl {int_type} {e}, {_splat_int(ir, 23)}")
    m = ir.emit_value(f"sub {int_type} {bits}, {shifted}")
    f = ir.subtract_reals(
        ir.emit_value(f"bitcast {int_type} {m} to {vector}"), ir.vector_type.splat(1.0)
    )
    exponent = ir.emit_value(f"sitofp {int_type} {e} to {vector}")
    reduced_exponent = ir.subtract_reals(exponent, ir.vector_type.splat(23.0))
    e_float = ir.emit_value(
        f"select {mask} {is_denormal}, {vector} {reduced_exponent}, {vector} {exponent}"
    )
    square = ir.multiply(f, f)
    tail = ir.multiply(ir.multiply(square, f), polynomial(ir, f, _LOG_TERMS))
    tail = multiply_add(ir, e_float, ir.vector_type.splat(_LOG2_LOW), tail)
    tail = multiply_add(ir, square, ir.vector_type.splat(-0.5), tail)
    return multiply_add(
        ir, e_float, ir.vector_type.splat(_LOG2_HIGH), ir.add_reals(tail, f)
    )
