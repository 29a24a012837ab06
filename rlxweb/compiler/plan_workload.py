"""Workload of a compiled plan, step by step: kernels, flops, bytes.

Counted from the steps that will run, so fused regions count once and views not at all.
Operands that lie across the order in which they are read are told apart. Prices are not
known here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rlxweb.compiler.plan import Plan, PlanStep
from rlxweb.compiler.target import Target
from rlxweb.cost.graph_traffic_counts import GraphIoProfile
from rlxweb.cost.graph_work import node_flops, node_item, node_items
from rlxweb.cost.workload import WorkItem, Workload
from rlxweb.ir.graph import node_signature
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import View
from rlxweb.ir.op import TensorType, registry
from rlxweb.ir.shape_arithmetic import numel

_WIDE_BYTES = 8
"""Bytes of a number that a device holds in fewer."""


def plan_workload(
    plan: Plan, target: Target, on_device: Collection[str] = frozenset()
) -> Workload:
    """Return the workload of a plan: one item per step, the bytes uploaded before and
    read back after them.

    on_device  inputs that lie on the device already
    """
    graph = plan.graph
    inputs = (
        node for name, node in graph.named("input").items() if name not in on_device
    )
    upload_bytes = 0
    for node in inputs:
        upload_bytes += target.nbytes(node.type)
        # What is looked through on its way goes through memory once more.
        upload_bytes += (
            node.type.numel * _WIDE_BYTES if node.name in plan.demoted_inputs else 0
        )
    readback_bytes = 0
    for operand in plan.outputs:
        dtype = plan.types[operand.value].dtype
        readback_bytes += target.nbytes(TensorType(operand.layout.shape, dtype))
    for operand, demoted in zip(plan.outputs, plan.demoted_outputs, strict=False):
        readback_bytes += numel(operand.layout.shape) * _WIDE_BYTES if demoted else 0
    if target.keeps_views:
        return Workload(_array_library_items(plan), upload_bytes, readback_bytes)
    steps = (step for step in plan.steps if step.kind != "view")
    return Workload(
        tuple(_step_item(plan, step, target) for step in steps),
        upload_bytes,
        readback_bytes,
    )


def step_items(plan: Plan, target: Target) -> tuple[WorkItem | None, ...]:
    """Return the least work that each step does on any engine, None for views.

    A region's bytes are those of its operands and its result, whether or not what
    lies between them went through memory too.
    """
    return tuple(
        None if step.kind == "view" else _step_item(plan, step, target)
        for step in plan.steps
    )


def _array_library_items(plan: Plan) -> tuple[WorkItem, ...]:
    """Return the items of an array library such as NumPy: a region node by node, an op
    by its decomposition.
    """
    graph = plan.graph
    layouts = _value_layouts(plan)
    items: list[WorkItem] = []
    for node in (graph.node(i) for step in plan.steps for i in step.nodes):
        op = registry.get(node.op)
        if op.has_trait("view"):
            continue
        node_work = node_items(graph, node)
        # A product takes its operands either way.
        strided_bytes = 0
        if not op.has_trait("blas"):
            strided_bytes = sum(
                _strided_bytes(layouts[i], graph.node(i).type) for i in node.inputs
            )
        items += [
            replace(item, strided_bytes=strided_bytes if index == 0 else 0)
            for index, item in enumerate(node_work)
        ]
    for i in graph.outputs:
        tensor_type = graph.node(i).type
        if not layouts[i].is_dense:  # handed out dense
            strided_bytes = _strided_bytes(layouts[i], tensor_type)
            items.append(
                WorkItem(
                    "copy",
                    "output",
                    1,
                    0.0,
                    2 * tensor_type.nbytes,
                    strided_bytes=strided_bytes,
                )
            )
    return tuple(items)


def _value_layouts(plan: Plan) -> dict[int, Layout]:
    """Return the layout of every value where the library itself makes views.

    What an op makes counts as dense: NumPy may keep the order of the operands, and then
    whoever needs it dense pays what is counted here for reading them.
    """
    graph = plan.graph
    layouts: dict[int, Layout] = {}
    for node in graph.nodes():
        lower = registry.get(node.op).lower
        layout: Layout | None = None
        if isinstance(lower, View):
            layout = lower.layout(layouts[node.inputs[0]], node.type.shape, node.attrs)
        layouts[node.id] = layout or Layout.dense(node.type.shape)
    return layouts


def _strided_bytes(layout: Layout, tensor_type: TensorType) -> int:
    """Return the bytes of an operand whose neighbours in memory are not neighbours in
    its rows; 0 if they are.
    """
    (merged,) = layout.coalesce()
    inner = merged.strides[-1] if merged.strides else 1
    return tensor_type.nbytes if abs(inner) > 1 else 0


def profile_plan(plan: Plan, target: Target) -> GraphIoProfile:
    """Return the IO profile of a plan, as a fusion gate compares it."""
    workload = plan_workload(plan, target)
    return GraphIoProfile(
        sum(i.launches for i in workload.items),
        workload.syncs,
        workload.readback_bytes,
        sum(i.nbytes for i in workload.items),
    )


def _step_item(plan: Plan, step: PlanStep, target: Target) -> WorkItem:
    """Return the work item of one step."""
    graph = plan.graph
    nbytes = _step_bytes(plan, step, target)
    if plan.types[step.output].numel == 0:
        return WorkItem("copy", step.label, 0, 0.0, nbytes)
    if step.kind == "kernel":
        node = graph.node(step.nodes[0])
        signature = node_signature(graph, node)
        launches = target.launches(*signature)
        item = node_item(graph, node, launches)
        nbytes = item.size.get("bytes", nbytes) + target.extra_bytes(*signature)
        flops = item.flops + sum(
            node_flops(graph, graph.node(i)) for i in step.nodes[1:]
        )
        return WorkItem(item.kind, step.label, launches, flops, nbytes, item.size)
    flops = sum(node_flops(graph, graph.node(i)) for i in step.nodes)
    is_computed = step.kind in ("region", "lines")
    kind = "elementwise" if is_computed else "copy"
    # Side by side, each part is copied to its place by a kernel of its own.
    part_count = sum(0 not in o.layout.shape for o in step.inputs)
    launches = part_count if step.kind == "join" and not target.keeps_views else 1
    strided_bytes = sum(
        _strided_bytes(o.layout, plan.types[o.value]) for o in set(step.inputs)
    )
    return WorkItem(
        kind, step.label, launches, flops, nbytes, strided_bytes=strided_bytes
    )


def _step_bytes(plan: Plan, step: PlanStep, target: Target) -> int:
    """Return the bytes that a step reads of each distinct operand and writes of its
    result.
    """
    read_bytes = 0
    for operand in set(step.inputs):
        tensor_type = plan.types[operand.value]
        value_bytes = target.nbytes(tensor_type)
        layout_bytes = numel(operand.layout.shape) * (
            value_bytes // max(1, tensor_type.numel)
        )
        # A broadcast walks more elements than there are; they are read once.
        read_bytes += min(value_bytes, layout_bytes)
    return read_bytes + target.nbytes(plan.types[step.output])
