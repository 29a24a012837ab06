"""A note: when it sounds, which pitch it has, how loud it is and how it bends."""

from __future__ import annotations

from typing import NamedTuple

LOWEST, PITCHES = 21, 88
"""The piano's keys, as numbers of MIDI."""
BINS = 3
"""Of a bend for each semitone."""


class Note(NamedTuple):
    """A note.

    start, end  s
    pitch       number of MIDI: 60 is middle C, 69 is 440 Hz
    amplitude   0 to 1, the mean of its activation
    bends       thirds of a semitone above `pitch`, evenly spaced from start to end
    """

    start: float
    end: float
    pitch: int
    amplitude: float
    bends: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """As musicians say: "A4" for 69."""
        return note_name(self.pitch)

    @property
    def hz(self) -> float:
        """Of its pitch in equal temperament, bends aside."""
        return float(440.0 * 2.0 ** ((self.pitch - 69) / 12))


_NAMES = ("C", "C♯", "D", "D♯", "E", "F", "F♯", "G", "G♯", "A", "A♯", "B")


def note_name(pitch: int) -> str:
    """60 is "C4"."""
    return f"{_NAMES[pitch % 12]}{pitch // 12 - 1}"
