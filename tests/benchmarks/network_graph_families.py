"""Graph families of the placement benchmark that networks are built of: convolutions,
gathers and recurrences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlxweb.ir.graph import Graph
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.ir.tensor import Tensor

BuildOutput = Callable[[Graph, Shape], Tensor]

TABLE_SHAPES = ((16, 64), (64, 1024), (1024, 256))
IMAGE_SHAPES = ((1, 8, 32, 32), (4, 16, 64, 64), (8, 32, 128, 128))
"""(images, channels, rows, columns)."""
SEQUENCE_SHAPES = ((4, 2, 16), (32, 8, 64), (128, 16, 128))
"""(steps, rows of a batch, width)."""

BITWISE_OPS = "bitwise_and bitwise_or bitwise_xor shift_left shift_right".split()
LOGICAL_OPS = "logical_and logical_or logical_xor".split()


def _bitwise(name: str) -> BuildOutput:
    def build(g: Graph, s: Shape) -> Tensor:
        x, y = (g.cast(g.input(n, s), "i32") for n in "xy")
        return g.apply(name, x, y)

    return build


def _logical(name: str) -> BuildOutput:
    def build(g: Graph, s: Shape) -> Tensor:
        x, y = g.input("x", s), g.input("y", s)
        return g.apply(name, g.lt(x, y), g.lt(x, 1.0))

    return build


def _negations(g: Graph, s: Shape) -> Tensor:
    x = g.input("x", s)
    condition = g.apply("logical_not", g.lt(x, 1.0))
    return g.where(condition, g.apply("bitwise_not", g.cast(x, "i32")), 0)


def _strided_views(g: Graph, s: Shape) -> Tensor:
    """Build views with steps and of windows, then one pass over them."""
    x = g.slice(g.input("x", s), (None,), (None,), (1,), (-2,))
    return g.windows(x, (5,), axes=(1,), steps=3) * 2.0


def _data_movement(g: Graph, s: Shape) -> Tensor:
    """Move data by several index maps, one after the other."""
    x = g.pad(g.input("x", s), ((0, 0), (2, 2)), mode="reflect")
    x = g.roll(g.repeat(g.tile(x, (1, 2)), 2, axis=0), 3, axis=1)
    return g.dilate(x, (2,))


def _remap(g: Graph, s: Shape) -> Tensor:
    reversed_indices = tuple(reversed(range(s[1])))
    x = g.input("x", s)
    return g.apply("remap", x, axes=(1,), sizes=s[1:], places=reversed_indices)


def _indices(g: Graph, s: Shape, high: int) -> Tensor:
    indices = np.random.default_rng(0).integers(0, high, s, np.int32)
    return g.constant(indices)


def _gather_elements(g: Graph, s: Shape) -> Tensor:
    return g.gather_elements(g.input("x", s), _indices(g, s, s[0]))


def _gather_nd(g: Graph, s: Shape) -> Tensor:
    return g.gather_nd(g.input("x", s), _indices(g, (s[0], 2), min(s)))


def _scatter_elements(g: Graph, s: Shape) -> Tensor:
    x, y = g.input("x", s), g.input("y", s)
    return g.scatter_elements(x, _indices(g, s, s[0]), y, reduction="add")


def _scatter_nd(g: Graph, s: Shape) -> Tensor:
    x, y = g.input("x", s), g.input("y", s)
    return g.scatter_nd(x, _indices(g, (s[0], 1), s[0]), y, reduction="add")


def _last_axis_op(name: str) -> BuildOutput:
    return lambda g, s: g.apply(name, g.input("x", s), axis=-1)


def _searchsorted(g: Graph, s: Shape) -> Tensor:
    rows = np.sort(np.random.default_rng(0).random(s, np.float32), -1)
    return g.searchsorted(g.constant(rows), g.input("x", s))


def _nonzero(g: Graph, s: Shape) -> Tensor:
    return g.nonzero(g.gt(g.input("x", s), 1.0))[0]


def _non_max_suppression(g: Graph, s: Shape) -> Tensor:
    boxes, scores = g.input("boxes", (1, s[0], 4)), g.input("scores", (1, 4, s[0]))
    return g.apply("non_max_suppression", boxes * 9.0, scores, max_output=32)


def _roi_align(g: Graph, s: Shape) -> Tensor:
    low = np.random.default_rng(0).uniform(0, s[3] / 2, (64, 2))
    corners = np.concatenate([low, low + s[3] / 3], -1).astype(np.float32)
    images = g.constant(np.arange(64, dtype=np.int32) % s[0])
    return g.roi_align(g.input("x", s), g.constant(corners), images, 7, 2)


def _deform_conv(g: Graph, s: Shape) -> Tensor:
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


def _pool(name: str, *extra: Any) -> BuildOutput:
    def build(g: Graph, s: Shape) -> Tensor:
        pooled: Tensor = getattr(g, name)(g.input("x", s), *extra, 3, 2)
        return pooled

    return build


def _sum_pool(g: Graph, s: Shape) -> Tensor:
    x = g.input("x", s)
    return g.apply("sum_pool", x, kernel=3, strides=1, pads=1)


def _resize(g: Graph, s: Shape) -> Tensor:
    return g.interpolate(g.input("x", s), scale_factor=2.0, mode="bilinear")


def _grid_sample(g: Graph, s: Shape) -> Tensor:
    return g.grid_sample(g.input("x", s), g.input("at", (s[0], *s[2:], 2)) - 1.0)


def _recurrent(name: str, gates: int) -> BuildOutput:
    def build(g: Graph, s: Shape) -> Tensor:
        width = s[2]
        shape = (1, gates * width, width)
        weights = (g.input(n, shape) * (1.0 / width) for n in "wr")
        steps: Tensor = getattr(g, name)(g.input("x", s), *weights)[0]
        return steps

    return build


def _as_bytes(g: Graph, s: Shape) -> Tensor:
    return g.quantize_linear(g.input("x", s) - 1.0, 0.02, 128)


def _quantize_round_trip(g: Graph, s: Shape) -> Tensor:
    """Quantize values to 8 bits and back."""
    return g.dequantize_linear(_as_bytes(g, s), 0.02, 128)


def _matmul_integer(g: Graph, s: Shape) -> Tensor:
    w = g.cast(g.input("w", (s[1], 64)) * 60.0, "i8")
    return g.cast(g.matmul_integer(_as_bytes(g, s), w, 128), "f32")


def _conv_integer(g: Graph, s: Shape) -> Tensor:
    w = g.cast(g.input("w", (s[1], s[1], 3, 3)) * 60.0, "i8")
    return g.cast(g.conv_integer(_as_bytes(g, s), w, 128, padding=1), "f32")


NETWORKS: Mapping[str, tuple[BuildOutput, tuple[Shape, ...]]] = {
    **{name: (_bitwise(name), TABLE_SHAPES) for name in BITWISE_OPS},
    **{name: (_logical(name), TABLE_SHAPES) for name in LOGICAL_OPS},
    "inverted": (_negations, TABLE_SHAPES),
    "strided views": (_strided_views, TABLE_SHAPES),
    "moved by tables": (_data_movement, TABLE_SHAPES),
    "remap": (_remap, TABLE_SHAPES),
    "gather_elements": (_gather_elements, TABLE_SHAPES),
    "gather_nd": (_gather_nd, TABLE_SHAPES),
    "scatter_elements": (_scatter_elements, TABLE_SHAPES),
    "scatter_nd": (_scatter_nd, TABLE_SHAPES),
    "argsort": (_last_axis_op("argsort"), TABLE_SHAPES),
    "sort": (_last_axis_op("sort"), TABLE_SHAPES),
    "cumprod": (_last_axis_op("cumprod"), TABLE_SHAPES),
    "searchsorted": (_searchsorted, TABLE_SHAPES),
    "nonzero": (_nonzero, TABLE_SHAPES),
    "non_max_suppression": (_non_max_suppression, TABLE_SHAPES),
    "conv": (_conv, IMAGE_SHAPES),
    "conv, depthwise": (_depthwise, IMAGE_SHAPES),
    "deform_conv": (_deform_conv, IMAGE_SHAPES),
    "quantize_linear": (_quantize_round_trip, TABLE_SHAPES),
    "matmul_integer": (_matmul_integer, ((16, 64), (64, 256), (512, 256))),
    "conv_integer": (_conv_integer, ((1, 8, 16, 16), (2, 16, 32, 32), (8, 32, 64, 64))),
    "conv_transpose": (_conv_transpose, IMAGE_SHAPES),
    "max_pool": (_pool("max_pool"), IMAGE_SHAPES),
    "max_pool_indices": (_pool("max_pool_indices"), IMAGE_SHAPES),
    "avg_pool": (_pool("avg_pool"), IMAGE_SHAPES),
    "lp_pool": (_pool("lp_pool", 2.0), IMAGE_SHAPES),
    "sum_pool": (_sum_pool, IMAGE_SHAPES),
    "resize": (_resize, IMAGE_SHAPES),
    "grid_sample": (_grid_sample, IMAGE_SHAPES),
    "roi_align": (_roi_align, IMAGE_SHAPES),
    "lstm": (_recurrent("lstm", 4), SEQUENCE_SHAPES),
    "gru": (_recurrent("gru", 3), SEQUENCE_SHAPES),
    "rnn": (_recurrent("rnn", 1), SEQUENCE_SHAPES),
}
