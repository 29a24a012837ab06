"""Engines that compute a band alone, from decimated samples or by one matrix product.

What computes the estimate of fewer samples is any other engine; here the rows are made
fewer before and a part of the answer is checked after.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.adc_samples import Digital
from rlxweb.core.device import Device
from rlxweb.core.errors import Unsupported
from rlxweb.core.thread_tasks import raise_if_cancelled
from rlxweb.engines.protocol import CPU_IDENTITY
from rlxweb.ops.welch.cpu.matmul_bin_power import compute_bin_power
from rlxweb.ops.welch.cpu.strongest_bins import BinsAndPower, strongest_bins
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.signal.band_decimation_plan import BandDecimationPlan, band_decimation_plans
from rlxweb.signal.compiled_welch_engine import COMPILED_ENGINE, compiled_power_kernel
from rlxweb.signal.device_resident_rows import DeviceRows
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.integer_centering import center_integer_rows
from rlxweb.signal.spectrum_accuracy import PowerFunction, check_accuracy
from rlxweb.signal.welch_engine import MAX_BATCH_BYTES, Power, SampleRows, WelchEngine

CPU_BATCH_BYTES: Final = 8 << 20
"""Size of the decimated rows of one batch on the CPU, chosen to stay in its cache."""


class BandEngine:
    """Base of engines that compute the power of a band and search it for peaks."""

    __slots__ = ()

    async def power(
        self, x: SampleRows, spec: WelchSpec, band: BinRange | None = None
    ) -> Power:
        """Return the power of the band; the chooser offers these engines for bands
        alone.
        """
        raise NotImplementedError

    async def strongest_bins(
        self, x: SampleRows, spec: WelchSpec, k: int, band: BinRange | None = None
    ) -> BinsAndPower:
        """Return the strongest bins of the band and their power."""
        assert band is not None
        bins, bin_power = strongest_bins(await self.power(x, spec, band), k)
        return bins + band.first, bin_power


@dataclass(frozen=True, slots=True)
class DecimatingEngine(BandEngine):
    """Engine that gives another one every `step`-th sample of low-pass filtered rows.

    max_error   what the power may be off by, relative; checked on some of the rows
    enforces_max_error  an answer that is off by more is refused
    """

    inner: WelchEngine
    step: int
    max_error: float
    enforces_max_error: bool = True

    @property
    def device(self) -> Device:
        return self.inner.device

    @property
    def name(self) -> str:
        return self.inner.name

    async def power(
        self, x: SampleRows, spec: WelchSpec, band: BinRange | None = None
    ) -> Power:
        assert band is not None  # the chooser offers it for bands alone
        if isinstance(x, DeviceRows):
            raise Unsupported(
                "Welch estimate of a decimated band",
                "the samples are on a device, but must be in host memory",
            )
        plan = self._find_plan(spec, band)

        async def approximate_power(rows: Any, rows_spec: WelchSpec) -> Power:
            return await self._decimated_power(
                rows, plan, rows_spec.n_segments, rows_spec, band
            )

        limit = self.max_error if self.enforces_max_error else math.inf
        await check_accuracy(
            x, spec, band, limit, approximate_power, self._exact_power(spec, band)
        )
        n_rows, width = x.shape
        max_bytes = CPU_BATCH_BYTES if self.device is Device.CPU else MAX_BATCH_BYTES
        batch_size = max(1, self.step * max_bytes // (8 * width))
        out = np.empty((n_rows, len(band)), spec.power_dtype)
        for start in range(0, n_rows, batch_size):
            raise_if_cancelled()
            batch = slice(start, start + batch_size)
            part = x.rows(batch) if isinstance(x, Digital) else x[batch]
            out[batch] = await approximate_power(part, spec)
        return out

    def _exact_power(self, spec: WelchSpec, band: BinRange) -> PowerFunction | None:
        """Return the function whose answer is the reference of the check: compiled code
        where that is ready; None is NumPy.
        """
        if self.inner is not COMPILED_ENGINE or compiled_power_kernel(spec) is None:
            return None
        return lambda rows, rows_spec: COMPILED_ENGINE.power(rows, rows_spec, band)

    async def _decimated_power(
        self,
        x: Any,
        plan: BandDecimationPlan,
        segments: int,
        spec: WelchSpec,
        band: BinRange,
    ) -> Power:
        """Return the power of the band of some rows, computed from decimated
        samples.
        """
        decimated = _decimate_rows(x, plan, spec)
        decimated_spec = replace(plan.spec, n_segments=segments)
        power = await self.inner.power(decimated, decimated_spec, band)
        return np.asarray(power * plan.factor)

    def _find_plan(self, spec: WelchSpec, band: BinRange) -> BandDecimationPlan:
        """Return the plan of this engine's step; raise Unsupported where there is
        none.
        """
        plans = band_decimation_plans(spec, band, self.max_error)
        if not isinstance(plans, str):
            for plan in plans:
                if plan.filter.step == self.step:
                    return plan
            plans = f"decimation by {self.step} is not possible for this estimate"
        raise Unsupported("Welch estimate of a decimated band", plans)

    def is_ready(
        self,
        shape: tuple[int, ...],
        spec: WelchSpec,
        k: int,
        band: BinRange | None = None,
    ) -> bool:
        if band is None:
            return False
        decimated_spec = self._find_plan(spec, band).spec
        decimated_shape = shape[0], shape[1] // self.step
        return self.inner.is_ready(decimated_shape, decimated_spec, 0, band)


def _decimate_rows(x: Any, plan: BandDecimationPlan, spec: WelchSpec) -> NDArray[Any]:
    """Return decimated rows as the plan's estimate takes them."""
    if not isinstance(x, Digital):
        dtype = np.float32 if plan.spec.dtype == "float32" else np.float64
        return plan.decimate(np.asarray(x, dtype))
    levelled = center_integer_rows(x)
    decimated = plan.decimate(levelled.x).astype(np.float64)
    if spec.detrend is None:
        decimated += levelled.dc_level[:, None] * plan.filter.taps.sum()
    decimated *= levelled.gain[:, None]
    return decimated


@dataclass(frozen=True, slots=True)
class BinsEngine(BandEngine):
    """Engine that computes the bins of a band by one matrix product in NumPy."""

    device: Device = Device.CPU
    name: str = CPU_IDENTITY.name

    async def power(
        self, x: SampleRows, spec: WelchSpec, band: BinRange | None = None
    ) -> Power:
        assert band is not None
        assert not isinstance(x, DeviceRows)
        rows = x.physical() if isinstance(x, Digital) else np.asarray(x)
        return compute_bin_power(rows, spec, band.first, band.stop).astype(
            spec.power_dtype
        )

    def is_ready(
        self,
        shape: tuple[int, ...],
        spec: WelchSpec,
        k: int,
        band: BinRange | None = None,
    ) -> bool:
        return True


BINS_ENGINE = BinsEngine()
