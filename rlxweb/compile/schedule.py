"""Graph → steps: resolves views into layouts, regions into passes, the rest into calls.

Elementwise nodes are grouped first: a producer joins its consumer when nothing else
needs it, both have the same shape, and the region still fits the device's bindings.
Joining saves a write, a read and a launch and costs nothing, so no cost model is asked.
Before that, what goes along lines is taken out (`line_steps.py`).
Then the nodes are walked in order, and for each the Operand is kept that it can be read
as. A layout no reader can use is made dense by a copy step, once per layout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rlxweb.compile.line_steps import LineStep, Passes, line_steps
from rlxweb.compile.plan import Operand, Step, StepKind
from rlxweb.compile.target import Target
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.layout import Layout
from rlxweb.ir.lines import Lines
from rlxweb.ir.lowering import Expr, Join, Kernel, Leaf, View
from rlxweb.ir.op import TensorType, registry

# Longer shaders stop gaining and start costing the driver's compiler.
MAX_NODES = 160
# An offset that is a multiple of this starts on any device's binding alignment, even
# with 2-byte elements, so a kernel can be bound there without a copy.
ALIGN_ELEMENTS = 128
_WIDEST = 4
"""Bytes of an element that passes along lines read."""


@dataclass(slots=True)
class Region:
    """Nodes evaluated together; `reads` are the distinct values they need."""

    nodes: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)


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
            value = len(self.graph) + len(self.copies)
            dtype = self.types[operand.value].dtype
            self.types[value] = TensorType(layout.shape, dtype)
            self.steps.append(Step("copy", (), (operand,), value, "copy"))
            self.copies[operand] = Operand(value, Layout.dense(layout.shape))
        return self.copies[operand]

    def place(self, node: Node, region: Region | None) -> None:
        """Add the step of one node and note where its value lies."""
        self.types[node.id] = node.type
        lower = registry.get(node.op).lower
        if isinstance(lower, View) and not self.target.keeps_views:
            self.at[node.id] = self._view(node, lower)
            return
        if not isinstance(lower, Leaf):
            self._step(node, region, lower)
        self.at[node.id] = Operand(node.id, Layout.dense(node.type.shape))

    def finish(self, node: Node, region: Region, kernel: Node) -> bool:
        """One step of a kernel and the region after it, where the target takes that."""
        others = [i for i in region.reads if i != kernel.id]
        shape = node.type.shape
        sides = [Operand(o.value, o.layout.expand(shape)) for o in self._read(others)]
        ids = (kernel.id, *region.nodes)
        pairs = [
            (i, replace(side.layout, offset=0))
            for i, side in zip(others, sides, strict=True)
        ]
        takes = self.target.finishes
        starts = all(side.layout.offset % ALIGN_ELEMENTS == 0 for side in sides)
        if takes is None or not starts:
            return False
        own = self._for_kernel(kernel)
        if not takes(self.graph, ids, [o.layout for o in own], pairs):
            return False
        self.types[node.id] = node.type
        label = _label([self.graph.node(i) for i in ids])
        reads = (*own, *sides)
        self.steps.append(Step("kernel", ids, reads, node.id, label, tuple(others)))
        self.at[node.id] = Operand(node.id, Layout.dense(shape))
        return True

    def along(self, node: Node, step: LineStep) -> None:
        """One pass along lines."""
        self.types[node.id] = node.type
        reads = []
        for i, to_bare in step.reads:
            reads.append(self._spread(self.at[i], step.lines, to_bare))
        label = _label([self.graph.node(i) for i in step.nodes])
        ids = tuple(i for i, _ in step.reads)
        self.steps.append(Step("lines", step.nodes, tuple(reads), node.id, label, ids))
        self.at[node.id] = Operand(node.id, Layout.dense(node.type.shape))

    def _spread(self, operand: Operand, lines: Lines, to_bare: bool) -> Operand:
        """As a pass along lines reads it; dense, where a line reaches further than the
        device binds.
        """
        limits = self.target.limits
        reach = lines.reach(lines.spread(operand.layout, to_bare))
        if limits and _WIDEST * reach > limits.max_storage_buffer_binding_size // 2:
            operand = self.dense(operand)
        layout = lines.spread(operand.layout, to_bare)
        return Operand(operand.value, layout)

    def _for_kernel(self, node: Node) -> list[Operand]:
        """The operands of a kernel, copied where it cannot read them as they lie."""
        lower = registry.get(node.op).lower
        turns = lower.turns if isinstance(lower, Kernel) else ()
        return [
            o if at in turns and _is_turned(o.layout) else self.dense(o)
            for at, o in enumerate(self._read(node.inputs))
        ]

    def _read(self, ids: Iterable[int]) -> list[Operand]:
        return [self.at[i] for i in ids]

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
        kind: StepKind = "kernel"
        one = region or Region([node.id])
        label = f"{node.op} '{node.name}'" if node.name else node.op
        reads = self._read(region.reads if region else node.inputs)
        if region:
            kind = "region"
            label = _label([self.graph.node(i) for i in region.nodes])
            if not self.target.keeps_views:
                shape = node.type.shape
                reads = [Operand(r.value, r.layout.expand(shape)) for r in reads]
        elif isinstance(lower, View):
            kind = "view"
        elif isinstance(lower, Join):
            kind = "join"
        elif not self.target.keeps_views:
            reads = self._for_kernel(node)
        self.steps.append(
            Step(kind, tuple(one.nodes), tuple(reads), node.id, label, tuple(one.reads))
        )


def _is_turned(layout: Layout) -> bool:
    """Could a kernel that turns its operands be bound to this one where it lies?"""
    starts = layout.offset % ALIGN_ELEMENTS == 0
    return starts and Layout(layout.shape, layout.strides).is_turned


def _label(nodes: Sequence[Node]) -> str:
    """The names of the first ops of a step."""
    names = [node.op for node in nodes]
    return "+".join(names[:4]) + ("…" if len(names) > 4 else "")


def regions(
    graph: Graph, target: Target, fuse: bool, passes: Passes | None = None
) -> dict[int, Region]:
    """Last node → its region, for every elementwise node that is not inside another.

    What all who read it are in one region for is computed there, once: the sum whose
    two readers are a function of it and their product.

    passes   what is computed along lines and in no region
    """
    passes = passes or Passes.of(graph, {})
    found: dict[int, Region] = {}
    for node in graph.nodes():
        is_one = isinstance(registry.get(node.op).lower, Expr)
        if not is_one or not passes.leave(node.id):
            continue
        outside = [i for i in node.inputs if not graph.node(i).is_literal]
        region = Region([node.id], list(dict.fromkeys(outside)))
        asked = list(region.reads) if fuse else []
        while asked:
            i = asked.pop(0)
            joined = _joined(graph, target, region, i, found, passes.uses[i])
            if joined is not None:
                # What it reads may have had readers in both.
                asked = [*found.pop(i).reads, *asked]
                region = joined
        found[node.id] = region
    return found


def _joined(
    graph: Graph,
    target: Target,
    region: Region,
    at: int,
    found: Mapping[int, Region],
    uses: int,
) -> Region | None:
    """A region and that of a value it reads, where nobody else does and it fits."""
    inner = found.get(at)
    if inner is None or at not in region.reads:
        return None
    shape = graph.node(region.nodes[-1]).type.shape
    inside = sum(graph.node(i).inputs.count(at) for i in region.nodes)
    reads = [r for r in region.reads if r != at]
    reads += [r for r in inner.reads if r not in reads]
    fits = (
        inside == uses
        and graph.node(at).type.shape == shape
        and len(region.nodes) + len(inner.nodes) <= MAX_NODES
        and len(reads) + 1 <= target.max_operands
    )
    return Region(sorted({*inner.nodes, *region.nodes}), reads) if fits else None


def _kernels_before(
    graph: Graph, found: Mapping[int, Region], passes: Passes
) -> dict[int, Node]:
    """Last node of a region → the kernel whose result nobody else reads.

    Of several the last: the others are there by then.
    """
    before: dict[int, Node] = {}
    for last, region in found.items():
        inside = Counter(i for at in region.nodes for i in graph.node(at).inputs)
        for i in sorted(region.reads):
            node = graph.node(i)
            alone = inside[i] == passes.uses[i] and passes.leave(i)
            is_like = node.type == graph.node(last).type
            if alone and is_like and isinstance(registry.get(node.op).lower, Kernel):
                before[last] = node
    return before


def schedule(graph: Graph, target: Target, fuse: bool) -> Schedule:
    """All steps of a graph, and its outputs as operands."""
    lines = line_steps(graph, target) if fuse and target.line_length else {}
    passes = Passes.of(graph, lines)
    found = regions(graph, target, fuse, passes)
    takes = fuse and target.finishes is not None
    before = _kernels_before(graph, found, passes) if takes else {}
    held = {kernel.id for kernel in before.values()}
    inside = {i for r in found.values() for i in r.nodes} - set(found)
    plan = Schedule(graph, target)
    wanted = _wanted(graph, found)
    for node in graph.nodes():
        if node.id in inside or (node.id not in wanted and node.op == "constant"):
            continue
        if node.id in held or node.id not in passes.alive:
            continue
        if node.id in lines:
            plan.along(node, lines[node.id])
            continue
        region, kernel = found.get(node.id), before.get(node.id)
        if region is not None and kernel is not None:
            if plan.finish(node, region, kernel):
                continue
            plan.place(kernel, None)
        plan.place(node, region)
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
