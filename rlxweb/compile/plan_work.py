"""What a compiled plan asks of its device, step by step: kernels, flops, bytes.

Counted from the steps that will run, so fused regions count once and views not at all.
Prices are not known here.
"""

from __future__ import annotations

from rlxweb.compile.plan import Plan, Step
from rlxweb.compile.target import Target
from rlxweb.cost.graph_work import asked_of, flops_of, item_of
from rlxweb.cost.io_profile import GraphIoProfile
from rlxweb.cost.work import Item, Work
from rlxweb.ir.op import TensorType
from rlxweb.ir.shape import numel


def work_of(plan: Plan, target: Target) -> Work:
    """One item per step, what goes up before them and what comes back after them."""
    graph = plan.graph
    given = sum(target.nbytes(n.type) for n in graph.nodes() if n.op == "input")
    back = 0
    for operand in plan.outputs:
        dtype = plan.types[operand.value].dtype
        back += target.nbytes(TensorType(operand.layout.shape, dtype))
    items: list[Item] = []
    for step in plan.steps:
        if step.kind == "region" and target.keeps_views:
            # NumPy runs a region node by node, each through memory.
            items += [item_of(graph, graph.node(i)) for i in step.nodes]
        elif step.kind != "view":
            items.append(_item(plan, step, target))
    return Work(tuple(items), given, back)


def profile_plan(plan: Plan, target: Target) -> GraphIoProfile:
    """The same as the counts a fusion gate compares."""
    work = work_of(plan, target)
    return GraphIoProfile(
        sum(i.launches for i in work.items),
        work.syncs,
        work.readback_bytes,
        sum(i.nbytes for i in work.items),
    )


def _item(plan: Plan, step: Step, target: Target) -> Item:
    graph = plan.graph
    nbytes = _moved(plan, step, target)
    if plan.types[step.output].numel == 0:
        return Item("copy", step.label, 0, 0.0, nbytes)
    if step.kind == "kernel":
        node = graph.node(step.nodes[0])
        starts = target.launches(*asked_of(graph, node))
        one = item_of(graph, node, starts)
        return Item(one.kind, step.label, starts, one.flops, nbytes, one.size)
    flops = sum(flops_of(graph, graph.node(i)) for i in step.nodes)
    kind = "elementwise" if step.kind == "region" else "copy"
    # Side by side, each part is copied to its place by a kernel of its own.
    parts = sum(0 not in o.layout.shape for o in step.inputs)
    starts = parts if step.kind == "join" and not target.keeps_views else 1
    return Item(kind, step.label, starts, flops, nbytes)


def _moved(plan: Plan, step: Step, target: Target) -> int:
    """Bytes of each distinct operand that are really read, and of the result."""
    read = 0
    for operand in set(step.inputs):
        kind = plan.types[operand.value]
        whole = target.nbytes(kind)
        walked = numel(operand.layout.shape) * (whole // max(1, kind.numel))
        # A broadcast walks more elements than there are; they are read once.
        read += min(whole, walked)
    return read + target.nbytes(plan.types[step.output])
