"""Calibration records from JSON, accepted only where a calibration could have written
them.

Knows the table of kinds, which says what a size must have; knows no files.
"""

from __future__ import annotations

import math
from typing import Any

from rlxweb.core.errors import InputError
from rlxweb.cost.calibration_record import (
    SCHEMA,
    AutotuneResult,
    Calibration,
    MeasuredPoint,
)
from rlxweb.cost.work_kinds import KINDS

# OverflowError: JSON knows numbers that no int or float holds.
_PARSE_ERRORS = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
_TEXT_FIELDS = ("device", "engine", "backend", "driver", "rlxweb", "machine", "made")


def calibration_from_json(document: Any) -> Calibration:
    """Return the calibration record of a JSON document.

    Errors   InputError for anything a calibration could not have written: another
    schema, a missing field, a time that is not positive and finite, a size without
    what its kind is priced by.
    """
    try:
        if document["schema"] != SCHEMA:
            raise ValueError(f"schema {document['schema']!r}, expected {SCHEMA!r}")
        texts = {name: _require_text(document[name]) for name in _TEXT_FIELDS}
        return Calibration(
            **texts,
            points=tuple(_measured_point(p) for p in document["points"]),
            # Figures of earlier versions have none.
            races=tuple(_autotune_result(r) for r in document.get("races", ())),
            took_s=_require_finite(document["took_s"]),
            left_out=tuple(_require_text(t) for t in document["left_out"]),
        )
    except _PARSE_ERRORS as error:
        raise InputError(
            "read a calibration",
            f"the data is not a valid rlxweb calibration ({error!r})",
            hint="run `rlxweb calibrate` to measure again",
        ) from None


def _require_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def _require_finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is not a finite duration")
    return number


def _autotune_result(entry: Any) -> AutotuneResult:
    rows, width = (int(n) for n in entry["size"])
    ways = tuple(
        (_require_text(name), _require_finite(ns)) for name, ns in entry["ways"]
    )
    wrong = tuple(
        (_require_text(name), _require_text(why)) for name, why in entry["wrong"]
    )
    if not all(ns > 0 for _, ns in ways):
        raise ValueError(f"invalid autotuning times: {entry!r}")
    return AutotuneResult(
        _require_text(entry["op"]),
        (rows, width),
        ways,
        wrong,
        _require_text(entry["table"]),
    )


def _measured_point(entry: Any) -> MeasuredPoint:
    ns = float(entry["ns"])
    spread = float(entry["spread"])
    samples = int(entry["samples"])
    if not (0 < ns < math.inf and 0 <= spread < math.inf and samples >= 1):
        raise ValueError(f"invalid measured time: {entry!r}")
    size = {_require_text(k): int(v) for k, v in entry["size"].items()}
    kind = _require_text(entry["what"])
    min_sizes = KINDS[kind].min_sizes if kind in KINDS else {}
    if any(size[name] < min_size for name, min_size in min_sizes.items()):
        raise ValueError(f"invalid size of a measurement: {entry!r}")
    return MeasuredPoint(kind, size, ns, spread, samples)
