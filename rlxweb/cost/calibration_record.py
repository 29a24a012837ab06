"""Calibration record: the measurements of one engine, as plain data that JSON can hold.

Raw points, not fitted constants: models are fitted when a record is read, so a better
fit needs no new measurement. Knows neither devices nor files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rlxweb.cost.autotune_result import AutotuneResult

SCHEMA = "rlxweb.calibration/1"


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """Measured time of one kind of work or op at one size.

    what     a name of the table in `work_kinds.py`, which says what its size has;
             or the name of an op, of so many "cells" and "bytes" in so many "rows",
             with " half" or " whole" behind it where it computed such numbers
    ns       median of `samples`, or twice the fastest if that is less, per call; spread
             is interquartile range / median
    """

    what: str
    size: Mapping[str, int]
    ns: float
    spread: float = 0.0
    samples: int = 1


@dataclass(frozen=True, slots=True)
class Calibration:
    """Measurements of one engine with its identity.

    device, engine, backend, driver, rlxweb, machine: the identity; a record is used
    only where all of them are what they were. `left_out` says what was not measured
    and why; took_s is how long it took, made is the time in ISO 8601; races, in what
    order the ways to run an op ended.
    """

    device: str
    engine: str
    backend: str
    driver: str
    rlxweb: str
    machine: str
    points: tuple[MeasuredPoint, ...]
    made: str = ""
    took_s: float = 0.0
    left_out: tuple[str, ...] = ()
    races: tuple[AutotuneResult, ...] = ()

    def points_of_kind(self, kind: str) -> tuple[MeasuredPoint, ...]:
        """Return the points of one kind, in the order they were measured."""
        return tuple(p for p in self.points if p.what == kind)

    def first_ns(self, kind: str) -> float:
        """Return the time of the first point of one kind; 0 where there is none."""
        return next((p.ns for p in self.points if p.what == kind), 0.0)

    @property
    def identity(self) -> tuple[str, ...]:
        """Engine, backend, driver, rlxweb version and machine that the record belongs
        to.
        """
        return (self.engine, self.backend, self.driver, self.rlxweb, self.machine)

    def as_json(self) -> dict[str, Any]:
        """Return the record as plain data under its schema."""
        rest = asdict(self)
        points = list(rest.pop("points"))
        left_out = list(self.left_out)
        return {"schema": SCHEMA} | rest | {"left_out": left_out, "points": points}
