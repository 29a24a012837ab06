"""Text files as passages: lines, paragraphs or whole files, each with its place.

A file is UTF-8 text, with or without a mark at its beginning. A folder stands for the
text files in it and below it. Nothing here knows what passages are wanted for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rlxweb.arguments import one_of
from rlxweb.errors import UsageError, shown
from rlxweb.io.source import open_source

Unit = Literal["paragraph", "line", "file"]
UNITS: tuple[Unit, ...] = ("paragraph", "line", "file")
SUFFIXES = (".md", ".markdown", ".rst", ".txt", ".text", ".org", ".adoc", ".tex")
MOST_NBYTES = 64 << 20


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

    Errors   UsageError for a folder without a text file, and for no path at all.
    """
    found: dict[str, None] = {}
    for path in paths:
        name = os.fspath(path)
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
        raise UsageError("reading text", "no file is named", "one at least")
    return list(found)


def _inside(folder: str) -> Iterator[str]:
    """What is hidden is not looked at."""
    for root, folders, names in os.walk(folder):
        folders[:] = [one for one in folders if not one.startswith(".")]
        for name in names:
            if not name.startswith(".") and name.lower().endswith(SUFFIXES):
                yield os.path.join(root, name)


def passages_of(
    path: str | os.PathLike[str], unit: Unit = "paragraph"
) -> list[Passage]:
    """The passages of a text file; what is blank is none.

    unit     "paragraph": what stands between blank lines; "line"; "file": all of it
    Errors   RecordingError for a file that is missing, too large or no text
    """
    doing = f"reading {shown(os.fspath(path))}"
    one_of("unit", unit, UNITS, doing)
    source = open_source(path)
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
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise source.error(
                "it is no UTF-8 text",
                f"byte {error.start:,} is 0x{raw[error.start]:02x}",
                "save it as UTF-8",
            ) from None
    finally:
        source.close()
    name = os.fspath(path)
    lines = text.splitlines()
    return [
        Passage(name, first + 1, "\n".join(lines[first:last]).strip())
        for first, last in _spans(lines, unit)
    ]


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
    passage: Passage, most: int, length: Sequence[int] | None = None
) -> list[Passage]:
    """A passage cut, between words, into pieces of at most `most` of some measure.

    length   of each word of it, as `words_of` gives them
    """
    words = words_of(passage.text)
    sizes = [len(text) for _, text in words] if length is None else length
    made, begin, total = [], 0, 0
    for at, size in enumerate(sizes):
        if total and total + size > most:
            made.append(_piece(passage, words[begin:at]))
            begin, total = at, 0
        total += size
    return [*made, _piece(passage, words[begin:])]


def words_of(text: str) -> list[tuple[int, str]]:
    """(the line of the text it is on, from 0; word), as spaces part them."""
    lines = enumerate(text.split("\n"))
    return [(at, word) for at, line in lines for word in line.split()]


def _piece(passage: Passage, words: Sequence[tuple[int, str]]) -> Passage:
    first = words[0][0] if words else 0
    lines: dict[int, list[str]] = {}
    for at, word in words:
        lines.setdefault(at, []).append(word)
    text = "\n".join(" ".join(one) for one in lines.values())
    return Passage(passage.path, passage.line + first, text)
