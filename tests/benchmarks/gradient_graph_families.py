"""Graph families of the placement benchmark that contain gradients of other graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlxweb.ir.graph import Graph
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.ir.tensor import Tensor

BuildOutput = Callable[[Graph, Shape], Tensor]

LAYER_SHAPES = ((8, 64), (128, 256), (512, 512))
"""(rows, width) of a batch."""
SEQUENCE_SHAPES = ((8, 2, 16), (48, 8, 64), (64, 16, 128))
"""(steps, rows, width)."""
_CHECKPOINT = 0
"""Number of the graph's checkpoint, the part that is computed twice."""


def _gradient_step(g: Graph, s: Shape) -> Tensor:
    """Fit a pair of layers to a target: their weights after one gradient step."""
    _, n = s
    w, v = g.input("w", (n, n)), g.identity(g.input("v", (n, n)))
    hidden = g.relu(g.input("x", s) @ w) @ v
    loss = g.mean((hidden - g.input("wanted", s)) ** 2.0, (0, 1))
    w_gradient, v_gradient = g.gradients(loss, [w, v])
    return g.concat([w - w_gradient * 0.1, v - v_gradient * 0.1], 0)


def _recomputed_gradient(g: Graph, s: Shape) -> Tensor:
    """Build the gradient of a layer against its own past, with recomputed
    intermediates.
    """
    _, n = s
    x, w = g.input("x", s), g.input("w", (n, n))
    hidden = g.gelu(g.segment_in(x, _CHECKPOINT) @ g.segment_in(w, _CHECKPOINT))
    y = g.segment_out(hidden, _CHECKPOINT)
    return g.gradients(g.mean((y - g.stop_gradient(y * 0.9)) ** 2.0, (0, 1)), [w])[0]


def _lstm_gradient(g: Graph, s: Shape) -> Tensor:
    """Build the gradient of an LSTM over (steps, rows, width) by the state's
    weights.
    """
    width = s[2]
    w, r = (g.input(n, (1, 4 * width, width)) * (1.0 / width) for n in "wr")
    steps = g.lstm(g.input("x", s), w, r)[0]
    return g.gradients(g.mean(steps**2.0, (0, 1, 2, 3)), [r])[0]


def _selective_scan_gradient(g: Graph, s: Shape) -> Tensor:
    """Build the gradient of a selective scan by its rates."""
    length, width = s
    x, delta = (g.input(n, (1, length, width)) for n in ("x", "delta"))
    a = -g.input("a", (width, 4))
    b, c = (g.input(n, (1, length, 4)) for n in "bc")
    y = g.selective_scan(x, delta, a, b, c)[0]
    return g.gradients(g.mean(y**2.0, (0, 1, 2)), [a])[0]


GRADIENTS: Mapping[str, tuple[BuildOutput, tuple[Shape, ...]]] = {
    "descent": (_gradient_step, LAYER_SHAPES),
    "descent, recomputed": (_recomputed_gradient, LAYER_SHAPES),
    "lstm, back": (_lstm_gradient, SEQUENCE_SHAPES),
    "selective_scan, back": (_selective_scan_gradient, LAYER_SHAPES),
}
