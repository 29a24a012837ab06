"""Strict JSON parser: whole numbers only, each key once, limited depth.

A `JsonCursor` steps through a text, so that each part is checked where it stands and a
file of millions of parts is refused at the first that is too many. What is refused says
at which character; the layout above makes a byte of the file of it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NoReturn

from rlxweb.core.errors import shown

MAX_DEPTH = 32
_MAX_DIGITS = 20
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1
_WHITESPACE = re.compile(r"[ \t\n\r]*")
# A string whole, so that what is within it counts for nothing, or one bracket. Gives
# nothing back (`*+`) and fits whatever follows a quote: any text is gone through once.
_BRACKETS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.S)


class FormatViolation(Exception):
    """Violation of a file's rules: the problem, the rule, and the character it is
    at.
    """

    def __init__(self, problem: str, rule: str = "", position: int = 0) -> None:
        super().__init__(problem, rule, position)
        self.problem, self.rule, self.position = problem, rule, position


class _TokenViolation(Exception):
    """Violation that is known by the text of its token, not by a position."""

    def __init__(self, problem: str, rule: str, token: str) -> None:
        super().__init__(problem)
        self.problem, self.rule, self.token = problem, rule, token


def _reject_fraction(token: str) -> NoReturn:
    """Raise for a number that is not whole."""
    problem = f"the number {shown(token)} is not an integer"
    raise _TokenViolation(problem, "numbers must be integers", token)


def _parse_integer(token: str) -> int:
    """Return an integer that 64 bits hold."""
    number = int(token) if len(token) <= _MAX_DIGITS else _MAX_INT + 1
    if not _MIN_INT <= number <= _MAX_INT:
        rule = "numbers must be from -2^63 to 2^64 - 1"
        problem = f"the number {shown(token)} is out of range"
        raise _TokenViolation(problem, rule, token)
    return number


def _reject_constant(token: str) -> NoReturn:
    """Raise for NaN and infinities, which are no JSON."""
    problem = f"{token} is not valid JSON"
    raise _TokenViolation(problem, "numbers must be integers", token)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object's members as a dict; raises if a key occurs twice."""
    members = dict(pairs)
    if len(members) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        duplicate = next(key for key, count in counts.items() if count > 1)
        raise _TokenViolation(
            f"the key {shown(duplicate)} occurs twice",
            "keys must be unique",
            json.dumps(duplicate),
        )
    return members


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_keys,
    parse_float=_reject_fraction,
    parse_int=_parse_integer,
    parse_constant=_reject_constant,
)


def check_depth(text: str) -> None:
    """Raise FormatViolation at the bracket that nests too deep."""
    depth = 0
    for match in _BRACKETS.finditer(text):
        first = text[match.start()]
        if first in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise FormatViolation(
                    f"brackets are nested {depth} deep",
                    f"at most {MAX_DEPTH} levels are allowed",
                    match.start(),
                )
        elif first in "]}":
            depth -= 1


class JsonCursor:
    """Position in a JSON text, which moves on with what is read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self._skip_whitespace()

    def iter_members(self) -> Iterator[tuple[str, int]]:
        """Yield (key, position) of an object's members; the caller reads each value."""
        seen: set[str] = set()
        for position in self._iter_elements("{", "}"):
            key = self.read_value()
            if not isinstance(key, str):
                raise FormatViolation(
                    f"the key {shown(key)} is not a string",
                    "keys must be strings",
                    position,
                )
            if key in seen:
                raise FormatViolation(
                    f"the key {shown(key)} occurs twice",
                    "keys must be unique",
                    position,
                )
            seen.add(key)
            self._expect(":")
            yield key, position

    def iter_items(self) -> Iterator[int]:
        """Yield the position of each item of an array; the caller reads each."""
        yield from self._iter_elements("[", "]")

    def _iter_elements(self, begin: str, end: str) -> Iterator[int]:
        """Yield the position of each element between two brackets."""
        self._expect(begin)
        if self._starts_with(end):
            self._expect(end)
            return
        while True:
            yield self.position
            if self._starts_with(end):
                self._expect(end)
                return
            self._expect(",")

    def read_value(self) -> Any:
        """Read the value that begins here."""
        begin = self.position
        try:
            value, self.position = _DECODER.raw_decode(self.text, begin)
        except json.JSONDecodeError as error:
            raise FormatViolation(
                f"invalid JSON: {error.msg}", "the text must be JSON", error.pos
            ) from None
        except _TokenViolation as error:
            position = max(self.text.find(error.token, begin), begin)
            raise FormatViolation(error.problem, error.rule, position) from None
        except RecursionError:
            raise FormatViolation(
                "brackets are nested too deeply",
                f"at most {MAX_DEPTH} levels are allowed",
                begin,
            ) from None
        self._skip_whitespace()
        return value

    def skip_value(self) -> None:
        """Skip a value that is not used, which may hold any numbers."""
        begin = self.position
        try:
            _, self.position = json.JSONDecoder().raw_decode(self.text, begin)
        except (json.JSONDecodeError, RecursionError, ValueError):
            problem = "invalid JSON"
            raise FormatViolation(problem, "the text must be JSON", begin) from None
        self._skip_whitespace()

    def expect_end(self) -> None:
        """Raise FormatViolation if anything follows."""
        if self.position != len(self.text):
            raise FormatViolation(
                "there is text after the JSON object",
                "expected only one JSON object",
                self.position,
            )

    def _starts_with(self, character: str) -> bool:
        """Return whether this character comes next."""
        return self.text.startswith(character, self.position)

    def _expect(self, character: str) -> None:
        """Skip this character; raises FormatViolation if another comes next."""
        if not self._starts_with(character):
            next_text = self.text[self.position : self.position + 8]
            shown_text = shown(next_text) if next_text else "the end of the text"
            raise FormatViolation(
                f"expected {character!r}, got {shown_text}",
                "the text must be JSON",
                self.position,
            )
        self.position += 1
        self._skip_whitespace()

    def _skip_whitespace(self) -> None:
        """Skip whitespace."""
        match = _WHITESPACE.match(self.text, self.position)
        assert match is not None
        self.position = match.end()
