"""Code on disk is whole, ours, and what was put there; else it is not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlxweb.machine import store

NAME = store.file_name("text", "cpu")


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "kernels"
    assert store.kept(folder, NAME) is None
    assert store.keep(folder, NAME, b"code")
    assert store.kept(folder, NAME) == b"code"
    assert store.file_name("textc", "pu") != NAME


@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "folder"])
def test_harmed_files_are_not_there(tmp_path: Path, harm: str) -> None:
    """Cut short, changed, empty, or no file at all."""
    folder = tmp_path / "kernels"
    store.keep(folder, NAME, bytes(range(200)))
    path = folder / NAME
    held = path.read_bytes()
    if harm == "folder":
        path.unlink()
        path.mkdir()
    else:
        changed = held[:-1] + bytes([held[-1] ^ 1])
        path.write_bytes({"cut": held[:-1], "flip": changed, "empty": b""}[harm])
    assert store.kept(folder, NAME) is None


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="Windows has no such modes")
def test_a_folder_of_others_is_not_trusted(tmp_path: Path) -> None:
    """Code from where anybody may write would run as ours."""
    folder = tmp_path / "kernels"
    store.keep(folder, NAME, b"code")
    folder.chmod(0o777)
    assert store.kept(folder, NAME) is None
    assert not store.keep(folder, NAME, b"code")


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    assert not store.keep(file / "kernels", NAME, b"code")
    assert not store.keep(None, NAME, b"code")
    assert store.kept(None, NAME) is None


def test_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder does not grow for ever."""
    monkeypatch.setattr(store, "MOST_FILES", 3)
    folder = tmp_path / "kernels"
    for number in range(5):
        name = store.file_name(str(number))
        store.keep(folder, name, b"code")
        os.utime(folder / name, (number, number))
    left = {path.name for path in folder.iterdir()}
    assert left == {store.file_name(str(number)) for number in (2, 3, 4)}
