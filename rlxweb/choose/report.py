"""Report of a machine's devices: which are available, and which can run a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rlxweb.backends.registry import look_again, named_only
from rlxweb.choose.graphs import checked_mode
from rlxweb.choose.resolve import NOT_THERE, fastest_device_for, unsupported_node
from rlxweb.device import Adapters, Device, adapters_of
from rlxweb.devices.availability import DeviceRow, further_listed, listed, probe
from rlxweb.devices.policy import DevicePolicy, policy_of, why_not_permitted
from rlxweb.errors import RlxError
from rlxweb.ir.graph import Graph


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
    look_again()  # something may have been installed since
    policy = policy_of(policy)
    names = adapters_of(adapters)
    wanted = policy.probe_set if graph is None else tuple(Device)
    if policy.allow is None or graph is not None:
        wanted += further_listed()
    named = (*(policy.allow or ()), *policy.prefer)
    waiting = [d for d in wanted if named_only(d.label) and d not in named]
    rows = [listed(d) if d in waiting else probe(d, names.get(d, "")) for d in wanted]
    if graph is None:
        return tuple(rows)
    rows = [_with_graph(row, graph, policy, names) for row in rows]
    best = _recommended(graph, policy, adapters, cost_mode)
    return tuple(replace(row, recommended=row.device is best) for row in rows)


def _with_graph(
    row: DeviceRow, graph: Graph, policy: DevicePolicy, adapters: Mapping[Device, str]
) -> DeviceRow:
    if row.available:
        refused = unsupported_node(row.device, graph, adapters.get(row.device, ""))
    else:
        refused = f"{NOT_THERE} ({row.blocker})"
    blocker = refused or why_not_permitted(policy, row.device)
    return replace(row, supports_graph=not refused, blocker=blocker)


def _recommended(
    graph: Graph, policy: DevicePolicy, adapters: Adapters | None, cost_mode: str
) -> Device | None:
    checked_mode(cost_mode)
    try:
        return fastest_device_for(graph, policy, adapters=adapters, cost_mode=cost_mode)
    except RlxError:
        return None
