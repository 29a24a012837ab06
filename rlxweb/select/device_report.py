"""Report of a machine's devices: which are available, and which can run a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rlxweb.core.device import Adapters, Device, parse_adapters
from rlxweb.core.errors import RlxError
from rlxweb.engines.registry import clear_detection_caches, is_named_only
from rlxweb.ir.graph import Graph
from rlxweb.select.availability import (
    DeviceRow,
    listed_extension_devices,
    probe,
    row_without_opening,
)
from rlxweb.select.graph_job import check_cost_mode
from rlxweb.select.policy import DevicePolicy, check_policy, denial_reason
from rlxweb.select.resolve import NOT_AVAILABLE, fastest_device_for, unsupported_node


def device_report(
    graph: Graph | None = None,
    policy: DevicePolicy | None = None,
    *,
    adapters: Adapters | None = None,
    cost_mode: str = "calibrated",
) -> tuple[DeviceRow, ...]:
    """Return one row per device: available or why not; whether it can run a graph.

    Beside RLX's devices there are those of other packages, and ours whose library is
    installed. A device that is only used when it is named is opened where the policy
    names it.

    graph    adds `supports_graph`, `recommended` (the one the prediction picks) and the
             first blocker that applies: not available, an op it cannot run, denied, not
             allowed
    policy   the devices to report; all of them when left out
    cost_mode  what predicts the recommended one: "calibrated" or RLX's "seed"
    """
    clear_detection_caches()  # something may have been installed since
    policy = check_policy(policy)
    names = parse_adapters(adapters)
    devices = policy.probe_set if graph is None else tuple(Device)
    if policy.allow is None or graph is not None:
        devices += listed_extension_devices()
    named_devices = (*(policy.allow or ()), *policy.prefer)
    opt_in_devices = [
        d for d in devices if is_named_only(d.label) and d not in named_devices
    ]
    rows = [
        row_without_opening(d) if d in opt_in_devices else probe(d, names.get(d, ""))
        for d in devices
    ]
    if graph is None:
        return tuple(rows)
    rows = [_add_graph_support(row, graph, policy, names) for row in rows]
    best = _recommended_device(graph, policy, adapters, cost_mode)
    return tuple(replace(row, recommended=row.device is best) for row in rows)


def _add_graph_support(
    row: DeviceRow, graph: Graph, policy: DevicePolicy, adapters: Mapping[Device, str]
) -> DeviceRow:
    if row.available:
        refusal = unsupported_node(row.device, graph, adapters.get(row.device, ""))
    else:
        refusal = f"{NOT_AVAILABLE} ({row.blocker})"
    blocker = refusal or denial_reason(policy, row.device)
    return replace(row, supports_graph=not refusal, blocker=blocker)


def _recommended_device(
    graph: Graph, policy: DevicePolicy, adapters: Adapters | None, cost_mode: str
) -> Device | None:
    check_cost_mode(cost_mode)
    try:
        return fastest_device_for(graph, policy, adapters=adapters, cost_mode=cost_mode)
    except RlxError:
        return None
