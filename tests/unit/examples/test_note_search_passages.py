"""Passages of the note search demo, and the passages closest to a question."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rlxweb.core.errors import UsageError
from tests.unit.examples import tiny_sentence_encoder
from tests.unit.examples.site_module_loader import load_site_module

passages = load_site_module("demo/search/passages")
search = load_site_module("demo/search/search")

TEXT = "\ufeffthe cat sat\non a mat.\n\n\n  unable, the mat\n\t\ncats!\n"
MAX_TOKENS = 30


@pytest.fixture(scope="module")
def size() -> Any:
    return search.Model(tiny_sentence_encoder.tiny_model_files()).size


def split_passages(text: str, unit: str, size: Any) -> list[tuple[int, str]]:
    pieces = passages.passages_from(0, text, unit, size, MAX_TOKENS)
    return [(piece.line, piece.text) for piece in pieces]


def test_passages_have_line_numbers(size: Any) -> None:
    text = passages.text_from("a.txt", TEXT.encode())
    assert split_passages(text, "paragraph", size) == [
        (1, "the cat sat\non a mat."),
        (5, "unable, the mat"),
        (7, "cats!"),
    ]
    assert [line for line, _ in split_passages(text, "line", size)] == [1, 2, 5, 7]
    assert split_passages(text, "file", size)[0][1].startswith(
        "the cat sat\non a mat.\n\n"
    )
    for blank in (" \n\n", ""):
        for unit in ("paragraph", "line", "file"):
            assert split_passages(blank, unit, size) == []


def test_line_numbers_match_editors(size: Any) -> None:
    """Form feeds and Unicode separators end no line; all three line ends do."""
    text = "a\fb\u2028c\x85d\r\ne\rf\n\ng\x1ch"
    want = [(1, "a\fb\u2028c\x85d"), (2, "e"), (3, "f"), (5, "g\x1ch")]
    assert split_passages(text, "line", size) == want


def test_binary_files_are_refused() -> None:
    for raw, words in ((b"a\0b", "zero byte"), (b"ab\xff", "byte 2 is 0xff")):
        with pytest.raises(UsageError, match=words):
            passages.text_from("a.txt", raw)


def test_a_long_passage_is_split_and_nothing_is_lost(size: Any) -> None:
    text = "the cat sat on a mat , " * 20 + "\nunable " * 9
    parts = split_passages(text, "paragraph", size)
    assert len(parts) > 4
    assert " ".join(part for _, part in parts).split() == text.split()
    assert max(size(part) for _, part in parts) <= MAX_TOKENS
    assert parts[-1][0] > 1


def test_a_script_without_spaces_is_split_too(size: Any) -> None:
    text = "the " + "東" * 200 + " mat"
    parts = split_passages(text, "paragraph", size)
    assert len(parts) > 6
    assert "".join(part for _, part in parts).replace(" ", "") == text.replace(" ", "")
    assert max(size(part) for _, part in parts) <= MAX_TOKENS


def test_the_closest_passages_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The closest passages come first; a long question is cut to what is read."""
    posted: list[dict[str, int]] = []
    monkeypatch.setattr(search, "post", posted.append, raising=False)
    files = tiny_sentence_encoder.tiny_model_files()
    search.load({"names": list(files)}, list(files.values()))
    raw = [TEXT.encode(), b"cat " * 90]
    read_request = {"names": ["a.txt", "b.md"], "unit": "paragraph", "device": "cpu"}
    read = asyncio.run(search.read(read_request, raw))
    assert read["passages"] == 6
    assert posted[-1] == {"done": 6, "of": 6}
    request = {"question": "unable, the mat", "k": 2, "device": "cpu"}
    first, second = asyncio.run(search.ask(request, []))["hits"]
    assert (first["file"], first["line"]) == (0, 5)
    assert first["score"] == pytest.approx(1, abs=1e-5)
    texts = (request["question"], second["text"])
    vectors = [
        tiny_sentence_encoder.reference_embedding(search.MODEL.tokenizer.encode(text))
        for text in texts
    ]
    assert second["score"] == pytest.approx(vectors[0] @ vectors[1], abs=1e-5)
    long_request = {**request, "question": "cat " * 90, "k": 99}
    hits = asyncio.run(search.ask(long_request, []))["hits"]
    assert len(hits) == 6
    assert hits[0]["file"] == 1
    assert asyncio.run(search.read({**read_request, "names": []}, []))["passages"] == 0
    assert asyncio.run(search.ask(request, []))["hits"] == []
