"""What a compiled plan asks of its device, step by step: kernels, flops, bytes.

Counted from the steps that will run, so fused regions count once and views not at all.
Operands that lie across the order in which they are read are told apart. Prices are not
known here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rlxweb.compile.plan import Plan, Step
from rlxweb.compile.target import Target
from rlxweb.cost.graph_work import asked_of, flops_of, item_of, items_of
from rlxweb.cost.io_profile import GraphIoProfile
from rlxweb.cost.work import Item, Work
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import View
from rlxweb.ir.op import TensorType, registry
from rlxweb.ir.shape import numel

_WIDE = 8
"""Bytes of a number that a device holds in fewer."""


def work_of(plan: Plan, target: Target, there: Collection[str] = frozenset()) -> Work:
    """One item per step, what goes up before them and what comes back after them.

    there   inputs that lie on the device already
    """
    graph = plan.graph
    fed = (node for name, node in graph.named("input").items() if name not in there)
    given = 0
    for node in fed:
        given += target.nbytes(node.type)
        # What is looked through on its way goes through memory once more.
        given += node.type.numel * _WIDE if node.name in plan.given else 0
    back = 0
    for operand in plan.outputs:
        dtype = plan.types[operand.value].dtype
        back += target.nbytes(TensorType(operand.layout.shape, dtype))
    for operand, held in zip(plan.outputs, plan.returned, strict=False):
        back += numel(operand.layout.shape) * _WIDE if held else 0
    if target.keeps_views:
        return Work(_calls(plan), given, back)
    steps = (step for step in plan.steps if step.kind != "view")
    return Work(tuple(_item(plan, step, target) for step in steps), given, back)


def work_by_step(plan: Plan, target: Target) -> tuple[Item | None, ...]:
    """What each step of a plan has to do, None for views: the least, on any engine.

    A region's bytes are those of its operands and its result, whether or not what
    lies between them went through memory too.
    """
    return tuple(
        None if step.kind == "view" else _item(plan, step, target)
        for step in plan.steps
    )


def _calls(plan: Plan) -> tuple[Item, ...]:
    """Steps of a library of arrays: a region node by node, an op by its composition."""
    graph = plan.graph
    lies = _layouts(plan)
    items: list[Item] = []
    for node in (graph.node(i) for step in plan.steps for i in step.nodes):
        op = registry.get(node.op)
        if op.has("view"):
            continue
        made = items_of(graph, node)
        # A product takes its operands either way.
        across = 0
        if not op.has("blas"):
            across = sum(_across(lies[i], graph.node(i).type) for i in node.inputs)
        items += [
            replace(one, turned=across if at == 0 else 0) for at, one in enumerate(made)
        ]
    for i in graph.outputs:
        kind = graph.node(i).type
        if not lies[i].is_dense:  # handed out dense
            across = _across(lies[i], kind)
            items.append(Item("copy", "output", 1, 0.0, 2 * kind.nbytes, turned=across))
    return tuple(items)


def _layouts(plan: Plan) -> dict[int, Layout]:
    """How every value lies where views are made by the library itself.

    What an op makes counts as dense: NumPy may keep the order of the operands, and then
    whoever needs it dense pays what is counted here for reading them.
    """
    graph = plan.graph
    lies: dict[int, Layout] = {}
    for node in graph.nodes():
        lower = registry.get(node.op).lower
        found: Layout | None = None
        if isinstance(lower, View):
            found = lower.layout(lies[node.inputs[0]], node.type.shape, node.attrs)
        lies[node.id] = found or Layout.dense(node.type.shape)
    return lies


def _across(layout: Layout, kind: TensorType) -> int:
    """Bytes of an operand whose neighbours in memory are not neighbours in its rows."""
    (merged,) = layout.coalesced()
    inner = merged.strides[-1] if merged.strides else 1
    return kind.nbytes if abs(inner) > 1 else 0


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
        asked = asked_of(graph, node)
        starts = target.launches(*asked)
        one = item_of(graph, node, starts)
        nbytes = one.size.get("bytes", nbytes) + target.extra_bytes(*asked)
        flops = one.flops + sum(flops_of(graph, graph.node(i)) for i in step.nodes[1:])
        return Item(one.kind, step.label, starts, flops, nbytes, one.size)
    flops = sum(flops_of(graph, graph.node(i)) for i in step.nodes)
    is_computed = step.kind in ("region", "lines")
    kind = "elementwise" if is_computed else "copy"
    # Side by side, each part is copied to its place by a kernel of its own.
    parts = sum(0 not in o.layout.shape for o in step.inputs)
    starts = parts if step.kind == "join" and not target.keeps_views else 1
    across = sum(_across(o.layout, plan.types[o.value]) for o in set(step.inputs))
    return Item(kind, step.label, starts, flops, nbytes, turned=across)


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
