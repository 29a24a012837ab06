"""RLX's cost functions of Welch jobs: profiles, estimates, fusion gates, the picker.

Every function has two modes. "seed" is RLX's published arithmetic, digit for digit, on
models the caller may replace; "calibrated" uses what was measured on this machine.
Times are in nanoseconds unless a name says otherwise; batch and n_fft are at least 1,
k is at least 0. Further keywords are those of `Mode`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack, cast

from rlxweb.core.argument_validation import (
    check_choice,
    check_instance,
    check_option_names,
    check_optional_instance,
    coerce_bool,
    coerce_float,
    coerce_integer_from,
)
from rlxweb.core.device import Device, DeviceLike, parse_device
from rlxweb.core.environment import traces_picker, uses_legacy_picker
from rlxweb.core.errors import UsageError, shown
from rlxweb.cost.device_models import BackendCostModel, CpuCostModel
from rlxweb.cost.fusion_gate import FusionTarget
from rlxweb.cost.graph_time_estimate import cheapest_of
from rlxweb.cost.graph_traffic_counts import GraphIoProfile
from rlxweb.cost.rlx_welch_costs import (
    GateBreakdown,
    LearnedTransformSize,
    Models,
    SeedWelchCosts,
    WelchPeaksCosts,
    fused_io_scale,
    gate_profiles,
)
from rlxweb.cost.rlx_welch_presets import WelchPeakParams
from rlxweb.cost.welch_strategy_names import (
    WelchPeaksStrategy,
    parse_welch_peaks_strategy,
)
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor

if TYPE_CHECKING:
    from rlxweb.rlx.calibrated_costs import MeasuredWelchCosts
    from rlxweb.signal.learned.transform_file import ModelLike

F = TypeVar("F", bound=Callable[..., Any])

_CONTEXT: Final = "Welch costs"
_PRICED_STRATEGIES = (
    WelchPeaksStrategy.ULTRA_FAST,
    WelchPeaksStrategy.FAST_STREAMING,
    WelchPeaksStrategy.RLX_COMPILED,
    WelchPeaksStrategy.LEARNED_COMPILED,
)
"""Strategies in the order of the fields of `WelchPeaksCosts`."""


def fft_only_graph(batch: int, n_fft: int, n_segments: int) -> Graph:
    """Return the graph from segments [B·S, n] f32 to their block spectrum [B·S, 2n].

    Its imaginary half is segs - segs.
    """
    batch, n_fft = _check_sizes(batch, n_fft)
    n_segments = coerce_integer_from(1, "n_segments", n_segments, _CONTEXT)
    graph = Graph("fft_only")
    segs = graph.input("segs", (batch * n_segments, n_fft), "f32")
    graph.set_outputs([_spectrum(graph, segs)])
    return graph


def build_welch_peaks_fused_graph(batch: int, params: WelchPeakParams) -> Graph:
    """Return `fft_only_graph` followed by welch_peaks: [B, 2k] (bin, power) pairs."""
    batch, params = _check_batch_and_params(batch, params)
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
    batch, params = _check_batch_and_params(batch, params)
    return batch * params.n_segments * params.n_fft * 4 + batch * params.k * 8


def algorithm_bandwidth_gbps(useful_bytes: int, time_ms: float) -> float:
    """Return GB/s; 0 for a time that is infinite or not above 0."""
    if coerce_float("useful_bytes", useful_bytes, _CONTEXT) < 0:
        raise UsageError(_CONTEXT, f"useful_bytes is {useful_bytes}", "must be >= 0")
    if not (isinstance(time_ms, float) and math.isinf(time_ms)):  # ruled out
        time_ms = coerce_float("time_ms", time_ms, _CONTEXT)
    return useful_bytes / (time_ms / 1000.0) / 1e9 if time_ms > 0 else 0.0


class Mode(TypedDict, total=False):
    """Keyword arguments that the cost functions share.

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


def _check_keywords(function: F) -> F:
    """Decorate a function so that it names itself and a keyword that it does not
    take.
    """
    parameters = [name for name in signature(function).parameters if name != "mode"]
    known = (*parameters, *Mode.__annotations__)

    @wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        check_option_names(function.__name__, keywords, known)
        return function(*args, **keywords)

    return cast(F, call)


def _cost_estimates(
    cost_mode: str = "seed",
    cpu_model: BackendCostModel | None = None,
    models: Models | None = None,
    adapter: str = "",
) -> SeedWelchCosts | MeasuredWelchCosts:
    """Return the estimates of a mode. Raises UsageError, UnknownDevice."""
    cost_mode = check_choice("cost_mode", cost_mode, ("seed", "calibrated"), _CONTEXT)
    adapter = check_instance("adapter", adapter, str, _CONTEXT)
    cpu = check_optional_instance("cpu_model", cpu_model, BackendCostModel, _CONTEXT)
    models_by_name: object = {} if models is None else models
    if not isinstance(models_by_name, Mapping):
        rule = "expected a dict from devices to cost models"
        raise UsageError(_CONTEXT, f"models is {shown(models)}", rule)
    by_device = {
        parse_device(device): check_optional_instance(
            f"the model of {device}", model, BackendCostModel, _CONTEXT
        )
        for device, model in models_by_name.items()
    }
    if cost_mode == "seed":
        return SeedWelchCosts(cpu or CpuCostModel.seed(), by_device)
    # It opens devices; the seed formulas need none.
    from rlxweb.rlx.calibrated_costs import MeasuredWelchCosts

    return MeasuredWelchCosts(adapter)


def _learned_size(
    n_fft: int, available: bool | ModelLike, active: int | None, total: int
) -> LearnedTransformSize:
    """Return the size of a trained transform.

    Errors   UsageError for one of another length; those of its file.
    """
    if isinstance(available, bool):
        if active is not None:
            active = coerce_integer_from(0, "learned_active_gates", active, _CONTEXT)
        total = coerce_integer_from(0, "learned_total_gates", total, _CONTEXT)
        return LearnedTransformSize(available, active, total)
    from rlxweb.signal.learned.transform_file import load_learned

    transform = load_learned(available)
    if transform.n != n_fft:
        rule = f"the learned transform requires {transform.n}"
        raise UsageError(_CONTEXT, f"n_fft is {n_fft}", rule)
    return LearnedTransformSize(
        True, transform.active, transform.total, transform.share
    )


def _check_sizes(batch: int, n_fft: int) -> tuple[int, int]:
    return (
        coerce_integer_from(1, "batch", batch, _CONTEXT),
        coerce_integer_from(1, "n_fft", n_fft, _CONTEXT),
    )


def _check_batch_and_params(
    batch: int, params: WelchPeakParams
) -> tuple[int, WelchPeakParams]:
    params = check_instance("params", params, WelchPeakParams, _CONTEXT)
    return coerce_integer_from(1, "batch", batch, _CONTEXT), params


def _check_job(
    device: DeviceLike, batch: int, n_fft: int, k: int
) -> tuple[Device, int, int, int]:
    """Return the checked arguments of a job. Raises UsageError, UnknownDevice."""
    sizes = _check_sizes(batch, n_fft)
    return parse_device(device), *sizes, coerce_integer_from(0, "k", k, _CONTEXT)


def io_cost_ns(
    io: GraphIoProfile, model: BackendCostModel, *, cost_mode: str = "seed"
) -> float:
    """Return a profile's time under a model: round trip, launches, waits, bytes.

    "seed" adds a quarter of the traffic to what a discrete device reads back;
    "calibrated" counts the bytes that really come back.
    """
    io = check_instance("io", io, GraphIoProfile, _CONTEXT)
    model = check_instance("model", model, BackendCostModel, _CONTEXT)
    return _cost_estimates(cost_mode).io_ns(io, model)


def fused_welch_peaks_auto_viable(
    device: DeviceLike, *, cost_mode: str = "seed", adapter: str = ""
) -> bool:
    """Tell whether "auto" may fuse, by RLX's list or by the device's own kernels."""
    return _cost_estimates(cost_mode, adapter=adapter).can_auto_fuse(
        parse_device(device)
    )


@_check_keywords
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
    batch, params = _check_batch_and_params(batch, params)
    scale = coerce_float("compute_scale", compute_scale, _CONTEXT)
    return _cost_estimates(**mode).fused_ns(parse_device(device), batch, params, scale)


@_check_keywords
def estimate_block_welch_ns(
    batch: int,
    n_fft: int,
    k: int,
    device: DeviceLike,
    **mode: Unpack[Mode],
) -> float:
    """Return the time of 2 segments whose spectrum is searched on the host."""
    return _cost_estimates(**mode).block_ns(*_check_job(device, batch, n_fft, k))


def welch_peaks_fusion_io_profiles(
    batch: int, n_fft: int, k: int, device: DeviceLike
) -> tuple[GraphIoProfile, GraphIoProfile]:
    """Return the profiles that RLX's gate compares, block and fused, for 2 segments.

    On WGSL devices, CUDA and ROCm the fused one has no wait from batch 2,048 on.
    """
    return gate_profiles(*_check_job(device, batch, n_fft, k))


def fused_io_compute_scale_for_calibration(device: DeviceLike) -> float:
    """Return RLX's fitted factor from a fused graph's IO time to its whole time."""
    return fused_io_scale(parse_device(device))


def welch_peaks_fusion_target(device: DeviceLike) -> FusionTarget:
    """Return the kind of device whose gate decides."""
    return FusionTarget.of(device)


@_check_keywords
def welch_peaks_fusion_gate_breakdown(
    device: DeviceLike,
    batch: int,
    n_fft: int,
    k: int,
    **mode: Unpack[Mode],
) -> GateBreakdown:
    """Return the numbers that the device's fusion gate decides by, and its answer."""
    return _cost_estimates(**mode).gate_breakdown(*_check_job(device, batch, n_fft, k))


@_check_keywords
def welch_peaks_io_fusion_gate(
    device: DeviceLike, batch: int, n_fft: int, k: int, **mode: Unpack[Mode]
) -> bool:
    """Tell whether the gate replaces the block by the fused graph."""
    breakdown = welch_peaks_fusion_gate_breakdown(device, batch, n_fft, k, **mode)
    return breakdown.should_fuse


@_check_keywords
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
    return _cost_estimates(**mode).is_floor_met(*_check_job(device, batch, n_fft, k))


@_check_keywords
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
    job = _check_job(device, batch, n_fft, k)
    gates = learned_active_gates, learned_total_gates
    learned = _learned_size(n_fft, learned_available, *gates)
    return _cost_estimates(**mode).strategy_costs(*job, learned)


def _cheapest(costs: WelchPeaksCosts) -> WelchPeaksStrategy:
    """Return the strategy with the smallest time, the first of equals."""
    return cheapest_of(
        zip(_PRICED_STRATEGIES, astuple(costs), strict=True), _PRICED_STRATEGIES[0]
    )


def _legacy_pick(
    device: Device, batch: int, learned: LearnedTransformSize
) -> WelchPeaksStrategy:
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
    """Predicted times of the four strategies, ns (0 under the legacy rule), and the
    picked strategy.
    """

    costs: WelchPeaksCosts
    picked: WelchPeaksStrategy


@_check_keywords
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
    if legacy is None:
        legacy = uses_legacy_picker()
    if coerce_bool("legacy", legacy, _CONTEXT):
        parsed_device, *sizes = _check_job(device, batch, n_fft, k)
        costs = WelchPeaksCosts(0.0, 0.0, 0.0, 0.0)
        picked = _legacy_pick(parsed_device, sizes[0], _learned_size(n_fft, *learned))
    else:
        costs = estimate_welch_peaks_costs(device, batch, n_fft, k, *learned, **mode)
        picked = _cheapest(costs)
    pick = WelchPeaksPickBreakdown(costs, picked)
    if traces_picker():
        size = f"{parse_device(device).label}, batch {batch}, n_fft {n_fft}, k {k}"
        print(f"welch peaks on {size}: {_describe_pick(pick)}", file=sys.stderr)
    return pick


def _describe_pick(pick: WelchPeaksPickBreakdown) -> str:
    """Return the pick and every time in one line of text."""
    names = all_welch_peaks_strategy_names()[1:]
    costs = zip(names, astuple(pick.costs), strict=True)
    prices = ", ".join(f"{name} {ns / 1e6:.4f} ms" for name, ns in costs)
    return f"picked {pick.picked.label} from {prices}"


@_check_keywords
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


@_check_keywords
def resolve_welch_peaks_strategy(
    strategy: str | WelchPeaksStrategy,
    device: DeviceLike,
    batch: int,
    n_fft: int,
    k: int,
    *learned: Any,
    legacy: bool | None = None,
    **mode: Any,
) -> WelchPeaksStrategy:
    """Return the named strategy, or for "auto" the one that is picked.

    learned, legacy, mode   as in `pick_welch_peaks_strategy`
    """
    parsed_strategy = parse_welch_peaks_strategy(strategy)
    _check_job(device, batch, n_fft, k)
    if parsed_strategy is not WelchPeaksStrategy.AUTO:
        return parsed_strategy
    return pick_welch_peaks_strategy(
        device, batch, n_fft, k, *learned, legacy=legacy, **mode
    )


def all_welch_peaks_strategy_names() -> tuple[str, ...]:
    """Return the short names of the strategies, "auto" first."""
    return ("auto", "ultra", "fast", "rlx", "learned")
