"""Which peaks have their frequency written beside them, and where there is room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rlxweb.plot.rows import Floats, Rows
from rlxweb.results.units import decimals

NAMED: Final = 8
"""How many, at most."""
NAMED_DB: Final = 25.0
"""How far below the strongest."""
_LETTER, _LINE, _GAP = 0.066, 0.14, 0.07
"""Inches: width of a letter, height of a line, from the mark to its label."""
Box = tuple[float, float, float, float]
"""Left, bottom, right, top."""


@dataclass(frozen=True, slots=True)
class Peak:
    """A frequency that rows have a peak at, where the strongest of them has it.

    rows    the strongest first
    """

    hz: float
    level: float
    rows: tuple[int, ...]

    def text(self, rows: Rows, *, is_alone: bool) -> str:
        """Its frequency, and below whose it is where there are several."""
        said = f"{self.hz:.{decimals(rows.step)}f} Hz"
        if is_alone:
            return said
        more = f" +{len(self.rows) - 1}" if len(self.rows) > 1 else ""
        return f"{said}\n{rows.names[self.rows[0]]}{more}"


@dataclass(frozen=True, slots=True)
class Label:
    """What is written at a peak: `side` says where its text begins, ends or is centred;
    `across` and `up` are inches from the mark.
    """

    peak: Peak
    text: str
    side: str
    across: float
    up: float


@dataclass(frozen=True, slots=True)
class Scale:
    """Axes in inches: frequencies and levels from end to end."""

    xs: tuple[float, float]
    ys: tuple[float, float]
    wide: float
    tall: float
    log: bool

    def across(self, hz: Floats) -> Floats:
        low, high = np.log(self.xs) if self.log else self.xs
        own = np.log(np.maximum(hz, self.xs[0])) if self.log else hz
        return np.asarray((own - low) / (high - low) * self.wide, np.float64)

    def up(self, level: Floats) -> Floats:
        low, high = self.ys
        return np.asarray((level - low) / (high - low) * self.tall, np.float64)


def labels_of(
    rows: Rows,
    which: Sequence[int],
    scale: Scale,
    shifts: Sequence[float] | None = None,
    most: int = NAMED,
    taken: list[Box] | None = None,
    drawn: Sequence[int] | None = None,
) -> list[Label]:
    """Labels for the strongest peaks, none upon another, a mark or a line.

    which    the rows whose peaks are named
    shifts   dB by which each of all rows is drawn higher
    taken    where something stands already; grows
    drawn    the rows whose lines are in the way; None: the same
    """
    up = [0.0] * len(rows) if shifts is None else shifts
    seen = which if drawn is None else drawn
    boxes: list[Box] = [] if taken is None else taken
    lines = [_line_of(rows, at, scale, up[at]) for at in seen if not rows.state(at)]
    found: list[Label] = []
    peaks = _peaks(rows, which)
    for one in peaks:
        if one.level < peaks[0].level - NAMED_DB or len(found) == most:
            break
        text = one.text(rows, is_alone=len(which) == 1)
        x = float(scale.across(np.array(one.hz)))
        y = float(scale.up(np.array(one.level + up[one.rows[0]])))
        if not (0 <= x <= scale.wide and 0 <= y <= scale.tall):
            continue
        for own, box in _places(one, text, x, y):
            if _is_free(box, scale, boxes, lines):
                found.append(own)
                boxes.append(box)
                break
    return found


def _peaks(rows: Rows, which: Sequence[int]) -> list[Peak]:
    """Strongest first; rows whose peaks are within a bin of it are one with it."""
    every = [
        (float(level), float(hz), at)
        for at in which
        for hz, level in zip(*rows.peaks(at), strict=True)
        if hz > 0 and np.isfinite(level)
    ]
    found: list[Peak] = []
    for level, hz, at in sorted(every, key=lambda one: -one[0]):
        for n, other in enumerate(found):
            if abs(hz - other.hz) <= rows.step:
                if at not in other.rows:
                    found[n] = Peak(other.hz, other.level, (*other.rows, at))
                break
        else:
            found.append(Peak(hz, level, (at,)))
    return found


def _line_of(rows: Rows, at: int, scale: Scale, shift: float) -> tuple[Floats, Floats]:
    x, y = rows.curve(at)
    fine = np.isfinite(y)
    return scale.across(x[fine]), scale.up(y[fine] + shift)


def _places(one: Peak, text: str, x: float, y: float) -> Iterator[tuple[Label, Box]]:
    """Above its mark, to the right of it, to the left."""
    parts = text.split("\n")
    wide = _LETTER * max(map(len, parts)) + 0.02
    tall = _LINE * len(parts)
    above = y + _GAP, y + _GAP + tall
    beside = y - tall / 2, y + tall / 2
    yield (
        Label(one, text, "center", 0.0, _GAP),
        (x - wide / 2, above[0], x + wide / 2, above[1]),
    )
    for side, sign in (("left", 1.0), ("right", -1.0)):
        ends = sorted((x + sign * _GAP, x + sign * (_GAP + wide)))
        for up, (low, high) in ((_GAP / 2, above), (-tall / 2, beside)):
            yield Label(one, text, side, sign * _GAP, up), (ends[0], low, ends[1], high)


def _is_free(
    box: Box,
    scale: Scale,
    boxes: Sequence[Box],
    lines: Sequence[tuple[Floats, Floats]],
) -> bool:
    left, low, right, high = box
    if left < -0.02 or right > scale.wide + 0.02 or high > scale.tall + 0.05 or low < 0:
        return False
    for other in boxes:
        if left < other[2] and other[0] < right and low < other[3] and other[1] < high:
            return False
    return not any(_crosses(box, *line) for line in lines)


def _crosses(box: Box, x: Floats, y: Floats) -> bool:
    """Does a line come into the box? Of its steep pieces, their whole height does."""
    left, low, right, high = box
    first, last = np.searchsorted(x, (left, right))
    begin, end = max(0, int(first) - 1), min(len(x), int(last) + 1)
    x, y = x[begin:end], y[begin:end]
    if len(x) < 2:
        return False
    # Where the pieces enter and leave the box's width.
    a, b = np.clip(x[:-1], left, right), np.clip(x[1:], left, right)
    run = np.maximum(x[1:] - x[:-1], 1e-12)
    slope = (y[1:] - y[:-1]) / run
    ya, yb = y[:-1] + slope * (a - x[:-1]), y[:-1] + slope * (b - x[:-1])
    inside = (b > a) & (np.minimum(ya, yb) < high) & (np.maximum(ya, yb) > low)
    return bool(inside.any())
