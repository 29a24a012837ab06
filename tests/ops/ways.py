"""The ways a sample of an op reaches an engine: as it is, or through views.

A way turns (op, sample, arrays) into a graph and its feeds. Which samples there are and
what they must give is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op, registry
from rlxweb.ir.sample import Sample
from rlxweb.ir.tensor import Tensor
from tests.agreement import Array, dtypes_of, feeds_of, one_op

SMALL = 5_000
"""Elements up to which a sample is also run in the less usual ways."""


@dataclass(frozen=True, slots=True)
class Case:
    """One graph with its feeds, and a line that says which sample it came from."""

    label: str
    graph: Graph
    feeds: dict[str, Array]

    @property
    def dtypes(self) -> set[DType]:
        return dtypes_of(self.graph)

    @property
    def is_small(self) -> bool:
        return sum(node.type.numel for node in self.graph.nodes()) <= SMALL

    @property
    def out(self) -> DType:
        return self.graph.node(self.graph.outputs[0]).type.dtype


def names() -> list[str]:
    """Every op of the vocabulary that computes something."""
    return sorted(op.name for op in registry if not op.has("leaf"))


def _label(op: Op, at: int, sample: Sample) -> str:
    shapes = ", ".join(f"{list(d.shape)} {d.dtype}" for d in sample.inputs)
    attrs = ", ".join(f"{k}={v}" for k, v in sample.attrs.items())
    note = f" ({sample.note})" if sample.note else ""
    return f"{op.name} sample {at}: {shapes} {attrs}{note}"


@cache
def plain(name: str) -> tuple[Case, ...]:
    """Each sample as a graph of its inputs and the op."""
    op = registry.get(name)
    made = []
    for at, sample in enumerate(op.samples):
        arrays = sample.draw(at)
        graph = one_op(op, sample, arrays)
        made.append(Case(_label(op, at, sample), graph, feeds_of(arrays)))
    return tuple(made)


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


WAYS: dict[str, Way] = {
    "transposed": _transposed,
    "narrowed": _narrowed,
    "expanded": _expanded,
}


def _varied(arrays: Sequence[Array]) -> bool:
    return any(a.ndim >= 1 and a.size for a in arrays)


def _own_axis(sample: Sample, array: Array) -> int:
    """The axis the op works along, counted from the front."""
    return int(sample.attrs.get("axis", -1)) % max(array.ndim, 1)


@cache
def through_views(name: str) -> tuple[Case, ...]:
    """Each small sample once, the way going round: its inputs are views."""
    return tuple(_through_views(registry.get(name)))


def _through_views(op: Op) -> Iterator[Case]:
    turn = 0
    for at, sample in enumerate(op.samples):
        arrays = sample.draw(at)
        if not _varied(arrays) or sum(a.size for a in arrays) > SMALL:
            continue
        turn += 1
        which, way = list(WAYS.items())[turn % len(WAYS)]
        graph = Graph(f"{op.name} of views")
        xs, feeds = [], {}
        for k, array in enumerate(arrays):
            # Alike along the op's own axis is where a norm divides rounding by zero.
            alike = which == "expanded" and _own_axis(sample, array) == 0
            if array.ndim and array.size and not alike:
                x, feeds[f"x{k}"] = way(graph, f"x{k}", array)
            else:
                x = graph.input(f"x{k}", array.shape, array.dtype)
                feeds[f"x{k}"] = array
            xs.append(x)
        graph.set_outputs([graph.apply(op.name, *xs, **sample.attrs)])
        yield Case(f"{_label(op, at, sample)} {which}", graph, feeds)
