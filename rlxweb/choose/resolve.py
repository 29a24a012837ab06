"""What RLX's callers ask about a graph and devices: who can run it, who runs it best.

A hint is used or refused, never swapped. What the environment names and cannot be used
is warned about and passed over; RLX passes over it in silence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rlxweb.backends.pool import pool
from rlxweb.choose.chooser import Asked, Pick, choose, predicted
from rlxweb.choose.graphs import NOBODY, GraphJob
from rlxweb.compile.pipeline import compile_graph
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.decision import Decision
from rlxweb.device import Device, DeviceLike, parse_device
from rlxweb.devices.availability import is_available
from rlxweb.devices.policy import DevicePolicy, device_from_env
from rlxweb.errors import DeviceError, DTypeError, Unsupported, UsageError
from rlxweb.ir.graph import Graph
from rlxweb.ir.verify import must_be_graph
from rlxweb.rlx.seed_pick import seed_pick

Adapters = Mapping[Device, str]
"""Part of an adapter's name by device, where a machine has several."""

_ID = re.compile(r"%\d+")
NOT_THERE = "not available on this host or in this build"


# --- who can run it ---------------------------------------------------------------


def lowering_blocker(device: Device, graph: Graph, adapter: str = "") -> str:
    """What of the graph the open device cannot run, as text; "" when nothing."""
    try:
        compile_graph(graph, pool.backend(device.label, adapter).target)
    except (DeviceError, DTypeError) as error:
        return str(error)
    return ""


def unsupported_node(device: Device, graph: Graph, adapter: str = "") -> str:
    """The blocker in RLX's words, "unsupported op at node 3: topk", and why."""
    whole = lowering_blocker(device, graph, adapter)
    for node in graph.nodes() if whole else ():
        # The compiler's errors begin with the node they stopped at, as it stands in the
        # rewritten graph, where nodes are counted anew.
        if _ID.sub("%", whole).startswith(_ID.sub("%", str(node))):
            return f"unsupported op at node {node.id}: {node.op} ({whole})"
    return whole


def supports_graph(device: DeviceLike, graph: Graph, adapter: str = "") -> bool:
    """Is the device there, and can it run every op of the graph?

    Ops it has no kernel for count when they can be built from others.
    Errors   UnknownDevice.
    """
    which = parse_device(device)
    return is_available(which) and not lowering_blocker(which, graph, adapter)


def devices_for(
    graph: Graph, policy: DevicePolicy | None = None, adapters: Adapters | None = None
) -> tuple[Device, ...]:
    """The available devices that can run a graph, as the policy orders them."""
    policy = policy or DevicePolicy.all()
    names = adapters or {}
    allowed = policy.apply(policy.probe_set)  # a denied device is not even opened
    return tuple(d for d in allowed if supports_graph(d, graph, names.get(d, "")))


# --- who runs it ------------------------------------------------------------------


def fastest_device_for(
    graph: Graph,
    policy: DevicePolicy | None = None,
    *,
    cost_mode: str = "calibrated",
    adapters: Adapters | None = None,
) -> Device:
    """The device predicted to run a graph fastest.

    policy     allowed, denied and preferred devices; all of them when left out
    cost_mode  "calibrated" or RLX's "seed"
    Errors     Unsupported when no allowed device can run it.
    """
    if cost_mode == "calibrated":
        return fastest(graph, policy, adapters).device
    if cost_mode != "seed":
        raise UsageError("cost_mode", repr(cost_mode), "it is 'seed' or 'calibrated'")
    found = devices_for(graph, policy, adapters)
    if not found:
        raise Unsupported(f"graph '{graph.name}'", NOBODY)
    return seed_pick(graph, found)


def fastest(
    graph: Graph, policy: DevicePolicy | None = None, adapters: Adapters | None = None
) -> Pick[GraphJob]:
    """The prediction's pick, whatever RLX_DEVICE says. Errors  Unsupported."""
    return predicted(GraphJob(graph), policy or DevicePolicy.all(), adapters)


def resolve_device(
    graph: Graph,
    hint: DeviceLike | None = None,
    policy: DevicePolicy | None = None,
    *,
    viable: Sequence[Device] | None = None,
    adapters: Adapters | None = None,
) -> Device:
    """The hint if it is viable, else RLX_DEVICE, else the fastest by prediction.

    viable   the devices that can run the graph, where the caller knows them already
    Errors   Unsupported when nothing can run the graph or the hint is not viable;
             UnknownDevice.
    """
    return decide_device(graph, hint, policy, viable=viable, adapters=adapters).device


def decide_device(
    graph: Graph,
    hint: DeviceLike | None = None,
    policy: DevicePolicy | None = None,
    *,
    viable: Sequence[Device] | None = None,
    adapters: Adapters | None = None,
) -> Pick[GraphJob]:
    """`resolve_device` with the decision that says why."""
    must_be_graph(graph)
    doing = f"resolve a device for '{graph.name}'"
    found = devices_for(graph, policy, adapters) if viable is None else tuple(viable)
    if not found:
        raise Unsupported(doing, NOBODY)
    if hint is not None:
        device = parse_device(hint)
        if device not in found:
            raise Unsupported(
                doing, f"hint requested {device} but viable backends are {_list(found)}"
            )
        return _only(graph, device, "it was asked for")
    if len(found) == 1 and device_from_env() is None:
        return _only(graph, found[0], "no other device can run it")
    policy = policy or DevicePolicy.all()
    if policy != DevicePolicy.all():
        policy = replace(policy, allow=found)
    return choose(GraphJob(graph), Asked(policy=policy, adapters=adapters or {}))


def _only(graph: Graph, device: Device, why: str) -> Pick[GraphJob]:
    """A device that no prediction chose."""
    decision = Decision(f"device {device.label}", why)
    return Pick(GraphJob(graph), Candidate(device, device.label), decision)


def resolve_device_chain(
    graph: Graph,
    chain: Sequence[DeviceLike],
    policy: DevicePolicy | None = None,
    *,
    viable: Sequence[Device] | None = None,
) -> Device:
    """The first device of a chain that can run a graph.

    Errors   Unsupported naming the chain and what is viable; UnknownDevice.
    """
    must_be_graph(graph)
    found = devices_for(graph, policy) if viable is None else tuple(viable)
    wanted = [parse_device(d) for d in chain]
    for device in wanted:
        if device in found:
            return device
    raise Unsupported(
        f"resolve a device for '{graph.name}'",
        f"no device in chain {_list(wanted)} can run this graph — viable: "
        f"{_list(found)}",
    )


def _list(devices: Sequence[Device]) -> str:
    return "[" + ", ".join(str(d) for d in devices) + "]"
