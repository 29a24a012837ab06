"""Before and after the Basic Pitch network: windows of sound for it, notes and MIDI
from what it gives.

The network takes windows of two seconds at 22,050 Hz and gives, for each frame of
11.6 ms, how strongly each of 88 piano keys sounds, whether it begins, and its pitch in
thirds of a semitone. The notes are those of the package basic-pitch. Only NumPy is
needed: the example `notes.py` and the demo in a browser tab both import this.

References
----------
Bittner et al. 2022, A Lightweight Instrument-Agnostic Model for Polyphonic Note
Transcription and Multipitch Estimation
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

INPUT = "serving_default_input_2:0"
OUTPUTS = {
    "contour": "StatefulPartitionedCall:0",
    "note": "StatefulPartitionedCall:1",
    "onset": "StatefulPartitionedCall:2",
}
RATE, HOP, WINDOW = 22_050, 256, 43_844
FRAMES, OVERLAP = 172, 30
"""Frames of a window, and how many of them are also in the next window."""
STEP = WINDOW - OVERLAP * HOP
LOWEST, KEYS = 21, 88
"""MIDI pitch of the lowest piano key, and the number of keys."""
QUIET_FRAMES = 11
"""Consecutive frames below the threshold that end a note."""
_DRIFT = HOP / RATE * (FRAMES - WINDOW / HOP) + 0.0018
"""Seconds by which the frames of each window run ahead, as Basic Pitch measured."""
_NAMES = ("C", "C♯", "D", "D♯", "E", "F", "F♯", "G", "G♯", "A", "A♯", "B")


class Note(NamedTuple):
    """A note: start and end in seconds, MIDI pitch, amplitude from 0 to 1.

    `bends` are thirds of a semitone relative to `pitch`, one per frame.
    """

    start: float
    end: float
    pitch: int
    amplitude: float
    bends: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Name of the pitch; 69 is "A4"."""
        return f"{_NAMES[self.pitch % 12]}{self.pitch // 12 - 1}"


def windows(samples: np.ndarray) -> np.ndarray:
    """Cut samples at 22,050 Hz into overlapping windows (n, WINDOW, 1) float32."""
    lead = OVERLAP // 2 * HOP
    count = -(-(len(samples) + lead) // STEP)
    padded = np.zeros((count - 1) * STEP + WINDOW, np.float32)
    padded[lead : lead + len(samples)] = samples
    # A view; `sliding_window_view` has more elements than a tab can address.
    shape, strides = (count, WINDOW, 1), (STEP * 4, 4, 4)
    return np.lib.stride_tricks.as_strided(padded, shape, strides, writeable=False)


def frames(outputs: Iterable[np.ndarray], n_samples: int) -> np.ndarray:
    """Join one output of all windows (n, 172, keys) to frames (frames, keys)."""
    half = OVERLAP // 2
    middle = [output[:, half:-half] for output in outputs]
    joined = np.concatenate([rows.reshape(-1, rows.shape[-1]) for rows in middle])
    return joined[: int(n_samples * (RATE // HOP / RATE))]


def frame_times(count: int) -> np.ndarray:
    """Return the time of each frame in seconds."""
    frame = np.arange(count)
    return frame * HOP / float(RATE) - _DRIFT * np.floor(frame / FRAMES)


def find_notes(
    activations: Mapping[str, np.ndarray],
    onset_threshold: float = 0.5,
    frame_threshold: float = 0.3,
    minimum_note_length: float = 127.7,
) -> list[Note]:
    """Return the notes of activations, sorted by their start.

    Parameters
    ----------
    activations : Mapping[str, numpy.ndarray]
        Frames of "note" (n, 88), "onset" (n, 88) and "contour" (n, 264), float32.
    onset_threshold, frame_threshold : float
        Least activation of an onset and of a frame that sounds, 0 to 1.
    minimum_note_length : float
        Milliseconds.
    """
    note, contour = activations["note"], activations["contour"]
    if len(note) < 2:
        return []
    min_frames = round(minimum_note_length / 1000 * (RATE / HOP))
    quiet = [bytearray(column.tobytes()) for column in (note < frame_threshold).T]
    spans: list[tuple[int, int, int]] = []
    for start, key in _onsets(note, activations["onset"], onset_threshold)[::-1]:
        end = _note_end(quiet[key], start + 1)
        if end - start > min_frames:
            _silence(quiet, start, end, key)
            spans.append((start, end, key))
    # Frames that still sound, loudest first, become notes without an onset.
    rows, keys = np.nonzero(note > frame_threshold)
    for index in np.argsort(-note[rows, keys], kind="stable"):
        row, key = int(rows[index]), int(keys[index])
        if not quiet[key][row]:
            start, end = _sounding_span(quiet, row, key)
            if end - start > min_frames:
                spans.append((start, end, key))
    times, bends = frame_times(len(note)), _bends(contour)
    return sorted(
        Note(
            float(times[start]),
            float(times[end]),
            key + LOWEST,
            float(np.mean(note[start:end, key])),
            tuple(bends[start:end, key].tolist()),
        )
        for start, end, key in spans
    )


def _onsets(
    note: np.ndarray, onset: np.ndarray, threshold: float
) -> list[tuple[int, int]]:
    """(frame, key) of local maxima of onsets; a rise of the activation counts too."""
    wide = note.astype(np.float64)
    rise = np.zeros_like(wide)
    rise[2:] = np.minimum(wide[2:] - wide[1:-1], wide[2:] - wide[:-2])
    rise = np.maximum(rise, 0.0)
    level = onset.astype(np.float64)
    if level.max() and rise.max():
        level = np.maximum(level, level.max() * rise / rise.max())
    peak = (level[1:-1] > level[:-2]) & (level[1:-1] > level[2:])
    rows, keys = np.nonzero(peak & (level[1:-1] >= threshold))
    return list(zip((rows + 1).tolist(), keys.tolist(), strict=True))


def _silence(quiet: Sequence[bytearray], start: int, end: int, key: int) -> None:
    """Mark frames of a key and its neighbours as explained by a note."""
    if start < end:
        for near in range(max(0, key - 1), min(KEYS, key + 2)):
            quiet[near][start:end] = b"\1" * (end - start)


def _note_end(quiet: bytearray, frame: int) -> int:
    """Return the frame after the last one that sounds, from `frame` on."""
    silent = 0
    while frame < len(quiet) - 1 and silent < QUIET_FRAMES:
        silent = silent + 1 if quiet[frame] else 0
        frame += 1
    return frame - silent


def _sounding_span(
    quiet: Sequence[bytearray], middle: int, key: int
) -> tuple[int, int]:
    """Return start and end of what sounds around a frame, and mark it as explained."""
    column = quiet[key]
    column[middle] = 1
    after, silent = middle + 1, 0
    while after < len(column) - 1 and silent < QUIET_FRAMES:
        silent = silent + 1 if column[after] else 0
        after += 1
    end = after - 1 - silent
    before, silent = middle - 1, 0
    while before > 0 and silent < QUIET_FRAMES:
        silent = silent + 1 if column[before] else 0
        before -= 1
    start = before + 1 + silent
    _silence(quiet, before + 1, middle, key)
    _silence(quiet, middle + 1, after, key)
    return start, end


def _bends(contour: np.ndarray) -> np.ndarray:
    """Pitch bend of each frame and key (n, 88), in thirds of a semitone."""
    half_width = 25
    bell = np.exp(-(np.arange(-half_width, half_width + 1) ** 2) / (2 * 5.0**2))
    bends = np.empty((len(contour), KEYS), np.int8)
    for key in range(KEYS):
        low = max(0, 3 * key - half_width)
        high = min(3 * KEYS, 3 * key + half_width + 1)
        shift = low - (3 * key - half_width)
        weighted = contour[:, low:high] * bell[shift : shift + high - low]
        bends[:, key] = np.argmax(weighted, axis=1) - (half_width - shift)
    return bends


# --- MIDI -----------------------------------------------------------------------------

_TICKS = 960  # of a second: 480 of a quarter note at 120 a minute
_ELECTRIC_PIANO = 4
Event = tuple[int, int, bytes]
"""Tick, order among the events of a tick, and the MIDI message."""


def midi(notes: Sequence[Note]) -> bytes:
    """Return a standard MIDI file of notes sorted by their start.

    A channel bends all notes that sound on it, so only notes that overlap no other one
    are bent.
    """
    events: list[Event] = [(0, 0, bytes((0xC0, _ELECTRIC_PIANO)))]
    # Registered parameter 0 sets the range of bends: two semitones.
    events += [(0, 1, bytes((0xB0, *pair))) for pair in _BEND_RANGE]
    latest, latest_at, alone = 0.0, -1, [True] * len(notes)
    for at, note in enumerate(notes):
        if latest_at >= 0 and note.start < latest:
            alone[at] = alone[latest_at] = False
        if note.end > latest:
            latest, latest_at = note.end, at
    for note, is_alone in zip(notes, alone, strict=True):
        start = round(note.start * _TICKS)
        end = max(start + 1, round(note.end * _TICKS))
        velocity = min(127, max(1, round(127 * note.amplitude)))
        events.append((start, 4, bytes((0x90, note.pitch, velocity))))
        events.append((end, 2, bytes((0x80, note.pitch, 0))))
        if is_alone and any(note.bends):
            events += _bend_events(note.bends, start, end)
    tempo = (0, 0, b"\xff\x51\x03" + (500_000).to_bytes(3, "big"))
    header = struct.pack(">4sIHHH", b"MThd", 6, 1, 2, _TICKS // 2)
    return header + _track([tempo]) + _track(events)


_BEND_RANGE = ((101, 0), (100, 0), (6, 2), (38, 0))


def _bend_events(bends: Sequence[int], start: int, end: int) -> list[Event]:
    events, last = [], None
    for at, bend in enumerate(bends):
        value = min(8191, max(-8192, round(bend * 4096 / 3)))
        if value != last:
            tick = round(start + (end - start) * at / max(1, len(bends) - 1))
            events.append((min(tick, end - 1), 3, _bend(value)))
            last = value
    return [*events, (end, 3, _bend(0))]


def _bend(value: int) -> bytes:
    high, low = divmod(value + 8192, 128)
    return bytes((0xE0, low, high))


def _track(events: Iterable[Event]) -> bytes:
    body, now = bytearray(), 0
    for tick, _, message in sorted(events, key=lambda event: event[:2]):
        body += _variable_length(tick - now) + message
        now = tick
    body += b"\x00\xff\x2f\x00"
    return struct.pack(">4sI", b"MTrk", len(body)) + bytes(body)


def _variable_length(value: int) -> bytes:
    """Encode an integer in groups of seven bits, the highest first."""
    groups = [value & 127]
    while value := value >> 7:
        groups.append(128 | value & 127)
    return bytes(reversed(groups))
