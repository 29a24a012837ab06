"""Passages of text: paragraphs, lines or whole files, short enough for the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rlxweb.errors import UsageError, shown

# The line ends of editors; `str.splitlines` also splits at a form feed and others.
_LINE_END = re.compile(r"\r\n?|\n")


class Passage(NamedTuple):
    """A passage: index of its file, line on which it begins (from 1), and its text."""

    file: int
    line: int
    text: str


def text_from(name: str, raw: bytes) -> str:
    """Decode the bytes of a text file, or raise a UsageError."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"byte {error.start:,} is 0x{raw[error.start]:02x}"
        raise UsageError(
            f"reading {shown(name)}",
            problem,
            "expected UTF-8 text",
            "save the file as UTF-8",
        ) from None
    if "\0" in text:
        context, problem = f"reading {shown(name)}", "the file contains a zero byte"
        raise UsageError(context, problem, "expected a text file", "choose a text file")
    return text


def passages_from(
    file: int, text: str, unit: str, size: Callable[[str], int], limit: int
) -> Iterator[Passage]:
    """Yield the passages of a text.

    Parameters
    ----------
    file : int
        Index of the file.
    text : str
        Its content.
    unit : str
        "paragraph" (text between blank lines), "line" or "file".
    size : Callable[[str], int]
        Number of tokens of a text.
    limit : int
        Tokens that the model reads; longer passages are split.
    """
    lines = _LINE_END.split(text)
    for first, last in _passage_lines(lines, unit):
        passage = Passage(file, first + 1, "\n".join(lines[first:last]).strip())
        if size(passage.text) <= limit:
            yield passage
        else:
            yield from _split(passage, size, limit)


def _passage_lines(lines: list[str], unit: str) -> Iterator[tuple[int, int]]:
    """Yield the first line of each passage and the line after its last."""
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


def _split(
    passage: Passage, size: Callable[[str], int], limit: int
) -> Iterator[Passage]:
    """Split a passage between words, and within words that are too long alone."""
    words: list[tuple[int, str]] = []
    total = 0
    for word in _words(passage.text, size, limit):
        token_count = size(word[1])
        if words and total + token_count > limit:
            yield _join_words(passage, words)
            words, total = [], 0
        words.append(word)
        total += token_count
    yield _join_words(passage, words)


def _words(
    text: str, size: Callable[[str], int], limit: int
) -> Iterator[tuple[int, str]]:
    """Yield line (from 0) and text of each word, halved until it fits: some scripts
    have no spaces.
    """
    for at, line in enumerate(text.split("\n")):
        remaining = line.split()[::-1]
        while remaining:
            word = remaining.pop()
            if len(word) == 1 or size(word) <= limit:
                yield at, word
            else:
                middle = len(word) // 2
                remaining += word[middle:], word[:middle]


def _join_words(passage: Passage, words: list[tuple[int, str]]) -> Passage:
    lines: dict[int, list[str]] = {}
    for at, word in words:
        lines.setdefault(at, []).append(word)
    text = "\n".join(" ".join(line) for line in lines.values())
    return Passage(passage.file, passage.line + words[0][0], text)
