"""Where somebody talks, over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.plot.theme import axes_of, in_our_look
from rlxweb.results.svg import COLOURS

if TYPE_CHECKING:
    from rlxweb.models.speech import Speech


@in_our_look
def speech(found: Speech, ax: Any = None) -> Any:
    """The probability of each frame as a line, segments of speech shaded.

    found    of `rlxweb.models`
    → the axes
    Errors   Unsupported without matplotlib
    """
    own = axes_of(ax, "rlxweb.plot.speech", wide=11.0, tall=2.6)
    draw_speech(own, found)
    return own


def draw_speech(
    axis: Any, found: Speech, span: tuple[float, float] | None = None
) -> None:
    """Into axes. span: s that are shown; None: all."""
    begin, end = span or (0.0, max(found.seconds, 1e-3))
    for start, stop in found.segments:
        if stop > begin and start < end:
            axis.axvspan(start, stop, color=COLOURS[1], alpha=0.25, lw=0)
    first, last = (int(s / found.frame_s) for s in (begin, end))
    heard = found.probabilities[max(0, first - 1) : last + 2]
    middle = (np.arange(len(heard)) + max(0, first - 1) + 0.5) * found.frame_s
    axis.plot(middle, heard, color=COLOURS[0], linewidth=0.9)
    axis.set_xlim(begin, end)
    axis.set_ylim(0.0, 1.02)
    axis.set_xlabel("time (s)")
    axis.set_ylabel("speech")
    axis.grid(visible=True, axis="y", alpha=0.5)
