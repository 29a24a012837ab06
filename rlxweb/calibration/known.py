"""What is known of an engine's speed: measured, or else assumed, or a reason why not.

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

from rlxweb.backends.pool import pool
from rlxweb.calibration.store import store
from rlxweb.calibration.worth import Worth
from rlxweb.cost.kinds import assumed_cpu, assumed_gpu
from rlxweb.cost.record import Calibration
from rlxweb.device import Device, DeviceLike, parse_device
from rlxweb.devices.place import CPU, Place, identity_of
from rlxweb.devices.policy import calibration_mode_from_env
from rlxweb.errors import CalibrationWarning, DeviceError, MustAwait, Unsupported
from rlxweb.forked import ForkLock
from rlxweb.gpu.drive import can_block, can_wait, in_a_tab

T = TypeVar("T")
Points = tuple[str, ...]
"""Kinds of measured points, any one of which will do."""
_measuring = ForkLock()

UNMEASURED = "software on the CPU's own cores and not measured" + (
    "" if in_a_tab() else "; `rlxweb calibrate` measures it"
)
UNASKED_S = 4.0
"""Seconds after which no further measurement is begun where nobody asked for any."""
CANNOT_WAIT = (
    "blocking code cannot wait for a GPU here (no JSPI); call the _async variant"
)


@dataclass(frozen=True, slots=True)
class Priced:
    """An engine's record and where it comes from: "calibrated" or "assumed"."""

    record: Calibration
    source: str


def priced(place: Place, points: Points) -> Priced | str:
    """What is known, or else assumed, of an engine; or why neither.

    Errors   DeviceError when the place cannot be opened.
    """
    if place.device is Device.CPU:
        return priced_cpu(points)
    if not can_wait() and _waits(place):
        return CANNOT_WAIT
    measured = _measured(place, points)
    if measured is not None:
        return measured
    if _is_software(place):
        return UNMEASURED
    return Priced(assumed_gpu(), "assumed")


def _waits(place: Place) -> bool:
    """Does the engine answer only when the event loop turns?"""
    if place.device is Device.CPU:
        return False
    try:
        return pool.backend(place.device.label, place.adapter).waits
    except MustAwait:
        return True


def _is_software(place: Place) -> bool:
    on_cpu = place.device is Device.CPU
    return not on_cpu and pool.backend(place.device.label, place.adapter).software


def _is_rival(place: Place, kinds: Points) -> bool:
    """Could it be priced, and so be picked in place of the CPU?"""
    if place.device is Device.CPU:
        return False
    known = known_record(place)
    return not _is_software(place) or (known is not None and _has(known, kinds))


def priced_cpu(points: Points) -> Priced:
    """The same of the CPU, of which something can always be said."""
    return _measured(CPU, points) or Priced(assumed_cpu(in_a_tab()), "assumed")


def _measured(place: Place, points: Points) -> Priced | None:
    known = known_record(place)
    if known is None or not _has(known, points):
        return None
    return Priced(known, "calibrated")


def _has(record: Calibration, points: Points) -> bool:
    return not points or any(record.of(what) for what in points)


_fitted: dict[tuple[int, object], tuple[Calibration, Any]] = {}


def fitted(record: Calibration, make: Callable[[Calibration], T]) -> T:
    """`make(record)`, kept as long as the record is."""
    key = (id(record), make)
    found = _fitted.get(key)
    if found is None or found[0] is not record:
        if len(_fitted) > 128:
            _fitted.clear()
        found = _fitted[key] = (record, make(record))
    value: T = found[1]
    return value


def may_measure() -> bool:
    """Is measuring unasked allowed?"""
    return calibration_mode_from_env() == "lazy"


def known_record(place: Place) -> Calibration | None:
    """The record of an engine if there is one; never measures.

    Errors   DeviceError when the place cannot be opened.
    """
    return store.load(identity_of(place))


def record_for(
    device: DeviceLike, adapter: str = "", points: Points = (), **how: Any
) -> Calibration:
    """The record of an engine, measured and kept if there was none.

    points   what the caller needs; a record that lacks it (it was cut short when it was
             made) is made anew, where that is allowed
    how      the keywords of `calibrate`
    Errors   DeviceError when the device cannot be opened or is lost; Unsupported when
             there is no record and measuring unasked is forbidden.
    """
    place = Place(parse_device(device), adapter)
    with _measuring:
        known = store.load(identity_of(place))
        if known is not None and (_has(known, points) or not may_measure()):
            return known
        if not may_measure():
            raise Unsupported(
                f"the calibration of {place}",
                "it was never measured, and RLX_CALIBRATION=off forbids measuring "
                "unasked",
                hint="run `rlxweb calibrate`",
            )
        name = identity_of(place)[0]
        kept = f"; kept in {store.folder}" if store.folder is not None else ""
        print(
            f"rlxweb: measuring {name} as '{place}' once, a few seconds{kept}",
            file=sys.stderr,
            flush=True,
        )
        return measure_now(place, **how)[0]


def measure_now(place: Place, **how: Any) -> tuple[Calibration, Path | None]:
    """Measure whatever was known, keep it, and say where: `rlxweb calibrate`.

    how   the keywords of `calibrate`
    """
    from rlxweb.calibration.measure import calibrate  # loaded when there is need

    record = calibrate(place, **how)
    return record, store.save(record)


def measure_if_worth_it(
    places: Sequence[Place],
    points: Callable[[Place], Points],
    cpu_ns: float,
    worthwhile: Worth,
) -> None:
    """Calibrate the engines that lack the points asked for, once there is need.

    points  what a place must have
    cpu_ns  what the job at hand would take on the CPU
    An engine that cannot be measured is warned about once and stays what it was. A
    software driver is left alone: it shares the CPU's cores, seldom wins against them,
    and would keep everybody waiting for many seconds. Where nothing else is there that
    could win against the CPU, its own figures would decide nothing: none are taken.
    """
    if not worthwhile.measuring(cpu_ns) or not may_measure():
        return
    if not any(_is_rival(place, points(place)) for place in places):
        return
    for place in places:
        if not can_block() and _waits(place):
            continue  # measuring blocks
        kinds = points(place)
        known = known_record(place)
        # Where it did not work out once, it would cost seconds again.
        if (known and _has(known, kinds)) or (place, kinds) in worthwhile.tried:
            continue
        worthwhile.tried.add((place, kinds))
        try:
            if _is_software(place):
                continue
            record_for(place.device, place.adapter, kinds, budget_s=UNASKED_S)
        except DeviceError as error:
            said = f"{place} could not be measured: {error}"
            warnings.warn(said, CalibrationWarning, stacklevel=3)
