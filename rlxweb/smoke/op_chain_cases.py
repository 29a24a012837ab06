"""Cases of op chains that the compiler fuses into one kernel or a few.

Short pieces of the models and signal paths people run: an activation after a bias, a
residual before a norm, a scaled and masked softmax, arithmetic over a reduction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlxweb.engines.reference_comparison import (
    ComparisonResult,
    compare_to_reference,
    reference_outputs,
    rounding_errors,
)
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Tolerance
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.ir.tensor import Tensor
from rlxweb.smoke.case import PreparedCase, SmokeCase

Chain = Callable[[Graph, Tensor, Tensor], Tensor]
"""Function of (graph, x of shape (rows, columns), y of shape (columns,)) that returns
the result.
"""


def _composed_gelu(g: Graph, x: Tensor, y: Tensor) -> Tensor:
    """Return the tanh approximation of GELU, composed of elementwise ops."""
    inner = (x + x * x * x * 0.044715) * 0.7978845608
    return x * 0.5 * (g.tanh(inner) + 1.0)


def _composed_norm(g: Graph, x: Tensor, y: Tensor) -> Tensor:
    """Return a layer norm composed of means and elementwise ops."""
    centered = x - g.mean(x, axes=(-1,), keep_dim=True)
    power = g.mean(centered * centered, axes=(-1,), keep_dim=True)
    return centered * g.rsqrt(power + 0.1) * y


def _double_transpose(g: Graph, x: Tensor) -> Tensor:
    """Return x times 0.5, computed between two transposes."""
    return g.transpose(g.transpose(x, (1, 0)) * 0.5, (1, 0))


def _many_operand_sum(g: Graph, x: Tensor, y: Tensor) -> Tensor:
    """Return a sum of more distinct operands than a kernel of a small device may bind
    at once.
    """
    total = x
    for k in range(12):
        total = total + x * g.constant(np.full(y.shape, k / 7, np.float32))
    return total


CHAINS: dict[str, Chain] = {
    "bias-gelu": lambda g, x, y: g.gelu(x + y),
    "gelu-by-hand": _composed_gelu,
    "silu-gate": lambda g, x, y: g.silu(x) * (x + y),
    "residual-layer-norm": lambda g, x, y: g.layer_norm(x + x * 0.5, y, y, eps=0.1),
    "norm-by-hand": _composed_norm,
    "scaled-softmax": lambda g, x, y: g.softmax(x * 0.125 + y),
    "bias-after-matmul": lambda g, x, y: g.relu(x @ g.transpose(x, (1, 0)) + 1.0),
    "through-a-transpose": lambda g, x, y: g.exp(_double_transpose(g, x) - y),
    "decibels": lambda g, x, y: g.log(x * x + y * y + 1e-3) * 4.342944819,
    "selected": lambda g, x, y: g.where(x > y, x * 2.0, g.sqrt(abs(x)) - y),
    "whole-and-back": lambda g, x, y: g.cast(g.cast(x + y, "i32"), "f32") * 0.5,
    "many-operands": _many_operand_sum,
    "twelve-deep": lambda g, x, y: _deep_chain(g, x),
}
SHAPES: tuple[Shape, ...] = ((1, 1), (7, 13), (64, 64), (3, 1021), (65_537, 2), (0, 5))
QUICK_SHAPES = SHAPES[:4]


def _deep_chain(g: Graph, x: Tensor) -> Tensor:
    """Return x after twelve steps of two elementwise ops each."""
    for _ in range(12):
        x = g.sin(x) + x * 0.5
    return x


def chain_cases(shapes: Sequence[Shape] = SHAPES) -> Iterator[SmokeCase]:
    """Yield a case for each chain and shape; the matmul chain is left out for many
    rows.
    """
    for name in CHAINS:
        for rows, columns in shapes:
            if name == "bias-after-matmul" and rows > 1000:
                continue
            size = f"{rows}x{columns}"
            prepare = partial(_prepare, name, (rows, columns))
            inputs = (((rows, columns), "f32"), ((columns,), "f32"))
            yield SmokeCase(f"chains/{name}/{size}", "chains", "", prepare, inputs)


def _prepare(name: str, shape: Shape) -> PreparedCase:
    """Prepare one chain with uniformly drawn inputs."""
    rng = np.random.default_rng(len(name))
    feeds = {
        "x": rng.uniform(-2, 2, shape).astype(np.float32),
        "y": rng.uniform(-2, 2, shape[1:]).astype(np.float32),
    }
    graph = Graph(name)
    x, y = graph.input("x", shape), graph.input("y", shape[1:])
    graph.set_outputs([CHAINS[name](graph, x, y)])

    def judge(outputs: Sequence[Any]) -> ComparisonResult:
        # Twelve ops add up twelve roundings; or eight times what NumPy is off by.
        node = graph.node(graph.outputs[0])
        tolerance = Tolerance(rtol=2e-5, atol=2e-6, relative_to_peak=True)
        extra_allowance = 8 * rounding_errors(graph, feeds)[0]
        return compare_to_reference(
            outputs[0],
            reference_outputs(graph, feeds)[0],
            node.type.dtype,
            tolerance,
            extra_allowance,
        )

    return PreparedCase(graph, feeds, judge)
