"""The strategy "learned": a transform that was trained for the job, where one is given.

"auto" takes it only within a `max_error` that the model keeps; asked for by name it is
used, and held to a few times the error that it was tested with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from rlxweb.backends.pool import pool
from rlxweb.calibration.known import fitted, priced
from rlxweb.cost.welch_model import WelchModel
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.strategy import WelchPeaksStrategy
from rlxweb.decision.terms import Terms
from rlxweb.device import Device
from rlxweb.devices.place import Place
from rlxweb.errors import DeviceError
from rlxweb.signal.check_price import check_terms
from rlxweb.signal.engine import NUMPY, Engine
from rlxweb.signal.learned.engines import LearnedEngine
from rlxweb.signal.learned.transform import LearnedTransform
from rlxweb.signal.on_device import POINTS
from rlxweb.signal.on_host import host_model
from rlxweb.signal.ways import Strategy, WelchEstimate

NAME: Final = "learned"
NO_MODEL: Final = "it needs a trained model of the transform (model=)"
_MORE: Final = 10.0
"""Times its own error, a mean over recordings: not each has as much."""
_MORE_THAN_WORST: Final = 2.0
_LEAST: Final = 1e-4
_LAUNCHES: Final = 4
# A graph of several ops, where the estimate has a kernel of its own.
_COMPOSED: Final = 4.0


def limit_of(estimate: WelchEstimate) -> float:
    """The error that part of an answer is held to."""
    assert estimate.model is not None
    own = estimate.model
    usual = max(_LEAST, _MORE * own.error, _MORE_THAN_WORST * own.worst)
    return estimate.max_error or usual


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
            yield replace(blank, blocker=NO_MODEL)
        return
    reason = _blocker(estimate, model, is_cpu)
    terms = None if reason else _terms(estimate, place)
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
    """Why it does not compute the estimate; "" where it may."""
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


def _terms(estimate: WelchEstimate, place: Place) -> Terms | str:
    """What it takes: the whole transform's time, by the share of its arithmetic."""
    assert estimate.model is not None
    share = estimate.model.share
    size = replace(estimate.size, k=0)
    checked = check_terms(estimate)
    if place.device is Device.CPU:
        return host_model()[0].terms(size).slowed(share).plus(checked)
    have = priced(place, POINTS)
    if isinstance(have, str):
        return have
    model = fitted(have.record, _device_model)
    size = replace(size, launches=_LAUNCHES)
    return model.terms(size).slowed(_COMPOSED * share).plus(checked)


def _device_model(record: object) -> WelchModel:
    return WelchModel(record, how="welch_fused")  # type: ignore[arg-type]


def _engine(way: Candidate, estimate: WelchEstimate | None = None) -> Engine:
    assert estimate is not None
    assert estimate.model is not None  # without one it is blocked
    limit = limit_of(estimate)
    return LearnedEngine(estimate.model, limit, way.device, way.adapter)


LEARNED = Strategy(
    NAME,
    WelchPeaksStrategy.LEARNED_COMPILED,
    on_host=None,
    ways=_ways,
    engine=_engine,
)
