"""The fastest device for a graph under a policy.

By default by the prices of the plans that would run (`predict.py`). RLX's own
rule, on its published constants, is here as "seed".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlxweb.calibration.worth import Worth, worth
from rlxweb.choose.predict import GraphPick, decide_graph
from rlxweb.choose.supports import Adapters, devices_for
from rlxweb.cost.estimate import pick_best_device
from rlxweb.cost.model import (
    BackendCostModel,
    CpuCostModel,
    CudaCostModel,
    MetalCostModel,
    MlxCostModel,
    RocmCostModel,
    WgpuCostModel,
)
from rlxweb.device import PRIORITY, Device
from rlxweb.devices.place import CPU, Place, distinct
from rlxweb.devices.policy import DevicePolicy
from rlxweb.errors import Unsupported, UsageError
from rlxweb.ir.graph import Graph

# RLX asks its models in this order, and the first of equals wins.
MODEL_ORDER: Mapping[Device, Any] = {
    Device.CPU: CpuCostModel,
    Device.METAL: MetalCostModel,
    Device.MLX: MlxCostModel,
    Device.CUDA: CudaCostModel,
    Device.ROCM: RocmCostModel,
    Device.GPU: WgpuCostModel,
}

NO_CANDIDATE = (
    "no backend can lower this graph under the current policy — widen DevicePolicy or "
    "install an extra that brings a device"
)


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
        return fastest(graph, policy, adapters=adapters).device
    if cost_mode != "seed":
        raise UsageError("cost_mode", repr(cost_mode), "it is 'seed' or 'calibrated'")
    found = devices_for(graph, policy, adapters)
    if not found:
        raise Unsupported(f"graph '{graph.name}'", NO_CANDIDATE)
    return seed_pick(graph, found)


def fastest(
    graph: Graph,
    policy: DevicePolicy | None = None,
    *,
    adapters: Adapters | None = None,
    worthwhile: Worth = worth,
) -> GraphPick:
    """The calibrated pick, with the decision that says why. Errors  Unsupported."""
    policy = policy or DevicePolicy.all()
    return decide_graph(
        graph,
        places=_places(policy, adapters),
        prefer=policy.prefer,
        worthwhile=worthwhile,
    )


def _places(
    policy: DevicePolicy, adapters: Adapters | None
) -> tuple[Place, ...] | None:
    """Where the policy lets a graph run; None leaves it to what is worth opening."""
    if policy == DevicePolicy.all() and not adapters:
        return None
    names = adapters or {}
    allowed = policy.apply(tuple(Device))
    # The CPU first: of equals the one that needs no trip is taken.
    ordered = sorted(allowed, key=lambda d: d is not Device.CPU)
    return distinct(Place(d, names.get(d, "")) for d in ordered)


def seed_pick(
    graph: Graph,
    candidates: Sequence[Device],
    models: Mapping[Device, BackendCostModel] | None = None,
) -> Device:
    """RLX's pick among candidates: by its models where at least two have one.

    With a single model that device wins, even over candidates that have none (a flaw of
    RLX's that its own rule keeps); with none the priority order decides.
    """
    known = models or {d: cls.seed() for d, cls in MODEL_ORDER.items()}
    found = [known[d] for d in MODEL_ORDER if d in candidates and d in known]
    if len(found) >= 2:
        return pick_best_device(graph, found)
    if found:
        return found[0].device
    return fastest_among(candidates)


def fastest_among(devices: Sequence[Device]) -> Device:
    """The first of RLX's priority order in the list; else its first; else the CPU."""
    for device in PRIORITY:
        if device in devices:
            return device
    return devices[0] if devices else CPU.device
