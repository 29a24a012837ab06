"""Nanoseconds of a graph under a cost model, and the device where they are fewest.

A seed model is priced by RLX's formulas as they are, known flaws included (memory
counted twice with IO, a charge for views, transforms priced by their bytes). A
calibrated model counts one traffic term, real arithmetic and no views.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeVar

from rlxweb.cost.graph_work import work_of_graph
from rlxweb.cost.io_profile import GraphIoProfile
from rlxweb.cost.model import BackendCostModel
from rlxweb.cost.price import Prices, terms_of
from rlxweb.decision.terms import Terms
from rlxweb.device import Adapters, Device
from rlxweb.errors import UsageError, shown
from rlxweb.ir.binding import Ops, ops_of
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.size import Size
from rlxweb.ir.verify import must_be_graph
from rlxweb.names import from_above

T = TypeVar("T")

LEAVES = frozenset({"input", "param", "constant"})
PRODUCTS = frozenset({"matmul", "fused_matmul_bias_act"})


def node_cost_ns(graph: Ops, node: Node, model: BackendCostModel) -> float:
    """RLX's price of one node: arithmetic for products, output bytes for the rest.

    A size that varies counts 0.
    """
    if node.op in LEAVES:
        return 0.0
    if node.op in PRODUCTS:
        return _product_ns(graph, node, model) + model.dispatch_overhead_ns
    if node.op == "attention":
        return _attention_ns(graph, node, model) + model.dispatch_overhead_ns
    moved = node.type.known_numel * 4 / max(model.memory_bw, 1.0)
    return moved + model.dispatch_overhead_ns


def _product_ns(graph: Ops, node: Node, model: BackendCostModel) -> float:
    left = graph.node(node.inputs[0]).type
    n = _known(node.type.shape[-1])
    m = node.type.known_numel // max(n, 1)
    k = left.known_numel // max(m, 1)
    return float(2.0 * m * k * n / (model.sgemm_gflops(m, k, n) + 1.0))


def _known(size: int | Size) -> int:
    return 0 if isinstance(size, Size) else size


def _attention_ns(graph: Ops, node: Node, model: BackendCostModel) -> float:
    q = graph.node(node.inputs[0]).type
    heads, width = node.attrs["num_heads"], node.attrs["head_dim"]
    seq = _known(q.shape[q.rank - 2])
    batch = q.known_numel // max(seq * heads * width, 1)
    flops = float(2 * batch * heads * seq * seq * width)
    return flops / (model.sgemm_gflops(seq, width, seq) + 1.0)


def estimate_graph_cost(graph: Graph, model: BackendCostModel) -> float:
    """One round trip and the price of every node, ns.

    A calibrated model prices real arithmetic and one traffic term instead. Sizes that
    vary count 0 in both: what is left is the price of starting the kernels.

    Errors   VerifyError, UsageError for what is no graph and no model.
    """
    must_be_graph(graph, "estimate_graph_cost")
    _must_be_model(model)
    if model.calibration is not None:
        return calibrated_terms(graph, model).total_ns
    ops = ops_of(graph)
    each = (node_cost_ns(ops, node, model) for node in ops.nodes())
    return one_by_one(model.round_trip_overhead_ns, each)


def _must_be_model(given: object) -> None:
    if not isinstance(given, BackendCostModel):
        problem = f"the model is {shown(given)}"
        hint = "CpuCostModel.seed() is one; .calibrated() has what was measured here"
        raise UsageError("estimate_graph_cost", problem, hint=hint)


def one_by_one(start: float, amounts: Iterable[float]) -> float:
    """The amounts added to `start` one after the other, as RLX's loop does.

    Python's sum() rounds otherwise: it begins at 0, and from 3.12 on it compensates.
    """
    for amount in amounts:
        start += amount
    return start


def estimate_graph_cost_with_io(
    graph: Graph, model: BackendCostModel, io: GraphIoProfile
) -> float:
    """The same plus the profile's traffic, read-back and host waits, ns.

    For a calibrated model traffic and read-back are in already; the waits are added.
    """
    if model.calibration is not None:
        waits = io.sync_points * model.round_trip_overhead_ns
        return estimate_graph_cost(graph, model) + waits
    return seed_with_io(estimate_graph_cost(graph, model), model, io)


def seed_with_io(nodes_ns: float, model: BackendCostModel, io: GraphIoProfile) -> float:
    """RLX's sum of a graph's own time and what a profile adds to it, ns."""
    return (
        nodes_ns
        + io.device_traffic_bytes / max(model.memory_bw, 1.0)
        + io.host_readback_bytes(model.unified_memory)
        / max(model.host_readback_bw, 1.0)
        + io.sync_points * model.round_trip_overhead_ns
    )


def calibrated_terms(graph: Graph, model: BackendCostModel) -> Terms:
    """The terms of a graph as it is written, on the device of a calibrated model."""
    if model.calibration is None:
        raise UsageError(
            f"terms on {model.device.display}",
            "the model holds RLX's constants",
            hint=f"use {type(model).__name__}.calibrated()",
        )
    return terms_of(work_of_graph(graph), Prices(model.calibration))


def fastest_device_for(
    graph: Graph,
    policy: Any = None,
    *,
    cost_mode: str = "calibrated",
    adapters: Adapters | None = None,
) -> Device:
    """The device a graph is predicted to run fastest on, under a DevicePolicy.

    cost_mode  "calibrated", what was measured here, or "seed", RLX's constants
    adapters   part of an adapter's name by device
    Errors     Unsupported when no allowed device can run it.
    """
    ask = from_above("fastest_device_for")
    answer: Device = ask(graph, policy, cost_mode=cost_mode, adapters=adapters)
    return answer


def pick_best_device(graph: Graph, models: Iterable[BackendCostModel]) -> Device:
    """The device whose model gives the smallest estimate.

    The first of equals wins, what is not a number never does, and the CPU is the answer
    when there is none.
    """
    costs = ((m.device, estimate_graph_cost(graph, m)) for m in models)
    return least_of(costs, Device.CPU)


def least_of(costs: Iterable[tuple[T, float]], otherwise: T) -> T:
    """What costs least, the first of equals; `otherwise` where nothing has a price."""
    least = math.inf
    for one, ns in costs:
        if ns < least:
            otherwise, least = one, ns
    return otherwise
