"""Generators of random ops, with the list of all: each adds one op to the graph and
bounds its result.

A move takes values the graph has, brings them into the op's domain, and says in which
interval the result lies and what the op makes of its inputs' errors (a Lipschitz bound
over the domain). It answers None when nothing fits.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.smoke.random_data_movement_ops import DATA_MOVEMENT_GENERATORS
from rlxweb.smoke.random_elementwise_ops import (
    add_arithmetic,
    add_atan2_or_prelu,
    add_bitwise,
    add_cast,
    add_comparison,
    add_division,
    add_logical,
    add_power,
    add_remainder,
    add_rounding,
    add_unary,
    add_where,
    is_float32,
)
from rlxweb.smoke.random_graph_builder import (
    F32_EPSILON,
    MAX_EXACT_INTEGER,
    BoundedTensor,
    OpGenerator,
    RandomGraphBuilder,
    op_generator,
)
from rlxweb.smoke.random_network_ops import NETWORK_GENERATORS


def _is_nonempty(v: BoundedTensor) -> bool:
    """Return whether the tensor has elements."""
    return 0 not in v.shape


def _has_axes(v: BoundedTensor) -> bool:
    """Return whether the tensor has axes and elements."""
    return bool(v.shape) and _is_nonempty(v)


@op_generator(_is_nonempty)
def add_reshape(
    builder: RandomGraphBuilder, value: BoundedTensor
) -> BoundedTensor | None:
    """Add a reshape that merges axes, splits one by 2 or 3, or adds one."""
    dims = list(value.shape)
    if len(dims) >= 2 and builder.random_integer(0, 1):
        axis = builder.random_integer(0, len(dims) - 2)
        dims[axis : axis + 2] = [dims[axis] * dims[axis + 1]]
    splits = [(k, p) for k, d in enumerate(dims) for p in (2, 3) if d % p == 0]
    if splits and len(dims) < 5 and builder.random_integer(0, 1):
        axis, prime = builder.choose(*splits)
        dims[axis : axis + 1] = [prime, dims[axis] // prime]
    if len(dims) < 5 and builder.random_integer(0, 2) == 0:
        dims.insert(builder.random_integer(0, len(dims)), 1)
    return builder.add_data_movement("reshape", value, shape=tuple(dims))


@op_generator(lambda v: len(v.shape) >= 2)
def add_transpose(
    builder: RandomGraphBuilder, value: BoundedTensor
) -> BoundedTensor | None:
    """Add a transpose with a random permutation."""
    perm = list(range(len(value.shape)))
    builder.rng.shuffle(perm)
    return builder.add_data_movement("transpose", value, perm=tuple(perm))


@op_generator(_has_axes)
def add_narrow(
    builder: RandomGraphBuilder, value: BoundedTensor
) -> BoundedTensor | None:
    """Add a contiguous part of one axis."""
    axis = builder.random_integer(0, len(value.shape) - 1)
    start = builder.random_integer(0, value.shape[axis] - 1)
    length = builder.random_integer(1, value.shape[axis] - start)
    return builder.add_data_movement(
        "narrow", value, axis=axis, start=start, length=length
    )


@op_generator(lambda v: len(v.shape) < 5)
def add_expand(
    builder: RandomGraphBuilder, value: BoundedTensor
) -> BoundedTensor | None:
    """Add a broadcast of axes of length one, perhaps with a new leading axis."""
    expanded_dims = [d if d != 1 else builder.random_integer(1, 4) for d in value.shape]
    leading_dims = (
        [builder.random_integer(1, 3)] if builder.random_integer(0, 1) else []
    )
    return builder.add_data_movement(
        "expand", value, shape=(*leading_dims, *expanded_dims)
    )


@op_generator(_has_axes)
def add_concat(
    builder: RandomGraphBuilder, first: BoundedTensor
) -> BoundedTensor | None:
    """Add a concatenation of two to four tensors of fitting shape."""
    axis = builder.random_integer(0, len(first.shape) - 1)

    def fits(v: BoundedTensor) -> bool:
        return (
            v.dtype is first.dtype
            and len(v.shape) == len(first.shape)
            and all(
                a == b or k == axis
                for k, (a, b) in enumerate(zip(v.shape, first.shape, strict=True))
            )
        )

    parts = [
        first,
        *(
            builder.pick_value(fits) or first
            for _ in range(builder.random_integer(1, 3))
        ),
    ]
    result = builder.add_node(
        "concat",
        tuple(parts),
        min(p.low for p in parts),
        max(p.high for p in parts),
        max(p.max_error for p in parts),
        axis=axis,
    )
    return replace(result, is_exact_integer=all(p.is_exact_integer for p in parts))


@op_generator(_has_axes)
def add_gather(
    builder: RandomGraphBuilder, table: BoundedTensor
) -> BoundedTensor | None:
    """Add a gather of a table's rows by random indices."""
    axis = builder.random_integer(0, len(table.shape) - 1)
    shape = builder.choose((), (3,), (2, 2))
    if len(table.shape) - 1 + len(shape) > 5:
        return None
    rows = table.shape[axis]
    index_array = builder.rng.integers(0, rows, shape).astype(np.int32)
    indices = builder.add_feed(np.asarray(index_array), 0, rows - 1, True)
    result = builder.add_node(
        "gather", (table, indices), table.low, table.high, table.max_error, axis=axis
    )
    return replace(result, is_exact_integer=table.is_exact_integer)


@op_generator(_has_axes, lambda v: v.dtype is not DType.BOOL)
def add_reduction(
    builder: RandomGraphBuilder, value: BoundedTensor
) -> BoundedTensor | None:
    """Add a sum, product, mean or extreme over one or two axes."""
    rank = len(value.shape)
    axes = tuple(sorted({builder.random_integer(0, rank - 1) for _ in range(2)}))
    n = math.prod(value.shape[a] for a in axes)
    names = ["sum", "max", "min"]
    names += ["mean"] * value.is_float32 + ["prod"] * (value.is_float32 and n <= 6)
    name = builder.choose(*names)
    if name == "prod":
        value = builder.clamp_range(value, -1.5, 1.5)
    low, high, lipschitz = {
        "sum": (min(n * value.low, 0), max(n * value.high, 0), n),
        "prod": (-(1.5**6), 1.5**6, 6 * 1.5**5),
    }.get(name, (value.low, value.high, 1))
    if (
        name == "sum"
        and not value.is_float32
        and n * value.max_magnitude > MAX_EXACT_INTEGER
    ):
        return None
    if value.dtype.is_unsigned:
        low = max(low, 0)
    keep_dim = bool(builder.random_integer(0, 1))
    return builder.add_node(
        name,
        (value,),
        low,
        high,
        lipschitz * value.max_error,
        axes=axes,
        keep_dim=keep_dim,
    )


@op_generator(_has_axes, is_float32)
def add_cumsum(
    builder: RandomGraphBuilder, value: BoundedTensor
) -> BoundedTensor | None:
    """Add a cumulative sum."""
    axis = builder.random_integer(0, len(value.shape) - 1)
    n = value.shape[axis]
    low, high = min(n * value.low, 0), max(n * value.high, 0)
    exclusive = bool(builder.random_integer(0, 1))
    return builder.add_node(
        "cumsum",
        (value,),
        low,
        high,
        n * value.max_error,
        axis=axis,
        exclusive=exclusive,
    )


@op_generator(_has_axes, is_float32)
def add_softmax(
    builder: RandomGraphBuilder, value: BoundedTensor
) -> BoundedTensor | None:
    """Add a softmax or log-softmax over any axis."""
    axis = builder.random_integer(-1, len(value.shape) - 1)
    name = builder.choose("softmax", "log_softmax")
    min_log = value.low - value.high - math.log(value.shape[axis])
    low, high = (0.0, 1.0) if name == "softmax" else (min_log, 0.0)
    return builder.add_node(name, (value,), low, high, 2 * value.max_error, axis=axis)


@op_generator(_has_axes, is_float32)
def add_norm(builder: RandomGraphBuilder, value: BoundedTensor) -> BoundedTensor | None:
    """Add a layer or RMS norm with an eps of one, so that rounding is not amplified
    without bound.
    """
    axis = builder.random_integer(0, len(value.shape) - 1)
    n = value.shape[axis]
    gamma = builder.add_leaf((n,), "real", is_reusable=False)
    beta = builder.add_leaf((n,), "real", is_reusable=False)
    size = 2 * math.sqrt(n) + 2
    lipschitz = 2 * (2 + math.sqrt(n))
    propagated_error = lipschitz * (
        value.max_error + 4 * F32_EPSILON * value.max_magnitude
    )
    name = builder.choose("layer_norm", "rms_norm")
    inputs = (value, gamma, beta)
    return builder.add_node(
        name, inputs, -size, size, propagated_error, axis=axis, eps=1.0
    )


@op_generator(_has_axes, is_float32, lambda v: v.is_exact_integer)
def add_argmax_or_topk(
    builder: RandomGraphBuilder, value: BoundedTensor
) -> BoundedTensor | None:
    """Add the indices of the k largest exact integers, or argmax or argmin along any
    axis.
    """
    n = value.shape[-1]
    if builder.random_integer(0, 1):
        axis = builder.random_integer(0, len(value.shape) - 1)
        name = builder.choose("argmax", "argmin")
        last = bool(builder.random_integer(0, 1))
        last_index = value.shape[axis] - 1
        return builder.add_node(
            name, (value,), 0, last_index, 0.0, axis=axis, last=last
        )
    # The list of the k best is never cut, and a tiny binding holds 1,024 elements.
    k = builder.random_integer(1, min(n, 700))
    return builder.add_node("topk", (value,), 0, n - 1, 0.0, k=k)


@op_generator(is_float32, lambda v: len(v.shape) >= 2 and _is_nonempty(v))
def add_matmul(builder: RandomGraphBuilder, x: BoundedTensor) -> BoundedTensor | None:
    """Add a matrix product, perhaps with bias and activation."""
    inner = x.shape[-1]

    def fits(v: BoundedTensor) -> bool:
        return v.shape[-2:-1] == (inner,) and v.is_float32 and len(v.shape) == 2

    y = builder.pick_value(fits) or builder.add_leaf(
        (inner, builder.random_integer(1, 5)), "whole"
    )
    size = inner * x.max_magnitude * y.max_magnitude
    propagated_error = inner * (
        x.max_magnitude * y.max_error + y.max_magnitude * x.max_error
    )
    if builder.random_integer(0, 2):
        return builder.add_node("matmul", (x, y), -size, size, propagated_error)
    bias = builder.add_leaf((y.shape[-1],), "real", is_reusable=False)
    act = builder.choose(None, "relu", "tanh")
    size += bias.max_magnitude
    return builder.add_node(
        "fused_matmul_bias_act",
        (x, y, bias),
        -size,
        size,
        propagated_error,
        activation=act,
    )


@op_generator(is_float32, lambda v: len(v.shape) == 3 and _is_nonempty(v))
def add_attention(
    builder: RandomGraphBuilder, x: BoundedTensor
) -> BoundedTensor | None:
    """Add self-attention of a tensor."""
    x = builder.clamp_range(x, -4, 4)
    width = x.shape[-1]
    heads = 2 if width % 2 == 0 else 1
    head_dim = width // heads
    # A score moves by this much; a weight, and so the mean, by at most twice that.
    score_error = (
        math.sqrt(head_dim)
        * 2
        * x.max_magnitude
        * (x.max_error + 2 * F32_EPSILON * x.max_magnitude)
    )
    propagated_error = x.max_error + 2 * score_error * x.max_magnitude
    kind = builder.choose("none", "causal")
    return builder.add_node(
        "attention",
        (x, x, x),
        x.low,
        x.high,
        propagated_error,
        num_heads=heads,
        head_dim=head_dim,
        mask_kind=kind,
    )


@op_generator(_has_axes, is_float32)
def add_fft(builder: RandomGraphBuilder, value: BoundedTensor) -> BoundedTensor | None:
    """Add a Fourier transform of the rows."""
    n = value.shape[-1]
    name = "fft" if n % 2 == 0 and builder.random_integer(0, 1) else "rfft"
    size = 2 * n * value.max_magnitude
    return builder.add_node(name, (value,), -size, size, 2 * n * value.max_error)


@op_generator(_has_axes, lambda v: len(v.shape) < 5)
def add_frame(
    builder: RandomGraphBuilder, value: BoundedTensor
) -> BoundedTensor | None:
    """Add overlapping frames of the rows."""
    length = builder.random_integer(1, value.shape[-1])
    return builder.add_data_movement(
        "frame", value, length=length, hop=builder.random_integer(1, 3)
    )


OP_GENERATORS: tuple[OpGenerator, ...] = (
    *(
        add_unary,
        add_unary,
        add_arithmetic,
        add_arithmetic,
        add_division,
        add_power,
        add_rounding,
    ),
    *(
        add_comparison,
        add_where,
        add_cast,
        add_logical,
        add_bitwise,
        add_remainder,
        add_atan2_or_prelu,
    ),
    *(
        add_reshape,
        add_transpose,
        add_narrow,
        add_expand,
        add_concat,
        add_gather,
        add_frame,
    ),
    *(add_reduction, add_cumsum, add_softmax, add_norm, add_argmax_or_topk),
    *(add_matmul, add_attention, add_fft),
    *DATA_MOVEMENT_GENERATORS,
    *NETWORK_GENERATORS,
)
