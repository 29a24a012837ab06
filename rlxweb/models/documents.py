"""Text files as passages: lines, paragraphs or whole files, each with its place.

A file is UTF-8 text, with or without a mark at its beginning. A folder stands for the
text files in it and below it. Nothing here knows what passages are wanted for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

from rlxweb.arguments import one_of
from rlxweb.errors import RecordingError, UsageError, shown
from rlxweb.given import named
from rlxweb.io.source import open_source
from rlxweb.whole_file import reason

Unit = Literal["paragraph", "line", "file"]
UNITS: tuple[Unit, ...] = ("paragraph", "line", "file")
SUFFIXES = (".md", ".markdown", ".rst", ".txt", ".text", ".org", ".adoc", ".tex")
MOST_NBYTES = 64 << 20
_READING = "reading text"
# What editors count; `str.splitlines` also ends a line at a form feed and the like.
_LINE_END = re.compile(r"\r\n?|\n")


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a text file.

    line  the line it begins on, from 1
    """

    path: str
    line: int
    text: str


def files_of(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """The files that are meant, each once, in order; folders are looked through.

    Errors   UsageError for a folder without a text file, and for no path at all;
    RecordingError for a folder that cannot be read.
    """
    found: dict[str, None] = {}
    for name in names_of(paths):
        if not os.path.isdir(name):
            found[name] = None
            continue
        inside = sorted(_inside(name))
        if not inside:
            raise UsageError(
                f"reading {shown(name)}",
                "the folder has no text file",
                f"files of a folder end in {', '.join(SUFFIXES)}",
                "name the files",
            )
        found |= dict.fromkeys(inside)
    if not found:
        raise UsageError(_READING, "no file is named", "one at least")
    return list(found)


def names_of(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Paths as text. Errors  UsageError for what is no list of paths."""
    given = [paths] if isinstance(paths, str | bytes | os.PathLike) else paths
    if given is not paths:
        rule, hint = "a list of paths is wanted", "put it in [ ]"
        raise UsageError(_READING, f"{shown(paths)} was given", rule, hint)
    return [_name(path) for path in given]


def _name(path: object) -> str:
    try:
        return os.fsdecode(path)  # type: ignore[arg-type]
    except TypeError:
        problem = f"{named(path)} was given"
        raise UsageError(_READING, problem, "a path is wanted") from None


def _inside(folder: str) -> Iterator[str]:
    """What is hidden is not looked at. Errors  RecordingError."""
    for root, folders, names in os.walk(folder, onerror=_unread):
        folders[:] = [one for one in folders if not one.startswith(".")]
        for name in names:
            if not name.startswith(".") and name.lower().endswith(SUFFIXES):
                yield os.path.join(root, name)


def _unread(error: OSError) -> NoReturn:
    problem = f"the system cannot read the folder ({reason(error)})"
    raise RecordingError(f"reading {shown(error.filename)}", problem) from error


def passages_of(
    path: str | os.PathLike[str], unit: Unit = "paragraph"
) -> list[Passage]:
    """The passages of a text file; what is blank is none.

    unit     "paragraph": what stands between blank lines; "line"; "file": all of it
    Errors   RecordingError for a file that is missing, too large or no text;
    UsageError for what is no path, and for another unit
    """
    name = _name(path)
    one_of("unit", unit, UNITS, f"reading {shown(name)}")
    if os.path.isfile(name) and not os.path.getsize(name):
        return []
    lines = _LINE_END.split(_text_of(name))
    return [
        Passage(name, first + 1, "\n".join(lines[first:last]).strip())
        for first, last in _spans(lines, unit)
    ]


def _text_of(name: str) -> str:
    """What a file holds. Errors  RecordingError."""
    source = open_source(name)
    try:
        if source.nbytes > MOST_NBYTES:
            raise source.error(
                f"it has {source.nbytes:,} bytes",
                f"text files have at most {MOST_NBYTES:,}",
                "cut it into several",
            )
        raw = source.read(0, source.nbytes)
        if b"\0" in raw:
            at = raw.index(b"\0")
            raise source.error("it is no text", f"byte {at:,} is 0", "name a text file")
        try:
            return raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise source.error(
                "it is no UTF-8 text",
                f"byte {error.start:,} is 0x{raw[error.start]:02x}",
                "save it as UTF-8",
            ) from None
    finally:
        source.close()


def _spans(lines: Sequence[str], unit: Unit) -> Iterator[tuple[int, int]]:
    """[first, last) of each passage."""
    begin = None
    for at, line in enumerate(lines):
        if unit == "file":
            if line.strip() and begin is None:
                begin = at
        elif not line.strip():
            if begin is not None:
                yield begin, at
            begin = None
        elif unit == "line":
            yield at, at + 1
        elif begin is None:
            begin = at
    if begin is not None:
        yield begin, len(lines)


def shortened(
    passage: Passage, most: int, size_of: Callable[[str], int]
) -> list[Passage]:
    """A passage cut into pieces of at most `most` of some measure.

    Between words, and within a word that alone has more: not every script has spaces.

    size_of  the measure of a text
    """
    words = list(_words_of(passage.text, most, size_of))
    made, begin, total = [], 0, 0
    for at, (_, word) in enumerate(words):
        size = size_of(word)
        if total and total + size > most:
            made.append(_piece(passage, words[begin:at]))
            begin, total = at, 0
        total += size
    return [*made, _piece(passage, words[begin:])]


def _words_of(
    text: str, most: int, size_of: Callable[[str], int]
) -> Iterator[tuple[int, str]]:
    """(the line of the text it is on, from 0; word), halved until each fits."""
    for at, line in enumerate(text.split("\n")):
        left = line.split()[::-1]
        while left:
            word = left.pop()
            if len(word) == 1 or size_of(word) <= most:
                yield at, word
            else:
                middle = len(word) // 2
                left += word[middle:], word[:middle]


def _piece(passage: Passage, words: Sequence[tuple[int, str]]) -> Passage:
    first = words[0][0] if words else 0
    lines: dict[int, list[str]] = {}
    for at, word in words:
        lines.setdefault(at, []).append(word)
    text = "\n".join(" ".join(one) for one in lines.values())
    return Passage(passage.path, passage.line + first, text)
