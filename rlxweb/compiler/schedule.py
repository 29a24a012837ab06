"""Schedule of a graph: views resolved into layouts, elementwise regions and row
reductions fused, the rest as kernels.

Elementwise nodes are grouped first: a producer joins its consumer when nothing else
needs it, both have the same shape, and the region still fits the device's bindings.
Joining saves a write, a read and a launch and costs nothing, so no cost model is asked.
Before that, what goes along lines is taken out (`row_reduction_fusion.py`).
Then the nodes are walked in order, and for each the Operand is kept that it can be read
as. A layout no reader can use is made dense by a copy step, once per layout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rlxweb.compiler.plan import PlanOperand, PlanStep, StepKind
from rlxweb.compiler.row_reduction_fusion import (
    FusedRowReduction,
    RowReductionPlan,
    find_row_reductions,
)
from rlxweb.compiler.target import Target
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import ConcatLowering, Expr, Kernel, Leaf, View
from rlxweb.ir.op import TensorType, registry
from rlxweb.ir.row_reduction_pattern import RowReduction

# Longer shaders stop gaining and start costing the driver's compiler.
MAX_REGION_NODES = 160
# An offset that is a multiple of this starts on any device's binding alignment, even
# with 2-byte elements, so a kernel can be bound there without a copy.
ALIGN_ELEMENTS = 128
_MAX_ELEMENT_BYTES = 4
"""Maximum bytes of an element that row reductions read."""


@dataclass(slots=True)
class ElementwiseRegion:
    """Elementwise nodes evaluated together; `reads` are the distinct values they
    need.
    """

    nodes: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)


@dataclass(slots=True)
class StepSchedule:
    """Steps scheduled so far, and the operand through which every node's value can be
    read.
    """

    graph: Graph
    target: Target
    steps: list[PlanStep] = field(default_factory=list)
    operands: dict[int, PlanOperand] = field(default_factory=dict)
    types: dict[int, TensorType] = field(default_factory=dict)
    copies: dict[PlanOperand, PlanOperand] = field(default_factory=dict)

    def dense_operand(self, operand: PlanOperand) -> PlanOperand:
        """Return the operand itself if it lies in row-major order, else a copy that
        does.
        """
        layout = operand.layout
        if layout.without_offset.is_dense and layout.offset % ALIGN_ELEMENTS == 0:
            return operand
        if operand not in self.copies:
            value = len(self.graph) + len(self.copies)
            dtype = self.types[operand.value].dtype
            self.types[value] = TensorType(layout.shape, dtype)
            self.steps.append(PlanStep("copy", (), (operand,), value, "copy"))
            self.copies[operand] = PlanOperand(value, Layout.dense(layout.shape))
        return self.copies[operand]

    def add_node(self, node: Node, region: ElementwiseRegion | None) -> None:
        """Add the step of one node and record where its value lies."""
        self.types[node.id] = node.type
        lower = registry.get(node.op).lower
        if isinstance(lower, View) and not self.target.keeps_views:
            self.operands[node.id] = self._view_operand(node, lower)
            return
        if not isinstance(lower, Leaf):
            self._add_step(node, region, lower)
        self.operands[node.id] = PlanOperand(node.id, Layout.dense(node.type.shape))

    def add_kernel_with_epilogue(
        self, node: Node, region: ElementwiseRegion, kernel: Node
    ) -> bool:
        """Add a kernel and the region after it as one step, and tell whether the target
        accepts that.
        """
        other_reads = [i for i in region.reads if i != kernel.id]
        shape = node.type.shape
        epilogue_operands = [
            PlanOperand(o.value, o.layout.expand(shape))
            for o in self._operands_of(other_reads)
        ]
        ids = (kernel.id, *region.nodes)
        epilogue_layouts = [
            (i, operand.layout.without_offset)
            for i, operand in zip(other_reads, epilogue_operands, strict=True)
        ]
        is_aligned = all(
            operand.layout.offset % ALIGN_ELEMENTS == 0 for operand in epilogue_operands
        )
        if self.target.epilogue is None or not is_aligned:
            return False
        kernel_operands = self._kernel_operands(kernel)
        kernel_layouts = [operand.layout for operand in kernel_operands]
        epilogue = self.target.epilogue(
            self.graph, ids, kernel_layouts, epilogue_layouts
        )
        if epilogue is None:
            return False
        self.types[node.id] = node.type
        label = _step_label([self.graph.node(i) for i in ids])
        reads = (*kernel_operands, *epilogue_operands)
        self.steps.append(
            PlanStep("kernel", ids, reads, node.id, label, tuple(other_reads), epilogue)
        )
        self.operands[node.id] = PlanOperand(node.id, Layout.dense(shape))
        return True

    def add_row_reduction(self, node: Node, step: FusedRowReduction) -> None:
        """Add the step of a fused row reduction."""
        self.types[node.id] = node.type
        reads = []
        for i, is_bare in step.reads:
            reads.append(self._row_operand(self.operands[i], step.rows, is_bare))
        label = _step_label([self.graph.node(i) for i in step.nodes])
        ids = tuple(i for i, _ in step.reads)
        self.steps.append(
            PlanStep(
                "lines",
                step.nodes,
                tuple(reads),
                node.id,
                label,
                ids,
                row_kernel=step.kernel,
            )
        )
        self.operands[node.id] = PlanOperand(node.id, Layout.dense(node.type.shape))

    def _row_operand(
        self, operand: PlanOperand, rows: RowReduction, is_bare: bool
    ) -> PlanOperand:
        """Return an operand as a row reduction reads it; dense where a row exceeds the
        device's binding limit.
        """
        limits = self.target.limits
        element_count = rows.row_span(rows.broadcast_layout(operand.layout, is_bare))
        if (
            limits
            and _MAX_ELEMENT_BYTES * element_count
            > limits.max_storage_buffer_binding_size // 2
        ):
            operand = self.dense_operand(operand)
        layout = rows.broadcast_layout(operand.layout, is_bare)
        return PlanOperand(operand.value, layout)

    def _kernel_operands(self, node: Node) -> list[PlanOperand]:
        """Return the operands of a kernel, copied where it cannot read their
        layouts.
        """
        lower = registry.get(node.op).lower
        transposable = lower.transposable_inputs if isinstance(lower, Kernel) else ()
        return [
            o
            if index in transposable and _is_bindable_transposed(o.layout)
            else self.dense_operand(o)
            for index, o in enumerate(self._operands_of(node.inputs))
        ]

    def _operands_of(self, ids: Iterable[int]) -> list[PlanOperand]:
        return [self.operands[i] for i in ids]

    def _view_operand(self, node: Node, view: View) -> PlanOperand:
        source = self.operands[node.inputs[0]]
        layout = view.layout(source.layout, node.type.shape, node.attrs)
        if layout is None:
            source = self.dense_operand(source)
            layout = view.layout(source.layout, node.type.shape, node.attrs)
        if layout is None:  # a view of a dense tensor that is still none: a new value
            raise AssertionError(
                f"{node} is not expressible as a view of a dense tensor"
            )
        return PlanOperand(source.value, layout)

    def _add_step(
        self, node: Node, region: ElementwiseRegion | None, lower: object
    ) -> None:
        kind: StepKind = "kernel"
        step_nodes = region or ElementwiseRegion([node.id])
        label = f"{node.op} '{node.name}'" if node.name else node.op
        reads = self._operands_of(region.reads if region else node.inputs)
        if region:
            kind = "region"
            label = _step_label([self.graph.node(i) for i in region.nodes])
            if not self.target.keeps_views:
                shape = node.type.shape
                reads = [PlanOperand(r.value, r.layout.expand(shape)) for r in reads]
        elif isinstance(lower, View):
            kind = "view"
        elif isinstance(lower, ConcatLowering):
            kind = "join"
        elif not self.target.keeps_views:
            reads = self._kernel_operands(node)
        self.steps.append(
            PlanStep(
                kind,
                tuple(step_nodes.nodes),
                tuple(reads),
                node.id,
                label,
                tuple(step_nodes.reads),
            )
        )


def _is_bindable_transposed(layout: Layout) -> bool:
    """Tell whether a kernel that reads transposed operands can bind this layout without
    a copy.
    """
    is_aligned = layout.offset % ALIGN_ELEMENTS == 0
    return is_aligned and Layout(layout.shape, layout.strides).is_transposed


def _step_label(nodes: Sequence[Node]) -> str:
    """Return the names of the first ops of a step."""
    names = [node.op for node in nodes]
    return "+".join(names[:4]) + ("…" if len(names) > 4 else "")


def elementwise_regions(
    graph: Graph, target: Target, fuse: bool, reductions: RowReductionPlan | None = None
) -> dict[int, ElementwiseRegion]:
    """Return the region of every elementwise node that is not inside another region, by
    its last node.

    What all who read it are in one region for is computed there, once: the sum whose
    two readers are a function of it and their product.

    reductions  what is computed along lines and in no region
    """
    reductions = reductions or RowReductionPlan.from_steps(graph, {})
    regions_by_node: dict[int, ElementwiseRegion] = {}
    for node in graph.nodes():
        is_elementwise = isinstance(registry.get(node.op).lower, Expr)
        if not is_elementwise or not reductions.is_standalone(node.id):
            continue
        operand_ids = [i for i in node.inputs if not graph.node(i).is_literal]
        region = ElementwiseRegion([node.id], list(dict.fromkeys(operand_ids)))
        pending = list(region.reads) if fuse else []
        while pending:
            i = pending.pop(0)
            merged = _merge_regions(
                graph, target, region, i, regions_by_node, reductions.uses[i]
            )
            if merged is not None:
                # What it reads may have had readers in both.
                pending = [*regions_by_node.pop(i).reads, *pending]
                region = merged
        regions_by_node[node.id] = region
    return regions_by_node


def _merge_regions(
    graph: Graph,
    target: Target,
    region: ElementwiseRegion,
    node_id: int,
    regions_by_node: Mapping[int, ElementwiseRegion],
    uses: int,
) -> ElementwiseRegion | None:
    """Merge a region with that of a value it reads, where nothing else reads the value
    and the result fits; else return None.
    """
    inner = regions_by_node.get(node_id)
    if inner is None or node_id not in region.reads:
        return None
    shape = graph.node(region.nodes[-1]).type.shape
    inner_uses = sum(graph.node(i).inputs.count(node_id) for i in region.nodes)
    reads = [r for r in region.reads if r != node_id]
    reads += [r for r in inner.reads if r not in reads]
    fits = (
        inner_uses == uses
        and graph.node(node_id).type.shape == shape
        and len(region.nodes) + len(inner.nodes) <= MAX_REGION_NODES
        and len(reads) + 1 <= target.max_operands
    )
    return (
        ElementwiseRegion(sorted({*inner.nodes, *region.nodes}), reads)
        if fits
        else None
    )


def _epilogue_kernels(
    graph: Graph,
    regions_by_node: Mapping[int, ElementwiseRegion],
    reductions: RowReductionPlan,
) -> dict[int, Node]:
    """Return, by the last node of a region, the kernel whose result only that region
    reads.

    Of several the last: the others are there by then.
    """
    kernels: dict[int, Node] = {}
    for last, region in regions_by_node.items():
        region_uses = Counter(
            i for node_id in region.nodes for i in graph.node(node_id).inputs
        )
        for i in sorted(region.reads):
            node = graph.node(i)
            is_sole_reader = region_uses[i] == reductions.uses[
                i
            ] and reductions.is_standalone(i)
            is_same_type = node.type == graph.node(last).type
            if (
                is_sole_reader
                and is_same_type
                and isinstance(registry.get(node.op).lower, Kernel)
            ):
                kernels[last] = node
    return kernels


def schedule_graph(graph: Graph, target: Target, fuse: bool) -> StepSchedule:
    """Return all steps of a graph, with its outputs as operands."""
    row_reductions = (
        find_row_reductions(graph, target) if fuse and target.line_length else {}
    )
    reductions = RowReductionPlan.from_steps(graph, row_reductions)
    regions_by_node = elementwise_regions(graph, target, fuse, reductions)
    has_epilogues = fuse and target.epilogue is not None
    epilogue_kernels = (
        _epilogue_kernels(graph, regions_by_node, reductions) if has_epilogues else {}
    )
    deferred_ids = {kernel.id for kernel in epilogue_kernels.values()}
    inner_ids = {i for r in regions_by_node.values() for i in r.nodes} - set(
        regions_by_node
    )
    step_schedule = StepSchedule(graph, target)
    stored_ids = _stored_nodes(graph, regions_by_node)
    for node in graph.nodes():
        if node.id in inner_ids or (
            node.id not in stored_ids and node.op == "constant"
        ):
            continue
        if node.id in deferred_ids or node.id not in reductions.alive:
            continue
        if node.id in row_reductions:
            step_schedule.add_row_reduction(node, row_reductions[node.id])
            continue
        region, kernel = regions_by_node.get(node.id), epilogue_kernels.get(node.id)
        if region is not None and kernel is not None:
            if step_schedule.add_kernel_with_epilogue(node, region, kernel):
                continue
            step_schedule.add_node(kernel, None)
        step_schedule.add_node(node, region)
    if not target.keeps_views:
        for i in graph.outputs:
            step_schedule.operands[i] = step_schedule.dense_operand(
                step_schedule.operands[i]
            )
    return step_schedule


def _stored_nodes(
    graph: Graph, regions_by_node: dict[int, ElementwiseRegion]
) -> set[int]:
    """Return the nodes that are read from memory: literal constants need no buffer."""
    fused = {i for r in regions_by_node.values() for i in r.nodes}
    stored_ids = set(graph.outputs)
    for node in graph.nodes():
        for i in node.inputs:
            if node.id not in fused or not graph.node(i).is_literal:
                stored_ids.add(i)
    return stored_ids
