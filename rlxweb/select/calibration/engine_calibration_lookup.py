"""Lookup of an engine's calibration: stored, measured on demand or assumed, or the
reason why there is none.

Records come from memory, from their file, or are measured now, when a job is worth it.
Measuring unasked is said in one line on standard error, and RLX_CALIBRATION=off forbids
it. Adapters that several devices open share one record. One engine is measured at a
time: two would spoil each other's figures.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rlxweb.core.device import Device, DeviceLike, parse_device
from rlxweb.core.environment import calibration_mode
from rlxweb.core.errors import CalibrationWarning, DeviceError, MustAwait, Unsupported
from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.cost.calibration_record import Calibration
from rlxweb.cost.work_kinds import assumed_cpu, assumed_gpu
from rlxweb.engines.pool import pool
from rlxweb.gpu.coroutine_runner import can_block, can_wait, is_browser
from rlxweb.select.calibration.calibration_store import calibration_store
from rlxweb.select.calibration.profitability import ProfitabilityPolicy
from rlxweb.select.device_and_adapter import CPU_PLACE, DevicePlace, engine_identity

T = TypeVar("T")
PointKinds = tuple[str, ...]
"""Kinds of measured points, any one of which suffices."""
_measure_lock = ForkSafeLock()

UNMEASURED_REASON = (
    "this software driver runs on the CPU cores and was not measured yet"
    + ("" if is_browser() else "; run `rlxweb calibrate` to measure it")
)
LAZY_BUDGET_S = 4.0
"""Seconds after which no further measurement is begun that nobody requested."""
CANNOT_WAIT_REASON = (
    "in a browser without JSPI (JavaScript Promise Integration), blocking code cannot "
    "wait for a GPU; await the function whose name ends in _async"
)


@dataclass(frozen=True, slots=True)
class EngineCalibration:
    """Calibration of an engine and its source: "calibrated" or "assumed"."""

    record: Calibration
    source: str


def engine_calibration(
    place: DevicePlace, point_kinds: PointKinds
) -> EngineCalibration | str:
    """Return the measured, or else the assumed calibration of an engine; or the reason
    why there is neither.

    Errors   DeviceError when the place cannot be opened.
    """
    if place.device is Device.CPU:
        return cpu_calibration(point_kinds)
    if not can_wait() and _needs_event_loop(place):
        return CANNOT_WAIT_REASON
    measured = _measured_calibration(place, point_kinds)
    if measured is not None:
        return measured
    if _is_software(place):
        return UNMEASURED_REASON
    return EngineCalibration(assumed_gpu(), "assumed")


def _needs_event_loop(place: DevicePlace) -> bool:
    """Return whether the engine answers only when the event loop runs."""
    if place.device is Device.CPU:
        return False
    try:
        return pool.engine(place.device.label, place.adapter).waits
    except MustAwait:
        return True


def _is_software(place: DevicePlace) -> bool:
    """Return whether the engine is a software driver on the CPU's cores."""
    if place.device is Device.CPU:
        return False
    return pool.engine(place.device.label, place.adapter).identity.software


def _can_replace_cpu(place: DevicePlace, point_kinds: PointKinds) -> bool:
    """Return whether the engine could be priced, and so be chosen instead of the
    CPU.
    """
    if place.device is Device.CPU:
        return False
    record = known_record(place)
    return not _is_software(place) or (
        record is not None and _has_points(record, point_kinds)
    )


def cpu_calibration(point_kinds: PointKinds) -> EngineCalibration:
    """Return the measured, or else the assumed calibration of the CPU."""
    return _measured_calibration(CPU_PLACE, point_kinds) or EngineCalibration(
        assumed_cpu(is_browser()), "assumed"
    )


def _measured_calibration(
    place: DevicePlace, point_kinds: PointKinds
) -> EngineCalibration | None:
    """Return the measured calibration if it has the points needed."""
    record = known_record(place)
    if record is None or not _has_points(record, point_kinds):
        return None
    return EngineCalibration(record, "calibrated")


def _has_points(record: Calibration, point_kinds: PointKinds) -> bool:
    """Return whether a record has points of one of the kinds."""
    return not point_kinds or any(record.points_of_kind(kind) for kind in point_kinds)


_model_cache: dict[tuple[int, object], tuple[Calibration, Any]] = {}


def fit_cached(record: Calibration, fit: Callable[[Calibration], T]) -> T:
    """Return `fit(record)`, cached for as long as the record lives."""
    key = (id(record), fit)
    entry = _model_cache.get(key)
    if entry is None or entry[0] is not record:
        if len(_model_cache) > 128:
            _model_cache.clear()
        entry = _model_cache[key] = (record, fit(record))
    value: T = entry[1]
    return value


def is_measuring_allowed() -> bool:
    """Return whether measuring that nobody requested is allowed."""
    return calibration_mode() == "lazy"


def known_record(place: DevicePlace) -> Calibration | None:
    """Return the record of an engine if there is one; never measure.

    Errors   DeviceError when the place cannot be opened.
    """
    return calibration_store.load(engine_identity(place))


def record_for(
    device: DeviceLike, adapter: str = "", point_kinds: PointKinds = (), **options: Any
) -> Calibration:
    """Return the record of an engine; measure and store it if there is none.

    point_kinds  what the caller needs; a record that lacks it (it was cut short when it
                 was made) is made anew, where that is allowed
    options  the keywords of `calibrate`
    Errors   DeviceError when the device cannot be opened or is lost; Unsupported when
             there is no record and measuring unasked is forbidden.
    """
    place = DevicePlace(parse_device(device), adapter)
    with _measure_lock:
        record = calibration_store.load(engine_identity(place))
        if record is not None and (
            _has_points(record, point_kinds) or not is_measuring_allowed()
        ):
            return record
        if not is_measuring_allowed():
            raise Unsupported(
                f"load the calibration of {place}",
                "the device was never measured, and RLX_CALIBRATION=off disables "
                "automatic measurement",
                hint="run `rlxweb calibrate`",
            )
        name = engine_identity(place)[0]
        storage_note = (
            f"; the result is saved in {calibration_store.folder}"
            if calibration_store.folder is not None
            else ""
        )
        print(
            f"rlxweb: measuring the speed of {name} as device '{place}' once, "
            f"for a few seconds"
            f"{storage_note}",
            file=sys.stderr,
            flush=True,
        )
        return measure_now(place, **options)[0]


def measure_now(place: DevicePlace, **options: Any) -> tuple[Calibration, Path | None]:
    """Measure an engine even if it has a record, store the record, and return its path.

    options  the keywords of `calibrate`
    """
    from rlxweb.select.calibration.measure_engine import (
        calibrate,  # loaded when there is need
    )

    record = calibrate(place, **options)
    return record, calibration_store.save(record)


def measure_if_profitable(
    places: Sequence[DevicePlace],
    needed_points: Callable[[DevicePlace], PointKinds],
    cpu_ns: float,
    profitability: ProfitabilityPolicy,
) -> None:
    """Calibrate the engines that lack the requested points, once the work justifies it.

    needed_points  what a place must have
    cpu_ns  what the job at hand would take on the CPU
    An engine that cannot be measured is warned about once and stays what it was. A
    software driver is left alone: it shares the CPU's cores, seldom wins against them,
    and would keep everybody waiting for many seconds. Where nothing else is there that
    could win against the CPU, its own figures would decide nothing: none are taken.
    """
    if not profitability.should_measure(cpu_ns) or not is_measuring_allowed():
        return
    if not any(_can_replace_cpu(place, needed_points(place)) for place in places):
        return
    for place in places:
        if not can_block() and _needs_event_loop(place):
            continue  # measuring blocks
        point_kinds = needed_points(place)
        record = known_record(place)
        # Where it did not work out once, it would cost seconds again.
        if (record and _has_points(record, point_kinds)) or (
            place,
            point_kinds,
        ) in profitability.attempted:
            continue
        profitability.attempted.add((place, point_kinds))
        try:
            if _is_software(place):
                continue
            record_for(place.device, place.adapter, point_kinds, budget_s=LAZY_BUDGET_S)
        except DeviceError as error:
            message = f"{place} could not be measured: {error}"
            warnings.warn(message, CalibrationWarning, stacklevel=3)
