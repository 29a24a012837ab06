"""Which device a caller's hint, the environment or the prediction come down to.

A hint is used or refused, never swapped. What the environment names and cannot be used
is warned about and passed over; RLX passes over it in silence.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rlxweb.choose.fastest import NO_CANDIDATE, fastest
from rlxweb.choose.predict import GraphPick
from rlxweb.choose.supports import Adapters, devices_for
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.decision import Decision
from rlxweb.device import Device, DeviceLike, parse_device
from rlxweb.devices.policy import DevicePolicy, device_from_env
from rlxweb.errors import EnvironmentWarning, Unsupported
from rlxweb.ir.graph import Graph


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
) -> GraphPick:
    """`resolve_device` with the decision that says why."""
    doing = f"resolve a device for '{graph.name}'"
    found = devices_for(graph, policy, adapters) if viable is None else tuple(viable)
    if not found:
        raise Unsupported(doing, NO_CANDIDATE)
    if hint is not None:
        device = parse_device(hint)
        if device not in found:
            raise Unsupported(
                doing, f"hint requested {device} but viable backends are {_list(found)}"
            )
        return given(device, "it was asked for")
    named = device_from_env()
    if named in found:
        return given(named, f"RLX_DEVICE={named.label}")
    if named is not None:
        warnings.warn(
            f"RLX_DEVICE={named.label} cannot run '{graph.name}' and is not followed; "
            f"viable backends are {_list(found)}",
            EnvironmentWarning,
            stacklevel=3,
        )
    if len(found) == 1:
        return given(found[0], "no other device can run it")
    allowed = policy or DevicePolicy.all()
    return fastest(graph, _narrowed(allowed, found), adapters=adapters)


def given(device: Device, why: str, adapter: str = "") -> GraphPick:
    """A device that no prediction chose."""
    decision = Decision(f"device {device.label}", why)
    return GraphPick(Candidate(device, device.label, adapter=adapter), decision, {})


def _narrowed(policy: DevicePolicy, found: Sequence[Device]) -> DevicePolicy:
    """The policy itself, unless fewer devices are viable than it permits."""
    if policy == DevicePolicy.all():
        return policy
    return replace(policy, allow=tuple(found))


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


def _list(devices: Sequence[Any]) -> str:
    return "[" + ", ".join(str(d) for d in devices) + "]"
