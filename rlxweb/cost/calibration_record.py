"""Calibration records: what was measured of an engine.

Also the results of autotuning: the kernels of an op timed against each other. Plain
data, which knows no device and no kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rlxweb.ir.op import Types

# --- Autotuning results, and which of them is nearest to a job


@dataclass(frozen=True, slots=True)
class AutotuneResult:
    """Measured variants of one op at one size.

    size    rows and their width: those of the first input
    ways    variants that computed right, with ns a run, the fastest first; the op's own
            kernel goes by the op's name
    wrong   variants that did not: name and reason
    table   `KernelTable.id` of the variants; results of another table do not count
    """

    op: str
    size: tuple[int, int]
    ways: tuple[tuple[str, float], ...]
    wrong: tuple[tuple[str, str], ...] = ()
    table: str = ""

    def __str__(self) -> str:
        """Describe the result in words: "softmax 4,096 × 1,024: in registers, 1.8 × as
        fast as softmax".
        """
        head = f"{self.op} {self.size[0]:,} × {self.size[1]:,}"
        if not self.ways:
            return f"{head}: no variant succeeded"
        (fastest, fastest_ns), *others = self.ways
        parts = [f"{ns / fastest_ns:.2g} × as fast as {name}" for name, ns in others]
        return f"{head}: {'; '.join([fastest, *parts])}"


def rows_and_width(inputs: Types) -> tuple[int, int]:
    """Return the rows and the width of an op's first input, which key its autotuning
    results.
    """
    first = inputs[0]
    width = first.shape[-1] if first.shape else 1
    return (first.numel // width if width else 0), width


def nearest_result(
    results: Sequence[AutotuneResult], op: str, inputs: Types
) -> AutotuneResult | None:
    """Return the autotuning result of an op whose size is nearest, in octaves of both
    numbers.
    """
    op_results = [result for result in results if result.op == op]
    if not op_results or not inputs:
        return None
    rows, width = rows_and_width(inputs)

    def distance(result: AutotuneResult) -> float:
        return _octave_distance(result.size[0], rows) + _octave_distance(
            result.size[1], width
        )

    return min(op_results, key=distance)


def _octave_distance(a: int, b: int) -> float:
    return abs(math.log2(max(a, 1) / max(b, 1)))


# --- Calibration record
#
# Raw points, not fitted constants: models are fitted when a record is read, so a
# better fit needs no new measurement. Knows neither devices nor files.

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
