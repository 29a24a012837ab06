"""Ratios as a picture: a row each, a dot on a logarithmic axis, level at 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drawing import Scale, dot, figure, line, picture, text

_WIDTH, _LEFT, _ROW = 760, 330, 26


@dataclass(frozen=True, slots=True)
class Ratio:
    """One row: what it is of, what the dot says, and whether it is good."""

    label: str
    value: float
    says: str
    good: bool


def ratio_picture(
    rows: Sequence[Ratio], ticks: Sequence[float], says: str, caption: str
) -> str:
    """The rows between the first and the last tick; beyond, a dot lies on the edge."""
    low, high = ticks[0], ticks[-1]
    height = 44 + _ROW * len(rows)
    across = Scale(low, high, _LEFT + 16, _WIDTH - 60, log=True)
    parts = []
    for tick in ticks:
        kind = "rlx-axis" if tick == 1.0 else "rlx-grid"
        parts += [
            line(across(tick), 26, across(tick), height - 8, kind),
            text(across(tick), 16, f"{tick:g} ×", "rlx-quiet", "middle"),
        ]
    for at, row in enumerate(rows):
        x, y = across(min(max(row.value, low), high)), 44 + _ROW * at
        kind = "rlx-good" if row.good else "rlx-bad"
        parts += [
            text(_LEFT, y + 5, row.label, "rlx-label", "end"),
            line(across(1.0), y, x, y, f"rlx-stem {kind}"),
            dot(x, y, 5.5, kind, row.says),
            text(_WIDTH - 8, y + 5, f"{row.value:.2f}", "rlx-number", "end"),
        ]
    return figure(picture(_WIDTH, height, says, parts), caption)
