"""RLX's Welch cost functions answered by what was measured on this machine.

The same names as in `costs.py`, which sends `cost_mode="calibrated"` here. One traffic
term, no charge for views, the device's real kernels instead of a fixed step at some
batch, and nothing to make one device win. Times are nanoseconds.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from rlxweb.backends.pool import pool
from rlxweb.cost.io_profile import GraphIoProfile
from rlxweb.cost.model import BackendCostModel
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.strategy import WelchPeaksStrategy
from rlxweb.device import Device, DeviceLike, parse_device
from rlxweb.devices.place import CPU, Place
from rlxweb.errors import DeviceError, Unsupported
from rlxweb.rlx.seed_costs import GateBreakdown, WelchPeaksCosts
from rlxweb.rlx.welch_params import WelchPeakParams
from rlxweb.signal.offers import WelchJob, fits
from rlxweb.signal.presets import from_preset


def io_cost_ns(io: GraphIoProfile, model: BackendCostModel) -> float:
    """Round trips, launches, one traffic term and the bytes that really come back."""
    back = 0 if model.unified_memory else io.host_output_bytes
    return (
        model.round_trip_overhead_ns * (1 + io.sync_points)
        + io.kernel_launches * model.dispatch_overhead_ns
        + io.device_traffic_bytes / model.memory_bw
        + back / model.host_readback_bw
    )


def estimate_fused_graph_ns(
    batch: int,
    params: WelchPeakParams,
    device: DeviceLike,
    compute_scale: float = 1.0,
    adapter: str = "",
) -> float:
    """Rows up, one fused kernel, peaks back; compute_scale scales the kernel.

    Errors   DeviceError when the device cannot be opened or nothing is known of it.
    """
    one = _way(batch, params, device, adapter, "fused_op")
    if compute_scale == 1.0 or one.terms is None:
        return one.predicted_ns
    terms = replace(one.terms, compute_ns=one.terms.compute_ns * compute_scale)
    return replace(one, terms=terms).predicted_ns


def estimate_block_welch_ns(
    batch: int, n_fft: int, k: int, device: DeviceLike, adapter: str = ""
) -> float:
    """Two segments: the spectrum comes back and the host searches it."""
    params = WelchPeakParams.fast(n_fft, k)
    return _way(batch, params, device, adapter, "block_fft_host").predicted_ns


def welch_peaks_fusion_gate_breakdown(
    device: DeviceLike, batch: int, n_fft: int, k: int, adapter: str = ""
) -> GateBreakdown:
    """What fusing wins by prediction: the difference of the two ways' times."""
    params = WelchPeakParams.fast(n_fft, k)
    fused = _way(batch, params, device, adapter, "fused_op").predicted_ns
    block = _way(batch, params, device, adapter, "block_fft_host").predicted_ns
    wins = fused <= block
    return GateBreakdown(
        score_ns=block - fused,
        min_gain_ns=0.0,
        readback_saved_bytes=batch * (4 * params.n_bins - 8 * params.k),
        sync_points_saved=0,
        should_fuse_io=wins,
        should_fuse=wins,
    )


def welch_peaks_fusion_compute_floor_ok(
    device: DeviceLike, batch: int, n_fft: int, k: int, adapter: str = ""
) -> bool:
    """There is no floor to pass: the predicted times are compared as they are."""
    return welch_peaks_fusion_gate_breakdown(
        device, batch, n_fft, k, adapter
    ).should_fuse


def welch_peaks_io_fusion_gate(
    device: DeviceLike, batch: int, n_fft: int, k: int, adapter: str = ""
) -> bool:
    """Is the fused way predicted to be no slower?"""
    return welch_peaks_fusion_gate_breakdown(
        device, batch, n_fft, k, adapter
    ).should_fuse


def fused_welch_peaks_auto_viable(device: DeviceLike, adapter: str = "") -> bool:
    """Has the device a fused kernel of its own (for 2 segments of 256, k = 16)?"""
    which = parse_device(device)
    if which is Device.CPU:
        return False
    try:
        backend = pool.backend(which.label, adapter)
    except DeviceError:
        return False
    return fits(backend, _job(1, WelchPeakParams.fast(256, 16)), fused=True)


def estimate_welch_peaks_costs(
    device: DeviceLike,
    batch: int,
    n_fft: int,
    k: int,
    learned_available: bool = False,
    learned_active_gates: int | None = None,
    learned_total_gates: int = 0,
    adapter: str = "",
) -> WelchPeaksCosts:
    """Predicted times of the strategies; infinite for those that cannot run.

    ultra and fast run on the CPU whatever the device; rlx takes the faster of the fused
    kernel and the spectrum read back. learned has no code to run and is infinite.
    """
    fast = WelchPeakParams.fast(n_fft, k)
    ultra = WelchPeakParams.ultra_fast(n_fft, k)
    rlx = math.inf
    if parse_device(device) is not Device.CPU:
        ways = ("fused_op", "block_fft_host")
        rlx = min(_way(batch, fast, device, adapter, w).predicted_ns for w in ways)
    return WelchPeaksCosts(
        ultra_ns=_host_ns(batch, ultra),
        fast_ns=_host_ns(batch, fast),
        rlx_ns=rlx,
        learned_ns=math.inf,
    )


def pick_welch_peaks_strategy(
    device: DeviceLike, batch: int, n_fft: int, k: int, **learned: Any
) -> WelchPeaksStrategy:
    """The fastest of the four, in RLX's order among equals."""
    costs = estimate_welch_peaks_costs(device, batch, n_fft, k, **learned)
    times = {
        WelchPeaksStrategy.ULTRA_FAST: costs.ultra_ns,
        WelchPeaksStrategy.FAST_STREAMING: costs.fast_ns,
        WelchPeaksStrategy.RLX_COMPILED: costs.rlx_ns,
        WelchPeaksStrategy.LEARNED_COMPILED: costs.learned_ns,
    }
    return min(times, key=lambda s: times[s])


def _job(batch: int, params: WelchPeakParams) -> WelchJob:
    spec = from_preset(
        "rlx", params.frame_length, nperseg=params.n_fft, dtype=np.float32
    )
    return WelchJob(spec, batch, params.frame_length, params.k)


def _host_ns(batch: int, params: WelchPeakParams) -> float:
    return next(
        c.predicted_ns for c in _job(batch, params).offers(CPU) if c.strategy == "fast"
    )


def _way(
    batch: int, params: WelchPeakParams, device: DeviceLike, adapter: str, how: str
) -> Candidate:
    """One way on one device. Errors  AdapterMissing; Unsupported without a price."""
    place = Place(parse_device(device), adapter)
    pool.backend(place.device.label, adapter)  # raises where it cannot be opened
    found = [c for c in _job(batch, params).offers(place) if c.how == how]
    if not found or found[0].blocker:
        reason = found[0].blocker if found else "the CPU averages on the host"
        raise Unsupported(
            f"predict {how} on {place}", reason, hint="run `rlxweb calibrate` first"
        )
    return found[0]
