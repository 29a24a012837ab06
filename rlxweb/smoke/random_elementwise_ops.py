"""Generators of random elementwise ops for the random graph builder."""

from __future__ import annotations

import math

from rlxweb.ir.dtype import DType
from rlxweb.ir.op import SmokeRange, registry
from rlxweb.smoke.random_graph_builder import (
    BoundedTensor,
    RandomGraphBuilder,
    op_generator,
)


def is_float32(v: BoundedTensor) -> bool:
    """Return whether the tensor is float32."""
    return v.is_float32


def unary_ops() -> dict[str, SmokeRange]:
    """Return the ops of one operand that have a range for random graphs, by name."""
    return {op.name: op.smoke for op in registry if op.smoke is not None}


@op_generator(is_float32)
def add_unary(
    builder: RandomGraphBuilder, value: BoundedTensor
) -> BoundedTensor | None:
    """Add an op of one operand, which is clamped to the op's domain."""
    ranges = unary_ops()
    name = builder.choose(*sorted(ranges))
    value = builder.clamp_range(value, ranges[name].low, ranges[name].high)
    result_low, result_high, lipschitz = ranges[name].result(value.low, value.high)
    return builder.add_node(
        name,
        (value,),
        result_low,
        result_high,
        lipschitz * value.max_error,
        **registry.get(name).example_attrs(),
    )


@op_generator(is_float32, lambda v: v.is_exact_integer)
def add_rounding(
    builder: RandomGraphBuilder, value: BoundedTensor
) -> BoundedTensor | None:
    """Add a rounding op over half-integers: every tie occurs, and no value is near
    one.
    """
    half = builder.add_constant(0.5, value)
    halves = builder.add_node("mul", (value, half), value.low / 2, value.high / 2, 0.0)
    low, high = math.floor(halves.low), math.ceil(halves.high)
    name = builder.choose("round", "floor", "ceil", "trunc")
    result = builder.add_node(name, (halves,), low, high, 0.0)
    return BoundedTensor(result.tensor, low, high, 0.0, True)


def _broadcast_partner(
    builder: RandomGraphBuilder, value: BoundedTensor, *predicates: object
) -> BoundedTensor:
    """Return a tensor that broadcasts with this one, else a constant."""

    def fits(other: BoundedTensor) -> bool:
        if other.dtype is not value.dtype:
            return False
        dim_pairs = zip(other.shape[::-1], value.shape[::-1], strict=False)
        return all(a == b or 1 in (a, b) for a, b in dim_pairs)

    partner = (
        builder.pick_value(fits, *predicates) if builder.random_integer(0, 3) else None
    )
    if partner is None:
        return builder.add_constant(float(builder.random_integer(0, 5)), value)
    return partner


@op_generator(lambda v: v.dtype is not DType.BOOL)
def add_arithmetic(
    builder: RandomGraphBuilder, x: BoundedTensor
) -> BoundedTensor | None:
    """Add a sum, difference, product, maximum or minimum."""
    y = _broadcast_partner(builder, x)
    if builder.random_integer(0, 1):
        x, y = y, x
    name = builder.choose("add", "sub", "mul", "maximum", "minimum")
    propagated_error = x.max_error + y.max_error
    sum_ranges = {
        "add": (x.low + y.low, x.high + y.high),
        "sub": (x.low - y.high, x.high - y.low),
        "maximum": (max(x.low, y.low), max(x.high, y.high)),
        "minimum": (min(x.low, y.low), min(x.high, y.high)),
    }
    if name == "mul":
        products = [a * b for a in (x.low, x.high) for b in (y.low, y.high)]
        low, high = min(products), max(products)
        propagated_error = x.max_magnitude * y.max_error + y.max_magnitude * x.max_error
    else:
        low, high = sum_ranges[name]
    if x.dtype.is_unsigned and low < 0:  # it would wrap, which intervals cannot say
        return None
    return builder.add_node(name, (x, y), low, high, propagated_error)


@op_generator(is_float32)
def add_division(builder: RandomGraphBuilder, x: BoundedTensor) -> BoundedTensor | None:
    """Add a quotient whose divisor is at least 0.5."""
    y = builder.clamp_range(_broadcast_partner(builder, x), 0.5, math.inf)
    size = x.max_magnitude / y.low
    propagated_error = x.max_error / y.low + size / y.low * y.max_error
    return builder.add_node("div", (x, y), -size, size, propagated_error)


@op_generator(is_float32)
def add_power(builder: RandomGraphBuilder, x: BoundedTensor) -> BoundedTensor | None:
    """Add a power of a base in [0.5, 4] to an exponent in [-2, 2]."""
    y = builder.clamp_range(_broadcast_partner(builder, x), -2, 2)
    x = builder.clamp_range(x, 0.5, 4)
    return builder.add_node("pow", (x, y), 0, 16, 16 * x.max_error + 23 * y.max_error)


@op_generator(lambda v: v.is_exact_integer and v.dtype is not DType.BOOL)
def add_comparison(
    builder: RandomGraphBuilder, x: BoundedTensor
) -> BoundedTensor | None:
    """Add a comparison of exact integers, which rounding cannot change."""
    y = _broadcast_partner(builder, x, lambda v: v.is_exact_integer)
    name = builder.choose("eq", "ne", "lt", "le", "gt", "ge")
    return builder.add_node(name, (x, y), 0, 1, 0.0)


@op_generator(lambda v: v.dtype is DType.BOOL)
def add_where(
    builder: RandomGraphBuilder, condition: BoundedTensor
) -> BoundedTensor | None:
    """Add a selection between a tensor and a constant by a condition."""

    def fits(v: BoundedTensor) -> bool:
        dim_pairs = zip(v.shape[::-1], condition.shape[::-1], strict=False)
        return v.dtype is not DType.BOOL and all(
            a == b or 1 in (a, b) for a, b in dim_pairs
        )

    x = builder.pick_value(fits)
    if x is None:
        return None
    y = builder.add_constant(float(builder.random_integer(0, 5)), x)
    low, high = min(x.low, y.low), max(x.high, y.high)
    return builder.add_node("where", (condition, x, y), low, high, x.max_error)


@op_generator(lambda v: v.is_exact_integer)
def add_cast(builder: RandomGraphBuilder, value: BoundedTensor) -> BoundedTensor | None:
    """Add a cast of exact integers."""
    dtype = builder.choose(*(["f32", "i32"] + ["u32"] * (value.low >= 0) + ["bool"]))
    low, high = (0, 1) if dtype == "bool" else (value.low, value.high)
    return builder.add_node("cast", (value,), low, high, 0.0, to=dtype)


@op_generator(lambda v: v.dtype is DType.BOOL)
def add_logical(builder: RandomGraphBuilder, x: BoundedTensor) -> BoundedTensor | None:
    """Add a logical op of one or two conditions."""
    name = builder.choose("logical_and", "logical_or", "logical_xor", "logical_not")
    if name == "logical_not":
        return builder.add_node(name, (x,), 0, 1, 0.0)

    def fits(other: BoundedTensor) -> bool:
        dim_pairs = zip(other.shape[::-1], x.shape[::-1], strict=False)
        return all(a == b or 1 in (a, b) for a, b in dim_pairs)

    y = builder.pick_value(lambda v: v.dtype is DType.BOOL, fits) or x
    return builder.add_node(name, (x, y), 0, 1, 0.0)


@op_generator(lambda v: v.dtype in (DType.I32, DType.U32))
def add_bitwise(builder: RandomGraphBuilder, x: BoundedTensor) -> BoundedTensor | None:
    """Add a bitwise op or a shift by a few bits."""
    name = builder.choose(
        "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"
    )
    if name.startswith("shift"):
        shift = builder.random_integer(0, 4)
        y = builder.add_constant(float(shift), x)
        low, high = x.low, x.high
        if name == "shift_left":
            low, high = low * 2**shift, high * 2**shift
        return builder.add_node(name, (x, y), low, high, 0.0)
    y = _broadcast_partner(builder, x)
    result_high = 2.0 ** math.ceil(
        math.log2(max(x.max_magnitude, y.max_magnitude, 1) + 1)
    )
    result_low = 0 if x.dtype is DType.U32 else -result_high
    return builder.add_node(name, (x, y), result_low, result_high, 0.0)


@op_generator(lambda v: v.is_exact_integer and v.dtype is not DType.BOOL)
def add_remainder(
    builder: RandomGraphBuilder, x: BoundedTensor
) -> BoundedTensor | None:
    """Add a remainder or floor division of exact integers."""
    y = builder.clamp_range(
        _broadcast_partner(builder, x, lambda v: v.is_exact_integer), 1, math.inf
    )
    name = builder.choose("mod", "fmod", "floor_divide")
    size = (
        x.max_magnitude
        if name == "floor_divide"
        else min(y.max_magnitude, x.max_magnitude + y.max_magnitude)
    )
    result_low = 0 if x.dtype is DType.U32 else -size
    return builder.add_node(name, (x, y), result_low, size, 0.0)


@op_generator(is_float32)
def add_atan2_or_prelu(
    builder: RandomGraphBuilder, y: BoundedTensor
) -> BoundedTensor | None:
    """Add atan2 with positive x, or a PReLU."""
    if builder.random_integer(0, 1):
        x = builder.clamp_range(_broadcast_partner(builder, y), 0.5, math.inf)
        return builder.add_node(
            "atan2", (y, x), -1.6, 1.6, 2 * (y.max_error + x.max_error)
        )
    slope = builder.clamp_range(_broadcast_partner(builder, y), -2, 2)
    propagated_error = 2 * y.max_error + y.max_magnitude * slope.max_error
    return builder.add_node(
        "prelu", (y, slope), -2 * y.max_magnitude, 2 * y.max_magnitude, propagated_error
    )
