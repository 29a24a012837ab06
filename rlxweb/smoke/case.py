"""Smoke test cases: a graph, arrays to feed it, and a judge of its outputs.

Cases are listed by name, cheaply; arrays are drawn and graphs built when one is run.
Who runs it, and what its result is worth, is in `verdict.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rlxweb.core.limits import Limits
from rlxweb.engines.protocol import Array
from rlxweb.engines.reference_comparison import (
    ComparisonResult,
    compare_to_reference,
    graph_dtypes,
    named_feeds,
    reference_outputs,
    single_op_graph,
)
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op, registry
from rlxweb.ir.sample import Sample
from rlxweb.ir.shape_arithmetic import Shape

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
Judge = Callable[[Sequence[Any]], ComparisonResult]
"""Function from the outputs of a run to their comparison with the expected values."""
MAX_SMALL_ELEMENTS = 5_000
"""Number of elements up to which a sample also runs through views and other variations.
"""


@dataclass(frozen=True, slots=True)
class PreparedCase:
    """A graph with its feeds and the judge of its outputs."""

    graph: Graph
    feeds: dict[str, Array]
    judge: Judge

    @property
    def dtypes(self) -> set[DType]:
        """Element types of all nodes."""
        return graph_dtypes(self.graph)

    @property
    def is_small(self) -> bool:
        """Report whether the graph has few enough elements for the additional
        checks.
        """
        return sum(node.type.numel for node in self.graph.nodes()) <= MAX_SMALL_ELEMENTS

    @property
    def output_dtype(self) -> DType:
        """Element type of the first output."""
        return self.graph.node(self.graph.outputs[0]).type.dtype


@dataclass(frozen=True, slots=True)
class SmokeCase:
    """Description of one case; its graph and arrays are made on demand.

    name      family, op and what tells it from its neighbours: "views/softmax/3"
    op        the op that is tried; "" where a graph of many is
    prepare   the trial: the same graph and the same arrays every time
    inputs    shapes and dtypes of what is fed
    variant   the row of the engine's table of variants that has to run it; "" for the
              engine's own choice
    limits    what to keep it under, tighter than the device's own
    optimise  whether the graph is rewritten and fused first
    """

    name: str
    family: Family
    op: str
    prepare: Callable[[], PreparedCase]
    inputs: tuple[tuple[Shape, str], ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    variant: str = ""
    limits: Limits | None = None
    optimise: bool = True


def checked_ops() -> list[Op]:
    """Return every op of the registry that computes something, sorted by name."""
    return sorted(
        (op for op in registry if not op.has_trait("leaf")), key=lambda op: op.name
    )


def reference_judge(graph: Graph, feeds: Mapping[str, Array]) -> Judge:
    """Return a judge of the first output: float64 reference, tolerance of the op that
    computed it.

    The right answer is computed when it is asked for.
    """

    def judge(outputs: Sequence[Any]) -> ComparisonResult:
        node = graph.node(graph.outputs[0])
        expected = reference_outputs(graph, feeds)[0]
        return compare_to_reference(
            outputs[0], expected, node.type.dtype, registry.get(node.op).tolerance
        )

    return judge


def prepared_case(graph: Graph, feeds: dict[str, Array]) -> PreparedCase:
    """Return the prepared case of a graph; its last op's tolerance applies."""
    return PreparedCase(graph, feeds, reference_judge(graph, feeds))


# --- plain samples ----------------------------------------------------------------


def case_of(op: Op, at: int) -> SmokeCase:
    """Return the case of sample number `at` of an op; it draws the same arrays every
    time.
    """
    sample = op.samples[at]

    def prepare() -> PreparedCase:
        arrays = sample.draw(at)
        return prepared_case(single_op_graph(op, sample, arrays), named_feeds(arrays))

    return sample_case("samples", op, at, prepare)


def sample_case(
    family: Family,
    op: Op,
    sample_index: int,
    prepare: Callable[[], PreparedCase],
    suffix: str = "",
) -> SmokeCase:
    """Return the case of one sample of an op, in the given family."""
    sample = op.samples[sample_index]
    name = f"{family}/{op.name}/{sample_index}" + (f"/{suffix}" if suffix else "")
    return SmokeCase(
        name, family, op.name, prepare, input_types(sample), sample.attrs, sample.note
    )


def input_types(sample: Sample) -> tuple[tuple[Shape, str], ...]:
    """Return shape and dtype of each input."""
    return tuple((operand.shape, operand.dtype.value) for operand in sample.inputs)


def sample_cases(op: Op) -> Iterator[SmokeCase]:
    """Yield a case for every sample of an op."""
    return (case_of(op, index) for index in range(len(op.samples)))
