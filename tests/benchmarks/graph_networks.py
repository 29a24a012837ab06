"""Families of graphs that networks are made of: windows, picks and recurrences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlxweb.ir.graph import Graph
from rlxweb.ir.shape import Shape
from rlxweb.ir.tensor import Tensor

Build = Callable[[Graph, Shape], Tensor]

TABLES = ((16, 64), (64, 1024), (1024, 256))
IMAGES = ((1, 8, 32, 32), (4, 16, 64, 64), (8, 32, 128, 128))
"""(images, channels, rows, columns)."""
SEQUENCES = ((4, 2, 16), (32, 8, 64), (128, 16, 128))
"""(steps, rows of a batch, width)."""

BITS = "bitwise_and bitwise_or bitwise_xor shift_left shift_right".split()
TRUTHS = "logical_and logical_or logical_xor".split()


def _bits(name: str) -> Build:
    def build(g: Graph, s: Shape) -> Tensor:
        x, y = (g.cast(g.input(n, s), "i32") for n in "xy")
        return g.apply(name, x, y)

    return build


def _truths(name: str) -> Build:
    def build(g: Graph, s: Shape) -> Tensor:
        x, y = g.input("x", s), g.input("y", s)
        return g.apply(name, g.lt(x, y), g.lt(x, 1.0))

    return build


def _inverted(g: Graph, s: Shape) -> Tensor:
    x = g.input("x", s)
    truth = g.apply("logical_not", g.lt(x, 1.0))
    return g.where(truth, g.apply("bitwise_not", g.cast(x, "i32")), 0)


def _strided(g: Graph, s: Shape) -> Tensor:
    """Views with steps and of windows, then one pass over what they show."""
    x = g.slice(g.input("x", s), (None,), (None,), (1,), (-2,))
    return g.windows(x, (5,), axes=(1,), steps=3) * 2.0


def _moved(g: Graph, s: Shape) -> Tensor:
    """What is moved by tables of places, one after the other."""
    x = g.pad(g.input("x", s), ((0, 0), (2, 2)), mode="reflect")
    x = g.roll(g.repeat(g.tile(x, (1, 2)), 2, axis=0), 3, axis=1)
    return g.dilate(x, (2,))


def _remapped(g: Graph, s: Shape) -> Tensor:
    turned = tuple(reversed(range(s[1])))
    x = g.input("x", s)
    return g.apply("remap", x, axes=(1,), sizes=s[1:], places=turned)


def _indices(g: Graph, s: Shape, high: int) -> Tensor:
    drawn = np.random.default_rng(0).integers(0, high, s, np.int32)
    return g.constant(drawn)


def _picked(g: Graph, s: Shape) -> Tensor:
    return g.gather_elements(g.input("x", s), _indices(g, s, s[0]))


def _picked_nd(g: Graph, s: Shape) -> Tensor:
    return g.gather_nd(g.input("x", s), _indices(g, (s[0], 2), min(s)))


def _put(g: Graph, s: Shape) -> Tensor:
    x, y = g.input("x", s), g.input("y", s)
    return g.scatter_elements(x, _indices(g, s, s[0]), y, reduction="add")


def _put_nd(g: Graph, s: Shape) -> Tensor:
    x, y = g.input("x", s), g.input("y", s)
    return g.scatter_nd(x, _indices(g, (s[0], 1), s[0]), y, reduction="add")


def _ordered(name: str) -> Build:
    return lambda g, s: g.apply(name, g.input("x", s), axis=-1)


def _searched(g: Graph, s: Shape) -> Tensor:
    rows = np.sort(np.random.default_rng(0).random(s, np.float32), -1)
    return g.searchsorted(g.constant(rows), g.input("x", s))


def _found(g: Graph, s: Shape) -> Tensor:
    return g.nonzero(g.gt(g.input("x", s), 1.0))[0]


def _suppressed(g: Graph, s: Shape) -> Tensor:
    boxes, scores = g.input("boxes", (1, s[0], 4)), g.input("scores", (1, 4, s[0]))
    return g.apply("non_max_suppression", boxes * 9.0, scores, max_output=32)


def _regions(g: Graph, s: Shape) -> Tensor:
    low = np.random.default_rng(0).uniform(0, s[3] / 2, (64, 2))
    corners = np.concatenate([low, low + s[3] / 3], -1).astype(np.float32)
    images = g.constant(np.arange(64, dtype=np.int32) % s[0])
    return g.roi_align(g.input("x", s), g.constant(corners), images, 7, 2)


def _deformed(g: Graph, s: Shape) -> Tensor:
    offset = g.input("offset", (s[0], 18, s[2] - 2, s[3] - 2))
    weight = g.input("w", (s[1], s[1], 3, 3))
    return g.deform_conv2d(g.input("x", s), offset, weight)


def _conv(g: Graph, s: Shape) -> Tensor:
    weight = g.input("w", (s[1], s[1], 3, 3))
    return g.conv(g.input("x", s), weight, padding=1)


def _depthwise(g: Graph, s: Shape) -> Tensor:
    weight = g.input("w", (s[1], 1, 3, 3))
    return g.conv(g.input("x", s), weight, padding=1, groups=s[1])


def _conv_transpose(g: Graph, s: Shape) -> Tensor:
    weight = g.input("w", (s[1], s[1], 4, 4))
    return g.conv_transpose(g.input("x", s), weight, stride=2, padding=1)


def _pool(name: str, *more: Any) -> Build:
    def build(g: Graph, s: Shape) -> Tensor:
        made: Tensor = getattr(g, name)(g.input("x", s), *more, 3, 2)
        return made

    return build


def _sum_pool(g: Graph, s: Shape) -> Tensor:
    x = g.input("x", s)
    return g.apply("sum_pool", x, kernel=3, strides=1, pads=1)


def _resized(g: Graph, s: Shape) -> Tensor:
    return g.interpolate(g.input("x", s), scale_factor=2.0, mode="bilinear")


def _sampled(g: Graph, s: Shape) -> Tensor:
    return g.grid_sample(g.input("x", s), g.input("at", (s[0], *s[2:], 2)) - 1.0)


def _recurrent(name: str, gates: int) -> Build:
    def build(g: Graph, s: Shape) -> Tensor:
        width = s[2]
        shape = (1, gates * width, width)
        weights = (g.input(n, shape) * (1.0 / width) for n in "wr")
        steps: Tensor = getattr(g, name)(g.input("x", s), *weights)[0]
        return steps

    return build


def _bytes(g: Graph, s: Shape) -> Tensor:
    return g.quantize_linear(g.input("x", s) - 1.0, 0.02, 128)


def _quantized(g: Graph, s: Shape) -> Tensor:
    """Numbers put into 8 bits and back."""
    return g.dequantize_linear(_bytes(g, s), 0.02, 128)


def _whole_product(g: Graph, s: Shape) -> Tensor:
    w = g.cast(g.input("w", (s[1], 64)) * 60.0, "i8")
    return g.cast(g.matmul_integer(_bytes(g, s), w, 128), "f32")


def _whole_conv(g: Graph, s: Shape) -> Tensor:
    w = g.cast(g.input("w", (s[1], s[1], 3, 3)) * 60.0, "i8")
    return g.cast(g.conv_integer(_bytes(g, s), w, 128, padding=1), "f32")


def _rounded(g: Graph, s: Shape) -> Tensor:
    return g.round_divide(g.input("x", s) * 50.0, g.input("y", s) + 0.1)


NETWORKS: Mapping[str, tuple[Build, tuple[Shape, ...]]] = {
    **{name: (_bits(name), TABLES) for name in BITS},
    **{name: (_truths(name), TABLES) for name in TRUTHS},
    "inverted": (_inverted, TABLES),
    "strided views": (_strided, TABLES),
    "moved by tables": (_moved, TABLES),
    "remap": (_remapped, TABLES),
    "gather_elements": (_picked, TABLES),
    "gather_nd": (_picked_nd, TABLES),
    "scatter_elements": (_put, TABLES),
    "scatter_nd": (_put_nd, TABLES),
    "argsort": (_ordered("argsort"), TABLES),
    "sort": (_ordered("sort"), TABLES),
    "cumprod": (_ordered("cumprod"), TABLES),
    "searchsorted": (_searched, TABLES),
    "nonzero": (_found, TABLES),
    "non_max_suppression": (_suppressed, TABLES),
    "conv": (_conv, IMAGES),
    "conv, depthwise": (_depthwise, IMAGES),
    "deform_conv": (_deformed, IMAGES),
    "quantize_linear": (_quantized, TABLES),
    "round_divide": (_rounded, TABLES),
    "matmul_integer": (_whole_product, ((16, 64), (64, 256), (512, 256))),
    "conv_integer": (_whole_conv, ((1, 8, 16, 16), (2, 16, 32, 32), (8, 32, 64, 64))),
    "conv_transpose": (_conv_transpose, IMAGES),
    "max_pool": (_pool("max_pool"), IMAGES),
    "max_pool_indices": (_pool("max_pool_indices"), IMAGES),
    "avg_pool": (_pool("avg_pool"), IMAGES),
    "lp_pool": (_pool("lp_pool", 2.0), IMAGES),
    "sum_pool": (_sum_pool, IMAGES),
    "resize": (_resized, IMAGES),
    "grid_sample": (_sampled, IMAGES),
    "roi_align": (_regions, IMAGES),
    "lstm": (_recurrent("lstm", 4), SEQUENCES),
    "gru": (_recurrent("gru", 3), SEQUENCES),
    "rnn": (_recurrent("rnn", 1), SEQUENCES),
}
