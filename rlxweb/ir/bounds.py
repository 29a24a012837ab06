"""How far the values of a result can lie, given how far those of its operands do.

An op's record has a `Bounds`; the compiler asks it where a device has only narrower
types. Intervals are closed, their ends Python's numbers, exact for integers. What no
rule tells may be anything of its type. Knows no device and names no op.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from rlxweb.bfloat16 import held
from rlxweb.ir.dtype import DType, cast_to

if TYPE_CHECKING:  # `op` has a Bounds in its record
    from rlxweb.ir.op import TensorType, Types

Interval: TypeAlias = tuple[float, float]
Rule: TypeAlias = Callable[
    ["Sequence[Interval]", "Types", "TensorType", Mapping[str, Any]], Interval
]


_MANY = 64
"""Factors that are multiplied out; of more nothing is told."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an op does to the range of values, and to floats that a narrower type holds.

    rule    (the operands' intervals, their types, output type, attrs) → of the result,
            before it wraps
    floats  rounded   a float result has digits of its own
            exact     of operands that a narrower type holds it is the same there
            monotone  exact, and rounding before or after gives the same
            cast      the operand in another type
    """

    rule: Rule
    floats: Literal["rounded", "exact", "monotone", "cast"] = "rounded"


def whole(dtype: DType) -> Interval:
    """All that a type holds."""
    if dtype.is_float:
        return -math.inf, math.inf
    if dtype is DType.BOOL:
        return 0, 1
    bounds = np.iinfo(dtype.numpy)
    return int(bounds.min), int(bounds.max)


def within(inner: Interval, outer: Interval) -> bool:
    """Lies the one in the other?"""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def hull(*intervals: Interval) -> Interval:
    """The least that holds them all."""
    return min(one[0] for one in intervals), max(one[1] for one in intervals)


def largest(interval: Interval) -> float:
    """The largest magnitude."""
    return max(abs(interval[0]), abs(interval[1]))


def kept(*which: int) -> Bounds:
    """Every value is one of the operands at these positions."""

    def rule(given: Sequence[Interval], *_: Any) -> Interval:
        return hull(*(given[at] for at in which))

    return Bounds(rule, "monotone")


def between(least: int, most: Callable[[Any, Mapping[str, Any]], int]) -> Bounds:
    """From `least` to what the operands' types and the attributes say."""
    return Bounds(
        lambda given, types, out, attrs: (least, max(least, most(types, attrs))),
        "exact",
    )


def _corners(x: Interval, y: Interval) -> Interval:
    every = [a * b for a in x for b in y]
    return min(every), max(every)


def _quotient(given: Sequence[Interval], *_: Any) -> Interval:
    """Of integers, downward or toward zero; by 0 it is 0."""
    (x, y), most = given, largest(given[0])
    less = x[0] < 0 if y[0] >= 0 else True
    more = x[1] > 0 if y[0] >= 0 else True
    return (-most if less else 0), (most if more else 0)


def _rest(given: Sequence[Interval], *_: Any) -> Interval:
    low, high = given[1]
    return min(0, low + 1), max(0, high - 1)


def _c_rest(given: Sequence[Interval], *_: Any) -> Interval:
    (low, high), y = given
    most = max(0, min(largest((low, high)), largest(y) - 1))
    return (-most if low < 0 else 0), (most if high > 0 else 0)


def _magnitude(given: Sequence[Interval], *_: Any) -> Interval:
    low, high = given[0]
    return (0 if low <= 0 <= high else min(abs(low), abs(high))), largest(given[0])


def _slope(given: Sequence[Interval], *_: Any) -> Interval:
    (low, high), y = given
    return hull((low, high), _corners((min(low, 0), min(high, 0)), y))


def _whole_numbers(given: Sequence[Interval], *_: Any) -> Interval:
    low, high = given[0]
    return (
        math.floor(low) if math.isfinite(low) else low,
        math.ceil(high) if math.isfinite(high) else high,
    )


def _bits(given: Sequence[Interval], *_: Any) -> Interval:
    """As many bits as the operands have."""
    low, high = hull(*given)
    count = max(
        (int(end) if end >= 0 else -1 - int(end)).bit_length() for end in (low, high)
    )
    return (-(1 << count) if low < 0 else 0), (1 << count) - 1


def _turned_bits(
    given: Sequence[Interval], types: Types, out: TensorType, attrs: Any
) -> Interval:
    low, high = given[0]
    top = whole(out.dtype)[1] if out.dtype.is_unsigned else -1
    return top - high, top - low


def _shifted_up(
    given: Sequence[Interval], types: Types, out: TensorType, attrs: Any
) -> Interval:
    (low, high), (_, by) = given
    by = min(int(by), 8 * out.dtype.nbytes - 1)
    if by < 0:
        return 0, 0
    return hull((0, 0), (low, high), (int(low) << by, int(high) << by))


def _shifted_down(given: Sequence[Interval], *_: Any) -> Interval:
    low, high = given[0]
    return min(low, 0), max(high, 0)


def _converted(
    given: Sequence[Interval], types: Types, out: TensorType, attrs: Any
) -> Interval:
    """Integers wrap, floats saturate, NaN becomes 0; into floats they are rounded."""
    (low, high), source, to = given[0], types[0].dtype, out.dtype
    if to is DType.BOOL:
        return 0, 1
    if to.is_float:
        with np.errstate(all="ignore"):
            low, high = map(float, held(cast_to(np.array([low, high], float), to)))
        return low, high
    every = whole(to)
    if not source.is_float:
        return low, high
    ends = (
        every[n] if math.isinf(e) else math.trunc(e) for n, e in enumerate((low, high))
    )
    low, high = (min(max(end, every[0]), every[1]) for end in ends)
    return min(low, 0), max(high, 0)


def _put_in(
    given: Sequence[Interval], types: Types, out: TensorType, attrs: Mapping[str, Any]
) -> Interval:
    """Of the last operand's values all may come to one place of the first."""
    (low, high), (least, most), n = given[0], given[2], types[2].numel
    if attrs["reduction"] == "add":
        return low + n * min(least, 0), high + n * max(most, 0)
    if attrs["reduction"] != "mul":
        return hull((low, high), (least, most))
    size = max(1, largest((least, most)))
    if n > _MANY and size > 1:
        return whole(out.dtype)
    reach = size**n * largest((low, high))
    return -reach, reach


def counted(
    count: Callable[[Types, TensorType, Mapping[str, Any]], int], partly: bool = False
) -> Bounds:
    """Sums of so many values; `partly`: and of fewer."""

    def rule(
        given: Sequence[Interval], types: Types, out: TensorType, attrs: Any
    ) -> Interval:
        n, (low, high) = count(types, out, attrs), given[0]
        made = n * low, n * high
        return hull((0, 0), (low, high), made) if partly else made

    return Bounds(rule)


def products(
    count: Callable[[Types, TensorType, Mapping[str, Any]], int], partly: bool = False
) -> Bounds:
    """Products of so many values; `partly`: and of fewer."""

    def rule(
        given: Sequence[Interval], types: Types, out: TensorType, attrs: Any
    ) -> Interval:
        n, most = count(types, out, attrs), largest(given[0])
        if n > _MANY and most > 1:
            return whole(out.dtype)
        high = max(1, most) ** n
        made = (-high if given[0][0] < 0 else 0), high
        return hull((1, 1), made) if partly else made

    return Bounds(rule)


def terms(count: Callable[[Types], int]) -> Bounds:
    """Sums of so many products of two."""

    def rule(given: Sequence[Interval], types: Types, *_: Any) -> Interval:
        low, high = _corners(*given)
        return hull((0, 0), (low * count(types), high * count(types)))

    return Bounds(rule)


ADDED = Bounds(lambda given, *_: (given[0][0] + given[1][0], given[0][1] + given[1][1]))
SUBTRACTED = Bounds(
    lambda given, *_: (given[0][0] - given[1][1], given[0][1] - given[1][0])
)
MULTIPLIED = Bounds(lambda given, *_: _corners(given[0], given[1]))
QUOTIENT, REST, C_REST = Bounds(_quotient), Bounds(_rest), Bounds(_c_rest)
LARGER = Bounds(lambda given, *_: tuple(map(max, *given)), "monotone")
SMALLER = Bounds(lambda given, *_: tuple(map(min, *given)), "monotone")
NEGATED = Bounds(lambda given, *_: (-given[0][1], -given[0][0]), "monotone")
MAGNITUDE = Bounds(_magnitude, "monotone")
POSITIVE = Bounds(
    lambda given, *_: (max(given[0][0], 0), max(given[0][1], 0)), "monotone"
)
SIGN = Bounds(lambda given, *_: (-1 if given[0][0] < 0 else 0, 1), "exact")
WHOLE_NUMBERS = Bounds(_whole_numbers, "exact")
SLOPE = Bounds(_slope)
BITS, TURNED_BITS = Bounds(_bits), Bounds(_turned_bits)
SHIFTED_UP, SHIFTED_DOWN = Bounds(_shifted_up), Bounds(_shifted_down)
CONVERTED = Bounds(_converted, "cast")
PUT_IN = Bounds(_put_in)
INDEXED = Bounds(lambda given, types, out, attrs: whole(out.dtype))
"""Of an op whose whole numbers only say which: nothing is computed with them."""
