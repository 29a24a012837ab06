"""Engines that count as measured, with made-up figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlxweb.calibration.store import store
from rlxweb.cost.record import Calibration, Point
from rlxweb.devices.place import CPU, Place, identity_of, parse_place
from rlxweb.gpu.port import Want

POINTS = (
    Point("call", {}, 1_500.0, 0.125, 11),
    Point("copy", {"bytes": 4_000_000}, 500_000.0, 0.5, 3),
    Point("cold_start", {}, 2.5e9),
)


def place_of(adapter: Want) -> Place:
    """The place where the command line finds an adapter of the fixture."""
    return parse_place(f"{adapter.backends[0]}:{adapter.name}")


def know(place: Place, figures: Calibration) -> None:
    """Keep `figures` as if the place had been measured."""
    known = Calibration(place.device.label, *identity_of(place), figures.points)
    store.save(known)


def cpu_record(**more: Any) -> Calibration:
    """A record of the CPU, as this process would look for it."""
    one = Calibration("cpu", *identity_of(CPU), POINTS)
    return replace(one, made="2024-05-06T07:08:09+00:00", took_s=3.25, **more)


def keep(*records: Calibration) -> None:
    """Keep records in their files, and nowhere else."""
    for record in records:
        store.save(record)
    store.forget()
