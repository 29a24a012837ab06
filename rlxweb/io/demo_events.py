"""Events of the demo recording, as amplitude factors and waves over time.

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

START_DATE: Final = date(2026, 1, 1)
START_TIME: Final = time(22, 0, 0)
"""Start time of the recording: a night's first minutes."""
EOG_CHANNEL: Final = "EOG"
ALPHA_EYES_OPEN: Final = 0.3
"""Factor of alpha's amplitude while the eyes are open."""
BETA_AFTER_STIMULUS: Final = 0.25
"""Factor of beta's amplitude after a stimulus."""
_STIMULUS_PERIOD_S, _FIRST_STIMULUS_S = 4.0, 2.0
_LOW_FROM_S, _LOW_TO_S = 0.3, 1.3
_BLINK_PERIOD_S, _BLINK_S, _BLINK_UV = 3.3, 0.15, 180.0
_CHANNEL_BY_STIMULUS: Final = {"Stim/left": "EEG C4", "Stim/right": "EEG C3"}
"""Channel on the responding side of the head, by the stimulus of the other side's hand.
"""


def event_annotations(seconds: int) -> Iterator[tuple[float, float | None, str]]:
    """Yield onset and duration in seconds and the text of each annotation."""
    half = seconds / 2
    yield 0.0, half, "Eyes open"
    yield half, half, "Eyes closed"
    for onset, text in _stimuli(seconds):
        yield onset, None, text


def _stimuli(seconds: int) -> Iterator[tuple[float, str]]:
    """Yield the onset in seconds and the text of each stimulus."""
    texts = tuple(_CHANNEL_BY_STIMULUS)
    for number, onset in enumerate(
        np.arange(_FIRST_STIMULUS_S, seconds - 1.0, _STIMULUS_PERIOD_S)
    ):
        yield float(onset), texts[number % 2]


def amplitude_factors(channel: str, hz: float, t: Floats) -> Floats:
    """Return the factors of the amplitude of a channel's rhythm at times in seconds."""
    seconds = (len(t) * (t[1] - t[0])) if len(t) > 1 else 1.0
    out = np.ones(len(t))
    if 8.0 <= hz <= 13.0:
        out[t < seconds / 2] = ALPHA_EYES_OPEN
    if 13.0 < hz <= 30.0:
        for onset, text in _stimuli(round(seconds)):
            if _CHANNEL_BY_STIMULUS[text] == channel:
                out[(t >= onset + _LOW_FROM_S) & (t < onset + _LOW_TO_S)] = (
                    BETA_AFTER_STIMULUS
                )
    return out


def blink_wave(t: Floats) -> Floats:
    """Return the blinks while the eyes are open, in microvolts: bumps of a sixth of a
    second.
    """
    half = (t[-1] + t[1]) / 2 if len(t) > 1 else 0.0
    out = np.zeros(len(t))
    for onset in np.arange(1.0, half - _BLINK_S, _BLINK_PERIOD_S):
        out += _BLINK_UV * np.exp(-0.5 * ((t - onset) / (_BLINK_S / 2)) ** 2)
    return out
