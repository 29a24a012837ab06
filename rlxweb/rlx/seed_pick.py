"""RLX's own rule for the fastest device, on its published constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
from rlxweb.device import Device, fastest_among
from rlxweb.ir.graph import Graph

# RLX asks its models in this order, and the first of equals wins.
MODEL_ORDER: Mapping[Device, type[BackendCostModel]] = {
    Device.CPU: CpuCostModel,
    Device.METAL: MetalCostModel,
    Device.MLX: MlxCostModel,
    Device.CUDA: CudaCostModel,
    Device.ROCM: RocmCostModel,
    Device.GPU: WgpuCostModel,
}


def seed_pick(graph: Graph, candidates: Sequence[Device]) -> Device:
    """RLX's pick among candidates: by its models where at least two have one.

    With a single model that device wins, even over candidates that have none (a flaw of
    RLX's that its own rule keeps); with none the priority order decides.
    """
    found = [cls.seed() for d, cls in MODEL_ORDER.items() if d in candidates]
    if len(found) >= 2:
        return pick_best_device(graph, found)
    if found:
        return found[0].device
    return fastest_among(candidates)
