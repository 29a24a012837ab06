"""Chains of ops that become one kernel, or a few: what fusion must not change.

Short pieces of the models and signal paths people run: an activation after a bias, a
residual before a norm, a scaled and masked softmax, arithmetic over a reduction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlxweb.backends.agreement import Agreement, compare, oracle, rounding
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Tolerance
from rlxweb.ir.shape import Shape
from rlxweb.ir.tensor import Tensor
from rlxweb.smoke.case import Case, Trial

Chain = Callable[[Graph, Tensor, Tensor], Tensor]
"""(graph, x of rows by columns, y of columns) → the result."""


def _gelu_by_hand(g: Graph, x: Tensor, y: Tensor) -> Tensor:
    inner = (x + x * x * x * 0.044715) * 0.7978845608
    return x * 0.5 * (g.tanh(inner) + 1.0)


def _norm_by_hand(g: Graph, x: Tensor, y: Tensor) -> Tensor:
    off = x - g.mean(x, axes=(-1,), keep_dim=True)
    power = g.mean(off * off, axes=(-1,), keep_dim=True)
    return off * g.rsqrt(power + 0.1) * y


def _twice(g: Graph, x: Tensor) -> Tensor:
    return g.transpose(g.transpose(x, (1, 0)) * 0.5, (1, 0))


def _wide(g: Graph, x: Tensor, y: Tensor) -> Tensor:
    """More distinct operands than a kernel may bind at once on a small device."""
    total = x
    for k in range(12):
        total = total + x * g.constant(np.full(y.shape, k / 7, np.float32))
    return total


CHAINS: dict[str, Chain] = {
    "bias-gelu": lambda g, x, y: g.gelu(x + y),
    "gelu-by-hand": _gelu_by_hand,
    "silu-gate": lambda g, x, y: g.silu(x) * (x + y),
    "residual-layer-norm": lambda g, x, y: g.layer_norm(x + x * 0.5, y, y, eps=0.1),
    "norm-by-hand": _norm_by_hand,
    "scaled-softmax": lambda g, x, y: g.softmax(x * 0.125 + y),
    "bias-after-matmul": lambda g, x, y: g.relu(x @ g.transpose(x, (1, 0)) + 1.0),
    "through-a-transpose": lambda g, x, y: g.exp(_twice(g, x) - y),
    "decibels": lambda g, x, y: g.log(x * x + y * y + 1e-3) * 4.342944819,
    "selected": lambda g, x, y: g.where(x > y, x * 2.0, g.sqrt(abs(x)) - y),
    "whole-and-back": lambda g, x, y: g.cast(g.cast(x + y, "i32"), "f32") * 0.5,
    "many-operands": _wide,
    "twelve-deep": lambda g, x, y: _deep(g, x),
}
SHAPES: tuple[Shape, ...] = ((1, 1), (7, 13), (64, 64), (3, 1021), (65_537, 2), (0, 5))
QUICK_SHAPES = SHAPES[:4]


def _deep(g: Graph, x: Tensor) -> Tensor:
    for _ in range(12):
        x = g.sin(x) + x * 0.5
    return x


def chain_cases(shapes: Sequence[Shape] = SHAPES) -> Iterator[Case]:
    """Every chain at every shape; products of all rows only where those are few."""
    for name in CHAINS:
        for rows, columns in shapes:
            if name == "bias-after-matmul" and rows > 1000:
                continue
            size = f"{rows}x{columns}"
            made = partial(_trial, name, (rows, columns))
            inputs = (((rows, columns), "f32"), ((columns,), "f32"))
            yield Case(f"chains/{name}/{size}", "chains", "", made, inputs)


def _trial(name: str, shape: Shape) -> Trial:
    rng = np.random.default_rng(len(name))
    feeds = {
        "x": rng.uniform(-2, 2, shape).astype(np.float32),
        "y": rng.uniform(-2, 2, shape[1:]).astype(np.float32),
    }
    graph = Graph(name)
    x, y = graph.input("x", shape), graph.input("y", shape[1:])
    graph.set_outputs([CHAINS[name](graph, x, y)])

    def judge(outs: Sequence[Any]) -> Agreement:
        # Twelve ops add up twelve roundings; or eight times what NumPy is off by.
        node = graph.node(graph.outputs[0])
        bound = Tolerance(rtol=2e-5, atol=2e-6, relative_to_peak=True)
        off = 8 * rounding(graph, feeds)[0]
        return compare(outs[0], oracle(graph, feeds)[0], node.type.dtype, bound, off)

    return Trial(graph, feeds, judge)
