"""Notes in a file: what is whole counts, whatever became of the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.errors import RecordingError, UsageError
from rlxweb.jobs.journal import Journal

PLAIN = st.none() | st.integers() | st.floats(allow_nan=False) | st.text()
JSON = PLAIN | st.lists(PLAIN, max_size=3)
NOTE = st.dictionaries(st.text(), JSON, max_size=3)


def contents(path: Path) -> tuple[list[object], int]:
    """Every note with its body, and how many lines are none."""
    journal = Journal(path, "out")
    found = [[note, journal.body(place)] for note, place in journal.notes()]
    journal.close(remove=False)
    return found, journal.n_damaged


@given(st.lists(st.tuples(NOTE, JSON), max_size=3))
def test_what_is_noted_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, notes: list[tuple[object, object]]
) -> None:
    """Any text and number is read back, in this and in the next process."""
    path = tmp_path_factory.mktemp("notes") / "notes"
    journal = Journal(path, "out")
    assert journal.is_empty
    for note, body in notes:
        place = journal.add(note, body)  # type: ignore[arg-type]
        assert journal.body(place) == body
    journal.close(remove=False)
    assert contents(path) == ([[note, body] for note, body in notes], 0)


@given(st.data())
def test_every_cut_leaves_the_notes_before_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A cut leaves whole the notes before it, and the next note stands behind them."""
    path = tmp_path_factory.mktemp("notes") / "notes"
    journal = Journal(path, "out")
    ends = [sum(journal.add({"n": n}, "x" * n)) for n in range(4)]
    journal.close(remove=False)
    cut = data.draw(st.integers(0, ends[-1]))
    path.write_bytes(path.read_bytes()[:cut])
    # All but its line break is as good as all.
    n_whole = sum(end - 1 <= cut for end in ends)
    is_clean = cut <= 128 or {cut, cut + 1} & {*ends}
    journal = Journal(path, "out")
    assert [note["n"] for note, _ in journal.notes()] == list(range(n_whole))
    journal.add({"n": 9})
    journal.close(remove=False)
    found, n_damaged = contents(path)
    assert [note["n"] for note, _ in found] == [*range(n_whole), 9]  # type: ignore[index]
    assert n_damaged == (not is_clean)


@given(st.data())
def test_a_byte_that_is_changed_costs_its_line_alone(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A line break that comes or goes costs two at most."""
    path = tmp_path_factory.mktemp("notes") / "notes"
    journal = Journal(path, "out")
    for n in range(5):
        journal.add({"n": n}, [n])
    journal.close(remove=False)
    whole = bytearray(path.read_bytes())
    at = data.draw(st.integers(128, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(whole)
    found, n_damaged = contents(path)
    assert n_damaged >= 1
    assert len(found) >= 3
    assert all(body == [note["n"]] for note, body in found)  # type: ignore[misc, index]


def test_a_note_that_changes_while_it_is_held_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    journal = Journal(path, "out")
    place = journal.add({"file": "x"}, np.arange(3))
    assert journal.body(place) == [0, 1, 2]
    data = path.read_bytes()
    path.write_bytes(data[:-9] + b"123456789")
    with pytest.raises(RecordingError, match="not what was written"):
        journal.body(place)
    journal.clear()
    assert journal.notes() == []
    journal.close(remove=True)
    assert not path.exists()


@pytest.mark.parametrize("text", ["x", "rlxweb.notes/2 of somebody", "\0" * 500])
def test_another_file_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes"
    path.write_text(text)
    with pytest.raises(UsageError, match="holds no notes of this rlxweb; move it away"):
        Journal(path, "out")
    assert path.read_text() == text
