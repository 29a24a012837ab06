"""Chart of ratios: a row each, a dot on a logarithmic axis, equal at 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from svg_drawing import Scale, dot, figure, line, svg_image, text

_WIDTH, _LEFT, _ROW = 760, 330, 26


@dataclass(frozen=True, slots=True)
class RatioRow:
    """Row of the chart: its label, its ratio, the dot's tooltip, and whether the ratio
    is good.
    """

    label: str
    value: float
    tooltip: str
    is_good: bool


def ratio_chart(
    rows: Sequence[RatioRow], ticks: Sequence[float], alt_text: str, caption: str
) -> str:
    """Return the rows between the first and the last tick; dots beyond lie on the
    edge.
    """
    low, high = ticks[0], ticks[-1]
    height = 44 + _ROW * len(rows)
    x_scale = Scale(low, high, _LEFT + 16, _WIDTH - 60, log=True)
    parts = []
    for tick in ticks:
        css_class = "rlx-axis" if tick == 1.0 else "rlx-grid"
        parts += [
            line(x_scale(tick), 26, x_scale(tick), height - 8, css_class),
            text(x_scale(tick), 16, f"{tick:g} ×", "rlx-quiet", "middle"),
        ]
    for index, row in enumerate(rows):
        x, y = x_scale(min(max(row.value, low), high)), 44 + _ROW * index
        css_class = "rlx-good" if row.is_good else "rlx-bad"
        parts += [
            text(_LEFT, y + 5, row.label, "rlx-label", "end"),
            line(x_scale(1.0), y, x, y, f"rlx-stem {css_class}"),
            dot(x, y, 5.5, css_class, row.tooltip),
            text(_WIDTH - 8, y + 5, f"{row.value:.2f}", "rlx-number", "end"),
        ]
    return figure(svg_image(_WIDTH, height, alt_text, parts), caption)
