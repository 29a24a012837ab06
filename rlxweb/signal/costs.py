"""What a Welch job costs, in RLX's words: profiles, estimates, gates, the picker.

Every function answers in two modes. "seed" is RLX's published arithmetic, digit for
digit, on models the caller may replace; "calibrated" is what this machine measured.
Times are nanoseconds unless a name says otherwise; batch and n_fft are at least 1, k is
at least 0.
Keywords beyond those of a function are those of `Mode`.
"""

from __future__ import annotations

import sys
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from rlxweb.arguments import whole
from rlxweb.cost.fusion_gate import FusionTarget
from rlxweb.cost.io_profile import GraphIoProfile
from rlxweb.cost.model import BackendCostModel, CpuCostModel
from rlxweb.decision.strategy import WelchPeaksStrategy, parse_welch_peaks_strategy
from rlxweb.device import Device, DeviceLike, parse_device
from rlxweb.devices.policy import legacy_picker_from_env, picker_trace_from_env
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
    fused_io_scale,
    gate_profiles,
    host_fft_peaks_io_profile,
    legacy_pick,
    useful_bytes_touched,
)
from rlxweb.rlx.welch_params import DEFAULT_PEAK_K, WelchPeakParams

if TYPE_CHECKING:
    from rlxweb.signal.calibrated_costs import MeasuredCosts
    from rlxweb.signal.learned.file import ModelLike

__all__ = [
    "DEFAULT_PEAK_K",
    "GateBreakdown",
    "Mode",
    "WelchPeakParams",
    "WelchPeaksCostEstimates",
    "WelchPeaksCosts",
    "WelchPeaksFusionGateBreakdown",
    "WelchPeaksPickBreakdown",
    "WelchPeaksPickMode",
    "WelchPeaksStrategy",
    "algorithm_bandwidth_gbps",
    "all_welch_peaks_strategy_names",
    "ayala_io_cost_ns",
    "build_welch_peaks_fused_graph",
    "estimate_block_welch_ns",
    "estimate_fused_graph_ns",
    "estimate_welch_peaks_costs",
    "fft_only_graph",
    "fused_io_compute_scale_for_calibration",
    "fused_welch_peaks_auto_viable",
    "host_fft_peaks_io_profile",
    "io_cost_ns",
    "parse_welch_peaks_strategy",
    "pick_welch_peaks_breakdown",
    "pick_welch_peaks_strategy",
    "resolve_welch_peaks_strategy",
    "rustfft_peaks_io_profile",
    "useful_bytes_touched",
    "welch_peaks_fusion_compute_floor_ok",
    "welch_peaks_fusion_gate_breakdown",
    "welch_peaks_fusion_io_profiles",
    "welch_peaks_fusion_target",
    "welch_peaks_io_fusion_gate",
]


class Mode(TypedDict, total=False):
    """Whose figures answer: the keywords that the functions below share.

    cost_mode  "seed", the default, or "calibrated"
    cpu_model  in place of RLX's constants of the CPU; "seed" only, as models
    models     the same by device; None as a value: the device has no model and RLX's
               discrete fallback is used. MLX's serves ANE, that of "gpu" all of WGSL
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


def _learned(
    n_fft: int, available: bool | ModelLike, active: int | None, total: int
) -> Learned:
    """What is known of a trained transform.

    Errors   UsageError for one of another length; those of its file.
    """
    if isinstance(available, bool):
        return Learned(available, active, total)
    from rlxweb.signal.learned.file import load_learned

    own = load_learned(available)
    if own.n != n_fft:
        rule = f"the transform is one of {own.n}"
        raise UsageError("Welch costs", f"n_fft is {n_fft}", rule)
    return Learned(True, own.active, own.total, own.share)


def _checked(device: DeviceLike, batch: int, n_fft: int, k: int = 1) -> Device:
    for name, value, least in (("batch", batch, 1), ("n_fft", n_fft, 1), ("k", k, 0)):
        if whole(name, value, "Welch costs") < least:
            raise UsageError("Welch costs", f"{name} is {value}", f"at least {least}")
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
    which = _checked(device, batch, n_fft, k)
    return _costs(**mode).block_ns(which, batch, n_fft, k)


def welch_peaks_fusion_io_profiles(
    batch: int, n_fft: int, k: int, device: DeviceLike
) -> tuple[GraphIoProfile, GraphIoProfile]:
    """What RLX's gate compares: the block's profile and the fused graph's, 2 segments.

    On shaders, CUDA and ROCm the fused one waits for nobody from batch 2,048 on.
    """
    return gate_profiles(_checked(device, batch, n_fft, k), batch, n_fft, k)


def fused_io_compute_scale_for_calibration(device: DeviceLike) -> float:
    """RLX's fitted factor from the fused graph's IO time to its whole time."""
    return fused_io_scale(parse_device(device))


def welch_peaks_fusion_target(device: DeviceLike) -> FusionTarget:
    """The kind of device whose gate decides."""
    return FusionTarget.of(device)


def welch_peaks_fusion_gate_breakdown(
    device: DeviceLike,
    batch: int,
    n_fft: int,
    k: int,
    **mode: Unpack[Mode],
) -> GateBreakdown:
    """What the fusion gate of the device sees, and what it says."""
    which = _checked(device, batch, n_fft, k)
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
    which = _checked(device, batch, n_fft, k)
    return _costs(**mode).floor_ok(which, batch, n_fft, k)


def estimate_welch_peaks_costs(
    device: DeviceLike,
    batch: int,
    n_fft: int,
    k: int,
    learned_available: bool | ModelLike = False,
    learned_active_gates: int | None = None,
    learned_total_gates: int = 0,
    **mode: Unpack[Mode],
) -> WelchPeaksCosts:
    """The four strategies' times; infinite where one cannot or should not run.

    learned_*   is there a trained transform, and how many of its gates are active: by
                its file, or as numbers
    """
    which = _checked(device, batch, n_fft, k)
    gates = learned_active_gates, learned_total_gates
    learned = _learned(n_fft, learned_available, *gates)
    return _costs(**mode).strategies(which, batch, n_fft, k, learned)


@dataclass(frozen=True, slots=True)
class WelchPeaksPickBreakdown:
    """The four strategies' times, ns (0 under the legacy rule), and which is taken."""

    costs: WelchPeaksCosts
    picked: WelchPeaksStrategy


def pick_welch_peaks_breakdown(
    device: DeviceLike,
    batch: int,
    n_fft: int,
    k: int,
    learned_available: bool | ModelLike = False,
    learned_active_gates: int | None = None,
    learned_total_gates: int = 0,
    *,
    legacy: bool | None = None,
    **mode: Unpack[Mode],
) -> WelchPeaksPickBreakdown:
    """The smallest time, the first of ultra, fast, rlx, learned, with all four.

    legacy  RLX's older rule, by batch alone; left out: RLX_FFT_LEGACY_PICKER says.
    RLX_FFT_PICKER_TRACE writes what is picked, and from what, to standard error.
    """
    learned = learned_available, learned_active_gates, learned_total_gates
    if legacy_picker_from_env() if legacy is None else legacy:
        which = _checked(device, batch, n_fft, k)
        costs = WelchPeaksCosts(0.0, 0.0, 0.0, 0.0)
        picked = legacy_pick(which, batch, _learned(n_fft, *learned))
    else:
        costs = estimate_welch_peaks_costs(device, batch, n_fft, k, *learned, **mode)
        picked = cheapest(costs)
    found = WelchPeaksPickBreakdown(costs, picked)
    if picker_trace_from_env():
        size = f"{parse_device(device).label}, batch {batch}, n_fft {n_fft}, k {k}"
        print(f"welch peaks on {size}: {_told(found)}", file=sys.stderr)
    return found


def _told(found: WelchPeaksPickBreakdown) -> str:
    """In one line: what was taken and every price."""
    names = all_welch_peaks_strategy_names()[1:]
    each = zip(names, astuple(found.costs), strict=True)
    prices = ", ".join(f"{name} {ns / 1e6:.4f} ms" for name, ns in each)
    return f"{found.picked.label} of {prices}"


def pick_welch_peaks_strategy(
    device: DeviceLike,
    batch: int,
    n_fft: int,
    k: int,
    learned_available: bool | ModelLike = False,
    learned_active_gates: int | None = None,
    learned_total_gates: int = 0,
    *,
    legacy: bool | None = None,
    **mode: Unpack[Mode],
) -> WelchPeaksStrategy:
    """The strategy that `pick_welch_peaks_breakdown` takes."""
    learned = learned_available, learned_active_gates, learned_total_gates
    return pick_welch_peaks_breakdown(
        device, batch, n_fft, k, *learned, legacy=legacy, **mode
    ).picked


def resolve_welch_peaks_strategy(
    strategy: str | WelchPeaksStrategy,
    device: DeviceLike,
    batch: int,
    n_fft: int,
    k: int,
    *learned: Any,
    **mode: Any,
) -> WelchPeaksStrategy:
    """The strategy that is named, or for "auto" the one that is picked.

    learned, mode   as `pick_welch_peaks_strategy` has them
    """
    named = parse_welch_peaks_strategy(strategy)
    if named is not WelchPeaksStrategy.AUTO:
        return named
    return pick_welch_peaks_strategy(device, batch, n_fft, k, *learned, **mode)


def all_welch_peaks_strategy_names() -> tuple[str, ...]:
    """The short names of the strategies, "auto" first."""
    return ("auto", "ultra", "fast", "rlx", "learned")


# RLX's names of the same things.
ayala_io_cost_ns = io_cost_ns
rustfft_peaks_io_profile = host_fft_peaks_io_profile
WelchPeaksCostEstimates = WelchPeaksCosts
WelchPeaksFusionGateBreakdown = GateBreakdown
WelchPeaksPickMode = WelchPeaksStrategy
