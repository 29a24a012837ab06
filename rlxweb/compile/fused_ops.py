"""Decides, op by op, whether a fused op or the two it stands for are run.

Some ops are two others in one (`Op.fused_from`). A graph may spell them either way; the
plans of both spellings are made and the target's gate compares what they move. A fused
op that the device has no kernel for is never chosen for being one. Names no op.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlxweb.compile.rewrites import composition, rebuild
from rlxweb.compile.target import Target
from rlxweb.cost.fusion_gate import IoFusionGate, fusion_benefit
from rlxweb.cost.io_profile import GraphIoProfile
from rlxweb.decision.decision import Decision
from rlxweb.errors import DeviceError
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import Op, registry
from rlxweb.ir.tensor import Tensor

Profile = Callable[[Graph], GraphIoProfile]


@dataclass(frozen=True, slots=True)
class Site:
    """A node that is a fused op, or the outer one of two that could be."""

    node: Node
    fused: Op
    is_fused: bool


@dataclass(frozen=True, slots=True)
class Spelling:
    """One way to write a site: the graph and what its plan moves, or why none."""

    graph: Graph
    profile: GraphIoProfile | None
    refused: str = ""


def choose_fusions(
    graph: Graph, target: Target, profile: Profile
) -> tuple[Graph, tuple[Decision, ...]]:
    """The graph with every site spelled as the gate wants it, and the decisions.

    profile   a graph → what its plan on the target moves; raises what compiling raises
    """
    decisions: list[Decision] = []
    done = 0
    while True:
        sites = _sites(graph)
        if done >= len(sites):
            return graph, tuple(decisions)
        graph, decision = _settle(graph, sites[done], target, profile)
        decisions.append(decision)
        done += 1


def _sites(graph: Graph) -> list[Site]:
    by_outer = {op.fused_from[0]: op for op in registry if op.fused_from is not None}
    uses: dict[int, int] = {}
    for node in graph.nodes():
        for i in (*node.inputs,):
            uses[i] = uses.get(i, 0) + 1
    found = []
    for node in graph.nodes():
        op = registry.get(node.op)
        if op.fused_from is not None:
            found.append(Site(node, op, True))
        elif node.op in by_outer and node.inputs:
            fused = by_outer[node.op]
            inner = graph.node(node.inputs[0])
            alone = uses[inner.id] == 1 and inner.id not in graph.outputs
            if fused.fused_from and inner.op == fused.fused_from[1] and alone:
                found.append(Site(node, fused, False))
    return found


def _settle(
    graph: Graph, site: Site, target: Target, profile: Profile
) -> tuple[Graph, Decision]:
    apart = graph if not site.is_fused else _rewritten(graph, site, _taken_apart)
    fused = graph if site.is_fused else _rewritten(graph, site, _put_together)
    before, after = _profiled(apart, profile), _profiled(fused, profile)
    name = site.fused.name
    if not _is_native(graph, site, target):
        decision = Decision(
            f"{name} apart", f"{target.name} has no kernel for it at this size"
        )
        return (graph if before.profile is None else apart), decision
    if before.profile is None or after.profile is None:
        kept = fused if after.profile is not None else graph
        why = f"the other spelling is refused: {before.refused or after.refused}"
        return kept, Decision(name, why)
    gate = target.gate
    decision = _decision(name, gate, before.profile, after.profile)
    fuses = gate is None or gate.should_fuse(before.profile, after.profile)
    return (fused if fuses else apart), decision


def _decision(
    name: str,
    gate: IoFusionGate | None,
    before: GraphIoProfile,
    after: GraphIoProfile,
) -> Decision:
    saved = fusion_benefit(before, after)
    numbers = {
        "launches_saved": saved.kernel_launches_saved,
        "waits_saved": saved.sync_points_saved,
        "traffic_saved_bytes": saved.device_traffic_bytes_saved,
        "readback_saved_bytes": saved.host_readback_bytes_saved,
    }
    if gate is None:
        return Decision(f"{name} fused", "the target has no gate to ask", numbers)
    score = gate.score_ns(before, after)
    gate_says = f"the {gate.source} gate scores it {score:,.0f} ns"
    if score >= gate.min_gain_ns:
        what, than = f"{name} fused", f"at least {gate.min_gain_ns:,.0f} ns"
    else:
        what, than = f"{name} apart", f"less than {gate.min_gain_ns:,.0f} ns"
    why = f"{gate_says}, {than}"
    return Decision(what, why, {"score_ns": round(score, 2), **numbers})


def _profiled(graph: Graph, profile: Profile) -> Spelling:
    try:
        return Spelling(graph, profile(graph))
    except DeviceError as error:
        return Spelling(graph, None, str(error))


def _is_native(graph: Graph, site: Site, target: Target) -> bool:
    """Has the target a kernel for the fused op of this very site?"""
    node = site.node
    ids, attrs = node.inputs, dict(node.attrs)
    if not site.is_fused:
        inner = graph.node(node.inputs[0])
        ids, attrs = inner.inputs, {**inner.attrs, **attrs}
    inputs = tuple(graph.node(i).type for i in ids)
    return target.native(site.fused, inputs, node.type, attrs)


def _rewritten(
    graph: Graph,
    site: Site,
    make: Callable[[Graph, Graph, Site, tuple[Tensor, ...], dict[int, Tensor]], Tensor],
) -> Graph:
    made: dict[int, Tensor] = {}

    def rewrite(out: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
        if node.id == site.node.id:
            made[node.id] = make(graph, out, site, operands, made)
        else:
            made[node.id] = out.copied(node, operands)
        return made[node.id]

    return rebuild(graph, rewrite)


def _taken_apart(
    graph: Graph,
    out: Graph,
    site: Site,
    operands: tuple[Tensor, ...],
    made: dict[int, Tensor],
) -> Tensor:
    how = composition(site.fused)
    if how is None:
        return out.copied(site.node, operands)
    result: Tensor = how.build(out, site.node.attrs, *operands)
    return result


def _put_together(
    graph: Graph,
    out: Graph,
    site: Site,
    operands: tuple[Tensor, ...],
    made: dict[int, Tensor],
) -> Tensor:
    inner = graph.node(site.node.inputs[0])
    inputs = tuple(made[i] for i in inner.inputs)
    attrs = {**inner.attrs, **site.node.attrs}
    result: Tensor = out.apply(site.fused.name, *inputs, name=site.node.name, **attrs)
    return result
