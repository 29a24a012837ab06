"""Fusion op by op: patterns of several nodes that are one op, and ops that are two in
one.

A pattern is replaced where the device gains by it. Some ops are two others in one
(`Op.fused_from`), and a graph may spell them either way: the plans of both spellings
are made, and the target's gate compares what they move. A fused op that the device has
no kernel for is never chosen for being one. Names no op.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from rlxweb.compiler.rewrites import rewrite_graph
from rlxweb.compiler.target import Target
from rlxweb.core.errors import DeviceError, RlxError
from rlxweb.cost.decision import Decision
from rlxweb.cost.fusion_gate import IoFusionGate, fusion_benefit
from rlxweb.cost.graph_traffic_counts import GraphIoProfile
from rlxweb.ir.fusion_pattern import FusionMatch
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import Op, registry

# --- Fusion patterns (`Op.fusion_pattern`): several nodes become one op where the
# device gains by it


def apply_fusion_patterns(graph: Graph, target: Target) -> tuple[Graph, int]:
    """Return the graph with every fusion pattern that the target accepts replaced by
    its op, and their number.

    Errors   VerifyError for a spelling that changes a node's type.
    """
    ops = [op for op in registry if op.fusion_pattern is not None]
    uses = Counter(i for node in graph.nodes() for i in node.inputs)
    matches = {
        node.id: match
        for node in graph.nodes()
        if (match := _match_pattern(graph, node, uses, ops, target)) is not None
    }
    if not matches:
        return graph, 0
    new_ids: dict[int, int] = {}

    def rewrite(out: Graph, node: Node, operands: tuple[int, ...]) -> int:
        match = matches.get(node.id)
        if match is None:
            new_id = out.copy_node(node, operands)
        else:
            inputs = tuple(out.tensor(new_ids[i]) for i in match.input_ids)
            new_id = match.build(out, inputs).id
        new_ids[node.id] = new_id
        return new_id

    return rewrite_graph(graph, rewrite, target=target), len(matches)


def _match_pattern(
    graph: Graph, node: Node, uses: Counter[int], ops: list[Op], target: Target
) -> FusionMatch | None:
    """Return the first fusion pattern that matches at a node and that the target
    accepts; None without one.
    """
    for op in ops:
        match = (
            op.fusion_pattern(graph, node, uses)
            if op.fusion_pattern is not None
            else None
        )
        if match is None:
            continue
        try:
            attrs = op.check_attrs(match.attrs)
            out = op.output_type(match.types, attrs)
        except RlxError:  # it only looked like it
            continue
        if target.fuses_pattern(op, match.types, out, attrs):
            return match
    return None


# --- Fusion choice, op by op: run a fused op or the two ops it stands for

ProfileFunction = Callable[[Graph], GraphIoProfile]


@dataclass(frozen=True, slots=True)
class FusionSite:
    """Node that is a fused op, or the outer node of two that could become one."""

    node: Node
    fused: Op
    is_fused: bool


def choose_fusions(
    graph: Graph, target: Target, profile: ProfileFunction
) -> tuple[Graph, tuple[Decision, ...]]:
    """Return the graph with every site fused or split as the gate decides, and the
    decisions.

    profile   a graph → what its plan on the target moves; raises what compiling raises
    """
    decisions: list[Decision] = []
    while len(sites := _fusion_sites(graph)) > len(decisions):
        site = sites[len(decisions)]
        graph, decision = _choose_at_site(graph, site, target, profile)
        decisions.append(decision)
    return graph, tuple(decisions)


def _fusion_sites(graph: Graph) -> list[FusionSite]:
    by_outer = {op.fused_from[0]: op for op in registry if op.fused_from is not None}
    uses = Counter(i for node in graph.nodes() for i in node.inputs)
    sites = []
    for node in graph.nodes():
        op = registry.get(node.op)
        if op.fused_from is not None:
            sites.append(FusionSite(node, op, True))
        elif node.op in by_outer and node.inputs:
            fused = by_outer[node.op]
            inner = graph.node(node.inputs[0])
            is_sole_use = uses[inner.id] == 1 and inner.id not in graph.outputs
            if fused.fused_from and inner.op == fused.fused_from[1] and is_sole_use:
                sites.append(FusionSite(node, fused, False))
    return sites


def _choose_at_site(
    graph: Graph, site: FusionSite, target: Target, profile: ProfileFunction
) -> tuple[Graph, Decision]:
    """Fuse or split one site as the gate decides, and say why."""
    toggled = _toggle_fusion(graph, site)
    split_graph, fused_graph = (toggled, graph) if site.is_fused else (graph, toggled)
    (before, split_error), (after, fused_error) = (
        _try_profile(variant, profile) for variant in (split_graph, fused_graph)
    )
    name = site.fused.name
    if not _has_fused_kernel(graph, site, target):
        why = f"{target.name} has no fused kernel for this size"
        chosen = graph if before is None else split_graph
        return chosen, Decision(f"{name} not fused", why)
    if before is None or after is None:
        chosen = fused_graph if after is not None else graph
        form = "unfused" if before is None else "fused"
        why = f"the {form} form is not supported: {split_error or fused_error}"
        return chosen, Decision(name, why)
    gate = target.gate
    should_fuse = gate is None or gate.should_fuse(before, after)
    return (fused_graph if should_fuse else split_graph), _decision(
        name, gate, before, after
    )


def _decision(
    name: str,
    gate: IoFusionGate | None,
    before: GraphIoProfile,
    after: GraphIoProfile,
) -> Decision:
    benefit = fusion_benefit(before, after)
    numbers = {
        "launches_saved": benefit.kernel_launches_saved,
        "waits_saved": benefit.sync_points_saved,
        "traffic_saved_bytes": benefit.device_traffic_bytes_saved,
        "readback_saved_bytes": benefit.host_readback_bytes_saved,
    }
    if gate is None:
        return Decision(
            f"{name} fused",
            "the target has no fusion gate, so the fusion is applied",
            numbers,
        )
    score = gate.score_ns(before, after)
    is_enough = score >= gate.min_gain_ns
    relation = "at least" if is_enough else "less than"
    why = (
        f"the {gate.source} fusion gate estimates a gain of {score:,.0f} ns, "
        f"{relation} the required {gate.min_gain_ns:,.0f} ns"
    )
    what = f"{name} {'fused' if is_enough else 'not fused'}"
    return Decision(what, why, {"score_ns": round(score, 2), **numbers})


def _try_profile(
    graph: Graph, profile: ProfileFunction
) -> tuple[GraphIoProfile | None, str]:
    """Return the IO profile of a graph's plan, or the reason why there is no plan."""
    try:
        return profile(graph), ""
    except DeviceError as error:
        return None, str(error)


def _has_fused_kernel(graph: Graph, site: FusionSite, target: Target) -> bool:
    """Tell whether the target has a kernel for the fused op of this site."""
    node = site.node
    ids, attrs = node.inputs, dict(node.attrs)
    if not site.is_fused:
        inner = graph.node(node.inputs[0])
        ids, attrs = inner.inputs, {**inner.attrs, **attrs}
    inputs = tuple(graph.node(i).type for i in ids)
    return target.native(site.fused, inputs, node.type, attrs)


def _toggle_fusion(graph: Graph, site: FusionSite) -> Graph:
    """Return the graph with the fused op of a site split in two, or the two fused into
    one.
    """
    new_ids: dict[int, int] = {}
    fused, site_node = site.fused, site.node
    parts = fused.decomposition if site.is_fused else None

    def rewrite(out: Graph, node: Node, operands: tuple[int, ...]) -> int:
        if node.id != site_node.id or (site.is_fused and parts is None):
            new_id = out.copy_node(node, operands)
        elif parts is not None:
            tensors = map(out.tensor, operands)
            new_id = parts.build(out, node.attrs, *tensors).id
        else:
            inner = graph.node(node.inputs[0])
            tensors = map(out.tensor, [new_ids[i] for i in inner.inputs])
            attrs = {**inner.attrs, **node.attrs}
            new_id = out.apply(fused.name, *tensors, name=node.name, **attrs).id
        new_ids[node.id] = new_id
        return new_id

    return rewrite_graph(graph, rewrite)
