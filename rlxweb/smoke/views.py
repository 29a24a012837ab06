"""Samples whose inputs are views: transposed, cut out, repeated, or backwards.

What an engine makes of strides and offsets shows here, and only here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import prod

import numpy as np

from rlxweb.backends.protocol import Array
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op
from rlxweb.ir.sample import Sample
from rlxweb.ir.tensor import Tensor
from rlxweb.smoke.case import SMALL, Case, Trial, sampled, trial_of

Way = Callable[[Graph, str, Array], tuple[Tensor, Array]]
"""(graph, input name, array) → the tensor the op reads, the array to feed."""


def _transposed(graph: Graph, name: str, array: Array) -> tuple[Tensor, Array]:
    fed = np.ascontiguousarray(array.T).reshape(array.shape[::-1])
    x = graph.input(name, fed.shape, fed.dtype)
    return graph.transpose(x, tuple(range(array.ndim))[::-1]), fed


def _narrowed(graph: Graph, name: str, array: Array) -> tuple[Tensor, Array]:
    # The fill is far from the values: a wrong offset must not look right.
    fed = np.full([d + 2 for d in array.shape], 77, array.dtype)
    fed[tuple(slice(1, d + 1) for d in array.shape)] = array
    x = graph.input(name, fed.shape, fed.dtype)
    for axis, dim in enumerate(array.shape):
        x = graph.narrow(x, axis, 1, dim)
    return x, fed


def _expanded(graph: Graph, name: str, array: Array) -> tuple[Tensor, Array]:
    fed = array[:1]
    x = graph.input(name, fed.shape, fed.dtype)
    return graph.expand(x, array.shape), fed


def _reversed(graph: Graph, name: str, array: Array) -> tuple[Tensor, Array]:
    # Backwards along all axes, and along the last one every second of what is fed.
    fed = np.full((*array.shape[:-1], 2 * array.shape[-1]), 77, array.dtype)
    fed[..., 1::2] = np.flip(array)
    x = graph.input(name, fed.shape, fed.dtype)
    steps = (*(-1,) * (array.ndim - 1), -2)
    ends = (None,) * array.ndim
    return graph.slice(x, ends, ends, steps=steps), fed


WAYS: dict[str, Way] = {
    "transposed": _transposed,
    "narrowed": _narrowed,
    "expanded": _expanded,
    "reversed": _reversed,
}


def through_views(op: Op) -> Iterator[Case]:
    """Each small sample once, the way going round."""
    turn = 0
    for at, sample in enumerate(op.samples):
        sizes = [prod(one.shape) for one in sample.inputs]
        ranked = any(one.shape and prod(one.shape) for one in sample.inputs)
        if ranked and sum(sizes) <= SMALL:
            turn += 1
            way = list(WAYS)[turn % len(WAYS)]
            yield sampled("views", op, at, partial(_made, op, sample, at, way), way)


def _made(op: Op, sample: Sample, at: int, way: str) -> Trial:
    graph = Graph(f"{op.name} of views")
    xs: list[Tensor] = []
    feeds: dict[str, Array] = {}
    for k, array in enumerate(sample.draw(at)):
        name = f"x{k}"
        # Alike along the op's own axis is where a norm divides rounding by zero.
        alike = way == "expanded" and _own_axis(sample, array) == 0
        if array.ndim and array.size and not alike:
            x, feeds[name] = WAYS[way](graph, name, array)
        else:
            x, feeds[name] = graph.input(name, array.shape, array.dtype), array
        xs.append(x)
    graph.set_outputs([graph.apply(op.name, *xs, **sample.attrs)])
    return trial_of(graph, feeds)


def _own_axis(sample: Sample, array: Array) -> int:
    """The axis the op works along, counted from the front."""
    return int(sample.attrs.get("axis", -1)) % max(array.ndim, 1)
