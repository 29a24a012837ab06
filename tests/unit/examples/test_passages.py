"""Passages of the demo that searches notes, and which of them a question is near."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rlxweb.errors import UsageError
from tests.unit.examples import tiny
from tests.unit.examples.programs import module

passages, search = module("demo/search/passages"), module("demo/search/search")

TEXT = "\ufeffthe cat sat\non a mat.\n\n\n  unable, the mat\n\t\ncats!\n"
MOST = 30


@pytest.fixture(scope="module")
def size() -> Any:
    return search.Model(tiny.files()).size


def found(text: str, unit: str, size: Any) -> list[tuple[int, str]]:
    made = passages.passages_from(0, text, unit, size, MOST)
    return [(one.line, one.text) for one in made]


def test_passages_know_their_lines(size: Any) -> None:
    text = passages.text_from("a.txt", TEXT.encode())
    assert found(text, "paragraph", size) == [
        (1, "the cat sat\non a mat."),
        (5, "unable, the mat"),
        (7, "cats!"),
    ]
    assert [line for line, _ in found(text, "line", size)] == [1, 2, 5, 7]
    assert found(text, "file", size)[0][1].startswith("the cat sat\non a mat.\n\n")
    for blank in (" \n\n", ""):
        for unit in ("paragraph", "line", "file"):
            assert found(blank, unit, size) == []


def test_lines_are_those_that_editors_count(size: Any) -> None:
    """A form feed and the separators of Unicode end none; all three line ends do."""
    text = "a\fb\u2028c\x85d\r\ne\rf\n\ng\x1ch"
    want = [(1, "a\fb\u2028c\x85d"), (2, "e"), (3, "f"), (5, "g\x1ch")]
    assert found(text, "line", size) == want


def test_files_that_are_no_text_are_refused() -> None:
    for raw, words in ((b"a\0b", "zero byte"), (b"ab\xff", "byte 2 is 0xff")):
        with pytest.raises(UsageError, match=words):
            passages.text_from("a.txt", raw)


def test_a_long_passage_is_split_and_nothing_is_lost(size: Any) -> None:
    text = "the cat sat on a mat , " * 20 + "\nunable " * 9
    parts = found(text, "paragraph", size)
    assert len(parts) > 4
    assert " ".join(part for _, part in parts).split() == text.split()
    assert max(size(part) for _, part in parts) <= MOST
    assert parts[-1][0] > 1


def test_a_script_without_spaces_is_split_too(size: Any) -> None:
    text = "the " + "東" * 200 + " mat"
    parts = found(text, "paragraph", size)
    assert len(parts) > 6
    assert "".join(part for _, part in parts).replace(" ", "") == text.replace(" ", "")
    assert max(size(part) for _, part in parts) <= MOST


def test_the_closest_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The closest passages come first; a long question is cut to what is read."""
    posted: list[dict[str, int]] = []
    monkeypatch.setattr(search, "post", posted.append, raising=False)
    files = tiny.files()
    search.load({"names": list(files)}, list(files.values()))
    raw = [TEXT.encode(), b"cat " * 90]
    names = {"names": ["a.txt", "b.md"], "unit": "paragraph", "device": "cpu"}
    read = asyncio.run(search.read(names, raw))
    assert read["passages"] == 6
    assert posted[-1] == {"done": 6, "of": 6}
    asked = {"question": "unable, the mat", "k": 2, "device": "cpu"}
    first, second = asyncio.run(search.ask(asked, []))["hits"]
    assert (first["file"], first["line"]) == (0, 5)
    assert first["score"] == pytest.approx(1, abs=1e-5)
    texts = (asked["question"], second["text"])
    vectors = [tiny.embedded(search.MODEL.tokenizer.encode(text)) for text in texts]
    assert second["score"] == pytest.approx(vectors[0] @ vectors[1], abs=1e-5)
    long = {**asked, "question": "cat " * 90, "k": 99}
    hits = asyncio.run(search.ask(long, []))["hits"]
    assert len(hits) == 6
    assert hits[0]["file"] == 1
    assert asyncio.run(search.read({**names, "names": []}, []))["passages"] == 0
    assert asyncio.run(search.ask(asked, []))["hits"] == []
