"""Notes out of activations: where a pitch begins, how long it sounds, how it bends.

Does what Basic Pitch's own `note_creation` does and gives its notes, bit for bit, in
time that grows with the notes and not with their square: what is still unexplained of a
pitch is kept as flags, and the loudest of it comes from one sorted list.

Source   Bittner et al. 2022, A Lightweight Instrument-Agnostic Model for Polyphonic
Note Transcription and Multipitch Estimation, 3.3
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlxweb.arguments import number
from rlxweb.errors import UsageError
from rlxweb.models.note import BINS, LOWEST, PITCHES

Array = npt.NDArray[Any]

_TOLERANCE = 25
"""Bins to either side of a note in which its bend is looked for."""
_SPREAD = 5.0
_QUIET_FRAMES = 11
"""So many frames below the threshold end a note."""
_CHUNK = 1 << 13


@dataclass(frozen=True, slots=True)
class NoteSettings:
    """What counts as a note. The names and what is usual are Basic Pitch's.

    onset_threshold      least activation of an onset, 0 to 1
    frame_threshold      least activation of a frame that sounds, 0 to 1
    minimum_note_length  ms
    minimum_frequency, maximum_frequency
                         Hz; None: the piano's
    infer_onsets         rises of the activation count as onsets too
    melodia_trick        what sounds without an onset becomes notes too
    pitch_bends          bends are looked for
    """

    onset_threshold: float = 0.5
    frame_threshold: float = 0.3
    minimum_note_length: float = 127.7
    minimum_frequency: float | None = None
    maximum_frequency: float | None = None
    infer_onsets: bool = True
    melodia_trick: bool = True
    pitch_bends: bool = True

    def checked(self, doing: str) -> NoteSettings:
        """Itself. Errors  UsageError for numbers that cannot be meant."""
        for name in ("onset_threshold", "frame_threshold"):
            own = number(name, getattr(self, name), doing)
            if not 0 < own <= 1:
                raise UsageError(doing, f"{name} is {own:g}", "above 0, at most 1")
        least = number("minimum_note_length", self.minimum_note_length, doing)
        if least < 0:
            problem = f"minimum_note_length is {least:g}"
            raise UsageError(doing, problem, "0 or more milliseconds")
        ends: list[float | None] = []
        for name in ("minimum_frequency", "maximum_frequency"):
            given = getattr(self, name)
            hz = None if given is None else number(name, given, doing)
            if hz is not None and hz <= 0:
                raise UsageError(doing, f"{name} is {hz:g} Hz", "above 0")
            ends.append(hz)
        low, high = ends
        if low is not None and high is not None and low >= high:
            problem = f"minimum_frequency is {low:g} Hz"
            raise UsageError(doing, problem, f"below maximum_frequency, {high:g} Hz")
        return self

    @property
    def keys(self) -> tuple[int, int]:
        """[first, last) of the keys that are looked at."""
        low, high = self.minimum_frequency, self.maximum_frequency
        first = 0 if low is None else _key_of(low)
        last = PITCHES if high is None else _key_of(high)
        return first, max(first, last)


def _key_of(hz: float) -> int:
    key = round(12.0 * math.log2(hz / 440.0) + 69.0 - LOWEST)
    return min(PITCHES, max(0, key))


class Event(NamedTuple):
    """A note in frames [start, end), of a key from 0."""

    start: int
    end: int
    key: int
    amplitude: float


def events_of(
    frames: Array, onsets: Array, least: int, settings: NoteSettings
) -> list[Event]:
    """The notes of activations, those with onsets last to first, then the loudest.

    frames, onsets  (n, 88) float32, how much each key sounds and begins to
    least           frames; a note has more
    """
    if len(frames) < 2:
        return []
    found: list[tuple[int, int, int]] = []
    left = _Left(frames, settings)
    for start, key in reversed(_onsets(frames, onsets, settings)):
        end = left.end(key, start + 1)
        if end - start > least:
            left.explain(start, end, range(key - 1, key + 2))
            found.append((start, end, key))
    if settings.melodia_trick:
        for at, key in _loudest(frames, settings):
            if not left.quiet[key][at]:
                start, end = left.around(at, key)
                if end - start > least:
                    found.append((start, end, key))
    return [Event(a, b, key, float(np.mean(frames[a:b, key]))) for a, b, key in found]


class _Left:
    """What no note explains yet.

    quiet  of each key, frame by frame: 0 where it sounds and is left
    """

    def __init__(self, frames: Array, settings: NoteSettings) -> None:
        first, last = settings.keys
        count = len(frames)
        self.quiet = [bytearray(b"\1") * count for _ in range(PITCHES)]
        self._last = count - 1
        for begin in range(0, count, _CHUNK):
            part = frames[begin : begin + _CHUNK, first:last]
            flags = (part < np.float64(settings.frame_threshold)).astype(np.uint8)
            for key in range(first, last):
                column = flags[:, key - first].tobytes()
                self.quiet[key][begin : begin + len(column)] = column

    def explain(self, start: int, end: int, keys: Iterable[int]) -> None:
        """Frames [start, end) of these keys, of those that there are."""
        if start < end:
            for key in keys:
                if 0 <= key < PITCHES:
                    self.quiet[key][start:end] = b"\1" * (end - start)

    def end(self, key: int, at: int) -> int:
        """The frame behind the last one that sounds, from frame `at` on."""
        quiet, silent = self.quiet[key], 0
        while at < self._last and silent < _QUIET_FRAMES:
            silent = silent + 1 if quiet[at] else 0
            at += 1
        return at - silent

    def around(self, middle: int, key: int) -> tuple[int, int]:
        """[start, end) of what sounds around a frame, which is then explained."""
        quiet = self.quiet[key]
        quiet[middle] = 1
        past, silent = middle + 1, 0
        while past < self._last and silent < _QUIET_FRAMES:
            silent = silent + 1 if quiet[past] else 0
            past += 1
        end = past - 1 - silent
        before, silent = middle - 1, 0
        while before > 0 and silent < _QUIET_FRAMES:
            silent = silent + 1 if quiet[before] else 0
            before -= 1
        start = before + 1 + silent
        keys = range(key - 1, key + 2)
        self.explain(before + 1, middle, keys)
        self.explain(middle + 1, past, keys)
        return start, end


def _loudest(frames: Array, settings: NoteSettings) -> Iterator[tuple[int, int]]:
    """(frame, key) of what is above the threshold, loudest first; of equals the
    earliest, then the lowest.
    """
    first, last = settings.keys
    threshold = np.float64(settings.frame_threshold)
    places, values = [], []
    for begin in range(0, len(frames), _CHUNK):
        part = frames[begin : begin + _CHUNK, first:last]
        rows, keys = np.nonzero(part > threshold)
        places.append((rows + begin) * PITCHES + keys + first)
        values.append(part[rows, keys])
    place = np.concatenate(places)
    order = np.argsort(-np.concatenate(values), kind="stable")
    for at in place[order].tolist():
        yield divmod(at, PITCHES)


def _onsets(
    frames: Array, onsets: Array, settings: NoteSettings
) -> list[tuple[int, int]]:
    """(frame, key) where an onset is greatest and above the threshold, in order."""
    first, last = settings.keys
    count, scale = len(frames), 0.0
    if settings.infer_onsets and first < last:
        parts = range(0, count, _CHUNK)
        rise = max(float(_rises(frames, at, first, last).max()) for at in parts)
        peak = max(float(onsets[at : at + _CHUNK, first:last].max()) for at in parts)
        scale = rise and peak / rise
        top, greatest = np.float64(peak), np.float64(rise)
    found = []
    for begin in range(0, count if first < last else 0, _CHUNK):
        a, b = max(0, begin - 1), min(count, begin + _CHUNK + 1)
        own = np.asarray(onsets[a:b, first:last], np.float64)
        if scale:
            rises = _rises(frames, a, first, last, b)
            own = np.maximum(own, top * rises / greatest)
        peaks = (own[1:-1] > own[:-2]) & (own[1:-1] > own[2:])
        peaks &= own[1:-1] >= settings.onset_threshold
        rows, keys = np.nonzero(peaks)
        places = zip((rows + a + 1).tolist(), (keys + first).tolist(), strict=True)
        found += [one for one in places if begin <= one[0] < begin + _CHUNK]
    return [one for one in found if one[0] < count - 1]


def _rises(
    frames: Array, start: int, first: int, last: int, stop: int | None = None
) -> Array:
    """How much louder frames [start, stop) are than both before them, or 0."""
    stop = min(len(frames), start + _CHUNK) if stop is None else stop
    before = max(0, start - 2)
    own = np.asarray(frames[before:stop, first:last], np.float64)
    if before == start - 2:
        rises = np.minimum(own[2:] - own[1:-1], own[2:] - own[:-2])
    else:  # the first two frames have not two before them
        rises = np.zeros((stop - start, last - first))
        rises[2 - start :] = np.minimum(own[2:] - own[1:-1], own[2:] - own[:-2])
    return np.maximum(rises, 0.0)


# --- bends ----------------------------------------------------------------------------


def bends_of(contours: Array) -> Array:
    """(n, 88) int8: for each frame and key, how many thirds of a semitone above the key
    the contour is strongest.

    contours  (n, 264) float32
    """
    distance = np.arange(-_TOLERANCE, _TOLERANCE + 1)
    bell = np.exp(-(distance**2) / (2 * _SPREAD**2))
    bins = BINS * PITCHES
    made = np.empty((len(contours), PITCHES), np.int8)
    for key in range(PITCHES):
        low, high = max(0, BINS * key - _TOLERANCE), BINS * key + _TOLERANCE + 1
        high = min(bins, high)
        shift = low - (BINS * key - _TOLERANCE)
        weighed = contours[:, low:high] * bell[shift : shift + high - low]
        made[:, key] = np.argmax(weighed, axis=1) - (_TOLERANCE - shift)
    return made
