"""Fusion gates: benefit and score of one plan against another, and RLX's thresholds per
target.

RLX's gates per target. Their constants are not those of its cost models, and on unified
memory a saved byte counts 1 ns (the price of the host looking at it), far more than any
bus: both are kept as published. A calibrated gate is made from a cost model instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rlxweb.core.device import Device, DeviceLike, parse_device
from rlxweb.core.errors import UsageError
from rlxweb.core.lazy_names import alias_init_keywords, alias_keywords
from rlxweb.cost.device_models import BackendCostModel
from rlxweb.cost.graph_traffic_counts import GraphIoProfile


class FusionTarget(Enum):
    """Kind of device that RLX has a gate for."""

    METAL = "metal"
    MLX = "mlx"
    CUDA = "cuda"
    ROCM = "rocm"
    WGPU = "wgpu"
    TPU = "tpu"
    CPU = "cpu"

    @classmethod
    def of(cls, device: DeviceLike) -> FusionTarget:
        """Return the target that stands for a device; WGPU for one that RLX does not
        know.
        """
        parsed_device = parse_device(device)
        if parsed_device not in Device.__members__.values():
            return cls.WGPU
        return _TARGET_BY_DEVICE.get(parsed_device) or cls(parsed_device.label)


WGSL_DEVICES = frozenset(
    {Device.GPU, Device.VULKAN, Device.WEBGPU, Device.DIRECTX, Device.OPENGL}
)
"""Devices that run WGSL."""
_TARGET_BY_DEVICE = dict.fromkeys(WGSL_DEVICES, FusionTarget.WGPU) | {
    Device.ANE: FusionTarget.MLX
}


@alias_init_keywords(launches_saved="kernel_launches_saved")
@dataclass(frozen=True, slots=True)
class FusionBenefit:
    """Savings of the plan `after` against the plan `before`; negative where it costs
    more. Bytes in bytes.

    RLX's `launches_saved` is `kernel_launches_saved`.
    """

    kernel_launches_saved: int
    sync_points_saved: int
    host_readback_bytes_saved: int
    device_traffic_bytes_saved: int

    @property
    def launches_saved(self) -> int:
        return self.kernel_launches_saved

    @alias_keywords(roundtrip_ns="round_trip_ns")
    def score_ns(
        self,
        dispatch_ns: float,
        round_trip_ns: float,
        memory_bw: float,
        host_readback_bw: float,
        unified_memory: bool,
    ) -> float:
        """Return the saving in nanoseconds, by RLX's formula."""
        readback_bw = 0.0 if unified_memory else host_readback_bw
        return (
            self.kernel_launches_saved * dispatch_ns
            + self.sync_points_saved * round_trip_ns
            + self.device_traffic_bytes_saved / max(memory_bw, 1.0)
            + self.host_readback_bytes_saved / max(readback_bw, 1.0)
        )

    @alias_keywords(roundtrip_ns="round_trip_ns")
    def should_fuse(
        self,
        dispatch_ns: float,
        round_trip_ns: float,
        memory_bw: float,
        host_readback_bw: float,
        unified_memory: bool,
        min_gain_ns: float,
    ) -> bool:
        """Tell whether the saving is at least min_gain_ns. Added waits are not
        penalized here.
        """
        rates = memory_bw, host_readback_bw, unified_memory
        return self.score_ns(dispatch_ns, round_trip_ns, *rates) >= min_gain_ns


def fusion_benefit(before: GraphIoProfile, after: GraphIoProfile) -> FusionBenefit:
    """Return `before` minus `after`, count by count; host bytes are the outputs'
    own.
    """
    return FusionBenefit(
        before.kernel_launches - after.kernel_launches,
        before.sync_points - after.sync_points,
        before.host_output_bytes - after.host_output_bytes,
        before.device_traffic_bytes - after.device_traffic_bytes,
    )


@alias_init_keywords(roundtrip_ns="round_trip_ns")
@dataclass(frozen=True, slots=True)
class IoFusionGate:
    """Prices of a target and the smallest gain that justifies a fusion.

    host_thunk_penalty_ns  for every wait on the host that a fusion adds
    min_gain_ns            below it the plan stays as it is
    bandwidths in GB/s = bytes/ns

    What is judged is a FusionBenefit, or the profiles before and after. RLX's
    `roundtrip_ns` is `round_trip_ns`.
    """

    dispatch_ns: float
    round_trip_ns: float
    memory_bw: float
    host_readback_bw: float
    unified_memory: bool
    host_thunk_penalty_ns: float
    min_gain_ns: float
    source: str = "seed"

    @property
    def roundtrip_ns(self) -> float:
        return self.round_trip_ns

    @alias_keywords(benefit="before")
    def score_ns(
        self,
        before: GraphIoProfile | FusionBenefit,
        after: GraphIoProfile | None = None,
    ) -> float:
        """Return the gain in nanoseconds, less a penalty for added waits."""
        benefit = _benefit(before, after)
        prices = (self.dispatch_ns, self.round_trip_ns, self.memory_bw)
        score = benefit.score_ns(*prices, self.host_readback_bw, self.unified_memory)
        added_waits = -min(0, benefit.sync_points_saved)
        return score - added_waits * self.host_thunk_penalty_ns

    @alias_keywords(benefit="before")
    def should_fuse(
        self,
        before: GraphIoProfile | FusionBenefit,
        after: GraphIoProfile | None = None,
    ) -> bool:
        """Tell whether the gain is at least min_gain_ns."""
        return self.score_ns(before, after) >= self.min_gain_ns

    @classmethod
    def calibrated(
        cls, model: BackendCostModel, source: str = "calibrated"
    ) -> IoFusionGate:
        """Return the gate of a measured device: its own prices, no penalty, any gain
        suffices.

        What comes back pays its way over the bus on every device that has one.
        """
        overheads = model.dispatch_overhead_ns, model.round_trip_overhead_ns
        rates = model.memory_bw, model.host_readback_bw
        return cls(*overheads, *rates, False, 0.0, 0.0, source=source)


def _benefit(
    before: GraphIoProfile | FusionBenefit, after: GraphIoProfile | None
) -> FusionBenefit:
    """Return the given benefit, or that of the two profiles."""
    if isinstance(before, FusionBenefit) and after is None:
        return before
    if isinstance(before, GraphIoProfile) and after is not None:
        return fusion_benefit(before, after)
    got = type(before).__name__
    got += f" and {type(after).__name__}" if after is not None else ""
    rule = "expected a FusionBenefit or two GraphIoProfiles"
    raise UsageError("fusion gate", f"got {got}", rule)


_APPLE_GATE = IoFusionGate(500.0, 5_000.0, 200.0, 200.0, True, 2e6, 1_000.0)
_DISCRETE_GATE = IoFusionGate(2_000.0, 20_000.0, 800.0, 50.0, False, 15e6, 5_000.0)
_WGSL_GATE = IoFusionGate(3_000.0, 30_000.0, 100.0, 40.0, False, 25e6, 10_000.0)
_CPU_GATE = IoFusionGate(50.0, 0.0, 50.0, 50.0, True, 0.0, 0.0)
_GATES = {
    FusionTarget.METAL: _APPLE_GATE,
    FusionTarget.MLX: _APPLE_GATE,
    FusionTarget.CUDA: _DISCRETE_GATE,
    FusionTarget.ROCM: _DISCRETE_GATE,
    FusionTarget.WGPU: _WGSL_GATE,
    FusionTarget.TPU: _WGSL_GATE,
    FusionTarget.CPU: _CPU_GATE,
}


def io_fusion_gate_for_target(target: FusionTarget | DeviceLike) -> IoFusionGate:
    """Return RLX's gate of a target, or of the one that stands for a device.

    Errors   UnknownDevice.
    """
    if not isinstance(target, FusionTarget):
        target = FusionTarget.of(target)
    return _GATES[target]


def should_fuse_with_target(
    target: FusionTarget | DeviceLike, before: GraphIoProfile, after: GraphIoProfile
) -> bool:
    """Tell whether RLX's gate of the target lets `after` replace `before`."""
    return io_fusion_gate_for_target(target).should_fuse(before, after)
