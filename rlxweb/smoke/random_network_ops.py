"""Generators of random network ops: convolution, pooling, resizing, gates, recurrent
cells.

Convolutions, pools, resizing, gates, rotations and recurrent cells, each with a bound
on what it makes of its operand's error.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from rlxweb.smoke.random_elementwise_ops import is_float32
from rlxweb.smoke.random_graph_builder import (
    F32_EPSILON,
    BoundedTensor,
    OpGenerator,
    RandomGraphBuilder,
    op_generator,
)

MAX_TIME_STEPS = 5
"""Largest number of time steps of a recurrent cell; each step may amplify an error."""


def _is_nonempty(v: BoundedTensor) -> bool:
    """Return whether the tensor has elements."""
    return 0 not in v.shape


def _is_image(v: BoundedTensor) -> bool:
    """Return whether the tensor can be convolved: batch, channels and 1 to 3 spatial
    axes.
    """
    return 3 <= len(v.shape) <= 5 and _is_nonempty(v)


def _random_windows(
    builder: RandomGraphBuilder, spatial_shape: tuple[int, ...]
) -> dict[str, Any]:
    """Return random kernel, strides, dilations and pads that fit the spatial axes."""
    kernel = tuple(builder.random_integer(1, min(n, 3)) for n in spatial_shape)
    max_dilations = [
        max((n - 1) // max(k - 1, 1), 1)
        for n, k in zip(spatial_shape, kernel, strict=True)
    ]
    return {
        "kernel": kernel,
        "strides": tuple(builder.random_integer(1, 2) for _ in spatial_shape),
        "dilations": tuple(builder.random_integer(1, min(n, 2)) for n in max_dilations),
        "pads": tuple(
            builder.random_integer(0, (k - 1) // 2 + (k == 2)) for k in kernel * 2
        ),
    }


def _add_weights(
    builder: RandomGraphBuilder, shape: tuple[int, ...], max_magnitude: float = 1.0
) -> BoundedTensor:
    """Add uniformly drawn weights as a feed."""
    array = builder.rng.uniform(-max_magnitude, max_magnitude, shape).astype(np.float32)
    return builder.add_feed(
        array, -max_magnitude, max_magnitude, False, is_reusable=False
    )


@op_generator(is_float32, _is_image)
def add_convolution(
    builder: RandomGraphBuilder, x: BoundedTensor
) -> BoundedTensor | None:
    """Add a convolution or a transposed one, in groups where the channels allow it."""
    channels, spatial_shape = x.shape[1], x.shape[2:]
    attrs = _random_windows(builder, spatial_shape)
    kernel, groups = attrs.pop("kernel"), 1
    if channels % 2 == 0 and builder.random_integer(0, 1):
        groups = 2
    out_channels = builder.random_integer(1, 3)
    if builder.random_integer(0, 2):
        name, shape = "conv", (out_channels * groups, channels // groups, *kernel)
    else:
        name, shape = "conv_transpose", (channels, out_channels, *kernel)
        if min(spatial_shape) < 3:  # so that pads leave something of each axis
            attrs["pads"] = (0,) * (2 * len(spatial_shape))
    weight = _add_weights(builder, shape)
    terms = channels // groups * math.prod(kernel)
    size = terms * x.max_magnitude
    return builder.add_node(
        name, (x, weight), -size, size, terms * x.max_error, groups=groups, **attrs
    )


@op_generator(is_float32, _is_image)
def add_pooling(builder: RandomGraphBuilder, x: BoundedTensor) -> BoundedTensor | None:
    """Add a max pool, its indices, a sum pool or an average pool."""
    attrs = _random_windows(builder, x.shape[2:])
    attrs["ceil_mode"] = bool(builder.random_integer(0, 1))
    names = ("max_pool", "max_pool", "sum_pool", "avg_pool", "max_pool_indices")
    name = builder.choose(*names[: 4 + x.is_exact_integer])
    if name == "max_pool":
        return builder.add_data_movement(name, x, **attrs)
    if name == "max_pool_indices":
        return builder.add_node(name, (x,), 0, math.prod(x.shape), 0.0, **attrs)
    low, high, propagated_error = min(x.low, 0), max(x.high, 0), x.max_error
    if name == "avg_pool":
        attrs["count_include_pad"] = bool(builder.random_integer(0, 1))
    else:
        terms = math.prod(attrs["kernel"])
        low = terms * low
        high = terms * high
        propagated_error = terms * propagated_error
    return builder.add_node(name, (x,), low, high, propagated_error, **attrs)


@op_generator(is_float32, lambda v: bool(v.shape) and _is_nonempty(v))
def add_resize(builder: RandomGraphBuilder, x: BoundedTensor) -> BoundedTensor | None:
    """Add a resize of one axis in any mode and coordinate convention."""
    axis = builder.random_integer(0, len(x.shape) - 1)
    mode = builder.choose("nearest", "linear", "cubic")
    attrs: dict[str, Any] = {
        "axis": axis,
        "size": builder.random_integer(1, 9),
        "mode": mode,
        "place": builder.choose("half_pixel", "asymmetric", "align_corners"),
    }
    if mode == "nearest":
        return builder.add_data_movement("resize", x, **attrs)
    attrs["antialias"] = bool(builder.random_integer(0, 1))
    weight_sum = (
        1 if mode == "linear" else 3
    )  # the weights of a cubic are not all above 0
    return builder.add_node(
        "resize",
        (x,),
        -weight_sum * x.max_magnitude,
        weight_sum * x.max_magnitude,
        weight_sum * x.max_error,
        **attrs,
    )


@op_generator(is_float32, lambda v: len(v.shape) == 4 and _is_nonempty(v))
def add_grid_sample(
    builder: RandomGraphBuilder, x: BoundedTensor
) -> BoundedTensor | None:
    """Add a grid sample of an image at random coordinates, some of them outside."""
    shape = (x.shape[0], builder.random_integer(1, 4), builder.random_integer(1, 4), 2)
    grid = _add_weights(builder, shape, 1.3)
    attrs = {
        "padding": builder.choose("zeros", "border", "reflection"),
        "align_corners": bool(builder.random_integer(0, 1)),
    }
    # A place is rounded in units of the image, and a step may be as high as x.
    propagated_error = (
        x.max_error + 16 * max(x.shape[2:]) * F32_EPSILON * x.max_magnitude
    )
    low, high = min(x.low, 0), max(x.high, 0)
    return builder.add_node(
        "grid_sample", (x, grid), low, high, propagated_error, **attrs
    )


@op_generator(
    is_float32, lambda v: len(v.shape) >= 2 and _is_nonempty(v) and v.shape[-1] % 2 == 0
)
def add_glu_or_rope(
    builder: RandomGraphBuilder, x: BoundedTensor
) -> BoundedTensor | None:
    """Add a gated linear unit or a rotary embedding."""
    if builder.random_integer(0, 1):
        x = builder.clamp_range(x, -8, 8)
        kind = builder.choose("sigmoid", "silu", "gelu")
        gate_max = max(x.max_magnitude, 1.0) if kind != "sigmoid" else 1.0
        size = x.max_magnitude * gate_max
        propagated_error = x.max_error * (gate_max + 1.13 * x.max_magnitude)
        gate_first = bool(builder.random_integer(0, 1))
        attrs = {"activation": kind, "gate_first": gate_first}
        return builder.add_node("glu", (x,), -size, size, propagated_error, **attrs)
    half = (x.shape[-2], x.shape[-1] // 2)
    cos, sin = _add_weights(builder, half), _add_weights(builder, half)
    size, inputs = 2 * x.max_magnitude, (x, cos, sin)
    interleaved = bool(builder.random_integer(0, 1))
    return builder.add_node(
        "rope", inputs, -size, size, 2 * x.max_error, interleaved=interleaved
    )


@op_generator(is_float32, lambda v: len(v.shape) >= 2 and _is_nonempty(v))
def add_lora_matmul(
    builder: RandomGraphBuilder, x: BoundedTensor
) -> BoundedTensor | None:
    """Add a LoRA matrix product."""
    in_features = x.shape[-1]
    out_features = builder.random_integer(1, 5)
    rank = builder.random_integer(1, 3)
    shapes = ((in_features, out_features), (in_features, rank), (rank, out_features))
    weights = tuple(_add_weights(builder, shape) for shape in shapes)
    terms = in_features * (1 + 0.5 * rank)
    size = terms * x.max_magnitude
    inputs = (x, *weights)
    return builder.add_node(
        "lora_matmul", inputs, -size, size, terms * x.max_error, scale=0.5
    )


def _is_short_sequence(v: BoundedTensor) -> bool:
    """Return whether the tensor is a short non-empty sequence."""
    return len(v.shape) == 3 and _is_nonempty(v) and v.shape[0] <= MAX_TIME_STEPS


@op_generator(is_float32, _is_short_sequence)
def add_recurrent(
    builder: RandomGraphBuilder, x: BoundedTensor
) -> BoundedTensor | None:
    """Add a few steps of a recurrent cell with small weights."""
    steps, batch, width = x.shape
    cell_names = [n for n, gates in CELL_GATES.items() if width % gates == 0]
    name = builder.choose(*cell_names)
    hidden = width // CELL_GATES[name]
    x = builder.clamp_range(x, -8, 8)
    weight = _add_weights(builder, (1, hidden, width), 0.25 / hidden)
    state = [
        _add_weights(builder, (1, batch, hidden)) for _ in range(1 + (name == "lstm"))
    ]
    size = 1.0 + steps if name == "lstm" else 1.0
    # By the derivatives of its gates, over all its steps.
    propagated_error = 30 * steps * (x.max_error + 4 * F32_EPSILON * x.max_magnitude)
    return builder.add_node(name, (x, weight, *state), -size, size, propagated_error)


CELL_GATES = {"rnn": 1, "gru": 3, "lstm": 4}
"""Number of gates of each cell."""


@op_generator(
    is_float32, lambda v: bool(v.shape) and _is_nonempty(v) and v.shape[-1] >= 4
)
def add_irfft_or_stft(
    builder: RandomGraphBuilder, x: BoundedTensor
) -> BoundedTensor | None:
    """Add an inverse real FFT or a short-time Fourier transform."""
    if x.shape[-1] % 2 == 0 and builder.random_integer(0, 1):
        n = x.shape[-1] - 2 + builder.random_integer(0, 1)
        gain = 2 * x.shape[-1] / n
        return builder.add_node(
            "irfft",
            (x,),
            -gain * x.max_magnitude,
            gain * x.max_magnitude,
            gain * x.max_error,
            n=n,
        )
    length = builder.random_integer(2, min(x.shape[-1], 32))
    size = 2 * length * x.max_magnitude
    attrs = {"length": length, "hop": builder.random_integer(1, length)}
    return builder.add_node(
        "stft", (x,), -size, size, 2 * length * x.max_error, **attrs
    )


@op_generator(is_float32, _is_image)
def add_group_norm(
    builder: RandomGraphBuilder, x: BoundedTensor
) -> BoundedTensor | None:
    """Add a group norm with an eps of one."""
    groups = 2 if x.shape[1] % 2 == 0 and builder.random_integer(0, 1) else 1
    n = math.prod(x.shape[2:]) * x.shape[1] // groups
    tensor = builder.graph.group_norm(x.tensor, groups, eps=1.0)
    size = math.sqrt(n) + 1
    propagated_error = (
        (2 + math.sqrt(n)) * 2 * (x.max_error + 8 * F32_EPSILON * x.max_magnitude)
    )
    return replace(
        x,
        tensor=tensor,
        low=-size,
        high=size,
        max_error=propagated_error,
        is_exact_integer=False,
    )


NETWORK_GENERATORS: tuple[OpGenerator, ...] = (
    *(
        add_convolution,
        add_convolution,
        add_pooling,
        add_resize,
        add_grid_sample,
        add_glu_or_rope,
        add_lora_matmul,
    ),
    *(add_recurrent, add_irfft_or_stft, add_group_norm),
)
