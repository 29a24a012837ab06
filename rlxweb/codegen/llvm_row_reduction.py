"""LLVM code that reduces a row of floats to one number: sums, products, extremes.

Four vectors go side by side, so that no addition waits for the one before. What a fold
is kept in is its own: doubles for sums of anything, floats for extremes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Final

from rlxweb.codegen.llvm_builder import (
    TYPE_NBYTES,
    FloatType,
    IntValue,
    IRBuilder,
    Value,
    VectorType,
    float_literal,
)

TermFunction = Callable[[IntValue], Value]
"""Function (index of its first element) → a vector of the builder's vector type."""

_ACCUMULATOR_COUNT: Final = 4
_RUN_LENGTH: Final = 16
"""Terms that are added in single precision before a double accumulates them."""


@dataclass(frozen=True, slots=True)
class ReductionOp:
    """Reduction operator: how two values are combined into one.

    identity  what changes nothing
    accumulator_type  the numbers it is kept in
    instruction  LLVM's instruction or, with a dot in it, its function of two
    lane_reduction  LLVM's function that folds the lanes of a vector
    comparison  the comparison that holds for the one of two numbers that is taken: one
            step where `instruction` takes four for what a NaN and the sign of 0 do
    """

    identity: float
    accumulator_type: FloatType
    instruction: str
    lane_reduction: str
    comparison: str = ""

    def combine_numbers(self, ir: IRBuilder, a: Value, b: Value, lanes: int) -> Value:
        """Combine two vectors that hold no NaN; for NaN the result is either
        operand.
        """
        vector = f"<{lanes} x {self.accumulator_type}>"
        mask = ir.emit_value(f"fcmp {self.comparison} {vector} {a}, {b}")
        return ir.emit_value(
            f"select <{lanes} x i1> {mask}, {vector} {a}, {vector} {b}"
        )

    def combine(self, ir: IRBuilder, a: Value, b: Value, lanes: int) -> Value:
        """Combine two vectors lane by lane."""
        vector = f"<{lanes} x {self.accumulator_type}>"
        if "." not in self.instruction:
            return ir.emit_value(f"{self.instruction} {vector} {a}, {b}")
        name = f"@{self.instruction}.v{lanes}f{8 * TYPE_NBYTES[self.accumulator_type]}"
        return ir.emit_value(f"call {vector} {name}({vector} {a}, {vector} {b})")

    def reduce_lanes(self, ir: IRBuilder, value: Value, lanes: int) -> Value:
        """Reduce the lanes of a vector to one number."""
        if self.lane_reduction in ("fadd", "fmul"):
            start = (
                f"{self.accumulator_type} "
                f"{float_literal(self.identity, self.accumulator_type)}, "
            )
        else:
            start = ""
        bits = 8 * TYPE_NBYTES[self.accumulator_type]
        name = f"@llvm.vector.reduce.{self.lane_reduction}.v{lanes}f{bits}"
        operands = f"{start}<{lanes} x {self.accumulator_type}> {value}"
        return ir.emit_value(f"call reassoc {self.accumulator_type} {name}({operands})")


SUM: Final = ReductionOp(-0.0, "double", "fadd", "fadd")
PRODUCT: Final = ReductionOp(1.0, "double", "fmul", "fmul")
# A NaN stays one.
MAXIMUM: Final = ReductionOp(float("-inf"), "float", "llvm.maximum", "fmaximum", "ogt")
MINIMUM: Final = ReductionOp(float("inf"), "float", "llvm.minimum", "fminimum", "olt")


def _widen(ir: IRBuilder, op: ReductionOp, value: Value) -> Value:
    vector_type = ir.vector_type
    if vector_type.element_type == op.accumulator_type:
        return value
    return ir.emit_value(
        f"fpext {vector_type.llvm_type} {value} to <{vector_type.lanes} x "
        f"{op.accumulator_type}>"
    )


def reduce_elements(
    ir: IRBuilder,
    count: IntValue,
    term: TermFunction,
    op: ReductionOp,
    *,
    ignore_nan: bool = False,
) -> Value:
    """Reduce the `count` elements that `term` yields to one number.

    ignore_nan  what becomes of a NaN is nobody's business
    """
    lanes = ir.vector_type.lanes
    vector_count, remainder_start = ir.full_vectors(count)
    if op.comparison:
        result = _reduce_extreme(ir, vector_count, term, op, ignore_nan)
    else:
        result = op.reduce_lanes(ir, _reduce_vectors(ir, vector_count, term, op), lanes)
    return _reduce_remainder(ir, result, remainder_start, count, term, op)


def _vector_groups(ir: IRBuilder, vector_count: IntValue) -> tuple[IntValue, IntValue]:
    """Return the number of groups of `_ACCUMULATOR_COUNT` vectors, and the vectors in
    them.
    """
    groups = ir.emit_value(f"udiv i64 {vector_count}, {_ACCUMULATOR_COUNT}")
    return groups, ir.multiply_int(groups, _ACCUMULATOR_COUNT)


def _reduce_vectors(
    ir: IRBuilder, vector_count: IntValue, term: TermFunction, op: ReductionOp
) -> Value:
    """Reduce full vectors to one vector."""
    lanes = ir.vector_type.lanes
    vector = f"<{lanes} x {op.accumulator_type}>"
    splat = VectorType(op.accumulator_type, lanes).splat(op.identity)
    groups, done = _vector_groups(ir, vector_count)

    def combine_group(i: IntValue, *accumulators: Value) -> list[Value]:
        index = ir.multiply_int(i, _ACCUMULATOR_COUNT * lanes)
        terms = [term(ir.add_int(index, lanes * k)) for k in range(_ACCUMULATOR_COUNT)]
        return [
            op.combine(ir, accumulator, _widen(ir, op, term_value), lanes)
            for accumulator, term_value in zip(accumulators, terms, strict=True)
        ]

    accumulators = ir.loop(
        groups, combine_group, [(vector, splat)] * _ACCUMULATOR_COUNT
    )
    combined = reduce(lambda a, b: op.combine(ir, a, b, lanes), accumulators)

    def one_more(i: IntValue, accumulator: Value) -> list[Value]:
        term_value = _widen(ir, op, term(ir.multiply_int(ir.add_int(i, done), lanes)))
        return [op.combine(ir, accumulator, term_value, lanes)]

    (sums,) = ir.loop(
        ir.subtract_int(vector_count, done), one_more, [(vector, combined)]
    )
    return sums


def _reduce_extreme(
    ir: IRBuilder,
    vector_count: IntValue,
    term: TermFunction,
    op: ReductionOp,
    ignore_nan: bool,
) -> Value:
    """Reduce full vectors to their extreme: numbers are compared, NaN are tracked
    separately.
    """
    lanes = ir.vector_type.lanes
    vector = ir.vector_type.llvm_type
    mask = ir.vector_type.llvm_mask_type
    splat, zero = ir.vector_type.splat(op.identity), "zeroinitializer"
    groups, done = _vector_groups(ir, vector_count)

    def mark_nan(nan_mask: Value, a: Value, b: Value) -> Value:
        is_nan = ir.emit_value(f"fcmp uno {vector} {a}, {b}")
        return ir.emit_value(f"or {mask} {nan_mask}, {is_nan}")

    def combine_group(
        i: IntValue, nan_mask: Value, *accumulators: Value
    ) -> list[Value]:
        index = ir.multiply_int(i, _ACCUMULATOR_COUNT * lanes)
        terms = [term(ir.add_int(index, lanes * k)) for k in range(_ACCUMULATOR_COUNT)]
        for a, b in () if ignore_nan else zip(terms[::2], terms[1::2], strict=True):
            nan_mask = mark_nan(nan_mask, a, b)
        pairs = zip(terms, accumulators, strict=True)
        return [nan_mask, *(op.combine_numbers(ir, a, b, lanes) for a, b in pairs)]

    nan_mask, *accumulators = ir.loop(
        groups, combine_group, [(mask, zero), *[(vector, splat)] * _ACCUMULATOR_COUNT]
    )
    best = reduce(lambda a, b: op.combine_numbers(ir, a, b, lanes), accumulators)

    def one_more(i: IntValue, nan_mask: Value, accumulator: Value) -> list[Value]:
        term_value = term(ir.multiply_int(ir.add_int(i, done), lanes))
        if not ignore_nan:
            nan_mask = mark_nan(nan_mask, term_value, term_value)
        return [nan_mask, op.combine_numbers(ir, term_value, accumulator, lanes)]

    remaining = ir.subtract_int(vector_count, done)
    nan_mask, best = ir.loop(remaining, one_more, [(mask, nan_mask), (vector, best)])
    result = _reduce_extreme_lanes(ir, op, best)
    any_nan_seen = ir.emit_value(
        f"call i1 @llvm.vector.reduce.or.v{lanes}i1({mask} {nan_mask})"
    )
    nan = float_literal(float("nan"), "float")
    return ir.emit_value(f"select i1 {any_nan_seen}, float {nan}, float {result}")


def _reduce_extreme_lanes(ir: IRBuilder, op: ReductionOp, best: Value) -> Value:
    """Return the extreme of a vector's lanes by halving."""
    half = ir.vector_type.lanes // 2
    while half:
        swapped = ir.shuffle(
            best, best, [(i ^ half) for i in range(ir.vector_type.lanes)]
        )
        best = op.combine_numbers(ir, best, swapped, ir.vector_type.lanes)
        half //= 2
    return ir.emit_value(f"extractelement {ir.vector_type.llvm_type} {best}, i64 0")


def _reduce_remainder(
    ir: IRBuilder,
    partial: Value,
    remainder_start: IntValue,
    count: IntValue,
    term: TermFunction,
    op: ReductionOp,
) -> Value:
    """Combine the elements that do not fill a vector, one by one."""
    one_lane = f"<1 x {op.accumulator_type}>"
    initial = ir.emit_value(
        f"insertelement {one_lane} poison, {op.accumulator_type} {partial}, i64 0"
    )
    with ir.single_lane():

        def add_element(i: IntValue, accumulator: Value) -> list[Value]:
            term_value = _widen(ir, op, term(ir.add_int(remainder_start, i)))
            return [op.combine(ir, accumulator, term_value, 1)]

        (total,) = ir.loop(
            ir.subtract_int(count, remainder_start), add_element, [(one_lane, initial)]
        )
    return ir.emit_value(f"extractelement {one_lane} {total}, i64 0")


def sum_same_sign(ir: IRBuilder, count: IntValue, term: TermFunction) -> Value:
    """Return a sum of terms of one sign: short runs in single precision, the runs in
    double.

    Nothing is lost by cancelling, so a run costs a few units in the last place.
    """
    lanes = ir.vector_type.lanes
    vector, double_vector = ir.vector_type.llvm_type, f"<{lanes} x double>"
    vector_count, remainder_start = ir.full_vectors(count)
    runs = ir.emit_value(
        f"udiv i64 {ir.add_int(vector_count, _RUN_LENGTH - 1)}, {_RUN_LENGTH}"
    )

    def add_run(i: IntValue, accumulator: Value) -> list[Value]:
        run_start = ir.multiply_int(i, _RUN_LENGTH)
        length = ir.min_int(_RUN_LENGTH, ir.subtract_int(vector_count, run_start))
        pairs = ir.emit_value(f"lshr i64 {length}, 1")

        def add_pair(j: IntValue, a: Value, b: Value) -> list[Value]:
            index = ir.multiply_int(ir.add_int(run_start, ir.multiply_int(j, 2)), lanes)
            return [
                ir.add_reals(a, term(index)),
                ir.add_reals(b, term(ir.add_int(index, lanes))),
            ]

        def add_one(j: IntValue, a: Value) -> list[Value]:
            index = ir.add_int(run_start, ir.add_int(ir.multiply_int(pairs, 2), j))
            return [ir.add_reals(a, term(ir.multiply_int(index, lanes)))]

        zero = (vector, "zeroinitializer")
        a, b = ir.loop(pairs, add_pair, [zero, zero])
        remaining = ir.emit_value(f"and i64 {length}, 1")
        (run_sum,) = ir.loop(remaining, add_one, [(vector, ir.add_reals(a, b))])
        widened = ir.emit_value(f"fpext {vector} {run_sum} to {double_vector}")
        return [ir.emit_value(f"fadd {double_vector} {accumulator}, {widened}")]

    (sums,) = ir.loop(runs, add_run, [(double_vector, "zeroinitializer")])
    total = SUM.reduce_lanes(ir, sums, lanes)
    return _reduce_remainder(ir, total, remainder_start, count, term, SUM)
