"""The compiler: verify, rewrite, schedule, place in memory."""

from __future__ import annotations

from dataclasses import replace

from rlxweb.advice import Advice
from rlxweb.compile.fused_ops import choose_fusions
from rlxweb.compile.memory import assign
from rlxweb.compile.plan import Plan
from rlxweb.compile.plan_work import profile_plan
from rlxweb.compile.rewrites import (
    decompose,
    drop_dead,
    share_common,
    without_needless_types,
)
from rlxweb.compile.schedule import schedule
from rlxweb.compile.target import Target
from rlxweb.decision.decision import Decision
from rlxweb.errors import DTypeError
from rlxweb.ir.graph import Graph
from rlxweb.ir.verify import verify


def compile_graph(graph: Graph, target: Target, *, optimise: bool = True) -> Plan:
    """The plan of a graph on a target.

    `optimise=False` keeps every node a step of its own with a slot of its own: the same
    answer, slower, for finding out whether a rewrite is at fault.

    Errors   VerifyError and the shape and dtype errors of the ops; DTypeError for a
    type the device has not; Unsupported for an op it cannot run.
    """
    verify(graph)
    before = len(graph)
    chosen: tuple[Decision, ...] = ()
    if optimise or not target.holds(graph):
        graph = without_needless_types(graph, target)
    check_dtypes(graph, target)
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
            "copies": sum(s.kind == "copy" for s in plan.steps),
            "slots": len(sizes),
            "slot_bytes": sum(sizes),
            "optimise": optimise,
        },
    )
    return replace(plan, slots=slots, slot_bytes=sizes, decisions=(decision, *chosen))


def _placed(graph: Graph, target: Target, optimise: bool) -> Plan:
    """The steps of a graph, without a place in memory yet."""
    graph = decompose(drop_dead(graph) if optimise else graph, target)
    if optimise:
        graph = share_common(graph)
    if optimise or not target.holds(graph):
        graph = without_needless_types(graph, target)
    check_dtypes(graph, target)
    placed = schedule(graph, target, fuse=optimise)
    outputs = tuple(placed.at[i] for i in graph.outputs)
    return Plan(graph, tuple(placed.steps), placed.types, {}, (), outputs)


def check_dtypes(graph: Graph, target: Target) -> None:
    """DTypeError for the first node of a type the target cannot hold."""
    for node in graph.nodes():
        if node.type.dtype not in target.dtypes:
            raise DTypeError(
                f"{node} on {target.name}",
                f"the device has no {node.type.dtype}",
                "it has " + ", ".join(sorted(d.value for d in target.dtypes)),
                Advice("cast to f32 or i32, or run with {}", device="cpu"),
            )
