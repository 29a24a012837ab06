"""Description of a recording as plain data, before anything is computed from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rlxweb.batch.run_record_entries import RecordEntry, path_text
from rlxweb.io import Annotation, Group, Recording


def file_description(recording: Recording) -> RecordEntry:
    """Describe an open recording: rates, channels, annotations, and what is left out
    and why.

    Errors   RecordingError for annotations that cannot be read
    """
    groups = [_describe_group(group) for group in recording.groups]
    annotations = recording.annotations
    return {
        "path": path_text(recording.path),
        "format": recording.format,
        "date": None if recording.date is None else recording.date.isoformat(),
        "begun_s": recording.begun,
        "seconds": max(
            (group["seconds"] for group in groups),
            default=_annotations_end(annotations),
        ),
        "groups": groups,
        "annotations": [*_summarize_annotations(annotations)],
        "left_out": [
            {"channel": channel, "reason": why} for channel, why in recording.left_out
        ],
        "warnings": list(recording.warnings),
    }


def _annotations_end(annotations: Iterable[Annotation]) -> float:
    """Return when the last annotation ends."""
    return max(
        (annotation.onset + annotation.duration for annotation in annotations),
        default=0.0,
    )


def _describe_group(group: Group) -> RecordEntry:
    stored = group.dtype if group.digital is None else group.digital
    return {
        "fs": float(group.fs),
        "n_samples": group.n_recorded,
        "seconds": group.seconds,
        "samples": str(stored),
        "gaps_s": [[first / group.fs, last / group.fs] for first, last in group.gaps],
        "channels": [
            {"name": channel.name, "label": channel.label, "unit": channel.unit}
            for channel in group.channels
        ],
    }


def _summarize_annotations(
    annotations: Iterable[Annotation],
) -> Iterator[dict[str, Any]]:
    """Summarize annotations by their text, in the order of the first of each."""
    by_text: dict[str, list[Annotation]] = {}
    for annotation in annotations:
        by_text.setdefault(annotation.text, []).append(annotation)
    for text, matches in by_text.items():
        lengths = [annotation.duration for annotation in matches]
        yield {
            "text": text,
            "count": len(matches),
            "first_s": matches[0].onset,
            "last_s": matches[-1].onset,
            "least_duration_s": min(lengths),
            "most_duration_s": max(lengths),
        }
