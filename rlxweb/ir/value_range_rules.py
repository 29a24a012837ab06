"""Range rules: intervals that contain an op's result values, computed from the
intervals of its operands.

An op's record has a `RangeRule`; the compiler asks it where a device has only narrower
types. Intervals are closed, their ends Python's numbers, exact for integers. What no
rule tells may be anything of its type. Knows no device and names no op.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from rlxweb.core.bfloat16 import widen_bfloat16
from rlxweb.ir.dtype import DType, cast_array

if TYPE_CHECKING:  # `op` has a Bounds in its record
    from rlxweb.ir.op import TensorType, Types

Interval: TypeAlias = tuple[float, float]
IntervalTransfer: TypeAlias = Callable[
    ["Sequence[Interval]", "Types", "TensorType", Mapping[str, Any]], Interval
]


_MAX_FACTORS = 64
"""Maximum number of factors whose product is bounded; longer products get the dtype's
interval.
"""


@dataclass(frozen=True, slots=True)
class RangeRule:
    """Effect of an op on the range of values, and on floats that a narrower type
    represents exactly.

    transfer  (the operands' intervals, their types, output type, attrs) → of the
              result, before it wraps
    float_behavior  rounded   a float result has digits of its own
            exact     of operands that a narrower type holds it is the same there
            monotone  exact, and rounding before or after gives the same
            cast      the operand in another type
    """

    transfer: IntervalTransfer
    float_behavior: Literal["rounded", "exact", "monotone", "cast"] = "rounded"


def dtype_interval(dtype: DType) -> Interval:
    """Return the interval of all values of a dtype."""
    if dtype.is_float:
        return -math.inf, math.inf
    if dtype is DType.BOOL:
        return 0, 1
    bounds = np.iinfo(dtype.numpy)
    return int(bounds.min), int(bounds.max)


def is_subinterval(inner: Interval, outer: Interval) -> bool:
    """Return whether `inner` lies in `outer`."""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def hull(*intervals: Interval) -> Interval:
    """Return the smallest interval that contains all of them."""
    return min(interval[0] for interval in intervals), max(
        interval[1] for interval in intervals
    )


def max_magnitude(interval: Interval) -> float:
    """Return the largest magnitude in the interval."""
    return max(abs(interval[0]), abs(interval[1]))


def operand_hull(*positions: int) -> RangeRule:
    """Return the range rule of an op whose every value is one of the operands at these
    positions.
    """

    def rule(intervals: Sequence[Interval], *_: Any) -> Interval:
        return hull(*(intervals[position] for position in positions))

    return RangeRule(rule, "monotone")


def range_up_to(
    lower: int, upper: Callable[[Any, Mapping[str, Any]], int]
) -> RangeRule:
    """Return the range rule from `lower` to the value of `upper` for the operands'
    types and the attributes.
    """
    return RangeRule(
        lambda intervals, types, out, attrs: (lower, max(lower, upper(types, attrs))),
        "exact",
    )


def _interval_product(x: Interval, y: Interval) -> Interval:
    products = [a * b for a in x for b in y]
    return min(products), max(products)


def _quotient_interval(intervals: Sequence[Interval], *_: Any) -> Interval:
    """Interval of an integer quotient, rounded down or toward zero; division by 0 gives
    0.
    """
    (x, y), magnitude = intervals, max_magnitude(intervals[0])
    can_be_negative = x[0] < 0 if y[0] >= 0 else True
    can_be_positive = x[1] > 0 if y[0] >= 0 else True
    return (-magnitude if can_be_negative else 0), (magnitude if can_be_positive else 0)


def _remainder_interval(intervals: Sequence[Interval], *_: Any) -> Interval:
    """Interval of a remainder with the sign of the divisor."""
    low, high = intervals[1]
    return min(0, low + 1), max(0, high - 1)


def _c_remainder_interval(intervals: Sequence[Interval], *_: Any) -> Interval:
    """Interval of a remainder with the sign of the dividend, as in C."""
    (low, high), y = intervals
    magnitude = max(0, min(max_magnitude((low, high)), max_magnitude(y) - 1))
    return (-magnitude if low < 0 else 0), (magnitude if high > 0 else 0)


def _abs_interval(intervals: Sequence[Interval], *_: Any) -> Interval:
    low, high = intervals[0]
    return (0 if low <= 0 <= high else min(abs(low), abs(high))), max_magnitude(
        intervals[0]
    )


def _prelu_interval(intervals: Sequence[Interval], *_: Any) -> Interval:
    (low, high), y = intervals
    return hull((low, high), _interval_product((min(low, 0), min(high, 0)), y))


def _rounding_interval(intervals: Sequence[Interval], *_: Any) -> Interval:
    low, high = intervals[0]
    return (
        math.floor(low) if math.isfinite(low) else low,
        math.ceil(high) if math.isfinite(high) else high,
    )


def _bitwise_interval(intervals: Sequence[Interval], *_: Any) -> Interval:
    """Interval of all integers with as many bits as the operands need."""
    low, high = hull(*intervals)
    bits = max(
        (int(end) if end >= 0 else -1 - int(end)).bit_length() for end in (low, high)
    )
    return (-(1 << bits) if low < 0 else 0), (1 << bits) - 1


def _bitwise_not_interval(
    intervals: Sequence[Interval], types: Types, out: TensorType, attrs: Any
) -> Interval:
    low, high = intervals[0]
    top = dtype_interval(out.dtype)[1] if out.dtype.is_unsigned else -1
    return top - high, top - low


def _shift_left_interval(
    intervals: Sequence[Interval], types: Types, out: TensorType, attrs: Any
) -> Interval:
    (low, high), (_, shift) = intervals
    shift = min(int(shift), 8 * out.dtype.nbytes - 1)
    if shift < 0:
        return 0, 0
    return hull((0, 0), (low, high), (int(low) << shift, int(high) << shift))


def _shift_right_interval(intervals: Sequence[Interval], *_: Any) -> Interval:
    low, high = intervals[0]
    return min(low, 0), max(high, 0)


def _cast_interval(
    intervals: Sequence[Interval], types: Types, out: TensorType, attrs: Any
) -> Interval:
    """Interval after a cast: integers wrap, floats saturate, NaN becomes 0; into floats
    values are rounded.
    """
    (low, high), source, target = intervals[0], types[0].dtype, out.dtype
    if target is DType.BOOL:
        return 0, 1
    if target.is_float:
        with np.errstate(all="ignore"):
            low, high = map(
                float, widen_bfloat16(cast_array(np.array([low, high], float), target))
            )
        return low, high
    representable = dtype_interval(target)
    if not source.is_float:
        return low, high
    ends = (
        representable[n] if math.isinf(e) else math.trunc(e)
        for n, e in enumerate((low, high))
    )
    low, high = (min(max(end, representable[0]), representable[1]) for end in ends)
    return min(low, 0), max(high, 0)


def _scatter_interval(
    intervals: Sequence[Interval],
    types: Types,
    out: TensorType,
    attrs: Mapping[str, Any],
) -> Interval:
    """Interval of a scatter: all values of the last operand may be combined into one
    element of the first.
    """
    (low, high), (min_update, max_update), n = (
        intervals[0],
        intervals[2],
        types[2].numel,
    )
    if attrs["reduction"] == "add":
        return low + n * min(min_update, 0), high + n * max(max_update, 0)
    if attrs["reduction"] != "mul":
        return hull((low, high), (min_update, max_update))
    factor = max(1, max_magnitude((min_update, max_update)))
    if n > _MAX_FACTORS and factor > 1:
        return dtype_interval(out.dtype)
    magnitude = factor**n * max_magnitude((low, high))
    return -magnitude, magnitude


def sum_range(
    count: Callable[[Types, TensorType, Mapping[str, Any]], int],
    can_be_partial: bool = False,
) -> RangeRule:
    """Return the range rule of sums of `count` values; `can_be_partial`: also of
    fewer.
    """

    def rule(
        intervals: Sequence[Interval], types: Types, out: TensorType, attrs: Any
    ) -> Interval:
        n, (low, high) = count(types, out, attrs), intervals[0]
        total = n * low, n * high
        return hull((0, 0), (low, high), total) if can_be_partial else total

    return RangeRule(rule)


def product_range(
    count: Callable[[Types, TensorType, Mapping[str, Any]], int],
    can_be_partial: bool = False,
) -> RangeRule:
    """Return the range rule of products of `count` values; `can_be_partial`: also of
    fewer.
    """

    def rule(
        intervals: Sequence[Interval], types: Types, out: TensorType, attrs: Any
    ) -> Interval:
        n, magnitude = count(types, out, attrs), max_magnitude(intervals[0])
        if n > _MAX_FACTORS and magnitude > 1:
            return dtype_interval(out.dtype)
        high = max(1, magnitude) ** n
        product = (-high if intervals[0][0] < 0 else 0), high
        return hull((1, 1), product) if can_be_partial else product

    return RangeRule(rule)


def dot_product_range(count: Callable[[Types], int]) -> RangeRule:
    """Return the range rule of sums of `count` products of two values."""

    def rule(intervals: Sequence[Interval], types: Types, *_: Any) -> Interval:
        low, high = _interval_product(*intervals)
        return hull((0, 0), (low * count(types), high * count(types)))

    return RangeRule(rule)


ADD_RANGE = RangeRule(
    lambda intervals, *_: (
        intervals[0][0] + intervals[1][0],
        intervals[0][1] + intervals[1][1],
    )
)
SUB_RANGE = RangeRule(
    lambda intervals, *_: (
        intervals[0][0] - intervals[1][1],
        intervals[0][1] - intervals[1][0],
    )
)
MUL_RANGE = RangeRule(
    lambda intervals, *_: _interval_product(intervals[0], intervals[1])
)
QUOTIENT_RANGE = RangeRule(_quotient_interval)
REMAINDER_RANGE = RangeRule(_remainder_interval)
C_REMAINDER_RANGE = RangeRule(_c_remainder_interval)
MAXIMUM_RANGE = RangeRule(lambda intervals, *_: tuple(map(max, *intervals)), "monotone")
MINIMUM_RANGE = RangeRule(lambda intervals, *_: tuple(map(min, *intervals)), "monotone")
NEG_RANGE = RangeRule(
    lambda intervals, *_: (-intervals[0][1], -intervals[0][0]), "monotone"
)
ABS_RANGE = RangeRule(_abs_interval, "monotone")
RELU_RANGE = RangeRule(
    lambda intervals, *_: (max(intervals[0][0], 0), max(intervals[0][1], 0)), "monotone"
)
SIGN_RANGE = RangeRule(
    lambda intervals, *_: (-1 if intervals[0][0] < 0 else 0, 1), "exact"
)
ROUNDING_RANGE = RangeRule(_rounding_interval, "exact")
PRELU_RANGE = RangeRule(_prelu_interval)
BITWISE_RANGE = RangeRule(_bitwise_interval)
BITWISE_NOT_RANGE = RangeRule(_bitwise_not_interval)
SHIFT_LEFT_RANGE = RangeRule(_shift_left_interval)
SHIFT_RIGHT_RANGE = RangeRule(_shift_right_interval)
CAST_RANGE = RangeRule(_cast_interval, "cast")
SCATTER_RANGE = RangeRule(_scatter_interval)
INDEX_ONLY_RANGE = RangeRule(
    lambda intervals, types, out, attrs: dtype_interval(out.dtype)
)
"""Range rule of an op that uses integers only as indices and computes nothing with
them.
"""
