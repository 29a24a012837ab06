"""Strategy "learned": Welch power by a transform trained for the job (`model=`).

"auto" takes it only within a `max_error` that the model keeps; asked for by name it is
used, and held to a few times the error that it was tested with. Part of every answer is
compared with the exact one: recordings unlike those it was trained on are refused, not
computed wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from rlxweb.core.adc_samples import Digital
from rlxweb.core.device import Device
from rlxweb.core.errors import DeviceError, Unsupported
from rlxweb.core.thread_tasks import raise_if_cancelled
from rlxweb.cost.decision import Candidate, Terms
from rlxweb.cost.welch_model import WelchModel
from rlxweb.cost.welch_strategy_names import WelchPeaksStrategy
from rlxweb.engines.engine_caches import engine_caches
from rlxweb.engines.pool import pool
from rlxweb.engines.protocol import CPU_IDENTITY
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.select.calibration.engine_calibration_lookup import (
    engine_calibration,
    fit_cached,
)
from rlxweb.select.device_and_adapter import DevicePlace
from rlxweb.signal.accuracy_check_cost import accuracy_check_terms
from rlxweb.signal.band_engine import BandEngine
from rlxweb.signal.cpu_welch_strategies import cpu_model
from rlxweb.signal.device_resident_rows import DeviceRows
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.fused_device_strategy import POINT_KINDS
from rlxweb.signal.learned.gated_fft import PrunedFftProgram
from rlxweb.signal.learned.transform import (
    LearnedTransform,
    band_power_by_numpy,
    band_power_graph,
)
from rlxweb.signal.spectrum_accuracy import check_accuracy
from rlxweb.signal.welch_engine import (
    NUMPY_ENGINE,
    Power,
    SampleRows,
    WelchEngine,
    device_batch_rows,
)
from rlxweb.signal.welch_strategy import WelchEstimate, WelchStrategy

STRATEGY_NAME: Final = "learned"
_NO_MODEL_REASON: Final = "a trained model is required (model=FILE)"
_ERROR_FACTOR: Final = 10.0
"""Factor from the tested error to the error limit; the tested error is a mean over many
recordings.
"""
_WORST_ERROR_FACTOR: Final = 2.0
_MIN_ERROR_LIMIT: Final = 1e-4
_LAUNCH_COUNT: Final = 4
# A graph of several ops, where the estimate has a kernel of its own.
_COMPOSED_SLOWDOWN: Final = 4.0


@dataclass(frozen=True, slots=True)
class LearnedEngine(BandEngine):
    """Engine that runs a pruned FFT program in NumPy on the CPU, or as a graph on a
    device.

    limit    largest relative error of the power on the rows that are checked
    """

    program: PrunedFftProgram
    limit: float
    device: Device = Device.CPU
    adapter: str = ""

    @property
    def name(self) -> str:
        if self.device is Device.CPU:
            return CPU_IDENTITY.name
        return pool.engine(self.device.label, self.adapter).name

    async def power(
        self, x: SampleRows, spec: WelchSpec, band: BinRange | None = None
    ) -> Power:
        assert band is not None  # the chooser offers it for bands alone
        if isinstance(x, DeviceRows):
            raise Unsupported(
                "learned transform",
                "the samples are on a device, but must be in host memory",
            )

        async def batch_power(rows: Any, spec: WelchSpec) -> Power:
            x = rows.physical() if isinstance(rows, Digital) else np.asarray(rows)
            if x.dtype != np.float64:
                x = x.astype(np.float32, copy=False)
            if self.device is Device.CPU:
                return band_power_by_numpy(x, spec, self.program, band)
            return await self._graph_power(x, spec, band)

        await check_accuracy(x, spec, band, self.limit, batch_power)
        out = np.empty((x.shape[0], len(band)), spec.power_dtype)
        step = device_batch_rows(spec, x.shape[1])
        for start in range(0, len(out), step):
            raise_if_cancelled()
            rows = slice(start, start + step)
            batch = x.rows(rows) if isinstance(x, Digital) else x[rows]
            out[rows] = await batch_power(batch, spec)
        return out

    async def _graph_power(self, x: Any, spec: WelchSpec, band: BinRange) -> Power:
        """Compute the power of a batch of rows by the compiled graph on the device."""
        from rlxweb.runtime.session import Session

        engine = await pool.engine_async(self.device.label, self.adapter)
        key = self._cache_key(x.shape, spec, band)
        caches = engine_caches(engine)
        async with caches.run_lock:
            compiled = caches.programs.get(key)
            if compiled is None:
                session = Session(self.device, adapter=self.adapter, strict=True)
                graph = band_power_graph(x.shape, spec, self.program, band)
                compiled = await session.compiled(graph)
                nbytes = compiled.nbytes + 8 * spec.nperseg
                caches.programs.put(key, compiled, nbytes)
                caches.programs.evict()
            (power,) = await compiled.computed({"x": x}, strict=True)
        return np.asarray(power)

    def _cache_key(
        self, shape: tuple[int, ...], spec: WelchSpec, band: BinRange
    ) -> Any:
        """Return the program cache key of a batch of this shape."""
        return STRATEGY_NAME, shape, spec, self.program, band

    def is_ready(
        self,
        shape: tuple[int, ...],
        spec: WelchSpec,
        k: int,
        band: BinRange | None = None,
    ) -> bool:
        if self.device is Device.CPU or band is None:
            return band is not None
        rows = min(shape[0], device_batch_rows(spec, shape[1]))
        engine = pool.engine(self.device.label, self.adapter)
        key = self._cache_key((rows, shape[1]), spec, band)
        return key in engine_caches(engine).programs


def _candidates(estimate: WelchEstimate, place: DevicePlace) -> Iterator[Candidate]:
    """Yield the candidate of the learned strategy at a place, priced or blocked."""
    model, is_cpu = estimate.model, place.device is Device.CPU
    engine = NUMPY_ENGINE.name
    if not is_cpu:
        try:
            engine = pool.engine(place.device.label, place.adapter).name
        except DeviceError:
            return  # "fused" says why
    template = Candidate(place.device, engine, STRATEGY_NAME, adapter=place.adapter)
    if model is None:
        if estimate.k and not is_cpu:
            yield replace(template, blocker=_NO_MODEL_REASON)
        return
    reason = _blocking_reason(estimate, model, is_cpu)
    terms = None if reason else _predicted_terms(estimate, model, place)
    if isinstance(terms, str):
        reason, terms = terms, None
    cpu_cost_model, source = cpu_model()
    yield replace(
        template,
        how="host" if is_cpu else "graph",
        terms=terms,
        error=cpu_cost_model.error,
        source=source,
        blocker=reason,
        off=model.error,
    )


def _blocking_reason(
    estimate: WelchEstimate, model: LearnedTransform, is_cpu: bool
) -> str:
    """Return the reason why the model cannot compute the estimate; "" if it can."""
    spec = estimate.spec
    if estimate.strategy == "auto" and estimate.max_error < model.error:
        limit_text = (
            f"above max_error {estimate.max_error:g}"
            if estimate.max_error
            else "but without max_error no error is allowed"
        )
        return f"the error of the model is {model.error:.2g}, {limit_text}"
    if estimate.is_on_device:
        return "the samples are on a device, but must be in host memory"
    if spec.average != "mean":
        return f"average='{spec.average}' needs the full spectrum, not individual bins"
    if is_cpu:
        return ""
    if spec.is_digital:
        return "only the CPU supports integer samples"
    return estimate.host_only_reason


def _predicted_terms(
    estimate: WelchEstimate, model: LearnedTransform, place: DevicePlace
) -> Terms | str:
    """Predict the run time from that of the full transform and the relative arithmetic
    cost.

    A text says why there is no prediction.
    """
    size, check_cost = replace(estimate.size, k=0), accuracy_check_terms(estimate)
    if place.device is Device.CPU:
        return cpu_model()[0].terms(size).slowed(model.share).plus(check_cost)
    prices = engine_calibration(place, POINT_KINDS)
    if isinstance(prices, str):
        return prices
    full_terms = fit_cached(prices.record, _device_model).terms(
        replace(size, launches=_LAUNCH_COUNT)
    )
    return full_terms.slowed(_COMPOSED_SLOWDOWN * model.share).plus(check_cost)


def _device_model(record: object) -> WelchModel:
    """Return the Welch cost model of a device, fitted to a calibration."""
    return WelchModel(record, how="welch_fused")  # type: ignore[arg-type]


def _create_engine(
    candidate: Candidate, estimate: WelchEstimate | None = None
) -> WelchEngine:
    """Return the engine that runs a learned candidate."""
    assert estimate is not None
    model = estimate.model
    assert model is not None  # without one it is blocked
    default_limit = max(
        _MIN_ERROR_LIMIT, _ERROR_FACTOR * model.error, _WORST_ERROR_FACTOR * model.worst
    )
    limit = estimate.max_error or default_limit
    return LearnedEngine(model.program, limit, candidate.device, candidate.adapter)


LEARNED = WelchStrategy(
    STRATEGY_NAME,
    WelchPeaksStrategy.LEARNED_COMPILED,
    runs_on_host=None,
    candidates=_candidates,
    make_engine=_create_engine,
)
