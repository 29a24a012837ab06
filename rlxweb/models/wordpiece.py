"""WordPiece: from text to the numbers that a model of BERT's family reads.

Does what the package `tokenizers` does with the same `tokenizer.json`, in Python alone,
so that it runs in a tab. Text is cleaned, cut at spaces and punctuation, stripped of
accents and case; each word is then the longest pieces that the vocabulary has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from unicodedata import normalize

from rlxweb.errors import ModelError, shown
from rlxweb.models.unicode_of_bert import kind_of

_KEPT_WORDS = 1 << 16
# What is an ideograph to BERT: blocks of CJK, but no kana and no hangul.
_CJK = re.compile(
    "([\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f"
    "\U0002b740-\U0002b81f\U0002b920-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f])"
)
_ASCII_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_ASCII_WORD = re.compile(r"[^\s!-/:-@\[-`{-~]+|[!-/:-@\[-`{-~]")
_NO_CONTROL = frozenset("\t\n\r")


@dataclass(frozen=True, slots=True)
class Rules:
    """What `tokenizer.json` says of how text is read."""

    clean: bool
    split_cjk: bool
    strip_accents: bool
    lowercase: bool
    prefix: str
    unknown: str
    longest: int


@dataclass(slots=True)
class WordPiece:
    """A tokenizer. Made by `wordpiece_of`.

    special  tokens that stand for themselves wherever their names are
    """

    vocabulary: Mapping[str, int]
    rules: Rules
    begin: int
    end: int
    pad: int
    special: Mapping[str, int]
    _names: re.Pattern[str] | None = field(init=False)
    _words: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        longest_first = sorted(self.special, key=len, reverse=True)
        names = "|".join(map(re.escape, longest_first))
        self._names = re.compile(f"({names})") if names else None

    @property
    def largest(self) -> int:
        """The largest number that a text is read as."""
        return max([*self.vocabulary.values(), *self.special.values()])

    def encode(self, text: str) -> list[int]:
        """The numbers of a text, with those that begin and end it; of any length."""
        ids = [self.begin]
        for part in (text,) if self._names is None else self._names.split(text):
            if part in self.special:
                ids.append(self.special[part])
                continue
            for word in self._split(part):
                ids += self._pieces(word)
        return [*ids, self.end]

    def _split(self, text: str) -> list[str]:
        """Words and single punctuation marks."""
        text = self._normal(text)
        if text.isascii():
            return _ASCII_WORD.findall(text)
        found: list[str] = []
        for word in text.split():
            start = 0
            for at, character in enumerate(word):
                if _is_punctuation(character):
                    found += [word[start:at]] * (start < at) + [character]
                    start = at + 1
            found += [word[start:]] * (start < len(word))
        return found

    def _normal(self, text: str) -> str:
        rules = self.rules
        if rules.clean:
            text = _cleaned(text)
        if text.isascii():
            return text.lower() if rules.lowercase else text
        if rules.split_cjk:
            text = _CJK.sub(r" \1 ", text)
        if rules.strip_accents:
            text = "".join(c for c in normalize("NFD", text) if not _is_accent(c))
        # One by one: what a letter becomes does not hang on those beside it.
        return "".join(map(str.lower, text)) if rules.lowercase else text

    def _pieces(self, word: str) -> tuple[int, ...]:
        found = self._words.get(word)
        if found is None:
            found = tuple(self._cut(word))
            if len(self._words) < _KEPT_WORDS:
                self._words[word] = found
        return found

    def _cut(self, word: str) -> list[int]:
        """The longest pieces from the left; one unknown where they do not reach."""
        unknown = [self.vocabulary[self.rules.unknown]]
        if len(word) > self.rules.longest:
            return unknown
        ids, at = [], 0
        while at < len(word):
            head = self.rules.prefix if at else ""
            for end in range(len(word), at, -1):
                found = self.vocabulary.get(head + word[at:end])
                if found is not None:
                    break
            else:
                return unknown
            ids.append(found)
            at = end
        return ids


def _cleaned(text: str) -> str:
    if text.isprintable() and "\ufffd" not in text:
        return text
    kept = (c for c in text if c not in "\0\ufffd" and not _is_control(c))
    return "".join(" " if c.isspace() else c for c in kept)


def _is_control(character: str) -> bool:
    return character not in _NO_CONTROL and kind_of(character) in ("Cc", "Cf", "Co")


def _is_accent(character: str) -> bool:
    return kind_of(character) == "Mn"


def _is_punctuation(character: str) -> bool:
    return character in _ASCII_PUNCTUATION or kind_of(character).startswith("P")


def wordpiece_of(said: Any, doing: str) -> WordPiece:
    """The tokenizer that a `tokenizer.json` describes, which was read to `said`.

    Errors   ModelError for another kind of tokenizer and for what is none.
    """
    try:
        return _made(said)
    except _Other as error:
        hint = "models of BERT's family have one that fits"
        raise ModelError(doing, str(error), "WordPiece is read here", hint) from None
    except (KeyError, TypeError, AttributeError) as error:
        problem = f"tokenizer.json does not say what is wanted of it ({error!r})"
        raise ModelError(doing, problem) from None


class _Other(Exception):
    """Another kind of tokenizer."""


def _made(said: Any) -> WordPiece:
    _kind(said["model"], "model", "WordPiece")
    _kind(said["normalizer"], "normalizer", "BertNormalizer")
    _kind(said["pre_tokenizer"], "pre_tokenizer", "BertPreTokenizer")
    model, normal = said["model"], said["normalizer"]
    vocabulary = model["vocab"]
    if not isinstance(vocabulary, dict) or not all(map(_is_id, vocabulary.values())):
        raise _Other("tokenizer.json has no vocabulary of numbers by token")
    accents = normal["strip_accents"]
    lowercase = bool(normal["lowercase"])
    longest = model["max_input_chars_per_word"]
    if not _is_id(longest):
        raise _Other(f"words of tokenizer.json have {shown(longest)} characters")
    rules = Rules(
        clean=bool(normal["clean_text"]),
        split_cjk=bool(normal["handle_chinese_chars"]),
        strip_accents=lowercase if accents is None else bool(accents),
        lowercase=lowercase,
        prefix=str(model["continuing_subword_prefix"]),
        unknown=str(model["unk_token"]),
        longest=longest,
    )
    special = dict(map(_special, said["added_tokens"]))
    for name in ("[CLS]", "[SEP]", "[PAD]", rules.unknown):
        if name not in vocabulary:
            raise _Other(f"the vocabulary of tokenizer.json has no {shown(name)}")
    begin, end, pad = (vocabulary[name] for name in ("[CLS]", "[SEP]", "[PAD]"))
    return WordPiece(vocabulary, rules, begin, end, pad, special)


def _special(said: Any) -> tuple[str, int]:
    """(name, number) of a token that stands for itself. Errors  _Other."""
    name, number = said["content"], said["id"]
    if not isinstance(name, str) or not name or not _is_id(number):
        told = f"{shown(name)}, {shown(number)}"
        raise _Other(f"tokenizer.json adds no token with a name and a number: {told}")
    for way in ("single_word", "normalized"):
        if said.get(way):
            raise _Other(f"the token {shown(name)} of tokenizer.json is {way}")
    return name, number


def _is_id(value: object) -> bool:
    return type(value) is int and value >= 0


def _kind(said: Any, what: str, wanted: str) -> None:
    kind = said["type"] if isinstance(said, dict) else said
    if kind != wanted:
        raise _Other(f"the {what} of tokenizer.json is {shown(kind)}, not {wanted}")
