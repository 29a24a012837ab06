"""The stamp of a file changes with it, and with nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from rlxweb.io.stamp import stamp_of

# Whole seconds, for some file systems keep no more.
FIRST, LATER = 5_000_000_000, 7_000_000_000


def test_a_file_that_is_touched_has_another_stamp(tmp_path: Path) -> None:
    """A stamp follows size and time, not who reads the file or moves it."""
    path = tmp_path / "x"
    path.write_text("abc")
    os.utime(path, ns=(FIRST, FIRST))
    first = stamp_of(str(path))
    path.read_text()
    assert stamp_of(str(path)) == first
    other = path.rename(tmp_path / "y")
    assert stamp_of(str(other)) == first
    os.utime(other, ns=(FIRST, LATER))
    later = stamp_of(str(other))
    other.write_text("abcd")
    os.utime(other, ns=(FIRST, LATER))
    assert len({first, later, stamp_of(str(other))}) == 3


def test_a_folder_has_the_stamp_of_all_that_lies_in_it(tmp_path: Path) -> None:
    """However deep."""
    inside = tmp_path / "store" / "c" / "0"
    inside.mkdir(parents=True)
    (inside / "1").write_text("abc")
    stamps = [stamp_of(str(tmp_path / "store"))]
    assert stamp_of(str(tmp_path / "store")) == stamps[0]
    os.utime(inside / "1", ns=(LATER, LATER))
    stamps.append(stamp_of(str(tmp_path / "store")))
    (inside / "1").rename(inside / "2")
    stamps.append(stamp_of(str(tmp_path / "store")))
    assert len(set(stamps)) == 3


def test_what_is_not_there_has_none(tmp_path: Path) -> None:
    assert stamp_of(str(tmp_path / "x")) == ""
    assert stamp_of("a\0b") == ""
