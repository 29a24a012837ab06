"""Small pictures as SVG text, for notebooks; no drawing library is needed.

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
"""Told apart by who sees few colours, at least 3:1 on white and on near black.

Chosen by search for the largest least distance in Oklab, as seen by all and, by the
matrices of Machado 2009, by who lacks one kind of cone.
"""
_RAMP: Final = ("#3b0f70", "#2a788e", "#22a884", "#7ad151", "#fde725", "#f1605d")
"""Stops of the colours of many neighbours, such as thirds of octaves."""


def colours_of(count: int) -> tuple[str, ...]:
    """Colours of so many neighbours, all different; a ramp where there are many."""
    if count <= len(COLOURS):
        return COLOURS[:count]
    stops = np.array(
        [[int(c[at : at + 2], 16) for at in (1, 3, 5)] for c in _RAMP], np.float64
    )
    places = np.linspace(0, len(_RAMP) - 1, count)
    parts = [np.interp(places, np.arange(len(_RAMP)), own) for own in stops.T]
    return tuple(
        "#" + "".join(f"{round(part):02x}" for part in one)
        for one in zip(*parts, strict=True)
    )


WIDE, TALL = 480, 150
_LEFT, _RIGHT, _TOP, _LOW = 46, 10, 8, 32
_COLUMNS = 400


class Line(NamedTuple):
    """A curve y over x with its name; `at`: x and y of what is marked on it."""

    name: str
    x: Floats
    y: Floats
    at: tuple[Floats, Floats] | None = None


class Frame(NamedTuple):
    """The axes of a picture: values from end to end of each.

    log   the xs are powers of ten, and the numbers at the axis are not
    """

    xs: tuple[float, float]
    ys: tuple[float, float]
    log: bool = False

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Left, top, width and height in pixels."""
        return _LEFT, _TOP, WIDE - _LEFT - _RIGHT, TALL - _TOP - _LOW

    def across(self, x: Any) -> Any:
        """Pixels from the left."""
        left, _, wide, _ = self.box
        low, high = self.xs
        return left + wide * (np.asarray(x) - low) / ((high - low) or 1.0)

    def down(self, y: Any) -> Any:
        """Pixels from the top; what lies outside is on the edge."""
        _, top, _, tall = self.box
        low, high = self.ys
        share = (high - np.asarray(y)) / ((high - low) or 1.0)
        return top + tall * np.clip(share, 0.0, 1.0)

    def axes(self, x_label: str, y_label: str, *, grid: bool = True) -> list[str]:
        """Lines, numbers and names."""
        left, top, wide, tall = self.box
        bottom, right = top + tall, left + wide
        ink = 'stroke="currentColor" stroke-opacity'
        parts = [f'<path d="M{left} {top}V{bottom}H{right}" fill="none" {ink}=".5"/>']
        for value in log_ticks(*self.xs) if self.log else ticks(*self.xs, 6):
            at = float(self.across(value))
            number = f"{10.0**value if self.log else value:.6g}"
            parts.append(_text(number, at, bottom + 12, "middle"))
        for value in ticks(*self.ys, 4):
            at = float(self.down(value))
            if grid:
                parts.append(f'<path d="M{left} {at:.1f}H{right}" {ink}=".12"/>')
            parts.append(_text(f"{value:g}", left - 4, at + 3, "end"))
        parts.append(_text(x_label, left + wide / 2, TALL - 5, "middle"))
        turned = f'transform="translate(10 {top + tall / 2:g}) rotate(-90)"'
        parts.append(f'<text {turned} text-anchor="middle">{escape(y_label)}</text>')
        return parts


def chart(lines: Sequence[Line], y_label: str, *, log: bool = False) -> str:
    """Up to eight lines over frequencies in Hz, their names as tooltips.

    It is "" where there is nothing to see.
    log   the xs are log10 of what the axis tells
    """
    lines = [one for one in lines if np.isfinite(one.y).any()][: len(COLOURS)]
    if not lines:
        return ""
    ends = [(float(one.x.min()), float(one.x.max())) for one in lines]
    xs = min(low for low, _ in ends), max(high for _, high in ends)
    frame = Frame(xs, _range([one.y for one in lines]), log)
    parts = [opening(), *frame.axes("Hz", y_label)]
    for colour, one in zip(COLOURS, lines, strict=False):
        parts.append(_curve(one, colour, frame))
    return "".join((*parts, "</svg>"))


def bars(names: Sequence[str], shares: Sequence[float]) -> str:
    """Shares of a whole side by side, the name and per cent on each."""
    wide, tall, parts, left = WIDE, 34, [], 0.0
    colours = colours_of(len(names))
    for colour, name, share in zip(colours, names, shares, strict=True):
        own = max(0.0, float(share)) * wide
        label = escape(f"{name} {share:.0%}")
        parts.append(
            f'<g><title>{label}</title><rect x="{left:.1f}" width="{own:.1f}" '
            f'height="18" fill="{colour}"/>'
            + (_text(label, left + own / 2, 30, "middle") if own > 48 else "")
            + "</g>"
        )
        left += own
    return "".join((opening(tall), *parts, "</svg>"))


def opening(tall: int = TALL) -> str:
    """The head of a picture."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {tall}" '
        f'width="{WIDE}" height="{tall}" role="img" '
        'style="max-width:100%;font:10px sans-serif" fill="currentColor">'
    )


def _text(text: str, x: float, y: float, anchor: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text {place}>{escape(text)}</text>"


def _range(curves: Sequence[Floats]) -> tuple[float, float]:
    known = np.concatenate([y[np.isfinite(y)] for y in curves])
    low, high = float(known.min()), float(known.max())
    room = 0.05 * (high - low) or 1.0
    return low - room, high + room


def _curve(one: Line, colour: str, frame: Frame) -> str:
    x, y = _with_tops(*_thinned(one.x, one.y), one.at)
    pen, points = "M", []
    places = zip(frame.across(x), frame.down(y), np.isfinite(y), strict=True)
    for a, b, is_there in places:
        if is_there:
            points.append(f"{pen}{a:.1f} {b:.1f}")
        pen = "L" if is_there else "M"
    drawn = (
        f'<g><title>{escape(one.name)}</title><path d="{"".join(points)}" fill="none" '
        f'stroke="{colour}" stroke-width="1.3"/>'
    )
    if one.at is not None:
        marks = zip(frame.across(one.at[0]), frame.down(one.at[1]), strict=True)
        for a, b in marks:
            if np.isfinite(a) and np.isfinite(b):
                drawn += f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.6" fill="{colour}"/>'
    return drawn + "</g>"


def _with_tops(
    x: Floats, y: Floats, at: tuple[Floats, Floats] | None
) -> tuple[Floats, Floats]:
    """What is marked between two points is a point of the curve as well."""
    if at is None:
        return x, y
    fine = np.isfinite(at[0]) & np.isfinite(at[1])
    x, y = np.concatenate([x, at[0][fine]]), np.concatenate([y, at[1][fine]])
    order = np.argsort(x, kind="stable")
    return x[order], y[order]


def _thinned(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """At most so many points, the highest of their neighbours: a narrow peak stays."""
    if len(x) <= _COLUMNS:
        return x, y
    starts = np.unique(np.linspace(0, len(x), _COLUMNS, endpoint=False).astype(int))
    return x[starts], np.fmax.reduceat(y, starts)


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers from low to high, at most so many."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough * (1 - 1e-9))
    first = int(np.ceil(low / step - 1e-9))
    last = int(np.floor(high / step + 1e-9))
    return [float(round(at * step, 12)) for at in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """log10 of 1, 2 and 5 times powers of ten, those from low to high."""
    if not high > low:
        return [low]
    decades = range(int(np.floor(low)), int(np.ceil(high)) + 1)
    every = [step * 10.0**n for n in decades for step in (1, 2, 5)]
    return [at for at in map(float, np.log10(every)) if low - 1e-9 <= at <= high + 1e-9]
