"""Calibration records with invented times, saved as if the engines had been
measured.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlxweb.cost.calibration_record import Calibration, MeasuredPoint
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.select.calibration.calibration_store import calibration_store
from rlxweb.select.device_and_adapter import (
    CPU_PLACE,
    DevicePlace,
    engine_identity,
    parse_place,
)

POINTS = (
    MeasuredPoint("call", {}, 1_500.0, 0.125, 11),
    MeasuredPoint("copy", {"bytes": 4_000_000}, 500_000.0, 0.5, 3),
    MeasuredPoint("cold_start", {}, 2.5e9),
)


def adapter_place(adapter: AdapterRequest) -> DevicePlace:
    """Return the place at which the command line finds an adapter of the fixture."""
    return parse_place(f"{adapter.backends[0]}:{adapter.name}")


def save_calibration(place: DevicePlace, calibration: Calibration) -> None:
    """Save the calibration as if the place had been measured."""
    record = Calibration(
        place.device.label, *engine_identity(place), calibration.points
    )
    calibration_store.save(record)


def cpu_record(**changes: Any) -> Calibration:
    """Return a record of the CPU with the identity that this process looks for."""
    record = Calibration("cpu", *engine_identity(CPU_PLACE), POINTS)
    return replace(record, made="2024-05-06T07:08:09+00:00", took_s=3.25, **changes)


def save_to_files(*records: Calibration) -> None:
    """Save records to their files and drop them from memory."""
    for record in records:
        calibration_store.save(record)
    calibration_store.clear()
