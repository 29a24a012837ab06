"""The modification stamp of a file changes with the file and with nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from rlxweb.io.modification_stamp import modification_stamp

# Whole seconds, for some file systems keep no more.
FIRST, LATER = 5_000_000_000, 7_000_000_000


def test_a_file_that_is_touched_has_another_stamp(tmp_path: Path) -> None:
    """A stamp follows size and modification time, not reading or renaming."""
    path = tmp_path / "x"
    path.write_text("abc")
    os.utime(path, ns=(FIRST, FIRST))
    first = modification_stamp(str(path))
    path.read_text()
    assert modification_stamp(str(path)) == first
    renamed = path.rename(tmp_path / "y")
    assert modification_stamp(str(renamed)) == first
    os.utime(renamed, ns=(FIRST, LATER))
    later = modification_stamp(str(renamed))
    renamed.write_text("abcd")
    os.utime(renamed, ns=(FIRST, LATER))
    assert len({first, later, modification_stamp(str(renamed))}) == 3


def test_a_folder_stamp_covers_all_files_below_it(tmp_path: Path) -> None:
    """A folder's stamp covers files at any depth."""
    inside = tmp_path / "store" / "c" / "0"
    inside.mkdir(parents=True)
    (inside / "1").write_text("abc")
    stamps = [modification_stamp(str(tmp_path / "store"))]
    assert modification_stamp(str(tmp_path / "store")) == stamps[0]
    os.utime(inside / "1", ns=(LATER, LATER))
    stamps.append(modification_stamp(str(tmp_path / "store")))
    (inside / "1").rename(inside / "2")
    stamps.append(modification_stamp(str(tmp_path / "store")))
    assert len(set(stamps)) == 3


def test_a_missing_file_has_an_empty_stamp(tmp_path: Path) -> None:
    assert modification_stamp(str(tmp_path / "x")) == ""
    assert modification_stamp("a\0b") == ""
