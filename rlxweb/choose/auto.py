"""Where a graph of `Session("auto")` runs: an adapter's name, the environment's word,
else the prediction.

What was asked for by name is used or refused. What the environment names and cannot run
the graph is warned about and passed over.
"""

from __future__ import annotations

from rlxweb.choose.fastest import fastest
from rlxweb.choose.predict import GraphPick
from rlxweb.choose.resolve import decide_device, given
from rlxweb.device import Device
from rlxweb.devices.policy import DevicePolicy, device_from_env
from rlxweb.ir.graph import Graph


def auto_pick(graph: Graph, adapter: str = "") -> GraphPick:
    """The device for a graph and why.

    adapter  part of an adapter's name: asks for a GPU
    Errors   Unsupported when no allowed device can run it.
    """
    if adapter:
        return given(Device.GPU, "its adapter was asked for by name", adapter)
    policy = DevicePolicy.from_env()
    if device_from_env() is not None:
        return decide_device(graph, None, policy)
    return fastest(graph, policy)
