"""What a Welch job costs, in RLX's words: profiles, estimates, gates, the picker.

Every function answers in two modes. "seed" is RLX's published arithmetic, digit for
digit, on models the caller may replace; "calibrated" is what this machine measured.
Times are nanoseconds unless a name says otherwise; batch, n_fft and k are at least 1.
Keywords beyond those of a function are those of `Mode`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, Unpack

from rlxweb.cost.io_profile import GraphIoProfile
from rlxweb.cost.model import BackendCostModel, CpuCostModel
from rlxweb.decision.strategy import WelchPeaksStrategy, parse_welch_peaks_strategy
from rlxweb.device import Device, DeviceLike, parse_device
from rlxweb.errors import UsageError
from rlxweb.rlx.seed_costs import (
    GateBreakdown,
    Learned,
    Models,
    SeedCosts,
    WelchPeaksCosts,
    algorithm_bandwidth_gbps,
    build_welch_peaks_fused_graph,
    cheapest,
    fft_only_graph,
    host_fft_peaks_io_profile,
    legacy_pick,
    useful_bytes_touched,
)
from rlxweb.rlx.welch_params import WelchPeakParams

if TYPE_CHECKING:
    from rlxweb.signal.calibrated_costs import MeasuredCosts

__all__ = [
    "GateBreakdown",
    "Mode",
    "WelchPeakParams",
    "WelchPeaksCosts",
    "WelchPeaksStrategy",
    "algorithm_bandwidth_gbps",
    "build_welch_peaks_fused_graph",
    "estimate_block_welch_ns",
    "estimate_fused_graph_ns",
    "estimate_welch_peaks_costs",
    "fft_only_graph",
    "fused_welch_peaks_auto_viable",
    "host_fft_peaks_io_profile",
    "io_cost_ns",
    "parse_welch_peaks_strategy",
    "pick_welch_peaks_strategy",
    "useful_bytes_touched",
    "welch_peaks_fusion_compute_floor_ok",
    "welch_peaks_fusion_gate_breakdown",
    "welch_peaks_io_fusion_gate",
]


class Mode(TypedDict, total=False):
    """Whose figures answer: the keywords that the functions below share.

    cost_mode  "seed", the default, or "calibrated"
    cpu_model  in place of RLX's constants of the CPU; "seed" only, as models
    models     the same by device; None as a value: the device has no model and RLX's
               discrete fallback is used
    adapter    part of an adapter's name; "calibrated" only
    """

    cost_mode: str
    cpu_model: BackendCostModel | None
    models: Models | None
    adapter: str


def _costs(
    cost_mode: str = "seed",
    cpu_model: BackendCostModel | None = None,
    models: Models | None = None,
    adapter: str = "",
) -> SeedCosts | MeasuredCosts:
    """Who answers in this mode."""
    if cost_mode == "seed":
        return SeedCosts(cpu_model or CpuCostModel.seed(), models or {})
    if cost_mode == "calibrated":
        # It opens devices; the seed formulas need none.
        from rlxweb.signal.calibrated_costs import MeasuredCosts

        return MeasuredCosts(adapter)
    raise UsageError("cost_mode", repr(cost_mode), "it is 'seed' or 'calibrated'")


def _checked(device: DeviceLike, batch: int, n_fft: int) -> Device:
    for name, value in (("batch", batch), ("n_fft", n_fft)):
        if value < 1:
            raise UsageError("Welch costs", f"{name} is {value}", "at least 1")
    return parse_device(device)


def io_cost_ns(
    io: GraphIoProfile, model: BackendCostModel, *, cost_mode: str = "seed"
) -> float:
    """A profile's time under a model: round trip, launches, waits, bytes.

    "seed" adds a quarter of the traffic to what a discrete device reads back;
    "calibrated" counts the bytes that really come back.
    """
    return _costs(cost_mode).io_ns(io, model)


def fused_welch_peaks_auto_viable(
    device: DeviceLike, *, cost_mode: str = "seed", adapter: str = ""
) -> bool:
    """May "auto" fuse there? By RLX's list, or by the device's own kernels."""
    return _costs(cost_mode, adapter=adapter).auto_viable(parse_device(device))


def estimate_fused_graph_ns(
    batch: int,
    params: WelchPeakParams,
    device: DeviceLike,
    compute_scale: float = 1.0,
    **mode: Unpack[Mode],
) -> float:
    """Time of the fused graph.

    compute_scale  of a pruned transform; RLX holds it to 0.25 … 1
    """
    which = _checked(device, batch, params.n_fft)
    return _costs(**mode).fused_ns(which, batch, params, compute_scale)


def estimate_block_welch_ns(
    batch: int,
    n_fft: int,
    k: int,
    device: DeviceLike,
    **mode: Unpack[Mode],
) -> float:
    """Time of 2 segments with the spectrum read back and searched on the host."""
    which = _checked(device, batch, n_fft)
    return _costs(**mode).block_ns(which, batch, n_fft, k)


def welch_peaks_fusion_gate_breakdown(
    device: DeviceLike,
    batch: int,
    n_fft: int,
    k: int,
    **mode: Unpack[Mode],
) -> GateBreakdown:
    """What the fusion gate of the device sees, and what it says."""
    which = _checked(device, batch, n_fft)
    return _costs(**mode).gate(which, batch, n_fft, k)


def welch_peaks_io_fusion_gate(
    device: DeviceLike, batch: int, n_fft: int, k: int, **mode: Unpack[Mode]
) -> bool:
    """Does the gate let the fused graph take the block's place?"""
    seen = welch_peaks_fusion_gate_breakdown(device, batch, n_fft, k, **mode)
    return seen.should_fuse


def welch_peaks_fusion_compute_floor_ok(
    device: DeviceLike,
    batch: int,
    n_fft: int,
    k: int,
    **mode: Unpack[Mode],
) -> bool:
    """Is the fused graph not much slower than the block, from batch 2,048 on?"""
    which = _checked(device, batch, n_fft)
    return _costs(**mode).floor_ok(which, batch, n_fft, k)


def estimate_welch_peaks_costs(
    device: DeviceLike,
    batch: int,
    n_fft: int,
    k: int,
    learned_available: bool = False,
    learned_active_gates: int | None = None,
    learned_total_gates: int = 0,
    **mode: Unpack[Mode],
) -> WelchPeaksCosts:
    """The four strategies' times; infinite where one cannot or should not run.

    learned_*   a trained transform and how many of its gates are active
    """
    which = _checked(device, batch, n_fft)
    learned = Learned(learned_available, learned_active_gates, learned_total_gates)
    return _costs(**mode).strategies(which, batch, n_fft, k, learned)


def pick_welch_peaks_strategy(
    device: DeviceLike,
    batch: int,
    n_fft: int,
    k: int,
    learned_available: bool = False,
    learned_active_gates: int | None = None,
    learned_total_gates: int = 0,
    *,
    legacy: bool = False,
    **mode: Unpack[Mode],
) -> WelchPeaksStrategy:
    """The strategy with the smallest time, the first of ultra, fast, rlx, learned.

    legacy  RLX's older rule, by batch alone
    """
    learned = learned_available, learned_active_gates, learned_total_gates
    if legacy:
        return legacy_pick(_checked(device, batch, n_fft), batch, Learned(*learned))
    costs = estimate_welch_peaks_costs(device, batch, n_fft, k, *learned, **mode)
    return cheapest(costs)
