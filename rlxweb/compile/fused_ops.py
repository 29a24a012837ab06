"""Decides, op by op, whether a fused op or the two it stands for are run.

Some ops are two others in one (`Op.fused_from`). A graph may spell them either way; the
plans of both spellings are made and the target's gate compares what they move. A fused
op that the device has no kernel for is never chosen for being one. Names no op.
"""

from __future__ import annotations

from collections import Counter
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


def choose_fusions(
    graph: Graph, target: Target, profile: Profile
) -> tuple[Graph, tuple[Decision, ...]]:
    """The graph with every site spelled as the gate wants it, and the decisions.

    profile   a graph → what its plan on the target moves; raises what compiling raises
    """
    decisions: list[Decision] = []
    while len(sites := _sites(graph)) > len(decisions):
        site = sites[len(decisions)]
        graph, decision = _settle(graph, site, target, profile)
        decisions.append(decision)
    return graph, tuple(decisions)


def _sites(graph: Graph) -> list[Site]:
    by_outer = {op.fused_from[0]: op for op in registry if op.fused_from is not None}
    uses = Counter(i for node in graph.nodes() for i in node.inputs)
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
    other = _respelled(graph, site)
    apart, fused = (other, graph) if site.is_fused else (graph, other)
    (before, why_apart), (after, why_fused) = (
        _profiled(one, profile) for one in (apart, fused)
    )
    name = site.fused.name
    if not _is_native(graph, site, target):
        why = f"{target.name} has no kernel for it at this size"
        kept = graph if before is None else apart
        return kept, Decision(f"{name} apart", why)
    if before is None or after is None:
        kept = fused if after is not None else graph
        why = f"the other spelling is refused: {why_apart or why_fused}"
        return kept, Decision(name, why)
    gate = target.gate
    fuses = gate is None or gate.should_fuse(before, after)
    return (fused if fuses else apart), _decision(name, gate, before, after)


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
    enough = score >= gate.min_gain_ns
    than = f"{'at least' if enough else 'less than'} {gate.min_gain_ns:,.0f} ns"
    why = f"the {gate.source} gate scores it {score:,.0f} ns, {than}"
    what = f"{name} {'fused' if enough else 'apart'}"
    return Decision(what, why, {"score_ns": round(score, 2), **numbers})


def _profiled(graph: Graph, profile: Profile) -> tuple[GraphIoProfile | None, str]:
    """What the plan of a spelling moves, or why there is none."""
    try:
        return profile(graph), ""
    except DeviceError as error:
        return None, str(error)


def _is_native(graph: Graph, site: Site, target: Target) -> bool:
    """Has the target a kernel for the fused op of this very site?"""
    node = site.node
    ids, attrs = node.inputs, dict(node.attrs)
    if not site.is_fused:
        inner = graph.node(node.inputs[0])
        ids, attrs = inner.inputs, {**inner.attrs, **attrs}
    inputs = tuple(graph.node(i).type for i in ids)
    return target.native(site.fused, inputs, node.type, attrs)


def _respelled(graph: Graph, site: Site) -> Graph:
    """The graph with the two in place of the fused op, or the fused one of the two."""
    made: dict[int, Tensor] = {}
    fused, at = site.fused, site.node

    def rewrite(out: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
        how = composition(fused)
        if node.id != at.id or (site.is_fused and how is None):
            made[node.id] = out.copied(node, operands)
        elif site.is_fused and how is not None:
            made[node.id] = how.build(out, node.attrs, *operands)
        else:
            inner = graph.node(node.inputs[0])
            inputs = (made[i] for i in inner.inputs)
            attrs = {**inner.attrs, **node.attrs}
            made[node.id] = out.apply(fused.name, *inputs, name=node.name, **attrs)
        return made[node.id]

    return rebuild(graph, rewrite)
