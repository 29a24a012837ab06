"""Notes over time, as a piano roll: a bar for each, its colour how loud it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rlxweb.plot.page import Panel, packed
from rlxweb.plot.theme import MAP, axes_of, hairline, in_our_look, quiet_ink
from rlxweb.printable import printable

if TYPE_CHECKING:
    from rlxweb.models.notes import Notes

BLACK: Final = frozenset((1, 3, 6, 8, 10))
_LEAST_KEYS: Final = 24
_HALF: Final = 0.42
"""Of a bar's height, in keys."""
_BENDS: Final = 4000
"""Of more notes bends are lines that nobody sees."""


@in_our_look
def piano_roll(notes: Notes, ax: Any = None) -> Any:
    """A bar for each note over time; its line is how it bends.

    notes    of `rlxweb.models`
    → the axes
    Errors   Unsupported without matplotlib
    """
    own = axes_of(ax, "rlxweb.plot.piano_roll", wide=11.0, tall=4.6)
    bar = own.figure.colorbar(draw_roll(own, notes), ax=own, pad=0.01)
    bar.set_label("amplitude")
    bar.outline.set_visible(False)
    return own


def draw_roll(axis: Any, notes: Notes, span: tuple[float, float] | None = None) -> Any:
    """Notes into axes; what a colour bar is made of.

    span   s that are shown; None: all
    """
    from matplotlib.collections import LineCollection, PolyCollection

    low, high = keys_of(notes)
    begin, end = span or (0.0, max(notes.seconds, 1e-3))
    for key in range(low, high + 1):
        if key % 12 in BLACK:
            axis.axhspan(key - 0.5, key + 0.5, color=hairline(axis), lw=0, alpha=0.12)
    shown = [n for n in notes if n.end > begin and n.start < end]
    starts, ends, keys = (
        np.array([getattr(note, name) for note in shown], np.float64)
        for name in ("start", "end", "pitch")
    )
    across = np.column_stack([starts, ends, ends, starts])
    up = keys[:, None] + np.array([-_HALF, -_HALF, _HALF, _HALF])
    boxes: Any = np.stack([across, up], axis=-1)
    bars = PolyCollection(boxes, cmap=MAP, linewidths=0)
    bars.set_array(np.array([n.amplitude for n in shown]))
    bars.set_clim(0.0, 1.0)
    axis.add_collection(bars)
    if len(shown) <= _BENDS:
        lines = [
            np.column_stack([np.linspace(n.start, n.end, len(n.bends)), _heights(n)])
            for n in shown
            if len(n.bends) > 1 and any(n.bends)
        ]
        ink = axis.xaxis.label.get_color()
        axis.add_collection(LineCollection(lines, colors=[ink], linewidths=0.9))
    axis.set_xlim(begin, end)
    axis.set_ylim(low - 0.6, high + 0.6)
    names = [key for key in range(low, high + 1) if key % 12 == 0]
    axis.set_yticks(names, [f"C{key // 12 - 1}" for key in names])
    axis.grid(visible=True, axis="y", alpha=0.5)
    axis.set_xlabel("time (s)")
    if not shown:
        axis.text(
            *(0.5, 0.5, "no notes"),
            transform=axis.transAxes,
            ha="center",
            color=quiet_ink(axis),
        )
    return bars


def _heights(note: Any) -> Any:
    return note.pitch + np.clip(np.array(note.bends) / 3.0, -2.0, 2.0)


def keys_of(notes: Notes) -> tuple[int, int]:
    """The lowest and the highest key that are shown, two octaves at least."""
    keys = [note.pitch for note in notes] or [60]
    low, high = min(keys) - 1, max(keys) + 1
    more = max(0, _LEAST_KEYS - (high - low))
    return max(0, low - more // 2), min(127, high + (more + 1) // 2)


def roll(notes: Notes, facts: str) -> Panel:
    """The panel of a page."""
    own = notes.arrays()
    times = np.column_stack([own["start"], own["end"]]).astype(np.float32)
    loud = np.clip(np.round(own["amplitude"] * 255), 0, 255)
    keys = np.column_stack([own["pitch"], loud]).astype(np.uint8)
    return {
        "kind": "roll",
        "facts": printable(facts),
        "seconds": round(max(notes.seconds, 1e-3), 6),
        "keys": list(keys_of(notes)),
        "count": len(notes),
        "times": packed(times.reshape(-1)),
        "notes": packed(keys.reshape(-1)),
    }
