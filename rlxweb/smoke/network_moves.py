"""Moves of a growing random graph that networks are made of; see `moves.py`.

Convolutions, pools, resizing, gates, rotations and recurrent cells, each with a bound
on what it makes of its operand's error.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from rlxweb.smoke.elementwise_moves import is_float
from rlxweb.smoke.grown import ROUNDING, Grown, Move, Value, of

MOST_STEPS = 5
"""Of a recurrent cell: each may multiply an error."""


def _filled(v: Value) -> bool:
    return 0 not in v.shape


def _images(v: Value) -> bool:
    return 3 <= len(v.shape) <= 5 and _filled(v)


def _windows(grown: Grown, space: tuple[int, ...]) -> dict[str, Any]:
    """Kernel, strides, dilations and pads that fit these axes."""
    kernel = tuple(grown.integer(1, min(n, 3)) for n in space)
    fits = [
        max((n - 1) // max(k - 1, 1), 1) for n, k in zip(space, kernel, strict=True)
    ]
    return {
        "kernel": kernel,
        "strides": tuple(grown.integer(1, 2) for _ in space),
        "dilations": tuple(grown.integer(1, min(n, 2)) for n in fits),
        "pads": tuple(grown.integer(0, (k - 1) // 2 + (k == 2)) for k in kernel * 2),
    }


def _weights(grown: Grown, shape: tuple[int, ...], most: float = 1.0) -> Value:
    array = grown.rng.uniform(-most, most, shape).astype(np.float32)
    return grown.fed(array, -most, most, False, keep=False)


@of(is_float, _images)
def convolved(grown: Grown, x: Value) -> Value | None:
    """A convolution or a transposed one, in groups where the channels allow it."""
    channels, space = x.shape[1], x.shape[2:]
    how = _windows(grown, space)
    kernel, groups = how.pop("kernel"), 1
    if channels % 2 == 0 and grown.integer(0, 1):
        groups = 2
    outs = grown.integer(1, 3)
    if grown.integer(0, 2):
        name, shape = "conv", (outs * groups, channels // groups, *kernel)
    else:
        name, shape = "conv_transpose", (channels, outs, *kernel)
        if min(space) < 3:  # so that pads leave something of each axis
            how["pads"] = (0,) * (2 * len(space))
    weight = _weights(grown, shape)
    terms = channels // groups * math.prod(kernel)
    size = terms * x.size
    return grown.add(
        name, (x, weight), -size, size, terms * x.error, groups=groups, **how
    )


@of(is_float, _images)
def pooled(grown: Grown, x: Value) -> Value | None:
    """The largest element of windows or its place, their sum or mean."""
    how = _windows(grown, x.shape[2:])
    how["ceil_mode"] = bool(grown.integer(0, 1))
    names = ("max_pool", "max_pool", "sum_pool", "avg_pool", "max_pool_indices")
    name = grown.one_of(*names[: 4 + x.whole])
    if name == "max_pool":
        return grown.moved(name, x, **how)
    if name == "max_pool_indices":
        return grown.add(name, (x,), 0, math.prod(x.shape), 0.0, **how)
    low, high, carried = min(x.low, 0), max(x.high, 0), x.error
    if name == "avg_pool":
        how["count_include_pad"] = bool(grown.integer(0, 1))
    else:
        terms = math.prod(how["kernel"])
        low, high, carried = terms * low, terms * high, terms * carried
    return grown.add(name, (x,), low, high, carried, **how)


@of(is_float, lambda v: bool(v.shape) and _filled(v))
def resized(grown: Grown, x: Value) -> Value | None:
    """An axis with fewer or more elements, by each mode and way to place them."""
    axis = grown.integer(0, len(x.shape) - 1)
    mode = grown.one_of("nearest", "linear", "cubic")
    how: dict[str, Any] = {
        "axis": axis,
        "size": grown.integer(1, 9),
        "mode": mode,
        "place": grown.one_of("half_pixel", "asymmetric", "align_corners"),
    }
    if mode == "nearest":
        return grown.moved("resize", x, **how)
    how["antialias"] = bool(grown.integer(0, 1))
    by = 1 if mode == "linear" else 3  # the weights of a cubic are not all above 0
    return grown.add("resize", (x,), -by * x.size, by * x.size, by * x.error, **how)


@of(is_float, lambda v: len(v.shape) == 4 and _filled(v))
def sampled(grown: Grown, x: Value) -> Value | None:
    """An image looked up at drawn places, some of them outside."""
    shape = (x.shape[0], grown.integer(1, 4), grown.integer(1, 4), 2)
    grid = _weights(grown, shape, 1.3)
    how = {
        "padding": grown.one_of("zeros", "border", "reflection"),
        "align_corners": bool(grown.integer(0, 1)),
    }
    # A place is rounded in units of the image, and a step may be as high as x.
    carried = x.error + 16 * max(x.shape[2:]) * ROUNDING * x.size
    low, high = min(x.low, 0), max(x.high, 0)
    return grown.add("grid_sample", (x, grid), low, high, carried, **how)


@of(is_float, lambda v: len(v.shape) >= 2 and _filled(v) and v.shape[-1] % 2 == 0)
def turned(grown: Grown, x: Value) -> Value | None:
    """Pairs of a row rotated, or half of it as the gate of the other."""
    if grown.integer(0, 1):
        x = grown.clamped(x, -8, 8)
        kind = grown.one_of("sigmoid", "silu", "gelu")
        most = max(x.size, 1.0) if kind != "sigmoid" else 1.0
        size, carried = x.size * most, x.error * (most + 1.13 * x.size)
        first = bool(grown.integer(0, 1))
        how = {"activation": kind, "gate_first": first}
        return grown.add("glu", (x,), -size, size, carried, **how)
    half = (x.shape[-2], x.shape[-1] // 2)
    cos, sin = _weights(grown, half), _weights(grown, half)
    size, inputs = 2 * x.size, (x, cos, sin)
    pairs = bool(grown.integer(0, 1))
    return grown.add("rope", inputs, -size, size, 2 * x.error, interleaved=pairs)


@of(is_float, lambda v: len(v.shape) >= 2 and _filled(v))
def adapted(grown: Grown, x: Value) -> Value | None:
    """A product with a matrix and with one of low rank beside it."""
    inner, outs, rank = x.shape[-1], grown.integer(1, 5), grown.integer(1, 3)
    shapes = ((inner, outs), (inner, rank), (rank, outs))
    weights = tuple(_weights(grown, shape) for shape in shapes)
    terms = inner * (1 + 0.5 * rank)
    size = terms * x.size
    inputs = (x, *weights)
    return grown.add("lora_matmul", inputs, -size, size, terms * x.error, scale=0.5)


def _steps(v: Value) -> bool:
    return len(v.shape) == 3 and _filled(v) and v.shape[0] <= MOST_STEPS


@of(is_float, _steps)
def recurred(grown: Grown, x: Value) -> Value | None:
    """A few steps of a recurrent cell whose weights are small."""
    steps, batch, wide = x.shape
    fits = [n for n, gates in CELLS.items() if wide % gates == 0]
    name = grown.one_of(*fits)
    hidden = wide // CELLS[name]
    x = grown.clamped(x, -8, 8)
    weight = _weights(grown, (1, hidden, wide), 0.25 / hidden)
    state = [_weights(grown, (1, batch, hidden)) for _ in range(1 + (name == "lstm"))]
    size = 1.0 + steps if name == "lstm" else 1.0
    # By the derivatives of its gates, over all its steps.
    carried = 30 * steps * (x.error + 4 * ROUNDING * x.size)
    return grown.add(name, (x, weight, *state), -size, size, carried)


CELLS = {"rnn": 1, "gru": 3, "lstm": 4}
"""Gates of a cell."""


@of(is_float, lambda v: bool(v.shape) and _filled(v) and v.shape[-1] >= 4)
def inverted(grown: Grown, x: Value) -> Value | None:
    """Real rows of a spectrum, or the spectra of overlapping pieces of rows."""
    if x.shape[-1] % 2 == 0 and grown.integer(0, 1):
        n = x.shape[-1] - 2 + grown.integer(0, 1)
        by = 2 * x.shape[-1] / n
        return grown.add("irfft", (x,), -by * x.size, by * x.size, by * x.error, n=n)
    length = grown.integer(2, min(x.shape[-1], 32))
    size = 2 * length * x.size
    how = {"length": length, "hop": grown.integer(1, length)}
    return grown.add("stft", (x,), -size, size, 2 * length * x.error, **how)


@of(is_float, _images)
def normalised(grown: Grown, x: Value) -> Value | None:
    """Groups of channels, each of mean 0 and spread below 1."""
    groups = 2 if x.shape[1] % 2 == 0 and grown.integer(0, 1) else 1
    n = math.prod(x.shape[2:]) * x.shape[1] // groups
    tensor = grown.graph.group_norm(x.tensor, groups, eps=1.0)
    size = math.sqrt(n) + 1
    carried = (2 + math.sqrt(n)) * 2 * (x.error + 8 * ROUNDING * x.size)
    return replace(x, tensor=tensor, low=-size, high=size, error=carried, whole=False)


NETWORKS: tuple[Move, ...] = (
    *(convolved, convolved, pooled, resized, sampled, turned, adapted),
    *(recurred, inverted, normalised),
)
