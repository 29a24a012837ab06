"""Can a device run a graph? Asked of the compiler, without making a buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlxweb.backends.pool import pool
from rlxweb.compile.pipeline import compile_graph
from rlxweb.device import Device, DeviceLike, parse_device
from rlxweb.devices.availability import available_devices, is_available
from rlxweb.devices.policy import DevicePolicy
from rlxweb.errors import DeviceError, DTypeError
from rlxweb.ir.graph import Graph

Adapters = Mapping[Device, str]
"""Part of an adapter's name by device, where a machine has several."""

NOT_THERE = "not available on this host or in this build"


def lowering_blocker(device: Device, graph: Graph, adapter: str = "") -> str:
    """What of the graph the open device cannot run, as text; "" when nothing."""
    try:
        backend: Any = pool.backend(device.label, adapter)
        compile_graph(graph, backend.target)
    except (DeviceError, DTypeError) as error:
        return str(error)
    return ""


def unsupported_node(device: Device, graph: Graph, adapter: str = "") -> str:
    """The blocker in RLX's words, "unsupported op at node 3: topk", and why."""
    whole = lowering_blocker(device, graph, adapter)
    for node in graph.nodes() if whole else ():
        # The compiler's errors begin with the node they stopped at.
        if whole.startswith(str(node)):
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
    there = [d for d in policy.probe_set if d in available_devices()]
    can = [d for d in there if not lowering_blocker(d, graph, names.get(d, ""))]
    return policy.apply(can)
