"""RLX's Welch cost functions with figures measured on this machine.

They are `cost_mode="calibrated"` of `costs.py`: one traffic term, no charge for views,
the device's real kernels instead of a fixed step at some batch, no factor that favours
a device. Times are in nanoseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rlxweb.core.device import Device
from rlxweb.core.errors import DeviceError, Unsupported
from rlxweb.cost.decision import Candidate
from rlxweb.cost.device_models import BackendCostModel
from rlxweb.cost.graph_traffic_counts import GraphIoProfile
from rlxweb.cost.rlx_welch_costs import (
    GateBreakdown,
    LearnedTransformSize,
    WelchPeaksCosts,
)
from rlxweb.cost.rlx_welch_presets import WelchPeakParams
from rlxweb.engines.pool import pool
from rlxweb.select.device_and_adapter import DevicePlace
from rlxweb.signal.fused_device_strategy import has_native_kernel
from rlxweb.signal.presets import spec_from_preset
from rlxweb.signal.welch_candidates import WelchJob


@dataclass(frozen=True, slots=True)
class MeasuredWelchCosts:
    """Estimates of `SeedWelchCosts`, predicted for one adapter ("" for the best).

    Errors   DeviceError when the device cannot be opened or nothing is known of it.
    """

    adapter: str = ""

    def io_ns(self, io: GraphIoProfile, model: BackendCostModel) -> float:
        """Return the time of round trips, launches, one traffic term and read-back."""
        readback_bytes = 0 if model.unified_memory else io.host_output_bytes
        return (
            model.round_trip_overhead_ns * (1 + io.sync_points)
            + io.kernel_launches * model.dispatch_overhead_ns
            + io.device_traffic_bytes / model.memory_bw
            + readback_bytes / model.host_readback_bw
        )

    def can_auto_fuse(self, device: Device) -> bool:
        """Tell whether the device has a fused kernel for 2 segments of 256, k = 16."""
        if device is Device.CPU:
            return False
        try:
            engine = pool.engine(device.label, self.adapter)
        except DeviceError:
            return False
        return has_native_kernel(
            engine, _welch_job(1, WelchPeakParams.fast(256, 16)), fused=True
        )

    def fused_ns(
        self, device: Device, batch: int, params: WelchPeakParams, scale: float = 1.0
    ) -> float:
        """Return the time of upload, one fused kernel and read-back of the peaks.

        scale   multiplies the kernel's time
        """
        candidate = self._candidate(device, batch, params, "fused_op")
        if candidate.terms is not None:
            terms = replace(
                candidate.terms, compute_ns=candidate.terms.compute_ns * scale
            )
            candidate = replace(candidate, terms=terms)
        return candidate.predicted_ns

    def block_ns(self, device: Device, batch: int, n_fft: int, k: int) -> float:
        """Return the time of 2 segments whose spectrum is searched on the host."""
        params = WelchPeakParams.fast(n_fft, k)
        return self._candidate(device, batch, params, "block_fft_host").predicted_ns

    def gate_breakdown(
        self, device: Device, batch: int, n_fft: int, k: int
    ) -> GateBreakdown:
        """Return the predicted gain of fusing: the difference of the two times."""
        params = WelchPeakParams.fast(n_fft, k)
        fused = self.fused_ns(device, batch, params)
        block = self.block_ns(device, batch, n_fft, k)
        saved_bytes = batch * (4 * params.n_bins - 8 * params.k)
        is_faster = fused <= block
        return GateBreakdown(block - fused, 0.0, saved_bytes, 0, is_faster, is_faster)

    def is_floor_met(self, device: Device, batch: int, n_fft: int, k: int) -> bool:
        """Tell whether fusing is predicted to be faster; there is no floor."""
        return self.gate_breakdown(device, batch, n_fft, k).should_fuse

    def strategy_costs(
        self,
        device: Device,
        batch: int,
        n_fft: int,
        k: int,
        learned: LearnedTransformSize,
    ) -> WelchPeaksCosts:
        """Return the strategies' predicted times; infinite for those that cannot run.

        ultra and fast run on the CPU whatever the device; rlx takes the faster of the
        fused kernel and the spectrum read back. learned is the whole transform's time
        on the CPU by the share of its arithmetic, where that is known.
        """
        fast = WelchPeakParams.fast(n_fft, k)
        rlx = math.inf
        if device is not Device.CPU:
            block = self.block_ns(device, batch, n_fft, k)
            rlx = min(self.fused_ns(device, batch, fast), block)
        ultra = _welch_job(batch, WelchPeakParams.ultra_fast(n_fft, k)).cpu_ns()
        fast_ns = _welch_job(batch, fast).cpu_ns()
        share = learned.share if learned.available else None
        learned_ns = math.inf if share is None else share * fast_ns
        return WelchPeaksCosts(ultra, fast_ns, rlx, learned_ns)

    def _candidate(
        self, device: Device, batch: int, params: WelchPeakParams, execution: str
    ) -> Candidate:
        """Return the candidate with this execution on one device. Raises Unsupported
        without a price.
        """
        place = DevicePlace(device, self.adapter)
        pool.engine(device.label, self.adapter)  # raises where it cannot be opened
        candidates = [
            candidate
            for candidate in _welch_job(batch, params).candidates(place)
            if candidate.how == execution
        ]
        if not candidates or candidates[0].blocker:
            reason = (
                candidates[0].blocker
                if candidates
                else f"the CPU does not support {execution!r}"
            )
            raise Unsupported(
                f"predict {execution} on {place}",
                reason,
                hint="run `rlxweb calibrate` first" if candidates else "",
            )
        return candidates[0]


def _welch_job(batch: int, params: WelchPeakParams) -> WelchJob:
    """Return the Welch job of a batch with RLX's preset."""
    spec = spec_from_preset(
        "rlx", params.frame_length, nperseg=params.n_fft, dtype=np.float32
    )
    return WelchJob(spec, batch, params.frame_length, params.k)
