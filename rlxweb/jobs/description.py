"""What a recording holds, as plain data, before anything is computed of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rlxweb.io import Annotation, Group, Recording
from rlxweb.jobs.entries import Entry, text_of


def file_description(recording: Recording) -> Entry:
    """Of an open recording: rates, channels, annotations, what is left out and why.

    Errors   RecordingError for annotations that cannot be read
    """
    groups = [_group(group) for group in recording.groups]
    notes = recording.annotations
    return {
        "path": text_of(recording.path),
        "format": recording.format,
        "date": None if recording.date is None else recording.date.isoformat(),
        "begun_s": recording.begun,
        "seconds": max((group["seconds"] for group in groups), default=_end(notes)),
        "groups": groups,
        "annotations": [*_texts(notes)],
        "left_out": [{"channel": n, "reason": why} for n, why in recording.left_out],
        "warnings": list(recording.warnings),
    }


def _end(notes: Iterable[Annotation]) -> float:
    """Return when the last annotation ends."""
    return max((one.onset + one.duration for one in notes), default=0.0)


def _group(group: Group) -> Entry:
    stored = group.dtype if group.digital is None else group.digital
    return {
        "fs": float(group.fs),
        "n_samples": group.n_recorded,
        "seconds": group.seconds,
        "samples": str(stored),
        "gaps_s": [[first / group.fs, last / group.fs] for first, last in group.gaps],
        "channels": [
            {"name": one.name, "label": one.label, "unit": one.unit}
            for one in group.channels
        ],
    }


def _texts(notes: Iterable[Annotation]) -> Iterator[dict[str, Any]]:
    """By their words, in the order of the first of each."""
    found: dict[str, list[Annotation]] = {}
    for note in notes:
        found.setdefault(note.text, []).append(note)
    for text, some in found.items():
        lengths = [note.duration for note in some]
        yield {
            "text": text,
            "count": len(some),
            "first_s": some[0].onset,
            "last_s": some[-1].onset,
            "least_duration_s": min(lengths),
            "most_duration_s": max(lengths),
        }
