"""WordPiece tokenizer in pure Python, for a browser tab without the library tokenizers.

It gives the token ids that the library gives for the same `tokenizer.json` of a model
of BERT's family.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from unicodedata import normalize

from bert_unicode import general_category

from rlxweb.errors import ModelError, shown

_MAX_CACHED_WORDS = 1 << 16
# The ideographs that BERT splits: blocks of CJK without kana and hangul.
_CJK = re.compile(
    "([\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f"
    "\U0002b740-\U0002b81f\U0002b920-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f])"
)
_ASCII_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_ASCII_WORD = re.compile(r"[^\s!-/:-@\[-`{-~]+|[!-/:-@\[-`{-~]")
_ALLOWED_CONTROLS = frozenset("\t\n\r")


class WordPiece:
    """Tokenizer described by the content of a `tokenizer.json`.

    Parameters
    ----------
    description : Any
        Content of the file.

    Raises
    ------
    rlxweb.errors.ModelError
        The file describes no tokenizer, or one of another kind.
    """

    def __init__(self, description: Any) -> None:
        try:
            self._read(description)
        except (KeyError, TypeError, AttributeError) as error:
            problem = f"an entry of tokenizer.json is missing or invalid: {error!r}"
            raise ModelError(_CONTEXT, problem) from None
        longest_first = sorted(self.special, key=len, reverse=True)
        names = "|".join(map(re.escape, longest_first))
        self._special_names = re.compile(f"({names})") if names else None
        self._cache: dict[str, tuple[int, ...]] = {}

    def _read(self, description: Any) -> None:
        _check_type(description["model"], "model", "WordPiece")
        _check_type(description["normalizer"], "normalizer", "BertNormalizer")
        _check_type(description["pre_tokenizer"], "pre_tokenizer", "BertPreTokenizer")
        model, normalizer = description["model"], description["normalizer"]
        self.vocabulary: Mapping[str, int] = model["vocab"]
        if not all(map(_is_id, self.vocabulary.values())):
            raise _error("an id of the vocabulary of tokenizer.json is not an integer")
        accents = normalizer["strip_accents"]
        self._lowercase = bool(normalizer["lowercase"])
        self._strip_accents = self._lowercase if accents is None else bool(accents)
        self._clean = bool(normalizer["clean_text"])
        self._split_cjk = bool(normalizer["handle_chinese_chars"])
        self._prefix = str(model["continuing_subword_prefix"])
        self._longest = model["max_input_chars_per_word"]
        if not _is_id(self._longest):
            limit = shown(self._longest)
            raise _error(f"max_input_chars_per_word in tokenizer.json is {limit}")
        self.special = dict(map(_added_token, description["added_tokens"]))
        unknown = str(model["unk_token"])
        for name in ("[CLS]", "[SEP]", "[PAD]", unknown):
            if name not in self.vocabulary:
                raise _error(f"the vocabulary of tokenizer.json has no {shown(name)}")
        tokens = ("[CLS]", "[SEP]", "[PAD]", unknown)
        self.begin, self.end, self.pad, self._unknown = map(
            self.vocabulary.__getitem__, tokens
        )

    @property
    def largest_id(self) -> int:
        """Largest token id."""
        return max([*self.vocabulary.values(), *self.special.values()])

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text of any length, [CLS] and [SEP] included."""
        ids = [self.begin]
        special = self._special_names
        for part in (text,) if special is None else special.split(text):
            if part in self.special:
                ids.append(self.special[part])
                continue
            for word in self._split_words(part):
                ids += self._word_ids(word)
        return [*ids, self.end]

    def _split_words(self, text: str) -> list[str]:
        """Words and single punctuation marks."""
        text = self._normalize(text)
        if text.isascii():
            return _ASCII_WORD.findall(text)
        words: list[str] = []
        for word in text.split():
            start = 0
            for at, character in enumerate(word):
                if _is_punctuation(character):
                    words += [word[start:at]] * (start < at) + [character]
                    start = at + 1
            words += [word[start:]] * (start < len(word))
        return words

    def _normalize(self, text: str) -> str:
        if self._clean:
            text = _clean_text(text)
        if text.isascii():
            return text.lower() if self._lowercase else text
        if self._split_cjk:
            text = _CJK.sub(r" \1 ", text)
        if self._strip_accents:
            text = "".join(c for c in normalize("NFD", text) if not _is_accent(c))
        # Each letter alone: str.lower() of a text may depend on neighbouring letters.
        return "".join(map(str.lower, text)) if self._lowercase else text

    def _word_ids(self, word: str) -> tuple[int, ...]:
        pieces = self._cache.get(word)
        if pieces is None:
            pieces = tuple(self._split_pieces(word))
            if len(self._cache) < _MAX_CACHED_WORDS:
                self._cache[word] = pieces
        return pieces

    def _split_pieces(self, word: str) -> list[int]:
        """Split into the longest pieces from the left, or one unknown token."""
        if len(word) > self._longest:
            return [self._unknown]
        ids, at = [], 0
        while at < len(word):
            prefix = self._prefix if at else ""
            for end in range(len(word), at, -1):
                piece = self.vocabulary.get(prefix + word[at:end])
                if piece is not None:
                    break
            else:
                return [self._unknown]
            ids.append(piece)
            at = end
        return ids


def _clean_text(text: str) -> str:
    if text.isprintable() and "\ufffd" not in text:
        return text
    characters = (c for c in text if c not in "\0\ufffd" and not _is_control(c))
    return "".join(" " if c.isspace() else c for c in characters)


def _is_control(character: str) -> bool:
    if character in _ALLOWED_CONTROLS:
        return False
    return general_category(character) in ("Cc", "Cf", "Co")


def _is_accent(character: str) -> bool:
    return general_category(character) == "Mn"


def _is_punctuation(character: str) -> bool:
    if character in _ASCII_PUNCTUATION:
        return True
    return general_category(character).startswith("P")


_CONTEXT = "load the tokenizer"


def _error(problem: str) -> ModelError:
    hint = "use the tokenizer.json of a model of the BERT family"
    return ModelError(_CONTEXT, problem, "expected a WordPiece tokenizer", hint)


def _check_type(entry: Any, name: str, expected: str) -> None:
    kind = entry["type"] if isinstance(entry, dict) else entry
    if kind != expected:
        raise _error(f"the {name} of tokenizer.json is {shown(kind)}, not {expected}")


def _added_token(entry: Any) -> tuple[str, int]:
    """Return name and id of a token that is matched exactly as it is written."""
    name, number = entry["content"], entry["id"]
    if not isinstance(name, str) or not name or not _is_id(number):
        token = f"{shown(name)}, {shown(number)}"
        raise _error(f"tokenizer.json adds a token with an invalid name or id: {token}")
    for option in ("single_word", "normalized"):
        if entry.get(option):
            raise _error(f"the token {shown(name)} in tokenizer.json has {option} set")
    return name, number


def _is_id(value: object) -> bool:
    return type(value) is int and value >= 0
