"""The calibration of an engine: from memory, from its file, or measured now.

Measuring unasked is said in one line on standard error, and RLX_CALIBRATION=off forbids
it. Adapters that several devices open share one record. One engine is measured at a
time: two would spoil each other's figures.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from rlxweb.calibration.kernels import Job
from rlxweb.calibration.measure import (
    Progress,
    calibrate,
    complete_points,
    identity_of,
    no_progress,
)
from rlxweb.calibration.store import store
from rlxweb.cost.record import Calibration
from rlxweb.device import DeviceLike, parse_device
from rlxweb.devices.place import Place
from rlxweb.devices.policy import calibration_mode_from_env
from rlxweb.errors import Unsupported

Jobs = Callable[[Place], Iterable[Job]]
_measuring = threading.RLock()


def may_measure() -> bool:
    """Is measuring unasked allowed?"""
    return calibration_mode_from_env() == "lazy"


def known_record(device: DeviceLike, adapter: str = "") -> Calibration | None:
    """The record of an engine if there is one; never measures.

    Errors   DeviceError when the device cannot be opened.
    """
    return store.load(identity_of(Place(parse_device(device), adapter)))


def record_for(
    device: DeviceLike, adapter: str = "", jobs: Jobs | None = None, what: str = ""
) -> Calibration:
    """The record of an engine, measured and kept if there was none.

    jobs     what else to measure; a record that lacks their kinds is completed, where
             that is allowed
    what     the kind of points the caller needs; a record that lacks them and could not
             get them from the jobs is made anew
    Errors   DeviceError when the device cannot be opened or is lost; Unsupported when
             there is no record and measuring unasked is forbidden.
    """
    with _measuring:
        return _record_for(Place(parse_device(device), adapter), jobs, what)


def _record_for(place: Place, jobs: Jobs | None, what: str) -> Calibration:
    known = store.load(identity_of(place))
    wanted = list(jobs(place)) if known is not None and jobs is not None else []
    had = {p.what for p in known.points} if known is not None else set()
    complete = all(job.what in had for job in wanted)
    if known is not None and may_measure() and what and what not in had:
        if what not in {job.what for job in wanted}:
            known = None  # cut short when it was made
    if known is not None and (complete or not may_measure()):
        for job in wanted:
            job.close()
        return known
    if not may_measure():
        raise Unsupported(
            f"the calibration of {place}",
            "it was never measured, and RLX_CALIBRATION=off forbids measuring unasked",
            hint="run `rlxweb calibrate`",
        )
    _say(place)
    if known is not None:
        record = complete_points(known, wanted)
    else:
        record = calibrate(place, jobs)
    store.save(record)
    return record


def measure_now(
    place: Place,
    jobs: Jobs | None = None,
    *,
    budget_s: float = 10.0,
    progress: Progress = no_progress,
) -> tuple[Calibration, Path | None]:
    """Measure whatever was known, keep it, and say where: `rlxweb calibrate`."""
    record = calibrate(place, jobs, budget_s=budget_s, progress=progress)
    return record, store.save(record)


def _say(place: Place) -> None:
    name = identity_of(place)[0]
    kept = f"; kept in {store.folder}" if store.folder is not None else ""
    print(
        f"rlxweb: measuring {name} as '{place}' once, a few seconds{kept}",
        file=sys.stderr,
        flush=True,
    )
