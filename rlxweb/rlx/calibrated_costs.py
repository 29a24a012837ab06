"""RLX's Welch cost functions on figures measured on this machine.

They are `cost_mode="calibrated"` of `costs.py`: one traffic term, no charge for views,
the device's real kernels instead of a fixed step at some batch, no factor that favours
a device. Times are in nanoseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rlxweb.backends.pool import pool
from rlxweb.cost.io_profile import GraphIoProfile
from rlxweb.cost.model import BackendCostModel
from rlxweb.cost.seed_welch import GateBreakdown, Learned, WelchPeaksCosts
from rlxweb.cost.welch_params import WelchPeakParams
from rlxweb.decision.candidate import Candidate
from rlxweb.device import Device
from rlxweb.devices.place import Place
from rlxweb.errors import DeviceError, Unsupported
from rlxweb.signal.offers import WelchJob
from rlxweb.signal.on_device import fits
from rlxweb.signal.presets import from_preset


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """The estimates of `SeedCosts`, predicted for one adapter ("" for the best).

    Errors   DeviceError when the device cannot be opened or nothing is known of it.
    """

    adapter: str = ""

    def io_ns(self, io: GraphIoProfile, model: BackendCostModel) -> float:
        """Return the time of round trips, launches, one traffic term and read-back."""
        back = 0 if model.unified_memory else io.host_output_bytes
        return (
            model.round_trip_overhead_ns * (1 + io.sync_points)
            + io.kernel_launches * model.dispatch_overhead_ns
            + io.device_traffic_bytes / model.memory_bw
            + back / model.host_readback_bw
        )

    def auto_viable(self, device: Device) -> bool:
        """Tell whether the device has a fused kernel for 2 segments of 256, k = 16."""
        if device is Device.CPU:
            return False
        try:
            backend = pool.backend(device.label, self.adapter)
        except DeviceError:
            return False
        return fits(backend, _job(1, WelchPeakParams.fast(256, 16)), fused=True)

    def fused_ns(
        self, device: Device, batch: int, params: WelchPeakParams, scale: float = 1.0
    ) -> float:
        """Return the time of upload, one fused kernel and read-back of the peaks.

        scale   multiplies the kernel's time
        """
        one = self._way(device, batch, params, "fused_op")
        if one.terms is not None:
            terms = replace(one.terms, compute_ns=one.terms.compute_ns * scale)
            one = replace(one, terms=terms)
        return one.predicted_ns

    def block_ns(self, device: Device, batch: int, n_fft: int, k: int) -> float:
        """Return the time of 2 segments whose spectrum is searched on the host."""
        params = WelchPeakParams.fast(n_fft, k)
        return self._way(device, batch, params, "block_fft_host").predicted_ns

    def gate(self, device: Device, batch: int, n_fft: int, k: int) -> GateBreakdown:
        """Return the predicted gain of fusing: the difference of the two times."""
        params = WelchPeakParams.fast(n_fft, k)
        fused = self.fused_ns(device, batch, params)
        block = self.block_ns(device, batch, n_fft, k)
        saved, wins = batch * (4 * params.n_bins - 8 * params.k), fused <= block
        return GateBreakdown(block - fused, 0.0, saved, 0, wins, wins)

    def floor_ok(self, device: Device, batch: int, n_fft: int, k: int) -> bool:
        """Tell whether fusing is predicted to be faster; there is no floor."""
        return self.gate(device, batch, n_fft, k).should_fuse

    def strategies(
        self, device: Device, batch: int, n_fft: int, k: int, learned: Learned
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
        ultra = _job(batch, WelchPeakParams.ultra_fast(n_fft, k)).cpu_ns()
        whole = _job(batch, fast).cpu_ns()
        share = learned.share if learned.available else None
        sparse = math.inf if share is None else share * whole
        return WelchPeaksCosts(ultra, whole, rlx, sparse)

    def _way(
        self, device: Device, batch: int, params: WelchPeakParams, how: str
    ) -> Candidate:
        """Return one way on one device. Errors  Unsupported without a price."""
        place = Place(device, self.adapter)
        pool.backend(device.label, self.adapter)  # raises where it cannot be opened
        found = [c for c in _job(batch, params).offers(place) if c.how == how]
        if not found or found[0].blocker:
            reason = found[0].blocker if found else "the CPU averages on the host"
            raise Unsupported(
                f"predict {how} on {place}", reason, hint="run `rlxweb calibrate` first"
            )
        return found[0]


def _job(batch: int, params: WelchPeakParams) -> WelchJob:
    spec = from_preset(
        "rlx", params.frame_length, nperseg=params.n_fft, dtype=np.float32
    )
    return WelchJob(spec, batch, params.frame_length, params.k)
