"""Patterns of case names: words joined by and, or, not, or globs with * and ?.

`softmax and not views` takes the names that hold the one word and not the other;
`variants/fft/*` those that look so. Case does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rlxweb.core.errors import UsageError

_TOKENS = re.compile(r"\s*(\(|\)|[^\s()]+)")
_LITERAL_PREFIX = re.compile(r"[^*?[]*")
"""Literal prefix of a word with wildcards."""


@dataclass(frozen=True, slots=True)
class NamePattern:
    """Predicate on case names.

    matches     whether a name is meant
    may_match   whether a name that begins with a prefix can be meant
    """

    matches: Callable[[str], bool]
    may_match: Callable[[str], bool]

    def __call__(self, name: str) -> bool:
        return self.matches(name)


def _match_any(name: str) -> bool:
    """Match any name."""
    return True


match_all = NamePattern(_match_any, _match_any)
"""Pattern that matches every case."""


def parse_pattern(text: str) -> NamePattern:
    """Parse the pattern of the command line. Raises UsageError if it is invalid."""
    if not text.strip():
        return match_all
    tokens = [*_TOKENS.findall(text.casefold()), ""]
    parser = _PatternParser(text, iter(tokens))
    pattern = parser.parse_or()
    if parser.token:
        raise parser.syntax_error(f"expected 'and' or 'or', got {parser.token!r}")
    return pattern


class _PatternParser:
    """Recursive descent parser of `a and (b or not c)`; `token` is the next word."""

    def __init__(self, text: str, tokens: Iterator[str]) -> None:
        self._text, self._tokens = text, tokens
        self.token = next(tokens)

    def syntax_error(self, reason: str) -> UsageError:
        """Return the error for an invalid pattern."""
        return UsageError(
            f"-k {self._text!r}",
            reason,
            "a pattern consists of words, 'and', 'or', 'not' and parentheses; in a "
            "word, * matches any characters and ? matches one",
            "use a pattern such as -k 'softmax and not views'",
        )

    def _advance(self) -> None:
        """Advance to the next token."""
        self.token = next(self._tokens)

    def parse_or(self) -> NamePattern:
        """Parse operands joined by `or`."""
        pattern = self._parse_and()
        while self.token == "or":
            self._advance()
            pattern = _or_pattern(pattern, self._parse_and())
        return pattern

    def _parse_and(self) -> NamePattern:
        """Parse operands joined by `and`."""
        pattern = self._parse_operand()
        while self.token == "and":
            self._advance()
            pattern = _and_pattern(pattern, self._parse_operand())
        return pattern

    def _parse_operand(self) -> NamePattern:
        """Parse a word, a negation or a group in parentheses."""
        word = self.token
        if word in ("", ")", "and", "or"):
            position = f"before {word!r}" if word else "at the end"
            raise self.syntax_error(f"a word is missing {position}")
        self._advance()
        if word == "not":
            return _not_pattern(self._parse_operand())
        if word == "(":
            pattern = self.parse_or()
            if self.token != ")":
                raise self.syntax_error("a parenthesis is not closed")
            self._advance()
            return pattern
        return _word_pattern(word)


def _or_pattern(left: NamePattern, right: NamePattern) -> NamePattern:
    """Return the pattern that matches what either pattern matches."""
    return NamePattern(
        lambda name: left(name) or right(name),
        lambda prefix: left.may_match(prefix) or right.may_match(prefix),
    )


def _and_pattern(left: NamePattern, right: NamePattern) -> NamePattern:
    """Return the pattern that matches what both patterns match."""
    return NamePattern(
        lambda name: left(name) and right(name),
        lambda prefix: left.may_match(prefix) and right.may_match(prefix),
    )


def _not_pattern(operand: NamePattern) -> NamePattern:
    """Return the pattern that matches what the operand does not."""
    return NamePattern(lambda name: not operand(name), _match_any)


def _word_pattern(word: str) -> NamePattern:
    """Return the pattern of a word: a part of the name, or a glob of the whole name."""
    if not {"*", "?"} & set(word):
        return NamePattern(lambda name: word in name.casefold(), _match_any)
    literal_prefix = _LITERAL_PREFIX.match(word)[0]  # type: ignore[index]

    def may_match(prefix: str) -> bool:
        prefix = prefix.casefold()
        return prefix.startswith(literal_prefix) or literal_prefix.startswith(prefix)

    return NamePattern(lambda name: fnmatchcase(name.casefold(), word), may_match)
