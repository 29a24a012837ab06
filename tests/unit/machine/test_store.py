"""Code on disk is whole, ours, and what was put there; else it is not there."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
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
    """A file that is cut, changed, empty or missing counts as none."""
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


needs_owners = pytest.mark.skipif(
    not hasattr(os, "getuid"), reason="Windows has no such owners and modes"
)


@needs_owners
def test_a_folder_of_others_is_not_trusted(tmp_path: Path) -> None:
    """Code from where anybody may write would run as ours."""
    folder = tmp_path / "kernels"
    store.keep(folder, NAME, b"code")
    folder.chmod(0o777)
    assert store.kept(folder, NAME) is None
    assert not store.keep(folder, NAME, b"code")


@needs_owners
@pytest.mark.parametrize("harm", ["mode", "link", "pipe", "owner"])
def test_a_file_of_others_is_not_trusted(
    tmp_path: Path, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that others may write is not trusted in a folder of ours either."""
    folder, elsewhere = tmp_path / "kernels", tmp_path / "elsewhere"
    store.keep(folder, NAME, b"code")
    path = folder / NAME
    if harm == "mode":
        path.chmod(0o620)
    elif harm == "link":
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
    elif harm == "pipe":
        path.unlink()
        os.mkfifo(path)
    else:  # only root could give it away
        fstat = os.fstat

        def of_another(handle: int) -> os.stat_result:
            found = [*fstat(handle)]
            found[stat.ST_UID] += stat.S_ISREG(found[stat.ST_MODE])
            return os.stat_result(found)

        monkeypatch.setattr(store.os, "fstat", of_another)
    assert store.kept(folder, NAME) is None
    monkeypatch.undo()
    if harm != "pipe":
        assert store.keep(folder, NAME, b"new")
        assert store.kept(folder, NAME) == b"new"
    assert not elsewhere.exists() or elsewhere.read_bytes().endswith(b"code")


@needs_owners
def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    """A link is not followed: its owner could point it at any folder of ours."""
    folder, link = tmp_path / "other", tmp_path / "kernels"
    store.keep(folder, NAME, b"code")
    link.symlink_to(folder)
    assert store.kept(link, NAME) is None
    assert not store.keep(link, NAME, b"new")
    assert store.kept(folder, NAME) == b"code"


@needs_owners
def test_a_folder_that_is_exchanged_after_the_check_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are looked up in the folder that was opened and checked."""
    folder, away, evil = (tmp_path / name for name in ("kernels", "away", "evil"))
    store.keep(folder, NAME, b"ours")
    store.keep(evil, NAME, b"theirs")
    check = store._check_ours

    def exchange(handle: int, is_kind: Callable[[int], bool]) -> None:
        check(handle, is_kind)
        if is_kind is stat.S_ISDIR:
            folder.rename(away)
            folder.symlink_to(evil)

    monkeypatch.setattr(store, "_check_ours", exchange)
    assert store.kept(folder, NAME) == b"ours"
    folder.unlink()
    away.rename(folder)
    assert store.keep(folder, NAME, b"new")
    monkeypatch.undo()
    assert store.kept(away, NAME) == b"new"
    assert store.kept(evil, NAME) == b"theirs"


def test_without_owners_and_handles_of_folders_it_works_by_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store works by paths where there are no owners or folder handles."""
    monkeypatch.setattr(store, "_HAS_OWNERS", False)
    monkeypatch.setattr(store, "MOST_FILES", 1)
    assert store.keep(tmp_path, "other.o", b"code")
    os.utime(tmp_path / "other.o", (0, 0))
    assert store.keep(tmp_path, NAME, b"code")
    assert store.kept(tmp_path, NAME) == b"code"
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


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
