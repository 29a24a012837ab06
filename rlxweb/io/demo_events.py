"""What happens in the demo recording that has events, as factors and waves over time.

Eyes are open in its first half and closed in its second, where alpha is at its full
height. Every four seconds a stimulus on one side makes the beta of the other side
falter. While the eyes are open they blink.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, time
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

DAY: Final = date(2026, 1, 1)
CLOCK: Final = time(22, 0, 0)
"""When it began: a night's first minutes."""
EOG: Final = "EOG"
ALPHA_OPEN: Final = 0.3
"""Of alpha's amplitude, what is left with open eyes."""
BETA_LOW: Final = 0.25
"""Of beta's amplitude, what is left behind a stimulus."""
_EVERY_S, _FIRST_S = 4.0, 2.0
_LOW_FROM_S, _LOW_TO_S = 0.3, 1.3
_BLINK_EVERY_S, _BLINK_S, _BLINK_UV = 3.3, 0.15, 180.0
_SIDES: Final = {"Stim/left": "EEG C4", "Stim/right": "EEG C3"}
"""The hand that is told to move, and the side of the head that answers."""


def notes(seconds: int) -> Iterator[tuple[float, float | None, str]]:
    """Onset and duration in seconds, and the words."""
    half = seconds / 2
    yield 0.0, half, "Eyes open"
    yield half, half, "Eyes closed"
    for at, words in _stimuli(seconds):
        yield at, None, words


def _stimuli(seconds: int) -> Iterator[tuple[float, str]]:
    words = tuple(_SIDES)
    for number, at in enumerate(np.arange(_FIRST_S, seconds - 1.0, _EVERY_S)):
        yield float(at), words[number % 2]


def heights(channel: str, hz: float, t: Floats) -> Floats:
    """Factors of the amplitude of a rhythm of a channel, at times in seconds."""
    seconds = (len(t) * (t[1] - t[0])) if len(t) > 1 else 1.0
    out = np.ones(len(t))
    if 8.0 <= hz <= 13.0:
        out[t < seconds / 2] = ALPHA_OPEN
    if 13.0 < hz <= 30.0:
        for at, words in _stimuli(round(seconds)):
            if _SIDES[words] == channel:
                out[(t >= at + _LOW_FROM_S) & (t < at + _LOW_TO_S)] = BETA_LOW
    return out


def blinks(t: Floats) -> Floats:
    """Of the eyes while they are open, in microvolts: bumps of a sixth of a second."""
    half = (t[-1] + t[1]) / 2 if len(t) > 1 else 0.0
    out = np.zeros(len(t))
    for at in np.arange(1.0, half - _BLINK_S, _BLINK_EVERY_S):
        out += _BLINK_UV * np.exp(-0.5 * ((t - at) / (_BLINK_S / 2)) ** 2)
    return out
