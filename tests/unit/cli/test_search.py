"""`rlxweb search` and `rlxweb embed`, with a model that the test makes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len

from tests.command_line import Call, check_refused
from tests.unit.models import tiny


@pytest.fixture(autouse=True)
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two notes and a model, in the folder one is in; what is kept is kept there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    model = tmp_path / "model"
    for folder in (model, tmp_path / "notes"):
        folder.mkdir()
    for name, raw in tiny.files().items():
        (model / name).write_bytes(raw)
    (tmp_path / "notes" / "a.txt").write_text(
        "the cat sat\n\non a mat,\n" + "cat " * 90
    )
    (tmp_path / "notes" / "b.md").write_text("unable!")
    return tmp_path / "notes"


MODEL = ("--model", "model", "--device", "cpu")


def test_the_nearest_passage_is_shown_with_its_place(call: Call) -> None:
    said = call("search", "unable!", "notes", "--k", "2", *MODEL)
    assert said.code == 0
    first, text, second, cut = said.out.splitlines()
    assert first.split() == ["1.00", "notes/b.md:1"]
    assert text.strip() == "unable!"
    assert "notes/a.txt:" in second
    assert cell_len(cut) <= 80
    assert cut.endswith("…")
    assert "passages of 2 files" in said.err
    again = call("search", "unable!", "notes", "--k", "2", *MODEL)
    assert again.out == said.out
    assert "2 from the cache" in again.err
    assert "cache" not in call("search", "a", "notes", "--no-cache", *MODEL).err


def test_a_line_is_as_wide_as_the_terminal_whatever_its_letters(
    call: Call, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Letters twice as wide, and what is written out because it cannot be shown."""
    monkeypatch.setenv("COLUMNS", "80")
    for text in ("ｗ" * 70, "\a" * 60 + "a", "mat " * 18 + "a", "mat " * 18 + "ab"):
        (notes / "a.txt").write_text(text, "utf-8")
        said = call("search", "a", "notes/a.txt", "--k", "1", *MODEL)
        _, line = said.out.splitlines()
        assert cell_len(line) <= 80
        assert cell_len(line) >= 78
    assert line.endswith("…")
    said = call("search", "a", "notes/a.txt", "--full", *MODEL)
    assert said.out.splitlines()[1].split() == text.split()


def test_what_is_found_is_json_as_well(call: Call) -> None:
    said = call("search", "mat", "notes", "--json", "-", "-q", *MODEL)
    record = json.loads(said.out)
    assert record["schema"] == "rlxweb.search/1"
    assert record["files"] == 2
    scores = [hit["score"] for hit in record["hits"]]
    assert scores == sorted(scores, reverse=True)
    assert {"score", "path", "line", "text"} == set(record["hits"][0])


def test_points_are_written_for_other_programs(call: Call, notes: Path) -> None:
    outputs = "--npz", "points.npz", "--json", "points.json"
    said = call("embed", "notes", "--by", "line", *outputs, *MODEL)
    assert said.code == 0
    assert "of 2 files" in said.out
    with np.load("points.npz") as found:
        points, lines, texts = found["points"], found["line"], found["text"]
        assert [str(path) for path in found["path"][:1]] == ["notes/a.txt"]
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, rtol=1e-5)
    assert texts[-1] == "unable!"
    record = json.loads(Path("points.json").read_text())
    assert [one["line"] for one in record["passages"]] == lines.tolist()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("search", "", "notes", "--model", "none"), "the question is empty"),
        (("search", "a", "none.txt"), "no such file"),
        (("search", "a", "model", "--k", "0"), "--k"),
        (("embed", "notes"), "no output is asked for"),
        (("embed", "notes", "--npz", "notes/a.txt"), "the text file 'notes/a.txt'"),
        (("search", "a", "notes", "--model", "notes"), "no config.json"),
    ],
)
def test_what_cannot_be_done_is_told(
    call: Call, args: tuple[str, ...], words: str
) -> None:
    model = () if "--model" in args else MODEL
    check_refused(call(*args, *model), 2, words)
