"""RLX's published cost formulas for Welch peaks, exact to the last digit.

Factors fitted to other machines, a floor, a step at a batch of 2,048: all of it stays,
so that decisions can be compared with RLX's. `cost_mode="seed"` uses them; nothing else
does. Times are in nanoseconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rlxweb.core.argument_validation import check_instance, coerce_integer_from
from rlxweb.core.device import Device
from rlxweb.cost.device_models import (
    BackendCostModel,
    CpuCostModel,
    CudaCostModel,
    DiscreteGpuCostModel,
    RocmCostModel,
    WgpuCostModel,
)
from rlxweb.cost.fusion_gate import (
    WGSL_DEVICES,
    FusionTarget,
    fusion_benefit,
    io_fusion_gate_for_target,
)
from rlxweb.cost.graph_time_estimate import seed_cost_with_io, sequential_sum
from rlxweb.cost.graph_traffic_counts import GraphIoProfile
from rlxweb.cost.rlx_welch_presets import WelchPeakParams

Models = Mapping[Device, BackendCostModel | None]

APPLE_DEVICES = frozenset({Device.METAL, Device.MLX, Device.ANE})
CUDA_ROCM_DEVICES = frozenset({Device.CUDA, Device.ROCM})

NATIVE_PEAKS_BATCH = 2_048
"""Batch from which on RLX counts its peaks kernel as running without the host."""
SPARSE_GATE_RATIO = 4
"""Ratio of total to active gates above which a learned transform is used."""


@dataclass(frozen=True, slots=True)
class GateBreakdown:
    """Numbers that a fusion gate decides by, and its decision.

    score_ns  the gain; fused when at least min_gain_ns (should_fuse_io) and the fused
              graph is predicted to be fast enough as well (should_fuse)
    """

    score_ns: float
    min_gain_ns: float
    readback_saved_bytes: int
    sync_points_saved: int
    should_fuse_io: bool
    should_fuse: bool


@dataclass(frozen=True, slots=True)
class WelchPeaksCosts:
    """Estimates of the four strategies, ns; infinite where one is ruled out."""

    ultra_ns: float
    fast_ns: float
    rlx_ns: float
    learned_ns: float


@dataclass(frozen=True, slots=True)
class LearnedTransformSize:
    """Size of a trained transform, where there is one.

    share   its arithmetic as a share of the whole transform's; None where only the
            gates are known, as in RLX
    """

    available: bool = False
    active_gates: int | None = None
    total_gates: int = 0
    share: float | None = None

    @property
    def is_sparse(self) -> bool:
        """True where fewer than a quarter of the gates are active."""
        active = self.active_gates
        return active is not None and active * SPARSE_GATE_RATIO < self.total_gates

    @property
    def compute_scale(self) -> float:
        """RLX's scale of the fused graph's time."""
        if self.active_gates is None or not self.total_gates:
            return 1.0
        return 0.30 + 0.70 * (self.active_gates / self.total_gates)


@dataclass(frozen=True, slots=True)
class KernelCounts:
    """Elements that each kernel of a graph writes, and the graph's IO profile.

    RLX prices k above the number of bins as well, for which no graph can be built; for
    every other k these are the counts of the graph itself.
    """

    elements: tuple[int, ...]
    io: GraphIoProfile


def fft_graph_counts(batch: int, n_fft: int, segments: int) -> KernelCounts:
    """Return the counts of the spectrum graph alone: segs - segs, a concat, the
    transform.
    """
    cells = batch * segments * n_fft
    io = GraphIoProfile(3, 0, 8 * cells, 44 * cells)
    return KernelCounts((cells, 2 * cells, 2 * cells), io)


def fused_graph_counts(batch: int, params: WelchPeakParams) -> KernelCounts:
    """Return the counts of the graph with the peaks: one kernel and one wait more,
    pairs out.
    """
    cells = batch * params.n_segments * params.n_fft
    pairs = 2 * batch * params.k
    io = GraphIoProfile(4, 1, 4 * pairs, 52 * cells + 4 * pairs)
    return KernelCounts((cells, 2 * cells, 2 * cells, pairs), io)


def gate_profiles(
    device: Device, batch: int, n_fft: int, k: int
) -> tuple[GraphIoProfile, GraphIoProfile]:
    """Return the profiles of 2 segments before and after fusing.

    From `NATIVE_PEAKS_BATCH` on the fused one has a wait less on WGSL, CUDA and ROCm.
    """
    before = fft_graph_counts(batch, n_fft, 2).io
    after = fused_graph_counts(batch, WelchPeakParams.fast(n_fft, k)).io
    if batch >= NATIVE_PEAKS_BATCH and device in WGSL_DEVICES | CUDA_ROCM_DEVICES:
        after = replace(after, sync_points=max(0, after.sync_points - 1))
    return before, after


def host_fft_peaks_io_profile(batch: int, params: WelchPeakParams) -> GraphIoProfile:
    """Return the profile of a transform per segment and a search per row on the CPU.

    Errors   UsageError for a batch below 1, and for what are no params.
    """
    batch = coerce_integer_from(1, "batch", batch, "Welch costs")
    params = check_instance("params", params, WelchPeakParams, "Welch costs")
    rows = batch * params.n_segments
    peaks = batch * params.k * 8
    return GraphIoProfile(rows + batch, 0, peaks, rows * params.n_fft * 12 + peaks)


def _fitted_factors(device: Device) -> tuple[float, float, float]:
    """Return RLX's fitted factors: growth of the CPU's time from batch 512 and from
    2,048 on, and the scale of the fused IO time.
    """
    if device in APPLE_DEVICES:
        return 0.22, 1.15, 7.5
    if device in CUDA_ROCM_DEVICES:
        return 0.15, 0.85, 0.43
    return (0.12, 0.0, 2.2) if device in WGSL_DEVICES else (0.0, 0.0, 1.0)


def fused_io_scale(device: Device) -> float:
    """Return RLX's fitted factor of the fused graph's IO time."""
    return _fitted_factors(device)[2]


def _scaled_cpu_ns(ns: float, device: Device, batch: int) -> float:
    """Return the CPU's time scaled by RLX's fit, for a comparison with a GPU's.

    The factors are applied one after the other, to round as RLX does.
    """
    a, b, _ = _fitted_factors(device)
    if batch >= 512:
        ns *= 1.0 + a * math.log(batch / 512.0)
    if batch > 2_048:
        ns *= 1.0 + b * math.log2(batch / 2_048.0)
    return ns


_MODEL_DEVICE = dict.fromkeys(WGSL_DEVICES, Device.GPU) | {Device.ANE: Device.MLX}
"""Device whose model RLX uses for a device without one."""


@dataclass(frozen=True, slots=True)
class SeedWelchCosts:
    """Estimates by RLX's formulas, on the cost models that RLX assumes.

    models   in place of RLX's constants by device; None as a value: the device has no
             model and RLX's discrete fallback is used. MLX's serves ANE, that of "gpu"
             every device of WGSL.
    """

    cpu: BackendCostModel = field(default_factory=CpuCostModel.seed)
    models: Models = field(default_factory=dict)

    def model_for(self, device: Device) -> BackendCostModel | None:
        """Return the device's own model, or the one of its kind; None for neither."""
        for model_device in (device, _MODEL_DEVICE.get(device, device)):
            if model_device in self.models:
                return self.models[model_device]
        if device is Device.CPU:
            return self.cpu
        if device is Device.CUDA:
            return CudaCostModel.seed()
        if device is Device.ROCM:
            return RocmCostModel.seed()
        return WgpuCostModel.seed(device) if device in WGSL_DEVICES else None

    def io_ns(self, io: GraphIoProfile, model: BackendCostModel) -> float:
        """Return a profile's time: round trip, launches, waits, traffic, read-back."""
        return (
            model.round_trip_overhead_ns
            + io.kernel_launches * model.dispatch_overhead_ns
            + io.sync_points * model.round_trip_overhead_ns
            + io.device_traffic_bytes / max(model.memory_bw, 1.0)
            + io.host_readback_bytes(model.unified_memory)
            / max(model.host_readback_bw, 1.0)
        )

    def can_auto_fuse(self, device: Device) -> bool:
        """Tell whether "auto" may fuse there: RLX's list is all but Cpu and Tpu."""
        return device not in (Device.CPU, Device.TPU)

    def _on_device_ns(self, counts: KernelCounts, device: Device) -> float:
        """Return the graph's time with IO, by RLX's fallback where there is no model.

        The fallback charges each kernel launch twice, as RLX does.
        """
        io, model = counts.io, self.model_for(device)
        if model is None:
            discrete = DiscreteGpuCostModel.seed()
            launches_ns = len(counts.elements) * discrete.dispatch_overhead_ns
            return self.io_ns(io, discrete) + launches_ns
        bandwidth = max(model.memory_bw, 1.0)
        kernel_costs = (
            4 * e / bandwidth + model.dispatch_overhead_ns for e in counts.elements
        )
        nodes_ns = sequential_sum(model.round_trip_overhead_ns, kernel_costs)
        return seed_cost_with_io(nodes_ns, model, io)

    def fused_ns(
        self, device: Device, batch: int, params: WelchPeakParams, scale: float = 1.0
    ) -> float:
        """Return the fused graph's scaled IO time, at least the device's floor."""
        io_only = self._on_device_ns(fused_graph_counts(batch, params), device)
        scale = fused_io_scale(device) * min(1.0, max(0.25, scale))
        floor = 400_000.0 if device is not Device.CPU and batch < 512 else 0.0
        if scale >= 1.0:
            return max(io_only * scale, io_only + floor)
        return max(io_only * scale, floor)

    def block_ns(self, device: Device, batch: int, n_fft: int, k: int) -> float:
        """Return the time of 2 segments: spectrum on the device, peaks on the host."""
        device_ns = self._on_device_ns(fft_graph_counts(batch, n_fft, 2), device)
        if device is Device.CPU:
            return device_ns
        return device_ns * 0.72 + batch * max(k, 1) * 80.0

    def is_floor_met(self, device: Device, batch: int, n_fft: int, k: int) -> bool:
        """Tell whether the fused graph is not much slower, from batch 2,048 on."""
        if not self.can_auto_fuse(device) or batch < NATIVE_PEAKS_BATCH:
            return True
        fused = self.fused_ns(device, batch, WelchPeakParams.fast(n_fft, k))
        slack = 1.15 if device in CUDA_ROCM_DEVICES and batch >= 8_192 else 1.10
        return fused <= self.block_ns(device, batch, n_fft, k) * slack

    def gate_breakdown(
        self, device: Device, batch: int, n_fft: int, k: int
    ) -> GateBreakdown:
        """Return what the IO gate of the device and the floor say."""
        before, after = gate_profiles(device, batch, n_fft, k)
        gate = io_fusion_gate_for_target(FusionTarget.of(device))
        score = gate.score_ns(before, after)
        benefit = fusion_benefit(before, after)
        counts = benefit.host_readback_bytes_saved, benefit.sync_points_saved
        gains = score >= gate.min_gain_ns
        fuses = gains and self.is_floor_met(device, batch, n_fft, k)
        return GateBreakdown(score, gate.min_gain_ns, *counts, gains, fuses)

    def strategy_costs(
        self,
        device: Device,
        batch: int,
        n_fft: int,
        k: int,
        learned: LearnedTransformSize,
    ) -> WelchPeaksCosts:
        """Return RLX's times of the four strategies."""
        one_segment = WelchPeakParams.ultra_fast(n_fft, k)
        two_segments = WelchPeakParams.fast(n_fft, k)
        ultra, fast = (
            self.io_ns(host_fft_peaks_io_profile(batch, params), self.cpu)
            for params in (one_segment, two_segments)
        )
        if device is not Device.CPU:
            ultra, fast = (_scaled_cpu_ns(ns, device, batch) for ns in (ultra, fast))
        if device is not Device.CPU and batch > 128:
            ultra = math.inf
        rlx = learned_ns = math.inf
        if (
            self.can_auto_fuse(device)
            and self.gate_breakdown(device, batch, n_fft, k).should_fuse
        ):
            rlx = self.fused_ns(device, batch, two_segments)
            if learned.available and learned.is_sparse:
                learned_ns = self.fused_ns(
                    device, batch, two_segments, learned.compute_scale
                )
        return WelchPeaksCosts(ultra, fast, rlx, learned_ns)
