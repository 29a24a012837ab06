"""Compiler pipeline: verify, rewrite, schedule, assign memory."""

from __future__ import annotations

from dataclasses import replace

from rlxweb.compiler.buffer_slot_assignment import assign_slots
from rlxweb.compiler.dtype_demotion import DemotedGraph, demote_graph
from rlxweb.compiler.fusion import apply_fusion_patterns, choose_fusions
from rlxweb.compiler.plan import Plan
from rlxweb.compiler.plan_workload import profile_plan
from rlxweb.compiler.rewrites import (
    decompose,
    demote_unsupported_constants,
    fold_rule,
    is_unsupported,
    rewrite_graph,
    simplify,
)
from rlxweb.compiler.schedule import schedule_graph
from rlxweb.compiler.storage_dtype_widening import widen_storage_dtypes
from rlxweb.compiler.target import Target
from rlxweb.core.errors import DTypeError, LimitExceeded
from rlxweb.core.message_text import Advice
from rlxweb.cost.decision import Decision
from rlxweb.ir.graph import Graph
from rlxweb.ir.verify import verify


def compile_graph(graph: Graph, target: Target, *, optimise: bool = True) -> Plan:
    """Return the plan of a graph on a target.

    `optimise=False` keeps every node a step of its own with a slot of its own: the same
    answer, slower, for finding out whether a rewrite is at fault. Nodes that no output
    needs go either way, and what the device need not see is no reason to refuse.

    Errors   VerifyError and the shape and dtype errors of the ops; DTypeError for a
    type the device has not; Unsupported for an op it cannot run.
    """
    verify(graph)
    node_count = len(graph)
    fusion_decisions: tuple[Decision, ...] = ()
    graph = rewrite_graph(graph, target=target)
    if not target.supports_dtypes(graph):
        graph = widen_storage_dtypes(graph, target)
    graph = _simplify(graph, target, optimise)
    graph, pattern_count = (
        apply_fusion_patterns(graph, target) if optimise else (graph, 0)
    )
    demoted = DemotedGraph(graph, {}, (None,) * len(graph.outputs))
    if not target.supports_dtypes(graph):
        demoted = demote_graph(graph, target)
        graph = demoted.graph
        check_dtypes(graph, target)
    check_buffer_sizes(graph, target)
    if optimise:
        graph, fusion_decisions = choose_fusions(
            graph,
            target,
            lambda variant: profile_plan(_schedule_plan(variant, target, True), target),
        )
    plan = _schedule_plan(graph, target, optimise)
    slots, sizes = assign_slots(plan.steps, plan.outputs, plan.types, target, optimise)
    decision = Decision(
        "plan",
        f"{node_count} nodes became {len(plan.steps)} steps for {target.name}",
        {
            "regions": sum(s.kind == "region" for s in plan.steps),
            "lines": sum(s.kind == "lines" for s in plan.steps),
            "copies": sum(s.kind == "copy" for s in plan.steps),
            "joined": pattern_count,
            "slots": len(sizes),
            "slot_bytes": sum(sizes),
            "optimise": optimise,
        },
    )
    return replace(
        plan,
        slots=slots,
        slot_bytes=sizes,
        decisions=(decision, *demoted.decisions, *fusion_decisions),
        demoted_inputs=demoted.demoted_inputs,
        demoted_outputs=demoted.demoted_outputs,
    )


def _schedule_plan(graph: Graph, target: Target, optimise: bool) -> Plan:
    """Return the plan of a graph without memory slots."""
    graph = decompose(rewrite_graph(graph, target=target), target)
    if not target.supports_dtypes(graph):
        graph = widen_storage_dtypes(graph, target)
    graph = _simplify(graph, target, optimise, merges_equal=optimise)
    check_dtypes(graph, target)
    scheduled = schedule_graph(graph, target, fuse=optimise)
    outputs = tuple(scheduled.operands[i] for i in graph.outputs)
    return Plan(graph, tuple(scheduled.steps), scheduled.types, {}, (), outputs)


def _simplify(
    graph: Graph, target: Target, optimise: bool, *, merges_equal: bool = False
) -> Graph:
    """Simplify a graph; where nothing is to be optimised, only the constants of one
    that the device would refuse.
    """
    if optimise:
        return simplify(graph, target, merges_equal=merges_equal)
    graph = rewrite_graph(graph, target=target)
    if is_unsupported(graph, target):
        graph = rewrite_graph(graph, fold_rule(target), target=target)
        graph = demote_unsupported_constants(graph, target)
    return graph


def check_dtypes(graph: Graph, target: Target) -> None:
    """Raise DTypeError for the first node of a type that the target cannot hold."""
    if target.supports_dtypes(graph):
        return
    for node in graph.nodes():
        if not target.supports_node_dtypes(graph, node):
            raise DTypeError(
                f"{node} on {target.name}",
                f"the device has no {node.type.dtype} support",
                "it supports " + ", ".join(sorted(d.value for d in target.dtypes)),
                Advice("cast to f32 or i32, or run with {}", device="cpu"),
            )


def check_buffer_sizes(graph: Graph, target: Target) -> None:
    """Raise LimitExceeded for an input, param or output larger than any buffer of the
    device.

    Said before kernels are looked for: those of a thousand million rows are many.
    """
    if target.limits is None:
        return
    outputs = [graph.node(i) for i in graph.outputs]
    for node in (*(n for n in graph.nodes() if n.op in ("input", "param")), *outputs):
        nbytes, max_nbytes = target.nbytes(node.type), target.limits.max_buffer_size
        if nbytes > max_nbytes:
            raise LimitExceeded(
                f"buffer for {node} on {target.name}",
                f"it needs {nbytes:,} bytes",
                f"the device allows at most {max_nbytes:,} bytes per buffer",
                Advice("split the batch, or use {}", device="cpu"),
            )
