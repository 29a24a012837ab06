"""The compiler: verify, rewrite, schedule, place in memory."""

from __future__ import annotations

from dataclasses import replace

from rlxweb.advice import Advice
from rlxweb.compile.fused_ops import choose_fusions
from rlxweb.compile.memory import assign
from rlxweb.compile.narrow_types import in_wider_types
from rlxweb.compile.narrowing import narrowed
from rlxweb.compile.plan import Plan
from rlxweb.compile.plan_work import profile_plan
from rlxweb.compile.rewrites import (
    decompose,
    drop_dead,
    drop_needless,
    is_refused,
    share_common,
    without_needless,
)
from rlxweb.compile.schedule import schedule
from rlxweb.compile.spellings import joined
from rlxweb.compile.target import Target
from rlxweb.decision.decision import Decision
from rlxweb.errors import DTypeError, LimitExceeded
from rlxweb.ir.graph import Graph
from rlxweb.ir.verify import verify


def compile_graph(graph: Graph, target: Target, *, optimise: bool = True) -> Plan:
    """The plan of a graph on a target.

    `optimise=False` keeps every node a step of its own with a slot of its own: the same
    answer, slower, for finding out whether a rewrite is at fault. Nodes that no output
    needs go either way, and what the device need not see is no reason to refuse.

    Errors   VerifyError and the shape and dtype errors of the ops; DTypeError for a
    type the device has not; Unsupported for an op it cannot run.
    """
    verify(graph)
    before = len(graph)
    chosen: tuple[Decision, ...] = ()
    graph = in_wider_types(drop_dead(graph, target), target)
    graph = _pruned(graph, target, optimise)
    graph, joins = joined(graph, target) if optimise else (graph, 0)
    narrow = narrowed(graph, target)
    graph = narrow.graph
    check_dtypes(graph, target)
    check_room(graph, target)
    if optimise:
        graph, chosen = choose_fusions(
            graph, target, lambda one: profile_plan(_placed(one, target, True), target)
        )
    plan = _placed(graph, target, optimise)
    slots, sizes = assign(plan.steps, plan.outputs, plan.types, target, optimise)
    decision = Decision(
        "plan",
        f"{before} nodes became {len(plan.steps)} steps for {target.name}",
        {
            "regions": sum(s.kind == "region" for s in plan.steps),
            "lines": sum(s.kind == "lines" for s in plan.steps),
            "copies": sum(s.kind == "copy" for s in plan.steps),
            "joined": joins,
            "slots": len(sizes),
            "slot_bytes": sum(sizes),
            "optimise": optimise,
        },
    )
    return replace(
        plan,
        slots=slots,
        slot_bytes=sizes,
        decisions=(decision, *narrow.decisions, *chosen),
        given=narrow.given,
        returned=narrow.outputs,
    )


def _placed(graph: Graph, target: Target, optimise: bool) -> Plan:
    """The steps of a graph, without a place in memory yet."""
    graph = decompose(drop_dead(graph, target), target)
    graph = in_wider_types(graph, target)
    if optimise:
        graph = share_common(drop_needless(graph))
    graph = _pruned(graph, target, optimise)
    check_dtypes(graph, target)
    placed = schedule(graph, target, fuse=optimise)
    outputs = tuple(placed.at[i] for i in graph.outputs)
    return Plan(graph, tuple(placed.steps), placed.types, {}, (), outputs)


def _pruned(graph: Graph, target: Target, optimise: bool) -> Graph:
    """Without dead nodes, needless ones and, where they are in the way, constants to
    be computed.
    """
    graph = drop_dead(graph, target)
    if optimise:
        graph = drop_needless(graph)
    if optimise or is_refused(graph, target):
        graph = without_needless(graph, target)
    return graph


def check_dtypes(graph: Graph, target: Target) -> None:
    """DTypeError for the first node of a type the target cannot hold."""
    for node in graph.nodes():
        if not target.has(graph, node):
            raise DTypeError(
                f"{node} on {target.name}",
                f"the device has no {node.type.dtype}",
                "it has " + ", ".join(sorted(d.value for d in target.dtypes)),
                Advice("cast to f32 or i32, or run with {}", device="cpu"),
            )


def check_room(graph: Graph, target: Target) -> None:
    """LimitExceeded for what must lie in one buffer and is larger than any may be.

    Said before kernels are looked for: those of a thousand million rows are many.
    """
    if target.limits is None:
        return
    ends = [graph.node(i) for i in graph.outputs]
    for node in (*(n for n in graph.nodes() if n.op in ("input", "param")), *ends):
        nbytes, most = target.nbytes(node.type), target.limits.max_buffer_size
        if nbytes > most:
            raise LimitExceeded(
                f"buffer for {node} on {target.name}",
                f"it needs {nbytes:,} bytes",
                f"this device allows {most:,} per buffer",
                Advice("split the batch, or use {}", device="cpu"),
            )
