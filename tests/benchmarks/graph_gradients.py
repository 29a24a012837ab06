"""Families of graphs with the gradients of others in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlxweb.ir.graph import Graph
from rlxweb.ir.shape import Shape
from rlxweb.ir.tensor import Tensor

Build = Callable[[Graph, Shape], Tensor]

LAYERS = ((8, 64), (128, 256), (512, 512))
"""(rows, width) of a batch."""
SEQUENCES = ((8, 2, 16), (48, 8, 64), (64, 16, 128))
"""(steps, rows, width)."""
_PART = 0
"""The number of the part of the graph that is computed twice."""


def _descent(g: Graph, s: Shape) -> Tensor:
    """A pair of layers fitted to what is given: its weights after a step."""
    _, n = s
    w, v = g.input("w", (n, n)), g.identity(g.input("v", (n, n)))
    hidden = g.relu(g.input("x", s) @ w) @ v
    loss = g.mean((hidden - g.input("wanted", s)) ** 2.0, (0, 1))
    by_w, by_v = g.gradients(loss, [w, v])
    return g.concat([w - by_w * 0.1, v - by_v * 0.1], 0)


def _recomputed(g: Graph, s: Shape) -> Tensor:
    """The gradient of a layer against its own past, whose middle is not kept."""
    _, n = s
    x, w = g.input("x", s), g.input("w", (n, n))
    part = g.gelu(g.segment_in(x, _PART) @ g.segment_in(w, _PART))
    y = g.segment_out(part, _PART)
    return g.gradients(g.mean((y - g.stop_gradient(y * 0.9)) ** 2.0, (0, 1)), [w])[0]


def _through_time(g: Graph, s: Shape) -> Tensor:
    """The gradient of an LSTM over (steps, rows, width) by the state's weights."""
    width = s[2]
    w, r = (g.input(n, (1, 4 * width, width)) * (1.0 / width) for n in "wr")
    steps = g.lstm(g.input("x", s), w, r)[0]
    return g.gradients(g.mean(steps**2.0, (0, 1, 2, 3)), [r])[0]


def _through_scan(g: Graph, s: Shape) -> Tensor:
    """The gradient of a selective scan over places of a width by its rates."""
    places, width = s
    x, delta = (g.input(n, (1, places, width)) for n in ("x", "delta"))
    a = -g.input("a", (width, 4))
    b, c = (g.input(n, (1, places, 4)) for n in "bc")
    y = g.selective_scan(x, delta, a, b, c)[0]
    return g.gradients(g.mean(y**2.0, (0, 1, 2)), [a])[0]


GRADIENTS: Mapping[str, tuple[Build, tuple[Shape, ...]]] = {
    "descent": (_descent, LAYERS),
    "descent, recomputed": (_recomputed, LAYERS),
    "lstm, back": (_through_time, SEQUENCES),
    "selective_scan, back": (_through_scan, LAYERS),
}
