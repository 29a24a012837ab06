"""JSON as the files of this room have it: whole numbers, each key once, never deep.

A `Cursor` steps through a text, so that each part is checked where it stands and a file
of millions of parts is refused at the first that is too many. What is refused says at
which character; the layout above makes a byte of the file of it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NoReturn

from rlxweb.errors import shown

MOST_DEEP = 32
_MOST_DIGITS = 20
_LEAST, _MOST = -(2**63), 2**64 - 1
_SPACE = re.compile(r"[ \t\n\r]*")
# A string whole, so that what is within it counts for nothing, or one bracket. Gives
# nothing back (`*+`) and fits whatever follows a quote: any text is gone through once.
_BRACKETS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.S)


class Refused(Exception):
    """What is wrong with a text, by which rule, at which character."""

    def __init__(self, problem: str, rule: str = "", at: int = 0) -> None:
        super().__init__(problem, rule, at)
        self.problem, self.rule, self.at = problem, rule, at


class _Token(Exception):
    """The same, known by what is written there."""

    def __init__(self, problem: str, rule: str, written: str) -> None:
        super().__init__(problem)
        self.problem, self.rule, self.written = problem, rule, written


def _fraction(written: str) -> NoReturn:
    raise _Token(f"the number {shown(written)}", "numbers are whole", written)


def _whole(written: str) -> int:
    number = int(written) if len(written) <= _MOST_DIGITS else _MOST + 1
    if not _LEAST <= number <= _MOST:
        rule = "numbers lie between -2^63 and 2^64"
        raise _Token(f"the number {shown(written)}", rule, written)
    return number


def _constant(written: str) -> NoReturn:
    raise _Token(f"{written}, which is no JSON", "numbers are whole", written)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        raise _Token(
            f"the key {shown(twice)} stands twice", "each key once", json.dumps(twice)
        )
    return made


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_float=_fraction,
    parse_int=_whole,
    parse_constant=_constant,
)


def check_depth(text: str) -> None:
    """Errors  Refused at the bracket that goes too deep."""
    depth = 0
    for found in _BRACKETS.finditer(text):
        first = text[found.start()]
        if first in "[{":
            depth += 1
            if depth > MOST_DEEP:
                raise Refused(
                    f"brackets {depth} deep", f"at most {MOST_DEEP}", found.start()
                )
        elif first in "]}":
            depth -= 1


class Cursor:
    """A place in a JSON text that moves on with what is read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._skip()

    def members(self) -> Iterator[tuple[str, int]]:
        """(key, where it stands) of an object; the caller reads each value."""
        seen: set[str] = set()
        for at in self._parts("{", "}"):
            key = self.value()
            if not isinstance(key, str):
                raise Refused(f"the key {shown(key)}", "a key is text", at)
            if key in seen:
                raise Refused(f"the key {shown(key)} stands twice", "each key once", at)
            seen.add(key)
            self._take(":")
            yield key, at

    def items(self) -> Iterator[int]:
        """Where each item of an array stands; the caller reads each."""
        yield from self._parts("[", "]")

    def _parts(self, begin: str, end: str) -> Iterator[int]:
        self._take(begin)
        if self._is_at(end):
            self._take(end)
            return
        while True:
            yield self.at
            if self._is_at(end):
                self._take(end)
                return
            self._take(",")

    def value(self) -> Any:
        """The value that begins here."""
        begin = self.at
        try:
            made, self.at = _DECODER.raw_decode(self.text, begin)
        except json.JSONDecodeError as error:
            raise Refused(f"it is no JSON: {error.msg}", "JSON", error.pos) from None
        except _Token as error:
            at = max(self.text.find(error.written, begin), begin)
            raise Refused(error.problem, error.rule, at) from None
        except RecursionError:
            raise Refused("brackets too deep", f"at most {MOST_DEEP}", begin) from None
        self._skip()
        return made

    def skip_value(self) -> None:
        """Past a value that says nothing to us, which may have any numbers."""
        begin = self.at
        try:
            _, self.at = json.JSONDecoder().raw_decode(self.text, begin)
        except (json.JSONDecodeError, RecursionError, ValueError):
            raise Refused("it is no JSON", "JSON", begin) from None
        self._skip()

    def end(self) -> None:
        """Errors  Refused for anything that comes after."""
        if self.at != len(self.text):
            raise Refused("something comes after its end", "one JSON object", self.at)

    def _is_at(self, character: str) -> bool:
        return self.text.startswith(character, self.at)

    def _take(self, character: str) -> None:
        if not self._is_at(character):
            there = self.text[self.at : self.at + 8]
            found = shown(there) if there else "the end"
            raise Refused(f"{found} where {character!r} is wanted", "JSON", self.at)
        self.at += 1
        self._skip()

    def _skip(self) -> None:
        found = _SPACE.match(self.text, self.at)
        assert found is not None
        self.at = found.end()
