"""What somebody noted beside a signal: when, for how long, and in which words.

Owns annotations and the form that EDF+ keeps them in. Onsets count from the first
sample.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from rlxweb.errors import UnknownName, did_you_mean, shown

MOST: Final = 1_000_000
"""Of a file; more are refused before they fill the memory."""
_LIST: Final = re.compile(
    rb"([+-]\d+(?:\.\d*)?)(?:\x15(\d+(?:\.\d*)?))?\x14((?:[^\x00\x14]*\x14)*)\x00"
)
_SHOWN = 12


class Annotation(NamedTuple):
    """One note.

    onset     seconds from the first sample
    duration  seconds; 0 of a moment
    text      its words
    """

    onset: float
    duration: float
    text: str


def parsed(raw: bytes) -> Iterator[Annotation]:
    """The notes in the bytes of an annotation channel, one data record of it.

    Those without words keep the time of their record and are left out.

    Source  EDF+ specification, 2.2.2: time-stamped annotations lists
    """
    for match in _LIST.finditer(raw):
        onset, duration, texts = match.groups()
        if not (math.isfinite(float(onset)) and math.isfinite(float(duration or 0.0))):
            continue  # hundreds of digits are no time
        for text in texts.split(b"\x14"):
            if text:
                words = decoded(text).strip()
                yield Annotation(float(onset), float(duration or 0.0), words)


def decoded(text: bytes) -> str:
    """Return the words of bytes: UTF-8, or else Windows' form of Latin-1.

    EDF+ asks for UTF-8; programs that break the rule write the bytes of their system.
    """
    for encoding in ("utf-8", "cp1252"):
        try:
            return text.decode(encoding)
        except UnicodeDecodeError:
            pass
    return text.decode("latin-1")


def is_utf8(raw: bytes) -> bool:
    """Tell whether bytes are text of UTF-8."""
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def is_named(note: Annotation, wanted: str) -> bool:
    """Has it the words, or are they of the pattern? Case does not matter."""
    text, pattern = note.text.casefold(), wanted.casefold()
    return text == pattern or fnmatchcase(text, pattern)


def is_bad(words: str) -> bool:
    """Do they begin with "bad", in any case? By MNE, what not to look at."""
    return words.casefold().startswith("bad")


def bad_stretches(notes: Sequence[Annotation]) -> tuple[Annotation, ...]:
    """Those of words that begin with "bad"."""
    return tuple(one for one in notes if is_bad(one.text))


def named(
    notes: Sequence[Annotation], wanted: str, doing: str
) -> tuple[Annotation, ...]:
    """Those of the words, or of a pattern ('Stim*'); case does not matter.

    Errors   UnknownName where there is none, with those there are.
    """
    found = tuple(one for one in notes if is_named(one, wanted))
    if found:
        return found
    known = list(dict.fromkeys(one.text for one in notes))
    rest = f", … and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    there = ", ".join(map(shown, known[:_SHOWN])) + rest
    raise UnknownName(
        doing,
        f"no annotation is called {shown(wanted)}",
        f"there are {there}" if known else "it has no annotations",
        did_you_mean(wanted, known),
    )
