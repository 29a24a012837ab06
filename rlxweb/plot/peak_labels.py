"""Selection of the peaks to label, and placement of labels without overlap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rlxweb.plot.spectrum_plot_data import Floats, SpectrumRows
from rlxweb.results.power_units import frequency_decimals

MAX_LABELS: Final = 8
"""Maximum number of labelled peaks."""
MAX_LABEL_DEPTH_DB: Final = 25.0
"""Level below the strongest peak down to which peaks are labelled."""
_LETTER_WIDTH, _LINE_HEIGHT, _MARK_GAP = 0.066, 0.14, 0.07
"""Inches: width of a letter, height of a line, from the mark to its label."""
LabelBox = tuple[float, float, float, float]
"""Left, bottom, right, top."""


@dataclass(frozen=True, slots=True)
class SharedPeak:
    """Peak frequency that one or more rows share, at the level of the strongest of
    them.

    rows    the strongest first
    """

    hz: float
    level: float
    rows: tuple[int, ...]

    def label_text(self, rows: SpectrumRows, *, is_alone: bool) -> str:
        """Return the peak's frequency and, if there are several rows, the name of the
        strongest below it.
        """
        frequency = f"{self.hz:.{frequency_decimals(rows.step)}f} Hz"
        if is_alone:
            return frequency
        extra_rows = f" +{len(self.rows) - 1}" if len(self.rows) > 1 else ""
        return f"{frequency}\n{rows.names[self.rows[0]]}{extra_rows}"


@dataclass(frozen=True, slots=True)
class PeakLabel:
    """Text at a peak: `alignment` tells whether `dx` is the text's left end, right end
    or centre; `dx` and `dy` are inches from the mark.
    """

    peak: SharedPeak
    text: str
    alignment: str
    dx: float
    dy: float


@dataclass(frozen=True, slots=True)
class AxesScale:
    """Mapping of frequencies and levels to inches within the axes."""

    x_limits: tuple[float, float]
    y_limits: tuple[float, float]
    width: float
    height: float
    log: bool

    def x_inches(self, hz: Floats) -> Floats:
        """Return the distance in inches of frequencies from the left end of the
        axes.
        """
        low, high = np.log(self.x_limits) if self.log else self.x_limits
        x = np.log(np.maximum(hz, self.x_limits[0])) if self.log else hz
        return np.asarray((x - low) / (high - low) * self.width, np.float64)

    def y_inches(self, level: Floats) -> Floats:
        """Return the distance in inches of levels from the bottom of the axes."""
        low, high = self.y_limits
        return np.asarray((level - low) / (high - low) * self.height, np.float64)


def place_labels(
    rows: SpectrumRows,
    labelled_rows: Sequence[int],
    scale: AxesScale,
    shifts: Sequence[float] | None = None,
    max_labels: int = MAX_LABELS,
    occupied: list[LabelBox] | None = None,
    visible_rows: Sequence[int] | None = None,
) -> list[PeakLabel]:
    """Place labels at the strongest peaks so that none covers another label, a mark or
    a line.

    labelled_rows  the rows whose peaks are named
    shifts   dB by which each of all rows is drawn higher
    occupied  where something stands already; grows
    visible_rows  the rows whose lines are in the way; None: the same
    """
    row_shifts = [0.0] * len(rows) if shifts is None else shifts
    line_rows = labelled_rows if visible_rows is None else visible_rows
    boxes: list[LabelBox] = [] if occupied is None else occupied
    lines = [
        _line_in_inches(rows, row, scale, row_shifts[row])
        for row in line_rows
        if not rows.missing_reason(row)
    ]
    labels: list[PeakLabel] = []
    peaks = _merge_row_peaks(rows, labelled_rows)
    for peak in peaks:
        if (
            peak.level < peaks[0].level - MAX_LABEL_DEPTH_DB
            or len(labels) == max_labels
        ):
            break
        text = peak.label_text(rows, is_alone=len(labelled_rows) == 1)
        x = float(scale.x_inches(np.array(peak.hz)))
        y = float(scale.y_inches(np.array(peak.level + row_shifts[peak.rows[0]])))
        if not (0 <= x <= scale.width and 0 <= y <= scale.height):
            continue
        for label, box in _label_candidates(peak, text, x, y):
            if _is_free(box, scale, boxes, lines):
                labels.append(label)
                boxes.append(box)
                break
    return labels


def _merge_row_peaks(rows: SpectrumRows, peak_rows: Sequence[int]) -> list[SharedPeak]:
    """Return the peaks of the rows, strongest first; peaks within one bin of a stronger
    one are merged into it.
    """
    row_peaks = [
        (float(level), float(hz), row)
        for row in peak_rows
        for hz, level in zip(*rows.visible_peaks(row), strict=True)
        if hz > 0 and np.isfinite(level)
    ]
    merged: list[SharedPeak] = []
    for level, hz, row in sorted(row_peaks, key=lambda entry: -entry[0]):
        for n, other in enumerate(merged):
            if abs(hz - other.hz) <= rows.step:
                if row not in other.rows:
                    merged[n] = SharedPeak(other.hz, other.level, (*other.rows, row))
                break
        else:
            merged.append(SharedPeak(hz, level, (row,)))
    return merged


def _line_in_inches(
    rows: SpectrumRows, row: int, scale: AxesScale, shift: float
) -> tuple[Floats, Floats]:
    """Return the finite points of a row's line in inches."""
    x, y = rows.curve_points(row)
    is_finite = np.isfinite(y)
    return scale.x_inches(x[is_finite]), scale.y_inches(y[is_finite] + shift)


def _label_candidates(
    peak: SharedPeak, text: str, x: float, y: float
) -> Iterator[tuple[PeakLabel, LabelBox]]:
    """Yield candidate labels with their boxes: above the mark, to its right, to its
    left.
    """
    text_lines = text.split("\n")
    width = _LETTER_WIDTH * max(map(len, text_lines)) + 0.02
    height = _LINE_HEIGHT * len(text_lines)
    y_above = y + _MARK_GAP, y + _MARK_GAP + height
    y_beside = y - height / 2, y + height / 2
    yield (
        PeakLabel(peak, text, "center", 0.0, _MARK_GAP),
        (x - width / 2, y_above[0], x + width / 2, y_above[1]),
    )
    for alignment, sign in (("left", 1.0), ("right", -1.0)):
        ends = sorted((x + sign * _MARK_GAP, x + sign * (_MARK_GAP + width)))
        for dy, (low, high) in ((_MARK_GAP / 2, y_above), (-height / 2, y_beside)):
            yield (
                PeakLabel(peak, text, alignment, sign * _MARK_GAP, dy),
                (ends[0], low, ends[1], high),
            )


def _is_free(
    box: LabelBox,
    scale: AxesScale,
    boxes: Sequence[LabelBox],
    lines: Sequence[tuple[Floats, Floats]],
) -> bool:
    """Return whether a box lies within the axes and overlaps no other box or line."""
    left, low, right, high = box
    if (
        left < -0.02
        or right > scale.width + 0.02
        or high > scale.height + 0.05
        or low < 0
    ):
        return False
    for other in boxes:
        if left < other[2] and other[0] < right and low < other[3] and other[1] < high:
            return False
    return not any(_crosses_box(box, *line) for line in lines)


def _crosses_box(box: LabelBox, x: Floats, y: Floats) -> bool:
    """Return whether a line enters the box; a steep segment counts with its whole
    height.
    """
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
    enters = (b > a) & (np.minimum(ya, yb) < high) & (np.maximum(ya, yb) > low)
    return bool(enters.any())
