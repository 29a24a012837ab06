"""Notes as a MIDI file: format 1, a track with the tempo and one with the notes.

A channel bends all that sounds on it. So only notes that sound alone are bent, or else
every note that overlaps another has a channel of its own while there are enough.

Source   The Complete MIDI 1.0 Detailed Specification, Standard MIDI Files 1.0
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable, Sequence

from rlxweb.models.note import BINS, Note

TICKS = 480
"""Of a quarter note."""
ELECTRIC_PIANO = 4
_CHANNELS = tuple(one for one in range(16) if one != 9)  # the tenth is for drums
_SEMITONE = 4096
_FARTHEST = 8192
_MOST_TEMPO = (1 << 24) - 1
Event = tuple[int, int, bytes]
"""At which tick, in which order of those of a tick, and what."""


def midi_of(
    notes: Iterable[Note], tempo: float = 120.0, multiple_pitch_bends: bool = False
) -> bytes:
    """The file.

    tempo    quarter notes a minute; times are as they are whatever it is
    multiple_pitch_bends
             notes that overlap are bent too, each on a channel of its own; of more than
             15 at once the rest is not bent
    """
    own = sorted(notes)
    places = _apart(own) if multiple_pitch_bends else _alone(own)
    second = tempo / 60.0 * TICKS
    events: list[Event] = []
    used = sorted({channel for channel, _ in places}) or [0]
    for channel in used:
        events.append((0, 0, bytes((0xC0 | channel, ELECTRIC_PIANO))))
        # Registered parameter 0: a bend reaches two semitones.
        for control, value in ((101, 0), (100, 0), (6, 2), (38, 0)):
            events.append((0, 1, bytes((0xB0 | channel, control, value))))
    for note, (channel, bent) in zip(own, places, strict=True):
        events += _events(note, channel, bent, second)
    length = round(60e6 / tempo)
    beat = b"\xff\x51\x03" + min(length, _MOST_TEMPO).to_bytes(3, "big")
    tracks = (_track([(0, 0, beat)]), _track(events))
    head = struct.pack(">4sIHHH", b"MThd", 6, 1, len(tracks), TICKS)
    return head + b"".join(tracks)


def _alone(notes: Sequence[Note]) -> list[tuple[int, bool]]:
    """One channel; bent is what overlaps no other."""
    bent = [True] * len(notes)
    latest, sounding = 0.0, -1
    for at, note in enumerate(notes):
        if sounding >= 0 and note.start < latest:
            bent[at] = bent[sounding] = False
        if sounding < 0 or note.end > latest:
            latest, sounding = note.end, at
    return [(0, one) for one in bent]


def _apart(notes: Sequence[Note]) -> list[tuple[int, bool]]:
    """A free channel for each, the one that was silent longest first."""
    free = list(_CHANNELS)
    busy: list[tuple[float, int]] = []
    found = []
    for note in notes:
        while busy and busy[0][0] <= note.start:
            free.append(heapq.heappop(busy)[1])
        if len(free) > 1:
            channel = free.pop(0)
            heapq.heappush(busy, (note.end, channel))
            found.append((channel, True))
        else:  # the last one is shared by all that have none
            found.append((free[0], False))
    return found


def _events(note: Note, channel: int, bent: bool, second: float) -> list[Event]:
    start, end = round(note.start * second), round(note.end * second)
    end = max(end, start + 1)
    velocity = min(127, max(1, round(127 * note.amplitude)))
    made = [
        (start, 4, bytes((0x90 | channel, note.pitch, velocity))),
        (end, 2, bytes((0x80 | channel, note.pitch, 0))),
    ]
    if not bent or not any(note.bends):
        return made
    last, steps = None, max(1, len(note.bends) - 1)
    for at, bend in enumerate(note.bends):
        value = round(bend * _SEMITONE / BINS)
        value = min(_FARTHEST - 1, max(-_FARTHEST, value))
        if value != last:
            tick = round(start + (end - start) * at / steps)
            made.append((min(tick, end - 1), 3, _bend(channel, value)))
            last = value
    made.append((end, 3, _bend(channel, 0)))
    return made


def _bend(channel: int, value: int) -> bytes:
    high, low = divmod(value + _FARTHEST, 128)
    return bytes((0xE0 | channel, low, high))


def _track(events: Iterable[Event]) -> bytes:
    body, now = bytearray(), 0
    for tick, _, message in sorted(events, key=lambda one: one[:2]):
        body += _variable(tick - now) + message
        now = tick
    body += b"\x00\xff\x2f\x00"
    return struct.pack(">4sI", b"MTrk", len(body)) + bytes(body)


def _variable(value: int) -> bytes:
    """Seven bits a byte, the highest first."""
    made = [value & 127]
    while value := value >> 7:
        made.append(128 | value & 127)
    return bytes(reversed(made))
