"""Journal files: complete entries count, whatever happened to the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.batch.journal import Journal
from rlxweb.core.errors import RecordingError, UsageError

SCALARS = st.none() | st.integers() | st.floats(allow_nan=False) | st.text()
JSON = SCALARS | st.lists(SCALARS, max_size=3)
ENTRIES = st.dictionaries(st.text(), JSON, max_size=3)


def read_journal(path: Path) -> tuple[list[object], int]:
    """Return every entry with its body, and the number of damaged lines."""
    journal = Journal(path, "out")
    entries = [
        [entry, journal.read_body(span)] for entry, span in journal.read_entries()
    ]
    journal.close(remove=False)
    return entries, journal.n_damaged


@given(st.lists(st.tuples(ENTRIES, JSON), max_size=3))
def test_appended_entries_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[object, object]]
) -> None:
    """Any text and number is read back, in this and in the next process."""
    path = tmp_path_factory.mktemp("notes") / "notes"
    journal = Journal(path, "out")
    assert journal.is_empty
    for entry, body in entries:
        span = journal.append(entry, body)  # type: ignore[arg-type]
        assert journal.read_body(span) == body
    journal.close(remove=False)
    assert read_journal(path) == ([[entry, body] for entry, body in entries], 0)


@given(st.data())
def test_a_truncated_journal_keeps_the_entries_before_the_cut(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Truncation keeps the complete entries before it, and the next entry follows
    them.
    """
    path = tmp_path_factory.mktemp("notes") / "notes"
    journal = Journal(path, "out")
    ends = [sum(journal.append({"n": n}, "x" * n)) for n in range(4)]
    journal.close(remove=False)
    length = data.draw(st.integers(0, ends[-1]))
    path.write_bytes(path.read_bytes()[:length])
    # All but its line break is as good as all.
    n_complete = sum(end - 1 <= length for end in ends)
    is_clean = length <= 128 or {length, length + 1} & {*ends}
    journal = Journal(path, "out")
    assert [entry["n"] for entry, _ in journal.read_entries()] == list(
        range(n_complete)
    )
    journal.append({"n": 9})
    journal.close(remove=False)
    entries, n_damaged = read_journal(path)
    assert [entry["n"] for entry, _ in entries] == [*range(n_complete), 9]  # type: ignore[index]
    assert n_damaged == (not is_clean)


@given(st.data())
def test_a_changed_byte_damages_only_its_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A line break that appears or vanishes damages at most two lines."""
    path = tmp_path_factory.mktemp("notes") / "notes"
    journal = Journal(path, "out")
    for n in range(5):
        journal.append({"n": n}, [n])
    journal.close(remove=False)
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(128, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    entries, n_damaged = read_journal(path)
    assert n_damaged >= 1
    assert len(entries) >= 3
    assert all(body == [entry["n"]] for entry, body in entries)  # type: ignore[misc, index]


def test_an_entry_changed_on_disk_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    journal = Journal(path, "out")
    span = journal.append({"file": "x"}, np.arange(3))
    assert journal.read_body(span) == [0, 1, 2]
    data = path.read_bytes()
    path.write_bytes(data[:-9] + b"123456789")
    with pytest.raises(RecordingError, match="an entry is damaged"):
        journal.read_body(span)
    journal.clear()
    assert journal.read_entries() == []
    journal.close(remove=True)
    assert not path.exists()


@pytest.mark.parametrize("text", ["x", "rlxweb.notes/2 of somebody", "\0" * 500])
def test_a_foreign_file_is_refused_and_left_unchanged(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "notes"
    path.write_text(text)
    with pytest.raises(
        UsageError, match="is not a journal of this rlxweb version; move or rename it"
    ):
        Journal(path, "out")
    assert path.read_text() == text
