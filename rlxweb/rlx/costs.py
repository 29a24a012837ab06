"""RLX's cost functions of Welch jobs: profiles, estimates, fusion gates, the picker.

Every function has two modes. "seed" is RLX's published arithmetic, digit for digit, on
models the caller may replace; "calibrated" uses what was measured on this machine.
Times are in nanoseconds unless a name says otherwise; batch and n_fft are at least 1,
k is at least 0. Further keywords are those of `Mode`.
"""

from __future__ import annotations

import sys
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from rlxweb.arguments import whole
from rlxweb.cost.estimate import least_of
from rlxweb.cost.fusion_gate import FusionTarget
from rlxweb.cost.io_profile import GraphIoProfile
from rlxweb.cost.model import BackendCostModel, CpuCostModel
from rlxweb.cost.seed_welch import (
    GateBreakdown,
    Learned,
    Models,
    SeedCosts,
    WelchPeaksCosts,
    fused_io_scale,
    gate_profiles,
)
from rlxweb.cost.welch_params import WelchPeakParams
from rlxweb.decision.strategy import WelchPeaksStrategy, parse_welch_peaks_strategy
from rlxweb.device import Device, DeviceLike, parse_device
from rlxweb.devices.policy import legacy_picker_from_env, picker_trace_from_env
from rlxweb.errors import UsageError
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor

if TYPE_CHECKING:
    from rlxweb.rlx.calibrated_costs import MeasuredCosts
    from rlxweb.signal.learned.file import ModelLike

_PRICED = (
    WelchPeaksStrategy.ULTRA_FAST,
    WelchPeaksStrategy.FAST_STREAMING,
    WelchPeaksStrategy.RLX_COMPILED,
    WelchPeaksStrategy.LEARNED_COMPILED,
)
"""The strategies in the order of the fields of `WelchPeaksCosts`."""


def fft_only_graph(batch: int, n_fft: int, n_segments: int) -> Graph:
    """Return the graph from segments [B·S, n] f32 to their block spectrum [B·S, 2n].

    Its imaginary half is segs - segs.
    """
    graph = Graph("fft_only")
    segs = graph.input("segs", (batch * n_segments, n_fft), "f32")
    graph.set_outputs([_spectrum(graph, segs)])
    return graph


def build_welch_peaks_fused_graph(batch: int, params: WelchPeakParams) -> Graph:
    """Return `fft_only_graph` followed by welch_peaks: [B, 2k] (bin, power) pairs."""
    graph = Graph("welch_peaks_fused")
    shape = (batch * params.n_segments, params.n_fft)
    segs = graph.input("segs", shape, "f32")
    spectrum = _spectrum(graph, segs)
    graph.set_outputs([graph.welch_peaks(spectrum, params.k, params.n_segments)])
    return graph


def _spectrum(graph: Graph, segs: Tensor) -> Tensor:
    zeros = segs - segs
    return graph.apply("fft", graph.concat([segs, zeros], axis=1))


def useful_bytes_touched(batch: int, params: WelchPeakParams) -> int:
    """Return the bytes any method must touch: B·S·n samples of 4, B·k pairs of 8."""
    return batch * params.n_segments * params.n_fft * 4 + batch * params.k * 8


def algorithm_bandwidth_gbps(useful_bytes: int, time_ms: float) -> float:
    """Return GB/s; 0 for a time that is not above 0."""
    return useful_bytes / (time_ms / 1000.0) / 1e9 if time_ms > 0 else 0.0


class Mode(TypedDict, total=False):
    """Keywords that the cost functions share.

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
    """Return the estimates of a mode."""
    if cost_mode == "seed":
        return SeedCosts(cpu_model or CpuCostModel.seed(), models or {})
    if cost_mode == "calibrated":
        # It opens devices; the seed formulas need none.
        from rlxweb.rlx.calibrated_costs import MeasuredCosts

        return MeasuredCosts(adapter)
    raise UsageError("cost_mode", repr(cost_mode), "it is 'seed' or 'calibrated'")


def _learned(
    n_fft: int, available: bool | ModelLike, active: int | None, total: int
) -> Learned:
    """Return the size of a trained transform.

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
    """Return a profile's time under a model: round trip, launches, waits, bytes.

    "seed" adds a quarter of the traffic to what a discrete device reads back;
    "calibrated" counts the bytes that really come back.
    """
    return _costs(cost_mode).io_ns(io, model)


def fused_welch_peaks_auto_viable(
    device: DeviceLike, *, cost_mode: str = "seed", adapter: str = ""
) -> bool:
    """Tell whether "auto" may fuse, by RLX's list or by the device's own kernels."""
    return _costs(cost_mode, adapter=adapter).auto_viable(parse_device(device))


def estimate_fused_graph_ns(
    batch: int,
    params: WelchPeakParams,
    device: DeviceLike,
    compute_scale: float = 1.0,
    **mode: Unpack[Mode],
) -> float:
    """Return the time of the fused graph.

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
    """Return the time of 2 segments whose spectrum is searched on the host."""
    which = _checked(device, batch, n_fft, k)
    return _costs(**mode).block_ns(which, batch, n_fft, k)


def welch_peaks_fusion_io_profiles(
    batch: int, n_fft: int, k: int, device: DeviceLike
) -> tuple[GraphIoProfile, GraphIoProfile]:
    """Return the profiles that RLX's gate compares, block and fused, for 2 segments.

    On WGSL devices, CUDA and ROCm the fused one has no wait from batch 2,048 on.
    """
    return gate_profiles(_checked(device, batch, n_fft, k), batch, n_fft, k)


def fused_io_compute_scale_for_calibration(device: DeviceLike) -> float:
    """Return RLX's fitted factor from a fused graph's IO time to its whole time."""
    return fused_io_scale(parse_device(device))


def welch_peaks_fusion_target(device: DeviceLike) -> FusionTarget:
    """Return the kind of device whose gate decides."""
    return FusionTarget.of(device)


def welch_peaks_fusion_gate_breakdown(
    device: DeviceLike,
    batch: int,
    n_fft: int,
    k: int,
    **mode: Unpack[Mode],
) -> GateBreakdown:
    """Return the numbers that the device's fusion gate decides by, and its answer."""
    which = _checked(device, batch, n_fft, k)
    return _costs(**mode).gate(which, batch, n_fft, k)


def welch_peaks_io_fusion_gate(
    device: DeviceLike, batch: int, n_fft: int, k: int, **mode: Unpack[Mode]
) -> bool:
    """Tell whether the gate replaces the block by the fused graph."""
    seen = welch_peaks_fusion_gate_breakdown(device, batch, n_fft, k, **mode)
    return seen.should_fuse


def welch_peaks_fusion_compute_floor_ok(
    device: DeviceLike,
    batch: int,
    n_fft: int,
    k: int,
    **mode: Unpack[Mode],
) -> bool:
    """Tell whether the fused graph is at most 10 % slower than the block.

    15 % on CUDA and ROCm from batch 8,192 on; below batch 2,048 the answer is yes.
    """
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
    """Return the times of the four strategies; infinite where one cannot run.

    learned_*   is there a trained transform, and how many of its gates are active: by
                its file, or as numbers
    """
    which = _checked(device, batch, n_fft, k)
    gates = learned_active_gates, learned_total_gates
    learned = _learned(n_fft, learned_available, *gates)
    return _costs(**mode).strategies(which, batch, n_fft, k, learned)


def _cheapest(costs: WelchPeaksCosts) -> WelchPeaksStrategy:
    """Return the strategy with the smallest time, the first of equals."""
    return least_of(zip(_PRICED, astuple(costs), strict=True), _PRICED[0])


def _legacy_pick(device: Device, batch: int, learned: Learned) -> WelchPeaksStrategy:
    """Return the strategy by RLX's rule before it had costs: the batch decides."""
    gpu = device is not Device.CPU
    if gpu and batch >= 8_192:
        if learned.available and learned.is_sparse:
            return WelchPeaksStrategy.LEARNED_COMPILED
        return WelchPeaksStrategy.RLX_COMPILED
    if batch <= (128 if gpu else 256):
        return WelchPeaksStrategy.ULTRA_FAST
    return WelchPeaksStrategy.FAST_STREAMING


@dataclass(frozen=True, slots=True)
class WelchPeaksPickBreakdown:
    """Times of the four strategies, ns (0 under the legacy rule), and the pick."""

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
    """Pick the strategy with the smallest time and return it with all four times.

    The first of equals in the order ultra, fast, rlx, learned is taken.

    legacy  use RLX's older rule, by batch alone; None: as RLX_FFT_LEGACY_PICKER says

    RLX_FFT_PICKER_TRACE writes the pick and all times to standard error.
    """
    learned = learned_available, learned_active_gates, learned_total_gates
    if legacy_picker_from_env() if legacy is None else legacy:
        which = _checked(device, batch, n_fft, k)
        costs = WelchPeaksCosts(0.0, 0.0, 0.0, 0.0)
        picked = _legacy_pick(which, batch, _learned(n_fft, *learned))
    else:
        costs = estimate_welch_peaks_costs(device, batch, n_fft, k, *learned, **mode)
        picked = _cheapest(costs)
    pick = WelchPeaksPickBreakdown(costs, picked)
    if picker_trace_from_env():
        size = f"{parse_device(device).label}, batch {batch}, n_fft {n_fft}, k {k}"
        print(f"welch peaks on {size}: {_line(pick)}", file=sys.stderr)
    return pick


def _line(pick: WelchPeaksPickBreakdown) -> str:
    """Describe the pick and every time in one line."""
    names = all_welch_peaks_strategy_names()[1:]
    each = zip(names, astuple(pick.costs), strict=True)
    prices = ", ".join(f"{name} {ns / 1e6:.4f} ms" for name, ns in each)
    return f"{pick.picked.label} of {prices}"


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
    """Return the strategy that `pick_welch_peaks_breakdown` picks."""
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
    """Return the named strategy, or for "auto" the one that is picked.

    learned, mode   as in `pick_welch_peaks_strategy`
    """
    named = parse_welch_peaks_strategy(strategy)
    if named is not WelchPeaksStrategy.AUTO:
        return named
    return pick_welch_peaks_strategy(device, batch, n_fft, k, *learned, **mode)


def all_welch_peaks_strategy_names() -> tuple[str, ...]:
    """Return the short names of the strategies, "auto" first."""
    return ("auto", "ultra", "fast", "rlx", "learned")
