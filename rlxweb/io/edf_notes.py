"""Annotations as EDF+ keeps them: lists of texts with their times, in data records.

Owns the form of a list and in which record each lies. Every record begins with its own
time; behind it there is as much room in each, so what is too much for one goes on in
the next, which the specification allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlxweb.io.annotations import Annotation, parsed

_LEAST_NBYTES = 30
# What parts the texts of a list, and would do so inside of one.
_MARKS = str.maketrans(dict.fromkeys("\0\x14\x15", " "))


@dataclass(frozen=True, slots=True)
class PlacedNotes:
    """The annotation channel of a file.

    nbytes   of each data record
    bodies   by the number of the record, for those that hold more than their time
    """

    nbytes: int
    record_s: float
    since: float
    bodies: dict[int, bytes]

    def of_record(self, record: int) -> bytes:
        """Its time, its annotations, and zeros to the end."""
        own = _time_of(record, self.record_s, self.since) + self.bodies.get(record, b"")
        return own.ljust(self.nbytes, b"\0")


def placed(
    notes: Sequence[Annotation], n_records: int, record_s: float, since: float
) -> PlacedNotes:
    """The notes, each in the record of its onset or in the next that has room.

    since   seconds by which the first sample comes after the time in the header
    """
    lists = [(one.onset, _list_of(one, since)) for one in sorted(notes)]
    times = len(_time_of(n_records, record_s, since))
    longest = max((len(text) for _, text in lists), default=0)
    total = sum(len(text) for _, text in lists)
    # What a record that takes no further one holds at least: so all have room.
    room = longest + -(-total // n_records)
    bodies: dict[int, bytes] = {}
    late, at = [], 0
    for onset, text in lists:
        at = max(at, min(n_records - 1, int(max(0.0, onset) / record_s)))
        while at < n_records and len(bodies.get(at, b"")) + len(text) > room:
            at += 1
        if at == n_records:
            late.append(text)
        else:
            bodies[at] = bodies.get(at, b"") + text
    at = 0
    for text in late:
        while len(bodies.get(at, b"")) + len(text) > room:
            at += 1
        bodies[at] = bodies.get(at, b"") + text
    held = max((len(body) for body in bodies.values()), default=0)
    return PlacedNotes(max(_LEAST_NBYTES, times + held), record_s, since, bodies)


def is_exact(note: Annotation) -> bool:
    """Whether the note reads back as it is, but for nanoseconds."""
    texts = [one.text for one in parsed(_list_of(note, 0.0))]
    return texts == [note.text] and note.duration >= 0


def _time_of(record: int, record_s: float, since: float) -> bytes:
    return f"{_signed(since + record * record_s)}\x14\x14\0".encode()


def _list_of(note: Annotation, since: float) -> bytes:
    lasts = f"\x15{_number(note.duration)}" if note.duration > 0 else ""
    text = note.text.translate(_MARKS).encode("utf-8", "replace")
    return f"{_signed(note.onset + since)}{lasts}\x14".encode() + text + b"\x14\0"


def _signed(seconds: float) -> str:
    text = _number(seconds)
    return text if text.startswith("-") else f"+{text}"


def _number(seconds: float) -> str:
    """To the nanosecond, never with an exponent."""
    return f"{seconds:.9f}".rstrip("0").rstrip(".")
