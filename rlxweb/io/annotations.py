"""Annotations of a recording: onset, duration and text, and how EDF+ stores them.

Owns annotations and the form that EDF+ keeps them in. Onsets count from the first
sample.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from rlxweb.core.errors import UnknownName, did_you_mean, shown

MAX_ANNOTATIONS: Final = 1_000_000
"""Maximum number of annotations of a file; more are refused before they fill the
memory.
"""
_ANNOTATION_LIST: Final = re.compile(
    rb"([+-]\d+(?:\.\d*)?)(?:\x15(\d+(?:\.\d*)?))?\x14((?:[^\x00\x14]*\x14)*)\x00"
)
_MAX_SHOWN_TEXTS = 12


class Annotation(NamedTuple):
    """One annotation: a text with its onset and duration.

    onset     seconds from the first sample
    duration  seconds; 0 of a moment
    text      its words
    """

    onset: float
    duration: float
    text: str


def parse_annotations(raw: bytes) -> Iterator[Annotation]:
    """Yield the annotations in the bytes of an annotation channel, one data record of
    it.

    Those without words keep the time of their record and are left out.

    Source  EDF+ specification, 2.2.2: time-stamped annotations lists
    """
    for match in _ANNOTATION_LIST.finditer(raw):
        onset, duration, texts = match.groups()
        if not (math.isfinite(float(onset)) and math.isfinite(float(duration or 0.0))):
            continue  # hundreds of digits are no time
        for text in texts.split(b"\x14"):
            if text:
                annotation_text = decode_text(text).strip()
                yield Annotation(float(onset), float(duration or 0.0), annotation_text)


def decode_text(text: bytes) -> str:
    """Return the text of bytes: UTF-8, or else Windows-1252 or Latin-1.

    EDF+ asks for UTF-8; programs that break the rule write the bytes of their system.
    """
    for encoding in ("utf-8", "cp1252"):
        try:
            return text.decode(encoding)
        except UnicodeDecodeError:
            pass
    return text.decode("latin-1")


def is_utf8(raw: bytes) -> bool:
    """Tell whether bytes are valid UTF-8."""
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def matches_text(annotation: Annotation, query: str) -> bool:
    """Tell whether an annotation's text equals the query or matches it as a pattern,
    ignoring case.
    """
    text, pattern = annotation.text.casefold(), query.casefold()
    return text == pattern or fnmatchcase(text, pattern)


def is_bad_text(text: str) -> bool:
    """Tell whether a text begins with "bad", in any case; MNE excludes such
    stretches.
    """
    return text.casefold().startswith("bad")


def bad_annotations(annotations: Sequence[Annotation]) -> tuple[Annotation, ...]:
    """Return the annotations whose text begins with "bad"."""
    return tuple(
        annotation for annotation in annotations if is_bad_text(annotation.text)
    )


def find_annotations(
    annotations: Sequence[Annotation], query: str, context: str
) -> tuple[Annotation, ...]:
    """Return the annotations whose text equals the query or matches it as a pattern
    ('Stim*'), ignoring case.

    Errors   UnknownName where there is none, with those there are.
    """
    matches = tuple(
        annotation for annotation in annotations if matches_text(annotation, query)
    )
    if matches:
        return matches
    known_texts = list(dict.fromkeys(annotation.text for annotation in annotations))
    rest = (
        f", … and {len(known_texts) - _MAX_SHOWN_TEXTS} more"
        if len(known_texts) > _MAX_SHOWN_TEXTS
        else ""
    )
    known_list = ", ".join(map(shown, known_texts[:_MAX_SHOWN_TEXTS])) + rest
    raise UnknownName(
        context,
        f"no annotation matches {shown(query)}",
        f"available annotations: {known_list}"
        if known_texts
        else "the recording has no annotations",
        did_you_mean(query, known_texts),
    )
