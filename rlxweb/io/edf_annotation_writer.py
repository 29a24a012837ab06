"""Layout of annotations in the data records of an EDF+ file, for writing.

Owns the form of a list and in which record each lies. Every record begins with its own
time; behind it there is as much room in each, so what is too much for one goes on in
the next, which the specification allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlxweb.io.annotations import Annotation, parse_annotations

_MIN_RECORD_NBYTES = 30
# What parts the texts of a list, and would do so inside of one.
_SEPARATORS_TO_BLANKS = str.maketrans(dict.fromkeys("\0\x14\x15", " "))


@dataclass(frozen=True, slots=True)
class EdfAnnotationChannel:
    """Annotation channel of a file: its bytes in every data record.

    record_nbytes  of each data record
    lists_by_record  by the number of the record, for those that hold more than their
                     time
    """

    record_nbytes: int
    record_s: float
    start_offset_s: float
    lists_by_record: dict[int, bytes]

    def record_bytes(self, record: int) -> bytes:
        """Return a record's time stamp and annotations, padded with zeros."""
        content = _record_time_stamp(
            record, self.record_s, self.start_offset_s
        ) + self.lists_by_record.get(record, b"")
        return content.ljust(self.record_nbytes, b"\0")


def place_annotations(
    annotations: Sequence[Annotation],
    n_records: int,
    record_s: float,
    start_offset_s: float,
) -> EdfAnnotationChannel:
    """Place each annotation in the record of its onset or in the next one with enough
    space.

    start_offset_s  seconds by which the first sample comes after the time in the header
    """
    lists = [
        (annotation.onset, _annotation_list(annotation, start_offset_s))
        for annotation in sorted(annotations)
    ]
    time_stamp_nbytes = len(_record_time_stamp(n_records, record_s, start_offset_s))
    longest = max((len(text) for _, text in lists), default=0)
    total = sum(len(text) for _, text in lists)
    # What a record that takes no further one holds at least: so all have room.
    max_list_nbytes = longest + -(-total // n_records)
    lists_by_record: dict[int, bytes] = {}
    unplaced, record = [], 0
    for onset, text in lists:
        record = max(record, min(n_records - 1, int(max(0.0, onset) / record_s)))
        while (
            record < n_records
            and len(lists_by_record.get(record, b"")) + len(text) > max_list_nbytes
        ):
            record += 1
        if record == n_records:
            unplaced.append(text)
        else:
            lists_by_record[record] = lists_by_record.get(record, b"") + text
    record = 0
    for text in unplaced:
        while len(lists_by_record.get(record, b"")) + len(text) > max_list_nbytes:
            record += 1
        lists_by_record[record] = lists_by_record.get(record, b"") + text
    longest_body = max((len(body) for body in lists_by_record.values()), default=0)
    return EdfAnnotationChannel(
        max(_MIN_RECORD_NBYTES, time_stamp_nbytes + longest_body),
        record_s,
        start_offset_s,
        lists_by_record,
    )


def is_stored_exactly(annotation: Annotation) -> bool:
    """Tell whether an annotation reads back unchanged, up to nanoseconds."""
    texts = [
        stored.text for stored in parse_annotations(_annotation_list(annotation, 0.0))
    ]
    return texts == [annotation.text] and annotation.duration >= 0


def _record_time_stamp(record: int, record_s: float, start_offset_s: float) -> bytes:
    """Return the time-keeping annotation with which a record begins."""
    return f"{_format_signed(start_offset_s + record * record_s)}\x14\x14\0".encode()


def _annotation_list(annotation: Annotation, start_offset_s: float) -> bytes:
    """Return an annotation as a time-stamped annotations list of EDF+."""
    duration_field = (
        f"\x15{_format_seconds(annotation.duration)}" if annotation.duration > 0 else ""
    )
    text = annotation.text.translate(_SEPARATORS_TO_BLANKS).encode("utf-8", "replace")
    return (
        (
            _format_signed(annotation.onset + start_offset_s) + f"{duration_field}\x14"
        ).encode()
        + text
        + b"\x14\0"
    )


def _format_signed(seconds: float) -> str:
    """Format seconds with a sign."""
    text = _format_seconds(seconds)
    return text if text.startswith("-") else f"+{text}"


def _format_seconds(seconds: float) -> str:
    """Format seconds to the nanosecond, never with an exponent."""
    return f"{seconds:.9f}".rstrip("0").rstrip(".")
