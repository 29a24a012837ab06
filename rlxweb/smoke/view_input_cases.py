"""Cases whose inputs are views: transposed, narrowed, expanded or reversed.

What an engine makes of strides and offsets shows here, and only here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import prod

import numpy as np

from rlxweb.engines.protocol import Array
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op
from rlxweb.ir.sample import Sample
from rlxweb.ir.tensor import Tensor
from rlxweb.smoke.case import (
    MAX_SMALL_ELEMENTS,
    PreparedCase,
    SmokeCase,
    prepared_case,
    sample_case,
)

ViewFunction = Callable[[Graph, str, Array], tuple[Tensor, Array]]
"""Function of (graph, input name, array) that returns the tensor for the op and the
array to feed.
"""


def _transposed_view(graph: Graph, name: str, array: Array) -> tuple[Tensor, Array]:
    """Feed the reversed axes and transpose them back."""
    feed = np.ascontiguousarray(array.T).reshape(array.shape[::-1])
    x = graph.input(name, feed.shape, feed.dtype)
    return graph.transpose(x, tuple(range(array.ndim))[::-1]), feed


def _narrowed_view(graph: Graph, name: str, array: Array) -> tuple[Tensor, Array]:
    """Feed the array inside a larger one and narrow each axis."""
    # The fill is far from the values: a wrong offset must not look right.
    feed = np.full([d + 2 for d in array.shape], 77, array.dtype)
    feed[tuple(slice(1, d + 1) for d in array.shape)] = array
    x = graph.input(name, feed.shape, feed.dtype)
    for axis, dim in enumerate(array.shape):
        x = graph.narrow(x, axis, 1, dim)
    return x, feed


def _expanded_view(graph: Graph, name: str, array: Array) -> tuple[Tensor, Array]:
    """Feed the first row and expand it."""
    feed = array[:1]
    x = graph.input(name, feed.shape, feed.dtype)
    return graph.expand(x, array.shape), feed


def _reversed_view(graph: Graph, name: str, array: Array) -> tuple[Tensor, Array]:
    """Feed the array backwards and slice it with negative steps."""
    # Backwards along all axes, and along the last one every second of what is fed.
    feed = np.full((*array.shape[:-1], 2 * array.shape[-1]), 77, array.dtype)
    feed[..., 1::2] = np.flip(array)
    x = graph.input(name, feed.shape, feed.dtype)
    steps = (*(-1,) * (array.ndim - 1), -2)
    ends = (None,) * array.ndim
    return graph.slice(x, ends, ends, steps=steps), feed


VIEW_FUNCTIONS: dict[str, ViewFunction] = {
    "transposed": _transposed_view,
    "narrowed": _narrowed_view,
    "expanded": _expanded_view,
    "reversed": _reversed_view,
}


def view_cases(op: Op) -> Iterator[SmokeCase]:
    """Yield each small sample once, with the kinds of view in rotation."""
    rotation = 0
    for sample_index, sample in enumerate(op.samples):
        sizes = [prod(operand.shape) for operand in sample.inputs]
        has_array = any(
            operand.shape and prod(operand.shape) for operand in sample.inputs
        )
        if has_array and sum(sizes) <= MAX_SMALL_ELEMENTS:
            rotation += 1
            view_name = list(VIEW_FUNCTIONS)[rotation % len(VIEW_FUNCTIONS)]
            yield sample_case(
                "views",
                op,
                sample_index,
                partial(_prepare, op, sample, sample_index, view_name),
                view_name,
            )


def _prepare(op: Op, sample: Sample, sample_index: int, view_name: str) -> PreparedCase:
    """Prepare a sample whose inputs are views of one kind."""
    graph = Graph(f"{op.name} of views")
    xs: list[Tensor] = []
    feeds: dict[str, Array] = {}
    for k, array in enumerate(sample.draw(sample_index)):
        name = f"x{k}"
        # Alike along the op's own axis is where a norm divides rounding by zero.
        is_constant_axis = view_name == "expanded" and _op_axis(sample, array) == 0
        if array.ndim and array.size and not is_constant_axis:
            x, feeds[name] = VIEW_FUNCTIONS[view_name](graph, name, array)
        else:
            x, feeds[name] = graph.input(name, array.shape, array.dtype), array
        xs.append(x)
    graph.set_outputs([graph.apply(op.name, *xs, **sample.attrs)])
    return prepared_case(graph, feeds)


def _op_axis(sample: Sample, array: Array) -> int:
    """Return the op's axis, counted from the front."""
    return int(sample.attrs.get("axis", -1)) % max(array.ndim, 1)
