"""Which cases are meant: words joined by and, or, not, or a pattern with * and ?.

`softmax and not views` takes the names that hold the one word and not the other;
`variants/fft/*` those that look so. Case does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rlxweb.errors import UsageError

_TOKENS = re.compile(r"\s*(\(|\)|[^\s()]+)")
_HEAD = re.compile(r"[^*?[]*")
"""Literal prefix of a word with wildcards."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A test of the names of cases.

    matches     whether a name is meant
    may_match   whether a name that begins with a prefix can be meant
    """

    matches: Callable[[str], bool]
    may_match: Callable[[str], bool]

    def __call__(self, name: str) -> bool:
        return self.matches(name)


def _always(name: str) -> bool:
    return True


everything = Pattern(_always, _always)
"""The pattern of whoever wants all cases."""


def pattern_of(text: str) -> Pattern:
    """The pattern in words. Errors  UsageError for one that cannot be read."""
    if not text.strip():
        return everything
    tokens = [*_TOKENS.findall(text.casefold()), ""]
    read = _Reader(text, iter(tokens))
    found = read.either()
    if read.token:
        raise read.refused(f"{read.token!r} stands where 'and' or 'or' would")
    return found


class _Reader:
    """Reads `a and (b or not c)` from the left; `token` is the next word."""

    def __init__(self, text: str, tokens: Iterator[str]) -> None:
        self._text, self._tokens = text, tokens
        self.token = next(tokens)

    def refused(self, why: str) -> UsageError:
        return UsageError(
            f"-k {self._text!r}",
            why,
            "words, joined by and, or, not and parentheses; * and ? stand for letters",
            "like -k 'softmax and not views'",
        )

    def _next(self) -> None:
        self.token = next(self._tokens)

    def either(self) -> Pattern:
        found = self._both()
        while self.token == "or":
            self._next()
            found = _any(found, self._both())
        return found

    def _both(self) -> Pattern:
        found = self._one()
        while self.token == "and":
            self._next()
            found = _all(found, self._one())
        return found

    def _one(self) -> Pattern:
        word = self.token
        if word in ("", ")", "and", "or"):
            raise self.refused(f"a word is missing before {word or 'its end'!r}")
        self._next()
        if word == "not":
            return _not(self._one())
        if word == "(":
            found = self.either()
            if self.token != ")":
                raise self.refused("a parenthesis is not closed")
            self._next()
            return found
        return _word(word)


def _any(one: Pattern, other: Pattern) -> Pattern:
    return Pattern(
        lambda name: one(name) or other(name),
        lambda prefix: one.may_match(prefix) or other.may_match(prefix),
    )


def _all(one: Pattern, other: Pattern) -> Pattern:
    return Pattern(
        lambda name: one(name) and other(name),
        lambda prefix: one.may_match(prefix) and other.may_match(prefix),
    )


def _not(one: Pattern) -> Pattern:
    return Pattern(lambda name: not one(name), _always)


def _word(word: str) -> Pattern:
    if not {"*", "?"} & set(word):
        return Pattern(lambda name: word in name.casefold(), _always)
    head = _HEAD.match(word)[0]  # type: ignore[index]

    def may_match(prefix: str) -> bool:
        prefix = prefix.casefold()
        return prefix.startswith(head) or head.startswith(prefix)

    return Pattern(lambda name: fnmatchcase(name.casefold(), word), may_match)
