"""A case: a graph, arrays to feed it, and how its results are judged.

Cases are listed by name, cheaply; arrays are drawn and graphs built when one is run.
Who runs it, and what its result is worth, is in `verdict.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rlxweb.backends.agreement import (
    Agreement,
    compare,
    dtypes_of,
    feeds_of,
    one_op,
    oracle,
)
from rlxweb.backends.protocol import Array
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op, registry
from rlxweb.ir.sample import Sample
from rlxweb.ir.shape import Shape
from rlxweb.limits import Limits

Family = Literal[
    "samples",
    "views",
    "special",
    "edges",
    "shapes",
    "variants",
    "chains",
    "graphs",
    "limits",
]
Level = Literal["quick", "standard", "full"]
Judge = Callable[[Sequence[Any]], Agreement]
"""The outputs of a run → how near they are to the right ones."""
SMALL = 5_000
"""Elements up to which a sample is also run in the less usual ways."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A graph with its feeds, and the judge of what comes out."""

    graph: Graph
    feeds: dict[str, Array]
    judge: Judge

    @property
    def dtypes(self) -> set[DType]:
        return dtypes_of(self.graph)

    @property
    def is_small(self) -> bool:
        return sum(node.type.numel for node in self.graph.nodes()) <= SMALL

    @property
    def out(self) -> DType:
        return self.graph.node(self.graph.outputs[0]).type.dtype


@dataclass(frozen=True, slots=True)
class Case:
    """One case, before anything of it is made.

    name      family, op and what tells it from its neighbours: "views/softmax/3"
    op        the op that is tried; "" where a graph of many is
    make      the trial: the same graph and the same arrays every time
    inputs    shapes and dtypes of what is fed
    variant   the row of the engine's table of variants that has to run it; "" for the
              engine's own choice
    limits    what to keep it under, tighter than the device's own
    optimise  whether the graph is rewritten and fused first
    """

    name: str
    family: Family
    op: str
    make: Callable[[], Trial]
    inputs: tuple[tuple[Shape, str], ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    variant: str = ""
    limits: Limits | None = None
    optimise: bool = True


def checked_ops() -> list[Op]:
    """Every op of the vocabulary that computes something, by name."""
    return sorted((op for op in registry if not op.has("leaf")), key=lambda op: op.name)


def within(graph: Graph, feeds: Mapping[str, Array]) -> Judge:
    """Judges the first output by float64, within the tolerance of the op that made it.

    The right answer is computed when it is asked for.
    """

    def judge(outs: Sequence[Any]) -> Agreement:
        node = graph.node(graph.outputs[0])
        want = oracle(graph, feeds)[0]
        return compare(outs[0], want, node.type.dtype, registry.get(node.op).tolerance)

    return judge


def trial_of(graph: Graph, feeds: dict[str, Array]) -> Trial:
    """The trial of a graph whose last op says how near its result must be."""
    return Trial(graph, feeds, within(graph, feeds))


# --- plain samples ----------------------------------------------------------------


def case_of(op: Op, at: int) -> Case:
    """Sample number `at` of an op, as it is; the same arrays every time."""
    sample = op.samples[at]

    def make() -> Trial:
        arrays = sample.draw(at)
        return trial_of(one_op(op, sample, arrays), feeds_of(arrays))

    return sampled("samples", op, at, make)


def sampled(
    family: Family, op: Op, at: int, make: Callable[[], Trial], way: str = ""
) -> Case:
    """The case of a sample that goes some way into an engine."""
    sample = op.samples[at]
    name = f"{family}/{op.name}/{at}" + (f"/{way}" if way else "")
    return Case(
        name, family, op.name, make, types_of(sample), sample.attrs, sample.note
    )


def types_of(sample: Sample) -> tuple[tuple[Shape, str], ...]:
    """Shape and dtype of each input."""
    return tuple((one.shape, one.dtype.value) for one in sample.inputs)


def plain(op: Op) -> Iterator[Case]:
    """Every sample of an op."""
    return (case_of(op, at) for at in range(len(op.samples)))
