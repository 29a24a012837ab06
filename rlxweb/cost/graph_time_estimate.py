"""Predicted time of a graph under a cost model, and the device where it is shortest.

A seed model is priced by RLX's formulas as they are, known flaws included (memory
counted twice with IO, a charge for views, transforms priced by their bytes). A
calibrated model counts one traffic term, real arithmetic and no views.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeVar

from rlxweb.core.device import Adapters, Device
from rlxweb.core.errors import UsageError, shown
from rlxweb.core.lazy_names import load_provider
from rlxweb.cost.decision import Terms
from rlxweb.cost.device_models import BackendCostModel
from rlxweb.cost.graph_traffic_counts import GraphIoProfile
from rlxweb.cost.graph_work import graph_workload
from rlxweb.cost.work_pricing import FittedPrices, workload_terms
from rlxweb.ir.dim_binding import OpGraph, op_graph
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.sym_int import SymInt
from rlxweb.ir.verify import require_graph

T = TypeVar("T")

LEAF_OPS = frozenset({"input", "param", "constant"})
MATMUL_OPS = frozenset({"matmul", "fused_matmul_bias_act"})


def node_cost_ns(graph: OpGraph, node: Node, model: BackendCostModel) -> float:
    """Return RLX's price of one node: arithmetic for products, output bytes for the
    rest.

    A size that varies counts 0.
    """
    if node.op in LEAF_OPS:
        return 0.0
    if node.op in MATMUL_OPS:
        return _matmul_ns(graph, node, model) + model.dispatch_overhead_ns
    if node.op == "attention":
        return _attention_ns(graph, node, model) + model.dispatch_overhead_ns
    memory_ns = node.type.known_numel * 4 / max(model.memory_bw, 1.0)
    return memory_ns + model.dispatch_overhead_ns


def _matmul_ns(graph: OpGraph, node: Node, model: BackendCostModel) -> float:
    left = graph.node(node.inputs[0]).type
    n = _size_or_zero(node.type.shape[-1])
    m = node.type.known_numel // max(n, 1)
    k = left.known_numel // max(m, 1)
    return float(2.0 * m * k * n / (model.sgemm_gflops(m, k, n) + 1.0))


def _size_or_zero(size: int | SymInt) -> int:
    """Return a static size, 0 for a symbolic one."""
    return 0 if isinstance(size, SymInt) else size


def _attention_ns(graph: OpGraph, node: Node, model: BackendCostModel) -> float:
    q = graph.node(node.inputs[0]).type
    heads, width = node.attrs["num_heads"], node.attrs["head_dim"]
    seq = _size_or_zero(q.shape[q.rank - 2])
    batch = q.known_numel // max(seq * heads * width, 1)
    flops = float(2 * batch * heads * seq * seq * width)
    return flops / (model.sgemm_gflops(seq, width, seq) + 1.0)


def estimate_graph_cost(graph: Graph, model: BackendCostModel) -> float:
    """Return the predicted time of a graph in ns: one round trip and the price of every
    node.

    A calibrated model prices real arithmetic and one traffic term instead. Sizes that
    vary count 0 in both: what is left is the price of starting the kernels.

    Errors   VerifyError, UsageError for what is no graph and no model.
    """
    require_graph(graph, "estimate_graph_cost")
    _require_model(model)
    if model.calibration is not None:
        return calibrated_terms(graph, model).total_ns
    ops = op_graph(graph)
    node_costs = (node_cost_ns(ops, node, model) for node in ops.nodes())
    return sequential_sum(model.round_trip_overhead_ns, node_costs)


def _require_model(value: object) -> None:
    if not isinstance(value, BackendCostModel):
        problem = f"the model is {shown(value)}"
        rule = "expected a BackendCostModel"
        hint = (
            "pass CpuCostModel.seed(), or CpuCostModel.calibrated() for measured values"
        )
        raise UsageError("estimate_graph_cost", problem, rule, hint)


def sequential_sum(total: float, amounts: Iterable[float]) -> float:
    """Add the amounts to a total one after the other, as RLX's loop does.

    Python's sum() rounds otherwise: it begins at 0, and from 3.12 on it compensates.
    """
    for amount in amounts:
        total += amount
    return total


def estimate_graph_cost_with_io(
    graph: Graph, model: BackendCostModel, io: GraphIoProfile
) -> float:
    """Return the predicted time of a graph with a profile's traffic, read-back and host
    waits, in ns.

    For a calibrated model traffic and read-back are in already; the waits are added.
    """
    if model.calibration is not None:
        waits = io.sync_points * model.round_trip_overhead_ns
        return estimate_graph_cost(graph, model) + waits
    return seed_cost_with_io(estimate_graph_cost(graph, model), model, io)


def seed_cost_with_io(
    nodes_ns: float, model: BackendCostModel, io: GraphIoProfile
) -> float:
    """Return RLX's sum of a graph's own time and the time that a profile adds, ns."""
    return (
        nodes_ns
        + io.device_traffic_bytes / max(model.memory_bw, 1.0)
        + io.host_readback_bytes(model.unified_memory)
        / max(model.host_readback_bw, 1.0)
        + io.sync_points * model.round_trip_overhead_ns
    )


def calibrated_terms(graph: Graph, model: BackendCostModel) -> Terms:
    """Return the cost terms of a graph as it is written, on the device of a calibrated
    model.
    """
    if model.calibration is None:
        raise UsageError(
            f"cost terms on {model.device.display}",
            "the model contains RLX's constants, not measurements",
            hint=f"use {type(model).__name__}.calibrated()",
        )
    return workload_terms(graph_workload(graph), FittedPrices(model.calibration))


def fastest_device_for(
    graph: Graph,
    policy: Any = None,
    *,
    cost_mode: str = "calibrated",
    adapters: Adapters | None = None,
) -> Device:
    """Return the device predicted to run a graph fastest under a DevicePolicy.

    cost_mode  "calibrated", what was measured here, or "seed", RLX's constants
    adapters   part of an adapter's name by device
    Errors     Unsupported when no allowed device can run it.
    """
    resolve = load_provider("fastest_device_for")
    device: Device = resolve(graph, policy, cost_mode=cost_mode, adapters=adapters)
    return device


def pick_best_device(graph: Graph, models: Iterable[BackendCostModel]) -> Device:
    """Return the device whose model gives the smallest estimate.

    The first of equals wins, what is not a number never does, and the CPU is the answer
    when there is none.
    """
    costs = ((m.device, estimate_graph_cost(graph, m)) for m in models)
    return cheapest_of(costs, Device.CPU)


def cheapest_of(costs: Iterable[tuple[T, float]], default: T) -> T:
    """Return the cheapest option, the first of equals; the default where nothing has a
    price.
    """
    min_cost = math.inf
    for option, ns in costs:
        if ns < min_cost:
            default, min_cost = option, ns
    return default
