"""A calibration: what was measured on one engine, as plain data that JSON can hold.

Raw points, not fitted constants: models are fitted when a record is read, so a better
fit needs no new measurement. Knows neither devices nor files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlxweb.errors import InputError

SCHEMA = "rlxweb.calibration/1"


@dataclass(frozen=True, slots=True)
class Point:
    """One measured thing.

    what     "submit" (empty submit and wait) · "dispatch" (one more kernel) · "copy" ·
             "upload" · "readback" (size: bytes) · "call" (one more NumPy call) ·
             "elementwise" (bytes moved, flops) · "matmul" (m, k, n) · "fft" (n, rows) ·
             "welch_host" · "welch_fused" · "welch_block" (n, segments, rows, k) ·
             "compile" (one shader) · "cold_start" (open the device and run once)
    ns       median over `samples`, per call; spread is interquartile range / median
    """

    what: str
    size: Mapping[str, int]
    ns: float
    spread: float = 0.0
    samples: int = 1


@dataclass(frozen=True, slots=True)
class Calibration:
    """Everything measured on one engine.

    device, engine, backend, driver, rlxweb, machine: the identity; a record is used
    only where all of them are what they were. `left_out` says what was not measured
    and why; took_s is how long it took, made is the time in ISO 8601.
    """

    device: str
    engine: str
    backend: str
    driver: str
    rlxweb: str
    machine: str
    points: tuple[Point, ...]
    made: str = ""
    took_s: float = 0.0
    left_out: tuple[str, ...] = field(default=())

    def of(self, what: str) -> tuple[Point, ...]:
        """The points of one kind, in the order they were measured."""
        return tuple(p for p in self.points if p.what == what)

    @property
    def identity(self) -> tuple[str, ...]:
        return (self.engine, self.backend, self.driver, self.rlxweb, self.machine)

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "device": self.device,
            "engine": self.engine,
            "backend": self.backend,
            "driver": self.driver,
            "rlxweb": self.rlxweb,
            "machine": self.machine,
            "made": self.made,
            "took_s": self.took_s,
            "left_out": list(self.left_out),
            "points": [
                {
                    "what": p.what,
                    "size": dict(p.size),
                    "ns": p.ns,
                    "spread": p.spread,
                    "samples": p.samples,
                }
                for p in self.points
            ],
        }


# OverflowError: JSON knows numbers that no int or float holds.
_NOT_OURS = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
_WELCH = ("n", "segments", "rows", "k")
_SIZES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("copy", "upload", "readback"), ("bytes",)),
    **dict.fromkeys(("welch_host", "welch_fused", "welch_block"), _WELCH),
    "elementwise": ("bytes", "flops"),
    "matmul": ("m", "k", "n"),
    "fft": ("n", "rows"),
}
_TEXTS = ("device", "engine", "backend", "driver", "rlxweb", "machine", "made")


def from_json(document: Any) -> Calibration:
    """The record of a JSON document.

    Errors   InputError for anything a calibration could not have written: another
    schema, a missing field, a time that is not positive and finite, a size without
    what its kind is priced by.
    """
    try:
        if document["schema"] != SCHEMA:
            raise ValueError(f"schema {document['schema']!r}, expected {SCHEMA!r}")
        texts = {name: _text(document[name]) for name in _TEXTS}
        return Calibration(
            **texts,
            points=tuple(_point(p) for p in document["points"]),
            took_s=_finite(document["took_s"]),
            left_out=tuple(_text(t) for t in document["left_out"]),
        )
    except _NOT_OURS as error:
        raise InputError(
            "reading a calibration",
            f"it is not one of ours ({error!r})",
            hint="run `rlxweb calibrate` to make it anew",
        ) from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is no duration")
    return number


def _point(one: Any) -> Point:
    ns, spread, samples = float(one["ns"]), float(one["spread"]), int(one["samples"])
    if not (0 < ns < math.inf and 0 <= spread < math.inf and samples >= 1):
        raise ValueError(f"no time of a run: {one!r}")
    size = {_text(k): int(v) for k, v in one["size"].items()}
    what = _text(one["what"])
    for name in _SIZES.get(what, ()):
        if size[name] < (0 if name == "k" else 1):
            raise ValueError(f"no size of a run: {one!r}")
    return Point(what, size, ns, spread, samples)
