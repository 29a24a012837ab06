"""The compiler: verify, rewrite, schedule, place in memory."""

from __future__ import annotations

from rlxweb.compile.memory import assign
from rlxweb.compile.passes.decompose import decompose
from rlxweb.compile.passes.simplify import drop_dead, fold_constants, share_common
from rlxweb.compile.plan import Decision, Plan
from rlxweb.compile.schedule import schedule
from rlxweb.compile.target import Target
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
    check_dtypes(graph, target)
    before = len(graph)
    if optimise:
        graph = fold_constants(drop_dead(graph))
    graph = decompose(graph, target)
    check_dtypes(graph, target)
    if optimise:
        graph = drop_dead(share_common(fold_constants(graph)))
    placed = schedule(graph, target, fuse=optimise)
    outputs = tuple(placed.at[i] for i in graph.outputs)
    slots, sizes = assign(placed.steps, outputs, placed.types, target, reuse=optimise)
    decision = Decision(
        "plan",
        f"{before} nodes became {len(placed.steps)} steps for {target.name}",
        {
            "regions": sum(s.kind == "region" for s in placed.steps),
            "copies": sum(s.kind == "copy" for s in placed.steps),
            "slots": len(sizes),
            "slot_bytes": sum(sizes),
            "optimise": optimise,
        },
    )
    return Plan(
        graph, tuple(placed.steps), placed.types, slots, sizes, outputs, (decision,)
    )


def check_dtypes(graph: Graph, target: Target) -> None:
    """DTypeError for the first node of a type the target cannot hold."""
    for node in graph.nodes():
        if node.type.dtype not in target.dtypes:
            raise DTypeError(
                f"{node} on {target.name}",
                f"the device has no {node.type.dtype}",
                "it has " + ", ".join(sorted(d.value for d in target.dtypes)),
                "cast to f32 or i32, or run on device='cpu'",
            )
