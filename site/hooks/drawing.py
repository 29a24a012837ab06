"""Charts as SVG text that follows the page: its font, its colours, light and dark.

Shapes carry class names; `css/rlxweb.css` says how they look. Knows no numbers of ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from `low` to `high` onto pixels from `start` to `stop`."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        share = (value - low) / (high - low)
        return self.start + share * (self.stop - self.start)


def picture(width: int, height: int, says: str, parts: Iterable[str]) -> str:
    """A whole SVG; `says` is read out to who cannot see it."""
    body = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(says)}" xmlns="http://www.w3.org/2000/svg">\n{body}\n</svg>'
    )


def figure(svg: str, caption: str, kind: str = "") -> str:
    """The picture in its page; narrow screens may scroll it sideways."""
    return (
        f'<figure class="rlx-figure {kind}">\n'
        f'<div class="rlx-scroll" tabindex="0">\n{svg}\n</div>\n'
        f"<figcaption>{escape(caption)}</figcaption>\n</figure>"
    )


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Words at a point: their baseline begins, centres or ends there."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "rlx-grid") -> str:
    """A straight line."""
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" class="{kind}"/>'


def against(
    low: float,
    high: float,
    plot: tuple[float, float, float, float],
    words: Sequence[str],
) -> tuple[Scale, Scale, list[str]]:
    """Both axes of values that may be equal: logarithmic, with the line where they are.

    plot   left, right, top and bottom, in pixels
    words  what is across, and what is up
    """
    left, right, top, bottom = plot
    across = Scale(low, high, left, right, log=True)
    up = Scale(low, high, bottom, top, log=True)
    parts = []
    for tick in decades(low, high):
        parts += [
            line(across(tick), top, across(tick), bottom),
            line(left, up(tick), right, up(tick)),
            text(across(tick), bottom + 20, plain(tick), "rlx-quiet", "middle"),
            text(left - 8, up(tick) + 5, plain(tick), "rlx-quiet", "end"),
        ]
    parts += [
        line(left, bottom, right, top, "rlx-axis"),
        text(right, bottom + 40, words[0], "rlx-label", "end"),
        text(left, top - 8, words[1], "rlx-label"),
    ]
    return across, up, parts


def dot(x: float, y: float, radius: float, kind: str, says: str = "") -> str:
    """A point; `says` shows under the mouse."""
    inside = f"<title>{escape(says)}</title>" if says else ""
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{kind}">'
        f"{inside}</circle>"
    )


def curve(points: Sequence[tuple[float, float]], kind: str, floor: float = -1) -> str:
    """A line through points; with a floor, the area down to it."""
    steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    if floor >= 0:
        steps += f"L{points[-1][0]:.1f} {floor:.1f}L{points[0][0]:.1f} {floor:.1f}Z"
    return f'<path d="M{steps}" class="{kind}"/>'


def decades(low: float, high: float) -> list[float]:
    """Powers of ten from low to high."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    return [10.0**n for n in range(first, last + 1)]


def plain(value: float) -> str:
    """A number as people write it: 0.05, 3.2, 128, 1,024."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.1 else f"{value:.2g}"
