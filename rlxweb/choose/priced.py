"""What is known of an engine's speed: measured, or else assumed, or a reason why not.

Measuring an engine for the first time happens here, when a job is worth it, and says so
in one line. Knows no job: callers say which kind of points they need.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlxweb.backends.pool import pool
from rlxweb.calibration.known import Jobs, known_record, may_measure, record_for
from rlxweb.calibration.worth import Worth
from rlxweb.cost.assumed import assumed_cpu, assumed_gpu
from rlxweb.cost.fusion_gate import (
    FusionTarget,
    IoFusionGate,
    io_fusion_gate_for_target,
)
from rlxweb.cost.model import CpuCostModel, WgpuCostModel
from rlxweb.cost.record import Calibration
from rlxweb.device import Device
from rlxweb.devices.place import Place
from rlxweb.errors import CalibrationWarning, DeviceError, UsageError
from rlxweb.gpu.drive import can_block, can_wait, in_a_tab

UNMEASURED = "software on the CPU's own cores and not measured; " + (
    "enough work measures it" if in_a_tab() else "`rlxweb calibrate` measures it"
)


@dataclass(frozen=True, slots=True)
class Priced:
    """An engine's record and where it comes from: "calibrated" or "assumed"."""

    record: Calibration
    source: str


CANNOT_WAIT = (
    "blocking code cannot wait for a GPU here (no JSPI); call the _async variant"
)


def priced(place: Place, what: str) -> Priced | str:
    """What is known, or else assumed, of an engine's `what` points; or why neither.

    Errors   DeviceError when the place cannot be opened.
    """
    if place.device is not Device.CPU and not can_wait():
        return CANNOT_WAIT
    known = known_record(place.device, place.adapter)
    if known is not None and known.of(what):
        return Priced(known, "calibrated")
    if place.device is Device.CPU:
        return Priced(assumed_cpu(in_a_tab()), "assumed")
    backend = pool.backend(place.device.label, place.adapter)
    if getattr(getattr(backend, "facts", None), "software", False):
        return UNMEASURED
    return Priced(assumed_gpu(), "assumed")


def measure_if_worth_it(
    places: Sequence[Place],
    what: Callable[[Place], str],
    cpu_ns: float,
    worthwhile: Worth,
    jobs: Jobs | None = None,
) -> None:
    """Calibrate the engines that lack the points asked for, once there is need.

    what    the kind of points a place must have
    cpu_ns  what the job at hand would take on the CPU
    jobs    measured too, for points that only a higher room can make
    An engine that cannot be measured is warned about once and stays what it was.
    """
    if not worthwhile.measuring(cpu_ns) or not may_measure():
        return
    for place in places:
        if place.device is not Device.CPU and not can_block():
            continue  # measuring blocks
        known = known_record(place.device, place.adapter)
        if known is not None and known.of(what(place)):
            continue
        kind = what(place)
        if (place, kind) in worthwhile.tried:
            continue  # it did not work out once, and would cost seconds again
        worthwhile.tried.add((place, kind))
        try:
            record_for(place.device, place.adapter, jobs, kind)
        except DeviceError as error:
            warnings.warn(
                f"{place} could not be measured: {error}",
                CalibrationWarning,
                stacklevel=3,
            )


def gate_of(place: Place, cost_mode: str = "calibrated") -> IoFusionGate | None:
    """What fusing must gain on an engine: measured prices, or RLX's constants.

    None where nothing was measured: the engine's own assumptions stand then.
    Errors   UsageError for an unknown cost_mode.
    """
    if cost_mode == "seed":
        return io_fusion_gate_for_target(FusionTarget.of(place.device))
    if cost_mode != "calibrated":
        raise UsageError("cost_mode", repr(cost_mode), "it is 'seed' or 'calibrated'")
    record = known_record(place.device, place.adapter)
    if record is None:
        return None
    model = CpuCostModel if place.device is Device.CPU else WgpuCostModel
    return IoFusionGate.calibrated(model.from_record(record, place.device))
