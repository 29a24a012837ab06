"""Charts as SVG text that takes the font and the light or dark colours of the page.

Shapes carry class names; `css/rlxweb.css` says how they look. Knows no numbers of ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Scale:
    """Linear or logarithmic map from values `low` to `high` to pixels `start` to
    `stop`.
    """

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        fraction = (value - low) / (high - low)
        return self.start + fraction * (self.stop - self.start)


def svg_image(width: int, height: int, alt_text: str, parts: Iterable[str]) -> str:
    """Return an SVG image; `alt_text` is read out by screen readers."""
    body = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(alt_text)}" xmlns="http://www.w3.org/2000/svg">\n{body}\n</svg>'
    )


def figure(svg: str, caption: str, css_class: str = "") -> str:
    """Return the figure element of an image; narrow screens can scroll it sideways."""
    return (
        f'<figure class="rlx-figure {css_class}">\n'
        f'<div class="rlx-scroll" tabindex="0">\n{svg}\n</div>\n'
        f"<figcaption>{escape(caption)}</figcaption>\n</figure>"
    )


def text(
    x: float, y: float, words: str, css_class: str = "", anchor: str = "start"
) -> str:
    """Return text whose baseline starts, is centred or ends at a point."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="{css_class}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )


def line(
    x1: float, y1: float, x2: float, y2: float, css_class: str = "rlx-grid"
) -> str:
    """A straight line."""
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" class="{css_class}"/>'


def log_log_axes(
    low: float,
    high: float,
    plot: tuple[float, float, float, float],
    words: Sequence[str],
) -> tuple[Scale, Scale, list[str]]:
    """Return log-log axes of values that may be equal, with the diagonal where they
    are.

    plot   left, right, top and bottom, in pixels
    words  what is across, and what is up
    """
    left, right, top, bottom = plot
    x_scale = Scale(low, high, left, right, log=True)
    y_scale = Scale(low, high, bottom, top, log=True)
    parts = []
    for tick in decades(low, high):
        parts += [
            line(x_scale(tick), top, x_scale(tick), bottom),
            line(left, y_scale(tick), right, y_scale(tick)),
            text(
                x_scale(tick), bottom + 20, format_number(tick), "rlx-quiet", "middle"
            ),
            text(left - 8, y_scale(tick) + 5, format_number(tick), "rlx-quiet", "end"),
        ]
    parts += [
        line(left, bottom, right, top, "rlx-axis"),
        text(right, bottom + 40, words[0], "rlx-label", "end"),
        text(left, top - 8, words[1], "rlx-label"),
    ]
    return x_scale, y_scale, parts


def dot(x: float, y: float, radius: float, css_class: str, tooltip: str = "") -> str:
    """Return a point; `tooltip` shows under the mouse."""
    title = f"<title>{escape(tooltip)}</title>" if tooltip else ""
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{css_class}">'
        f"{title}</circle>"
    )


def curve(
    points: Sequence[tuple[float, float]], css_class: str, floor: float = -1
) -> str:
    """Return a line through points, or the area below it down to `floor`."""
    steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    if floor >= 0:
        steps += f"L{points[-1][0]:.1f} {floor:.1f}L{points[0][0]:.1f} {floor:.1f}Z"
    return f'<path d="M{steps}" class="{css_class}"/>'


def decades(low: float, high: float) -> list[float]:
    """Powers of ten from low to high."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    return [10.0**n for n in range(first, last + 1)]


def format_number(value: float) -> str:
    """Format a number for readers: 0.05, 3.2, 128, 1,024."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.1 else f"{value:.2g}"
