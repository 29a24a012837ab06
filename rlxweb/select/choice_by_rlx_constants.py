"""Devices and Welch strategies picked by RLX's constants, for `cost_mode="seed"`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple

from rlxweb.core.device import Device, fastest_among
from rlxweb.cost.decision import Candidate, Terms, rank_candidates
from rlxweb.cost.device_models import (
    BackendCostModel,
    CpuCostModel,
    CudaCostModel,
    MetalCostModel,
    MlxCostModel,
    RocmCostModel,
    WgpuCostModel,
)
from rlxweb.cost.graph_time_estimate import pick_best_device
from rlxweb.cost.rlx_welch_costs import LearnedTransformSize, SeedWelchCosts
from rlxweb.ir.graph import Graph
from rlxweb.select.device_and_adapter import DevicePlace

# RLX asks its models in this order, and the first of equals wins.
MODEL_ORDER: Mapping[Device, type[BackendCostModel]] = {
    Device.CPU: CpuCostModel,
    Device.METAL: MetalCostModel,
    Device.MLX: MlxCostModel,
    Device.CUDA: CudaCostModel,
    Device.ROCM: RocmCostModel,
    Device.GPU: WgpuCostModel,
}
STRATEGIES = ("ultra", "fast", "fused", "learned")
"""Names of the strategies, in the order of the fields of `WelchPeaksCosts`."""


def seed_pick(graph: Graph, candidates: Sequence[Device]) -> Device:
    """Return the device that RLX's models predict to be the fastest.

    With a single model that device wins, even over candidates that have none (a flaw of
    RLX's that its own rule keeps); without any model the priority order decides.
    """
    models = [cls.seed() for d, cls in MODEL_ORDER.items() if d in candidates]
    if len(models) >= 2:
        return pick_best_device(graph, models)
    if models:
        return models[0].device
    return fastest_among(candidates)


def seed_candidates(
    places: Sequence[DevicePlace], n_rows: int, n_fft: int, k: int
) -> tuple[Candidate, ...]:
    """Return every Welch strategy at every place, the cheapest first.

    RLX's formulas price 1 and 2 segments, whatever the job has, and give one number
    that is not broken down into terms.
    """
    candidates: list[Candidate] = []
    for place in places:
        costs = SeedWelchCosts().strategy_costs(
            place.device, n_rows, n_fft, max(1, k), LearnedTransformSize()
        )
        for strategy, ns in zip(STRATEGIES, astuple(costs), strict=True):
            is_ruled_out = math.isinf(ns)
            candidates.append(
                Candidate(
                    place.device,
                    place.label,
                    strategy,
                    terms=None if is_ruled_out else Terms(other_ns=ns),
                    source="seed",
                    blocker="RLX's formulas assign this candidate an infinite cost"
                    if is_ruled_out
                    else "",
                    adapter=place.adapter,
                )
            )
    return rank_candidates(candidates)
