"""A calibration out of JSON: believed only where a calibration could have written it.

Knows the table of kinds, which says what a size must have; knows no files.
"""

from __future__ import annotations

import math
from typing import Any

from rlxweb.cost.kinds import KINDS
from rlxweb.cost.race import Race
from rlxweb.cost.record import SCHEMA, Calibration, Point
from rlxweb.errors import InputError

# OverflowError: JSON knows numbers that no int or float holds.
_NOT_OURS = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
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
            # Figures of earlier versions have none.
            races=tuple(_race(r) for r in document.get("races", ())),
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


def _race(one: Any) -> Race:
    rows, width = (int(n) for n in one["size"])
    ways = tuple((_text(name), _finite(ns)) for name, ns in one["ways"])
    wrong = tuple((_text(name), _text(why)) for name, why in one["wrong"])
    if not all(ns > 0 for _, ns in ways):
        raise ValueError(f"no times of a race: {one!r}")
    return Race(_text(one["op"]), (rows, width), ways, wrong, _text(one["table"]))


def _point(one: Any) -> Point:
    ns, spread, samples = float(one["ns"]), float(one["spread"]), int(one["samples"])
    if not (0 < ns < math.inf and 0 <= spread < math.inf and samples >= 1):
        raise ValueError(f"no time of a run: {one!r}")
    size = {_text(k): int(v) for k, v in one["size"].items()}
    what = _text(one["what"])
    fields = KINDS[what].fields if what in KINDS else {}
    if any(size[name] < least for name, least in fields.items()):
        raise ValueError(f"no size of a run: {one!r}")
    return Point(what, size, ns, spread, samples)
