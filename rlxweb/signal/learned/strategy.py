"""The strategy "learned": a transform that was trained for the job (`model=`).

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

from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import CPU_ENGINE
from rlxweb.calibration.known import fitted, priced
from rlxweb.cost.welch_model import WelchModel
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.strategy import WelchPeaksStrategy
from rlxweb.decision.terms import Terms
from rlxweb.device import Device
from rlxweb.devices.place import Place
from rlxweb.digital import Digital
from rlxweb.errors import DeviceError, Unsupported
from rlxweb.host.spec import WelchSpec
from rlxweb.signal.accuracy import check
from rlxweb.signal.band_engine import OfBand
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.check_price import check_terms
from rlxweb.signal.engine import NUMPY, Engine, Power, Rows, batch_rows
from rlxweb.signal.learned.network import Program
from rlxweb.signal.learned.transform import (
    LearnedTransform,
    power_graph,
    power_in_numpy,
)
from rlxweb.signal.on_device import POINTS
from rlxweb.signal.on_host import host_model
from rlxweb.signal.rows_there import RowsThere
from rlxweb.signal.ways import Strategy, WelchEstimate
from rlxweb.stopping import check_stopped

NAME: Final = "learned"
_NO_MODEL: Final = "it needs a trained model of the transform (model=)"
_TIMES_ERROR: Final = 10.0
"""The limit of the error, in errors of the test: a mean over many recordings."""
_TIMES_WORST: Final = 2.0
_LEAST_LIMIT: Final = 1e-4
_LAUNCHES: Final = 4
# A graph of several ops, where the estimate has a kernel of its own.
_COMPOSED: Final = 4.0


@dataclass(frozen=True, slots=True)
class LearnedEngine(OfBand):
    """A program on the CPU in NumPy, or as a graph on a device.

    limit    largest relative error of the power on the rows that are checked
    """

    program: Program
    limit: float
    device: Device = Device.CPU
    adapter: str = ""

    @property
    def name(self) -> str:
        if self.device is Device.CPU:
            return CPU_ENGINE[0]
        return pool.backend(self.device.label, self.adapter).name

    async def power(self, x: Rows, spec: WelchSpec, band: Band | None = None) -> Power:
        assert band is not None  # the chooser offers it for bands alone
        if isinstance(x, RowsThere):
            raise Unsupported("a learned transform", "the rows lie on a device")

        async def some(rows: Any, spec: WelchSpec) -> Power:
            x = rows.physical() if isinstance(rows, Digital) else np.asarray(rows)
            if x.dtype != np.float64:
                x = x.astype(np.float32, copy=False)
            if self.device is Device.CPU:
                return power_in_numpy(x, spec, self.program, band)
            return await self._on_device(x, spec, band)

        await check(x, spec, band, self.limit, some)
        out = np.empty((x.shape[0], len(band)), spec.power_dtype)
        step = batch_rows(spec, x.shape[1])
        for at in range(0, len(out), step):
            check_stopped()
            rows = slice(at, at + step)
            part = x.rows(rows) if isinstance(x, Digital) else x[rows]
            out[rows] = await some(part, spec)
        return out

    async def _on_device(self, x: Any, spec: WelchSpec, band: Band) -> Power:
        """Compute the power of a batch of rows by the graph."""
        from rlxweb.runtime.session import Session

        backend = await pool.backend_async(self.device.label, self.adapter)
        key = self._key(x.shape, spec, band)
        async with backend.turn:
            compiled = backend.kept.get(key)
            if compiled is None:
                session = Session(self.device, adapter=self.adapter, strict=True)
                graph = power_graph(x.shape, spec, self.program, band)
                compiled = await session.compiled(graph)
                nbytes = compiled.nbytes + 8 * spec.nperseg
                backend.kept.put(key, compiled, nbytes)
                backend.kept.trim()
            (power,) = await compiled.computed({"x": x}, strict=True)
        return np.asarray(power)

    def _key(self, shape: tuple[int, ...], spec: WelchSpec, band: Band) -> Any:
        return NAME, shape, spec, self.program, band

    def is_ready(
        self, shape: tuple[int, ...], spec: WelchSpec, k: int, band: Band | None = None
    ) -> bool:
        if self.device is Device.CPU or band is None:
            return band is not None
        rows = min(shape[0], batch_rows(spec, shape[1]))
        kept = pool.backend(self.device.label, self.adapter).kept
        return self._key((rows, shape[1]), spec, band) in kept


def _ways(estimate: WelchEstimate, place: Place) -> Iterator[Candidate]:
    model, is_cpu = estimate.model, place.device is Device.CPU
    engine = NUMPY.name
    if not is_cpu:
        try:
            engine = pool.backend(place.device.label, place.adapter).name
        except DeviceError:
            return  # "fused" says why
    blank = Candidate(place.device, engine, NAME, adapter=place.adapter)
    if model is None:
        if estimate.k and not is_cpu:
            yield replace(blank, blocker=_NO_MODEL)
        return
    reason = _blocker(estimate, model, is_cpu)
    terms = None if reason else _terms(estimate, model, place)
    if isinstance(terms, str):
        reason, terms = terms, None
    host, source = host_model()
    yield replace(
        blank,
        how="host" if is_cpu else "graph",
        terms=terms,
        error=host.error,
        source=source,
        blocker=reason,
        off=model.error,
    )


def _blocker(estimate: WelchEstimate, model: LearnedTransform, is_cpu: bool) -> str:
    """Return why it does not compute the estimate; "" where it may."""
    spec = estimate.spec
    if estimate.strategy == "auto" and estimate.max_error < model.error:
        most = f"{estimate.max_error:g}" if estimate.max_error else "not given"
        return f"its error is {model.error:.2g}, and max_error is {most}"
    if estimate.is_there:
        return "the samples lie on a device already"
    if spec.average != "mean":
        return f"average='{spec.average}' is computed from whole spectra"
    if is_cpu:
        return ""
    if spec.is_digital:
        return "integers are transformed by it on the CPU only"
    return estimate.only_on_host


def _terms(
    estimate: WelchEstimate, model: LearnedTransform, place: Place
) -> Terms | str:
    """Predict its time from the whole transform's, by the share of its arithmetic.

    A text says why there is no prediction.
    """
    size, checked = replace(estimate.size, k=0), check_terms(estimate)
    if place.device is Device.CPU:
        return host_model()[0].terms(size).slowed(model.share).plus(checked)
    have = priced(place, POINTS)
    if isinstance(have, str):
        return have
    whole = fitted(have.record, _device_model).terms(replace(size, launches=_LAUNCHES))
    return whole.slowed(_COMPOSED * model.share).plus(checked)


def _device_model(record: object) -> WelchModel:
    return WelchModel(record, how="welch_fused")  # type: ignore[arg-type]


def _engine(way: Candidate, estimate: WelchEstimate | None = None) -> Engine:
    assert estimate is not None
    model = estimate.model
    assert model is not None  # without one it is blocked
    usual = max(_LEAST_LIMIT, _TIMES_ERROR * model.error, _TIMES_WORST * model.worst)
    limit = estimate.max_error or usual
    return LearnedEngine(model.program, limit, way.device, way.adapter)


LEARNED = Strategy(
    NAME,
    WelchPeaksStrategy.LEARNED_COMPILED,
    on_host=None,
    ways=_ways,
    engine=_engine,
)
