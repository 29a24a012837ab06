"""Small SVG charts for notebooks, made without a drawing library.

Text and axes take the colour of the page, so they can be read on dark and on light.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

COLOURS: Final = (
    "#006db6",
    "#db7900",
    "#9261f3",
    "#616d0c",
    "#db3155",
    "#6d92db",
    "#b62492",
    "#b6799e",
)
"""Colours that people with colour vision deficiency can tell apart, at least 3:1 on
white and on near black.

Chosen by search for the largest least distance in Oklab, as seen by all and, by the
matrices of Machado 2009, by who lacks one kind of cone.
"""
_RAMP_STOPS: Final = ("#3b0f70", "#2a788e", "#22a884", "#7ad151", "#fde725", "#f1605d")
"""Stops of the colour ramp for many neighbours, such as third octaves."""


def distinct_colours(count: int) -> tuple[str, ...]:
    """Return this many different colours; a ramp if there are more than COLOURS."""
    if count <= len(COLOURS):
        return COLOURS[:count]
    stops = np.array(
        [[int(c[start : start + 2], 16) for start in (1, 3, 5)] for c in _RAMP_STOPS],
        np.float64,
    )
    positions = np.linspace(0, len(_RAMP_STOPS) - 1, count)
    channels = [
        np.interp(positions, np.arange(len(_RAMP_STOPS)), channel_stops)
        for channel_stops in stops.T
    ]
    return tuple(
        "#" + "".join(f"{round(level):02x}" for level in colour)
        for colour in zip(*channels, strict=True)
    )


WIDTH, HEIGHT = 480, 150
_MARGIN_LEFT, _MARGIN_RIGHT, _MARGIN_TOP, _MARGIN_BOTTOM = 46, 10, 8, 32
_MAX_POINTS = 400


class ChartLine(NamedTuple):
    """Named curve y over x; `marks` holds x and y of the marked points."""

    name: str
    x: Floats
    y: Floats
    marks: tuple[Floats, Floats] | None = None


class SvgAxes(NamedTuple):
    """Axes of an SVG chart, with the range of values along each.

    log   the xs are powers of ten, and the numbers at the axis are not
    """

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    log: bool = False

    @property
    def plot_box(self) -> tuple[int, int, int, int]:
        """Left, top, width and height of the plot area in pixels."""
        return (
            _MARGIN_LEFT,
            _MARGIN_TOP,
            WIDTH - _MARGIN_LEFT - _MARGIN_RIGHT,
            HEIGHT - _MARGIN_TOP - _MARGIN_BOTTOM,
        )

    def x_pixels(self, x: Any) -> Any:
        """Return distances in pixels from the left."""
        left, _, width, _ = self.plot_box
        low, high = self.x_range
        return left + width * (np.asarray(x) - low) / ((high - low) or 1.0)

    def y_pixels(self, y: Any) -> Any:
        """Return distances in pixels from the top; values outside the range lie on the
        edge.
        """
        _, top, _, height = self.plot_box
        low, high = self.y_range
        share = (high - np.asarray(y)) / ((high - low) or 1.0)
        return top + height * np.clip(share, 0.0, 1.0)

    def axis_elements(
        self, x_label: str, y_label: str, *, grid: bool = True
    ) -> list[str]:
        """Return the SVG elements of axis lines, tick labels and axis labels."""
        left, top, width, height = self.plot_box
        bottom, right = top + height, left + width
        stroke = 'stroke="currentColor" stroke-opacity'
        elements = [
            f'<path d="M{left} {top}V{bottom}H{right}" fill="none" {stroke}=".5"/>'
        ]
        for value in (
            log_tick_exponents(*self.x_range)
            if self.log
            else tick_values(*self.x_range, 6)
        ):
            position = float(self.x_pixels(value))
            label = f"{10.0**value if self.log else value:.6g}"
            elements.append(_text_element(label, position, bottom + 12, "middle"))
        for value in tick_values(*self.y_range, 4):
            position = float(self.y_pixels(value))
            if grid:
                elements.append(
                    f'<path d="M{left} {position:.1f}H{right}" {stroke}=".12"/>'
                )
            elements.append(_text_element(f"{value:g}", left - 4, position + 3, "end"))
        elements.append(_text_element(x_label, left + width / 2, HEIGHT - 5, "middle"))
        transform = f'transform="translate(10 {top + height / 2:g}) rotate(-90)"'
        elements.append(
            f'<text {transform} text-anchor="middle">{escape(y_label)}</text>'
        )
        return elements


def svg_line_chart(
    lines: Sequence[ChartLine], y_label: str, *, log: bool = False
) -> str:
    """Return an SVG chart of up to eight lines over frequencies in Hz, with their names
    as tooltips.

    It is "" where there is nothing to see.
    log   the xs are log10 of what the axis tells
    """
    lines = [line for line in lines if np.isfinite(line.y).any()][: len(COLOURS)]
    if not lines:
        return ""
    ranges = [(float(line.x.min()), float(line.x.max())) for line in lines]
    x_range = min(low for low, _ in ranges), max(high for _, high in ranges)
    frame = SvgAxes(x_range, _value_range([line.y for line in lines]), log)
    elements = [svg_header(), *frame.axis_elements("Hz", y_label)]
    for colour, line in zip(COLOURS, lines, strict=False):
        elements.append(_curve_element(line, colour, frame))
    return "".join((*elements, "</svg>"))


def svg_share_bar(names: Sequence[str], shares: Sequence[float]) -> str:
    """Return an SVG bar of shares of a whole, with the name and percentage of each."""
    width, height, elements, left = WIDTH, 34, [], 0.0
    colours = distinct_colours(len(names))
    for colour, name, share in zip(colours, names, shares, strict=True):
        bar_width = max(0.0, float(share)) * width
        label = escape(f"{name} {share:.0%}")
        elements.append(
            f'<g><title>{label}</title><rect x="{left:.1f}" width="{bar_width:.1f}" '
            f'height="18" fill="{colour}"/>'
            + (
                _text_element(label, left + bar_width / 2, 30, "middle")
                if bar_width > 48
                else ""
            )
            + "</g>"
        )
        left += bar_width
    return "".join((svg_header(height), *elements, "</svg>"))


def svg_header(height: int = HEIGHT) -> str:
    """Return the opening tag of an SVG picture."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" '
        'style="max-width:100%;font:10px sans-serif" fill="currentColor">'
    )


def _text_element(text: str, x: float, y: float, anchor: str) -> str:
    """Return an SVG text element."""
    attributes = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text {attributes}>{escape(text)}</text>"


def _value_range(curves: Sequence[Floats]) -> tuple[float, float]:
    """Return the range of finite values of the curves, with a margin."""
    finite = np.concatenate([y[np.isfinite(y)] for y in curves])
    low, high = float(finite.min()), float(finite.max())
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


def _curve_element(line: ChartLine, colour: str, frame: SvgAxes) -> str:
    """Return the SVG group of a curve with its marks."""
    x, y = _insert_marks(*_reduce_points(line.x, line.y), line.marks)
    pen, points = "M", []
    pixels = zip(frame.x_pixels(x), frame.y_pixels(y), np.isfinite(y), strict=True)
    for a, b, is_finite in pixels:
        if is_finite:
            points.append(f"{pen}{a:.1f} {b:.1f}")
        pen = "L" if is_finite else "M"
    element = (
        f'<g><title>{escape(line.name)}</title><path d="{"".join(points)}" fill="none" '
        f'stroke="{colour}" stroke-width="1.3"/>'
    )
    if line.marks is not None:
        marks = zip(
            frame.x_pixels(line.marks[0]), frame.y_pixels(line.marks[1]), strict=True
        )
        for a, b in marks:
            if np.isfinite(a) and np.isfinite(b):
                element += (
                    f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.6" fill="{colour}"/>'
                )
    return element + "</g>"


def _insert_marks(
    x: Floats, y: Floats, marks: tuple[Floats, Floats] | None
) -> tuple[Floats, Floats]:
    """Insert the finite marks as points of the curve."""
    if marks is None:
        return x, y
    is_finite = np.isfinite(marks[0]) & np.isfinite(marks[1])
    x = np.concatenate([x, marks[0][is_finite]])
    y = np.concatenate([y, marks[1][is_finite]])
    order = np.argsort(x, kind="stable")
    return x[order], y[order]


def _reduce_points(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Reduce a curve to at most `_MAX_POINTS` points, the maximum of neighbours, so
    that narrow peaks stay.
    """
    if len(x) <= _MAX_POINTS:
        return x, y
    starts = np.unique(np.linspace(0, len(x), _MAX_POINTS, endpoint=False).astype(int))
    return x[starts], np.fmax.reduceat(y, starts)


def tick_values(low: float, high: float, max_count: int) -> list[float]:
    """Return round numbers from low to high, at most `max_count`."""
    if not high > low:
        return [low]
    min_step = (high - low) / max_count
    power = 10.0 ** np.floor(np.log10(min_step))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= min_step * (1 - 1e-9))
    first = int(np.ceil(low / step - 1e-9))
    last = int(np.floor(high / step + 1e-9))
    return [float(round(index * step, 12)) for index in range(first, last + 1)]


def log_tick_exponents(low: float, high: float) -> list[float]:
    """Return log10 of 1, 2 and 5 times powers of ten between low and high, which are
    exponents too.
    """
    if not high > low:
        return [low]
    decades = range(int(np.floor(low)), int(np.ceil(high)) + 1)
    values = [step * 10.0**n for n in decades for step in (1, 2, 5)]
    return [
        exponent
        for exponent in map(float, np.log10(values))
        if low - 1e-9 <= exponent <= high + 1e-9
    ]
