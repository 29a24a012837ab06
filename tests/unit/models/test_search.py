"""Passages of text files, their points kept, and what a question is near."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path

import numpy as np
import pytest

from rlxweb.errors import RecordingError, UsageError
from rlxweb.models import search
from rlxweb.models.documents import Passage, files_of, passages_of
from rlxweb.models.minilm import MiniLM
from rlxweb.models.search import SearchIndex
from tests.unit.models import tiny

TEXT = "\ufeffthe cat sat\non a mat.\n\n\n  unable, the mat\n\t\ncats!\n"


@pytest.fixture
def model() -> MiniLM:
    return MiniLM.load(tiny.files())


@pytest.fixture
def note(tmp_path: Path) -> Path:
    path = tmp_path / "notes" / "a.txt"
    path.parent.mkdir()
    path.write_text(TEXT, "utf-8")
    return path


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setattr(search, "cache_folder", lambda: folder)
    return folder / "embeddings"


def test_passages_know_their_lines(note: Path) -> None:
    def found(unit: str) -> list[tuple[int, str]]:
        return [(p.line, p.text) for p in passages_of(note, unit)]  # type: ignore[arg-type]

    assert found("paragraph") == [
        (1, "the cat sat\non a mat."),
        (5, "unable, the mat"),
        (7, "cats!"),
    ]
    assert [line for line, _ in found("line")] == [1, 2, 5, 7]
    assert found("file")[0][1].startswith("the cat sat\non a mat.\n\n")
    for blank in (" \n\n", ""):
        note.write_text(blank)
        assert [found(unit) for unit in ("paragraph", "line", "file")] == [[], [], []]


def test_lines_are_those_that_editors_count(note: Path) -> None:
    """A form feed and the separators of Unicode end none; all three line ends do."""
    note.write_bytes("a\fb\u2028c\x85d\r\ne\rf\n\ng\x1ch".encode())
    found = [(one.line, one.text) for one in passages_of(note, "line")]
    want = [(1, "a\fb\u2028c\x85d"), (2, "e"), (3, "f"), (5, "g\x1ch")]
    assert found == want


def test_folders_stand_for_their_text_files(note: Path) -> None:
    below = note.parent / "more"
    for name in ("b.MD", ".hidden.txt", "c.png"):
        below.mkdir(exist_ok=True)
        (below / name).write_text("cat")
    assert files_of([note.parent, note]) == [str(note), str(below / "b.MD")]
    (below / "b.MD").unlink()
    with pytest.raises(UsageError, match="no text file"):
        files_of([below])
    with pytest.raises(UsageError, match="one at least"):
        files_of([])


def test_a_folder_that_cannot_be_read_is_told(
    note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in it would be missing, and nobody would know."""

    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(RecordingError, match="Permission denied"):
        files_of([note.parent])


def test_what_is_no_list_of_paths_is_told(model: MiniLM) -> None:
    for given, words in (("notes", "put it in"), ([3], "an int was given")):
        with pytest.raises(UsageError, match=words):
            SearchIndex.build(model, given)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a path is wanted"):
        passages_of(3)  # type: ignore[arg-type]


def test_what_is_no_text_is_told(note: Path) -> None:
    for raw, words in ((b"a\0b", "byte 1 is 0"), (b"ab\xff", "byte 2 is 0xff")):
        note.write_bytes(raw)
        with pytest.raises(RecordingError, match=words):
            passages_of(note)
    with pytest.raises(RecordingError, match="no such file"):
        passages_of(note.with_name("none"))
    with pytest.raises(UsageError, match="unit is 'word'"):
        passages_of(note, "word")  # type: ignore[arg-type]


def test_the_nearest_come_first(model: MiniLM, note: Path) -> None:
    index = SearchIndex.build(model, [note], device="cpu")
    hits = index.search("unable, the mat", 2, device="cpu")
    assert hits[0].passage.line == 5
    assert hits[0].score == pytest.approx(1, abs=1e-5)
    assert hits[0].score >= hits[1].score
    points = model.embed(["unable, the mat", hits[1].passage.text], "cpu")
    assert hits[1].score == pytest.approx(float(points[0] @ points[1]), abs=1e-5)
    assert len(index.search("cat", 99, device="cpu")) == 3
    for question, k, words in (
        ("", 1, "empty"),
        ("a", 0, "1 at least"),
        (3, 1, "an int"),
    ):
        with pytest.raises(UsageError, match=words):
            index.search(question, k)  # type: ignore[arg-type]
    assert repr(index).startswith("SearchIndex(3 passages")


def test_it_is_built_and_asked_beside_a_loop(model: MiniLM, note: Path) -> None:
    """As pages do, with the same numbers; who waits in a loop may call either."""

    async def both() -> None:
        index = await SearchIndex.build_async(model, [note], device="cpu", cache=False)
        hits = await index.search_async("unable", 2, device="cpu")
        assert hits == index.search("unable", 2, device="cpu")
        blocking = SearchIndex.build(model, [note], device="cpu", cache=False)
        np.testing.assert_array_equal(index.points, blocking.points)

    asyncio.run(both())


def test_a_long_passage_is_read_whole(model: MiniLM, note: Path) -> None:
    """In pieces that the model reads to their end: nothing is left out."""
    note.write_text("the cat sat on a mat , " * 20 + "\nunable " * 9)
    index = SearchIndex.build(model, [note], device="cpu")
    assert len(index.passages) > 4
    words = " ".join(one.text for one in index.passages).split()
    assert words == note.read_text().split()
    longest = max(len(model.tokens(one.text)) for one in index.passages)
    assert longest <= model.max_tokens
    assert index.passages[-1].line > 1


def test_a_script_without_spaces_is_read_whole(model: MiniLM, note: Path) -> None:
    note.write_text("the " + "東" * 200 + " mat", "utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        index = SearchIndex.build(model, [note], device="cpu")
    assert len(index.passages) > 6
    words = "".join(one.text for one in index.passages).replace(" ", "")
    assert words == note.read_text("utf-8").replace(" ", "")
    assert max(len(model.tokens(one.text)) for one in index.passages) <= 32


def test_points_are_kept_and_made_anew_where_a_file_changed(
    model: MiniLM, note: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = note.with_name("b.txt")
    other.write_text("cats\n\nmat")
    first = SearchIndex.build(model, [note, other], device="cpu")
    assert (first.cached, len(list(kept.iterdir()))) == (0, 2)
    again = SearchIndex.build(model, [note, other], device="cpu")
    assert again.cached == 2
    np.testing.assert_array_equal(again.points, first.points)
    other.write_text("cats\n\nmatter")
    assert SearchIndex.build(model, [note, other], device="cpu").cached == 1
    # Another model's points are others.
    weights = {n: a * np.float32(1.5) for n, a in tiny.weights().items()}
    changed = MiniLM.load(tiny.files(weights=weights))
    assert SearchIndex.build(changed, [note], device="cpu").cached == 0
    # What was damaged is not used, and what cannot be kept is no fault.
    for fill, less in ((b"\xff", 0), (b"\0", 0), (b"\0", 1)):
        for path in kept.iterdir():
            path.write_bytes(fill * (path.stat().st_size - less))
        anew = SearchIndex.build(model, [note, other], device="cpu")
        assert anew.cached == 0
        np.testing.assert_array_equal(anew.points[:3], first.points[:3])
    monkeypatch.setattr(search, "cache_folder", lambda: note)
    assert SearchIndex.build(model, [note], device="cpu").cached == 0
    before = {path: path.read_bytes() for path in kept.iterdir()}
    assert SearchIndex.build(model, [other], device="cpu", cache=False).cached == 0
    assert before == {path: path.read_bytes() for path in kept.iterdir()}


def test_files_without_a_passage_are_no_fault(model: MiniLM, note: Path) -> None:
    note.write_text("\n \n")
    index = SearchIndex.build(model, [note], device="cpu")
    assert index.points.shape == (0, 12)
    assert index.search("cat", device="cpu") == []


def test_a_passage_is_plain_data() -> None:
    assert Passage("a", 1, "b") == Passage("a", 1, "b")
