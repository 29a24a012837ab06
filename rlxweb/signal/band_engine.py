"""Engines that compute a band alone: of fewer samples, or its bins by one product.

What computes the estimate of fewer samples is any other engine; here the rows are made
fewer before and a part of the answer is checked after.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.backends.protocol import CPU_ENGINE
from rlxweb.device import Device
from rlxweb.digital import Digital
from rlxweb.errors import Unsupported
from rlxweb.host.bins_product import bins_power
from rlxweb.host.spec import WelchSpec
from rlxweb.host.strongest import Found, strongest_bins
from rlxweb.signal.accuracy import Way, check
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.band_plan import BandPlan, band_plans
from rlxweb.signal.compiled_engine import COMPILED, kernel_of
from rlxweb.signal.engine import BATCH_BYTES, Engine, Power, Rows
from rlxweb.signal.levels import level_rows
from rlxweb.signal.rows_there import RowsThere
from rlxweb.stopping import check_stopped

CACHED_BYTES: Final = 8 << 20
"""Rows of fewer samples that are made at once on the CPU, which then has them near."""


class OfBand:
    """An engine that gives a band's power, and searches that for peaks."""

    __slots__ = ()

    async def power(self, x: Rows, spec: WelchSpec, band: Band | None = None) -> Power:
        """See `Engine`; the chooser offers these for bands alone."""
        raise NotImplementedError

    async def strongest(
        self, x: Rows, spec: WelchSpec, k: int, band: Band | None = None
    ) -> Found:
        """See `Engine`."""
        assert band is not None
        bins, found = strongest_bins(await self.power(x, spec, band), k)
        return bins + band.first, found


@dataclass(frozen=True, slots=True)
class DecimatingEngine(OfBand):
    """Another engine, given one sample of `step`.

    max_error   what the power may be off by, relative; checked on some of the rows
    is_held     an answer that is off by more is refused
    """

    inner: Engine
    step: int
    max_error: float
    is_held: bool = True

    @property
    def device(self) -> Device:
        return self.inner.device

    @property
    def name(self) -> str:
        return self.inner.name

    async def power(self, x: Rows, spec: WelchSpec, band: Band | None = None) -> Power:
        assert band is not None  # the chooser offers it for bands alone
        if isinstance(x, RowsThere):
            raise Unsupported("a band in fewer samples", "the rows lie on a device")
        plan = self._plan(spec, band)

        async def some(rows: Any, own: WelchSpec) -> Power:
            return await self._some(rows, plan, own.n_segments, own, band)

        limit = self.max_error if self.is_held else math.inf
        await check(x, spec, band, limit, some, self._exact(spec, band))
        n_rows, width = x.shape
        most = CACHED_BYTES if self.device is Device.CPU else BATCH_BYTES
        each = max(1, self.step * most // (8 * width))
        out = np.empty((n_rows, len(band)), spec.power_dtype)
        for at in range(0, n_rows, each):
            check_stopped()
            mine = slice(at, at + each)
            part = x.rows(mine) if isinstance(x, Digital) else x[mine]
            out[mine] = await some(part, spec)
        return out

    def _exact(self, spec: WelchSpec, band: Band) -> Way | None:
        """What the answer is held against: compiled code too, where that is ready."""
        if self.inner is not COMPILED or kernel_of(spec) is None:
            return None
        return lambda rows, own: COMPILED.power(rows, own, band)

    async def _some(
        self, x: Any, plan: BandPlan, segments: int, spec: WelchSpec, band: Band
    ) -> Power:
        few = _fewer(x, plan, spec)
        own = replace(plan.spec, n_segments=segments)
        power = await self.inner.power(few, own, band)
        return np.asarray(power * plan.factor)

    def _plan(self, spec: WelchSpec, band: Band) -> BandPlan:
        plans = band_plans(spec, band, self.max_error)
        if not isinstance(plans, str):
            for plan in plans:
                if plan.filter.step == self.step:
                    return plan
            plans = f"no filter keeps every {self.step}th sample"
        raise Unsupported("a Welch estimate of a band in fewer samples", plans)

    def is_ready(
        self, shape: tuple[int, ...], spec: WelchSpec, k: int, band: Band | None = None
    ) -> bool:
        if band is None:
            return False
        own = self._plan(spec, band).spec
        few = shape[0], shape[1] // self.step
        return self.inner.is_ready(few, own, 0, band)


def _fewer(x: Any, plan: BandPlan, spec: WelchSpec) -> NDArray[Any]:
    """Rows of fewer samples, as the plan's estimate takes them."""
    if not isinstance(x, Digital):
        kind = np.float32 if plan.spec.dtype == "float32" else np.float64
        return plan.rows(np.asarray(x, kind))
    own = level_rows(x)
    few = plan.rows(own.x).astype(np.float64)
    if spec.detrend is None:
        few += own.level[:, None] * plan.filter.taps.sum()
    few *= own.gain[:, None]
    return few


@dataclass(frozen=True, slots=True)
class BinsEngine(OfBand):
    """The bins of a band by one product of matrices, in NumPy."""

    device: Device = Device.CPU
    name: str = CPU_ENGINE[0]

    async def power(self, x: Rows, spec: WelchSpec, band: Band | None = None) -> Power:
        assert band is not None
        assert not isinstance(x, RowsThere)
        rows = x.physical() if isinstance(x, Digital) else np.asarray(x)
        return bins_power(rows, spec, band.first, band.stop).astype(spec.power_dtype)

    def is_ready(
        self, shape: tuple[int, ...], spec: WelchSpec, k: int, band: Band | None = None
    ) -> bool:
        return True


BINS = BinsEngine()
