"""Graph → steps: resolves views into layouts, regions into passes, the rest into calls.

Walks the nodes in order and keeps, for each, the Operand it can be read as. A layout no
reader can use is made dense by a copy step, once per layout.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rlxweb.compile.fusion import Region, regions
from rlxweb.compile.plan import Operand, Step
from rlxweb.compile.target import Target
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import Join, Leaf, View
from rlxweb.ir.op import TensorType, registry

# An offset that is a multiple of this starts on any device's binding alignment, even
# with 2-byte elements, so a kernel can be bound there without a copy.
ALIGN_ELEMENTS = 128


@dataclass(slots=True)
class Schedule:
    """The steps so far and where every node's value can be read."""

    graph: Graph
    target: Target
    steps: list[Step] = field(default_factory=list)
    at: dict[int, Operand] = field(default_factory=dict)
    types: dict[int, TensorType] = field(default_factory=dict)
    copies: dict[Operand, Operand] = field(default_factory=dict)

    def dense(self, operand: Operand) -> Operand:
        """The operand itself if it lies in row-major order, else a copy that does."""
        layout = operand.layout
        run = Layout(layout.shape, layout.strides)
        if run.is_dense and layout.offset % ALIGN_ELEMENTS == 0:
            return operand
        if operand not in self.copies:
            value = self._new_value(operand)
            self.steps.append(Step("copy", (), (operand,), value, "copy"))
            self.copies[operand] = Operand(value, Layout.dense(layout.shape))
        return self.copies[operand]

    def _new_value(self, operand: Operand) -> int:
        value = len(self.graph) + len(self.copies)
        dtype = self.types[operand.value].dtype
        self.types[value] = TensorType(operand.layout.shape, dtype)
        return value

    def place(self, node: Node, region: Region | None) -> None:
        """Add the step of one node and note where its value lies."""
        self.types[node.id] = node.type
        lower = registry.get(node.op).lower
        if isinstance(lower, Leaf):
            self.at[node.id] = Operand(node.id, Layout.dense(node.type.shape))
        elif isinstance(lower, View) and not self.target.keeps_views:
            self.at[node.id] = self._view(node, lower)
        else:
            self._step(node, region, lower)
            self.at[node.id] = Operand(node.id, Layout.dense(node.type.shape))

    def _view(self, node: Node, view: View) -> Operand:
        source = self.at[node.inputs[0]]
        layout = view.layout(source.layout, node.type.shape, node.attrs)
        if layout is None:
            source = self.dense(source)
            layout = view.layout(source.layout, node.type.shape, node.attrs)
        if layout is None:  # a view of a dense tensor that is still none: a new value
            raise AssertionError(f"{node} has no layout over a dense tensor")
        return Operand(source.value, layout)

    def _step(self, node: Node, region: Region | None, lower: object) -> None:
        label = f"{node.op} '{node.name}'" if node.name else node.op
        sources = node.inputs if region is None else region.reads
        reads = [self.at[i] for i in sources]
        if region is not None:
            reads = [self._spread(r, node) for r in reads]
            names = [self.graph.node(i).op for i in region.nodes]
            label = "+".join(names[:4]) + ("…" if len(names) > 4 else "")
            self.steps.append(
                Step(
                    "region",
                    tuple(region.nodes),
                    tuple(reads),
                    node.id,
                    label,
                    tuple(region.reads),
                )
            )
        elif isinstance(lower, View):
            self.steps.append(Step("view", (node.id,), tuple(reads), node.id, label))
        elif isinstance(lower, Join):
            self.steps.append(Step("join", (node.id,), tuple(reads), node.id, label))
        else:
            if not self.target.keeps_views:
                reads = [self.dense(r) for r in reads]
            self.steps.append(Step("kernel", (node.id,), tuple(reads), node.id, label))

    def _spread(self, operand: Operand, node: Node) -> Operand:
        if self.target.keeps_views:
            return operand
        return Operand(operand.value, operand.layout.expand(node.type.shape))


def schedule(graph: Graph, target: Target, fuse: bool) -> Schedule:
    """All steps of a graph, and its outputs as operands."""
    found = regions(graph, target, fuse)
    inside = {i for r in found.values() for i in r.nodes} - set(found)
    plan = Schedule(graph, target)
    wanted = _wanted(graph, found)
    for node in graph.nodes():
        if node.id in inside or (node.id not in wanted and node.op == "constant"):
            continue
        plan.place(node, found.get(node.id))
    if not target.keeps_views:
        for i in graph.outputs:
            plan.at[i] = plan.dense(plan.at[i])
    return plan


def _wanted(graph: Graph, found: dict[int, Region]) -> set[int]:
    """Nodes somebody reads from memory: literal constants need no buffer."""
    fused = {i for r in found.values() for i in r.nodes}
    out = set(graph.outputs)
    for node in graph.nodes():
        for i in node.inputs:
            if node.id not in fused or not graph.node(i).is_literal:
                out.add(i)
    return out
