"""Plan: the compiled graph that every engine receives. Frozen, printable, free of any
device.

A plan is a list of steps over values. A value is a node's result lying dense in a slot
(or given from outside); an Operand reads a value through a Layout, so views cost
nothing. Slots are buffers shared by values whose lives do not overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rlxweb.cost.decision import Decision
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import Epilogue
from rlxweb.ir.op import TensorType


@dataclass(frozen=True, slots=True)
class PlanOperand:
    """Value of a plan, read through a layout."""

    value: int
    layout: Layout


@dataclass(frozen=True, slots=True)
class DemotedValue:
    """Value of a type that the device lacks, stored in a narrower one.

    dtype      what it is declared as
    low, high  between which it lies: of what is given, checked; of a result, proven
    precision  given doubles are exact in f32, are rounded to it, or, by the last bit,
               so that they can be rounded once more
    limiting_node  the node that would not fit if they went further
    """

    dtype: DType
    low: float
    high: float
    precision: Literal["exact", "rounded", "odd"] = "exact"
    limiting_node: str = ""

    def __str__(self) -> str:
        if self.dtype.is_float:
            return {"exact": "f32 numbers"}.get(self.precision, "rounded")
        return f"{self.low} to {self.high}"


StepKind = Literal["view", "region", "lines", "kernel", "join", "copy"]


@dataclass(frozen=True, slots=True)
class PlanStep:
    """Step of a plan: one unit of work.

    view    `nodes[0]` moves no data (kept only for targets that make their own views)
    region  the elementwise `nodes`, in order, as one pass; the last is the result
    lines   reductions along the same lines and the elementwise `nodes` around them, as
            one pass; the last is the result
    kernel  one op as it stands, and the elementwise nodes done on what it stores
    join    the inputs side by side in the output
    copy    one operand made dense

    `reads` are the graph nodes that `inputs` hold, in a region (views differ there) and
    along lines, whose elements all layouts are spread over; of
    a kernel with elementwise nodes after it, those that only these read, held last.

    epilogue  those elementwise nodes of a kernel, as its target wrote them
    row_kernel  what computes `lines`, as its target gave it
    """

    kind: StepKind
    nodes: tuple[int, ...]
    inputs: tuple[PlanOperand, ...]
    output: int
    label: str
    reads: tuple[int, ...] = ()
    epilogue: Epilogue | None = None
    row_kernel: object = None

    def variants(self, kernel_variants: Mapping[int, str]) -> tuple[str, ...]:
        """Return the kernel variants that run its nodes, each once.

        kernel_variants  by the number of a graph node, the kernel variant that runs it
        """
        names = (kernel_variants[i] for i in self.nodes if i in kernel_variants)
        return tuple(dict.fromkeys(names))


def format_variants(variants: Sequence[str]) -> str:
    """Return the text that follows a label with kernel variants; "" for none."""
    return " by " + ", ".join(f"'{name}'" for name in variants) if variants else ""


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """Compiled graph: steps over values and the memory they use.

    graph    the rewritten graph the node ids refer to
    types    value → its type (values beyond the graph's nodes are copies)
    slots    value → index into `slot_bytes`, for values that steps produce
    outputs  what `run` returns, in order
    demoted_inputs  inputs and params that the device holds in a narrower type, by name
    returned for each output the type that it is declared as, where it is another
    """

    graph: Graph
    steps: tuple[PlanStep, ...]
    types: Mapping[int, TensorType]
    slots: Mapping[int, int]
    slot_bytes: tuple[int, ...]
    outputs: tuple[PlanOperand, ...]
    decisions: tuple[Decision, ...] = ()
    demoted_inputs: Mapping[str, DemotedValue] = field(default_factory=dict)
    demoted_outputs: tuple[DemotedValue | None, ...] = ()

    def __repr__(self) -> str:
        return f"Plan({self.graph.name!r}: {len(self.steps)} steps)"

    def __str__(self) -> str:
        return self.describe()

    def describe(self, kernel_variants: Mapping[int, str] | None = None) -> str:
        """Return the plan as text, a line for each step.

        kernel_variants  as for `PlanStep.variants`
        """
        names = kernel_variants or {}
        lines = [f"plan of '{self.graph.name}'"]
        for step in self.steps:
            args = ", ".join(f"v{o.value}" for o in step.inputs)
            slot = self.slots.get(step.output)
            lines.append(
                f"  v{step.output} = {step.kind} {step.label}({args})"
                f" : {self.types[step.output]}"
                + (f" @{slot}" if slot is not None else "")
                + format_variants(step.variants(names))
            )
        outputs = ", ".join(f"v{o.value}" for o in self.outputs)
        lines.append(f"  return {outputs}")
        lines.append(f"  {len(self.slot_bytes)} slots, {sum(self.slot_bytes):,} bytes")
        return "\n".join(lines)
