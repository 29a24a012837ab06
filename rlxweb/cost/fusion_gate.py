"""Whether one plan is worth having instead of another: benefit, score, gate.

RLX's gates per target. Their constants are not those of its cost models, and on unified
memory a saved byte counts 1 ns (the price of the host looking at it), far more than any
bus: both are kept as published. A calibrated gate is made from a cost model instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rlxweb.cost.io_profile import GraphIoProfile
from rlxweb.cost.model import BackendCostModel
from rlxweb.device import Device, DeviceLike, parse_device
from rlxweb.errors import UsageError
from rlxweb.names import also, also_made_with


class FusionTarget(Enum):
    """The kinds of device RLX has a gate for."""

    METAL = "metal"
    MLX = "mlx"
    CUDA = "cuda"
    ROCM = "rocm"
    WGPU = "wgpu"
    TPU = "tpu"
    CPU = "cpu"

    @classmethod
    def of(cls, device: DeviceLike) -> FusionTarget:
        """The target that stands for a device; WGPU for one that RLX does not know."""
        which = parse_device(device)
        if which not in Device.__members__.values():
            return cls.WGPU
        return _STAND_INS.get(which) or cls(which.label)


SHADERS = frozenset(
    {Device.GPU, Device.VULKAN, Device.WEBGPU, Device.DIRECTX, Device.OPENGL}
)
"""The devices that run WGSL."""
_STAND_INS = dict.fromkeys(SHADERS, FusionTarget.WGPU) | {Device.ANE: FusionTarget.MLX}


@also_made_with(launches_saved="kernel_launches_saved")
@dataclass(frozen=True, slots=True)
class FusionBenefit:
    """What `after` saves of `before`; negative where it costs more. Bytes in bytes.

    RLX's `launches_saved` is `kernel_launches_saved`.
    """

    kernel_launches_saved: int
    sync_points_saved: int
    host_readback_bytes_saved: int
    device_traffic_bytes_saved: int

    @property
    def launches_saved(self) -> int:
        return self.kernel_launches_saved

    @also(roundtrip_ns="round_trip_ns")
    def score_ns(
        self,
        dispatch_ns: float,
        round_trip_ns: float,
        memory_bw: float,
        host_readback_bw: float,
        unified_memory: bool,
    ) -> float:
        """The saving in nanoseconds, by RLX's formula."""
        back = 0.0 if unified_memory else host_readback_bw
        return (
            self.kernel_launches_saved * dispatch_ns
            + self.sync_points_saved * round_trip_ns
            + self.device_traffic_bytes_saved / max(memory_bw, 1.0)
            + self.host_readback_bytes_saved / max(back, 1.0)
        )

    @also(roundtrip_ns="round_trip_ns")
    def should_fuse(
        self,
        dispatch_ns: float,
        round_trip_ns: float,
        memory_bw: float,
        host_readback_bw: float,
        unified_memory: bool,
        min_gain_ns: float,
    ) -> bool:
        """Is the saving at least min_gain_ns? Added waits are not punished here."""
        rates = memory_bw, host_readback_bw, unified_memory
        return self.score_ns(dispatch_ns, round_trip_ns, *rates) >= min_gain_ns


def fusion_benefit(before: GraphIoProfile, after: GraphIoProfile) -> FusionBenefit:
    """Before minus after, count by count; host bytes are the outputs' own."""
    return FusionBenefit(
        before.kernel_launches - after.kernel_launches,
        before.sync_points - after.sync_points,
        before.host_output_bytes - after.host_output_bytes,
        before.device_traffic_bytes - after.device_traffic_bytes,
    )


@also_made_with(roundtrip_ns="round_trip_ns")
@dataclass(frozen=True, slots=True)
class IoFusionGate:
    """The prices of a target and what a fusion must gain at least.

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

    @also(benefit="before")
    def score_ns(
        self,
        before: GraphIoProfile | FusionBenefit,
        after: GraphIoProfile | None = None,
    ) -> float:
        """The gain in nanoseconds, waits that were added punished."""
        benefit = _judged(before, after)
        prices = (self.dispatch_ns, self.round_trip_ns, self.memory_bw)
        score = benefit.score_ns(*prices, self.host_readback_bw, self.unified_memory)
        added = -min(0, benefit.sync_points_saved)
        return score - added * self.host_thunk_penalty_ns

    @also(benefit="before")
    def should_fuse(
        self,
        before: GraphIoProfile | FusionBenefit,
        after: GraphIoProfile | None = None,
    ) -> bool:
        """Is the gain at least min_gain_ns?"""
        return self.score_ns(before, after) >= self.min_gain_ns

    @classmethod
    def calibrated(
        cls, model: BackendCostModel, source: str = "calibrated"
    ) -> IoFusionGate:
        """The gate of a measured device: its own prices, no penalty, any gain will do.

        What comes back pays its way over the bus on every device that has one.
        """
        starts = model.dispatch_overhead_ns, model.round_trip_overhead_ns
        rates = model.memory_bw, model.host_readback_bw
        return cls(*starts, *rates, False, 0.0, 0.0, source=source)


def _judged(
    before: GraphIoProfile | FusionBenefit, after: GraphIoProfile | None
) -> FusionBenefit:
    if isinstance(before, FusionBenefit) and after is None:
        return before
    if isinstance(before, GraphIoProfile) and after is not None:
        return fusion_benefit(before, after)
    raise UsageError("fusion gate", "it judges a benefit, or two profiles")


_APPLE = IoFusionGate(500.0, 5_000.0, 200.0, 200.0, True, 2e6, 1_000.0)
_DISCRETE = IoFusionGate(2_000.0, 20_000.0, 800.0, 50.0, False, 15e6, 5_000.0)
_SHADERS = IoFusionGate(3_000.0, 30_000.0, 100.0, 40.0, False, 25e6, 10_000.0)
_HOST = IoFusionGate(50.0, 0.0, 50.0, 50.0, True, 0.0, 0.0)
_GATES = {
    FusionTarget.METAL: _APPLE,
    FusionTarget.MLX: _APPLE,
    FusionTarget.CUDA: _DISCRETE,
    FusionTarget.ROCM: _DISCRETE,
    FusionTarget.WGPU: _SHADERS,
    FusionTarget.TPU: _SHADERS,
    FusionTarget.CPU: _HOST,
}


def io_fusion_gate_for_target(target: FusionTarget | DeviceLike) -> IoFusionGate:
    """RLX's gate of a target, or of the one that stands for a device.

    Errors   UnknownDevice.
    """
    if not isinstance(target, FusionTarget):
        target = FusionTarget.of(target)
    return _GATES[target]


def should_fuse_with_target(
    target: FusionTarget | DeviceLike, before: GraphIoProfile, after: GraphIoProfile
) -> bool:
    """Does RLX's gate of the target let `after` take the place of `before`?"""
    return io_fusion_gate_for_target(target).should_fuse(before, after)
