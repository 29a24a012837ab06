"""Compiled code stored on disk is loaded only if it is complete, ours and unchanged."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from rlxweb.codegen import code_disk_cache

NAME = code_disk_cache.code_file_name("text", "cpu")


def test_saved_code_is_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "kernels"
    assert code_disk_cache.load_code(folder, NAME) is None
    assert code_disk_cache.save_code(folder, NAME, b"code")
    assert code_disk_cache.load_code(folder, NAME) == b"code"
    assert code_disk_cache.code_file_name("textc", "pu") != NAME


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "folder"])
def test_damaged_files_are_ignored(tmp_path: Path, damage: str) -> None:
    """A file that is cut, changed, empty or missing counts as none."""
    folder = tmp_path / "kernels"
    code_disk_cache.save_code(folder, NAME, bytes(range(200)))
    path = folder / NAME
    content = path.read_bytes()
    if damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        changed = content[:-1] + bytes([content[-1] ^ 1])
        path.write_bytes({"cut": content[:-1], "flip": changed, "empty": b""}[damage])
    assert code_disk_cache.load_code(folder, NAME) is None


needs_owners = pytest.mark.skipif(
    not hasattr(os, "getuid"), reason="Windows has no such owners and modes"
)


@needs_owners
def test_a_folder_of_others_is_not_trusted(tmp_path: Path) -> None:
    """Code from where anybody may write would run as ours."""
    folder = tmp_path / "kernels"
    code_disk_cache.save_code(folder, NAME, b"code")
    folder.chmod(0o777)
    assert code_disk_cache.load_code(folder, NAME) is None
    assert not code_disk_cache.save_code(folder, NAME, b"code")


@needs_owners
@pytest.mark.parametrize("change", ["mode", "link", "pipe", "owner"])
def test_a_file_of_others_is_not_trusted(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that others may write is not trusted in a folder of ours either."""
    folder, elsewhere = tmp_path / "kernels", tmp_path / "elsewhere"
    code_disk_cache.save_code(folder, NAME, b"code")
    path = folder / NAME
    if change == "mode":
        path.chmod(0o620)
    elif change == "link":
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
    elif change == "pipe":
        path.unlink()
        os.mkfifo(path)
    else:  # only root could give it away
        fstat = os.fstat

        def fstat_of_another_owner(handle: int) -> os.stat_result:
            fields = [*fstat(handle)]
            fields[stat.ST_UID] += stat.S_ISREG(fields[stat.ST_MODE])
            return os.stat_result(fields)

        monkeypatch.setattr(code_disk_cache.os, "fstat", fstat_of_another_owner)
    assert code_disk_cache.load_code(folder, NAME) is None
    monkeypatch.undo()
    if change != "pipe":
        assert code_disk_cache.save_code(folder, NAME, b"new")
        assert code_disk_cache.load_code(folder, NAME) == b"new"
    assert not elsewhere.exists() or elsewhere.read_bytes().endswith(b"code")


@needs_owners
def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    """A link is not followed: its owner could point it at any folder of ours."""
    folder, link = tmp_path / "other", tmp_path / "kernels"
    code_disk_cache.save_code(folder, NAME, b"code")
    link.symlink_to(folder)
    assert code_disk_cache.load_code(link, NAME) is None
    assert not code_disk_cache.save_code(link, NAME, b"new")
    assert code_disk_cache.load_code(folder, NAME) == b"code"


@needs_owners
def test_a_folder_replaced_after_the_check_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are looked up in the folder that was opened and checked."""
    folder, original, evil = (tmp_path / name for name in ("kernels", "away", "evil"))
    code_disk_cache.save_code(folder, NAME, b"ours")
    code_disk_cache.save_code(evil, NAME, b"theirs")
    check = code_disk_cache._check_private

    def exchange(handle: int, is_kind: Callable[[int], bool]) -> None:
        check(handle, is_kind)
        if is_kind is stat.S_ISDIR:
            folder.rename(original)
            folder.symlink_to(evil)

    monkeypatch.setattr(code_disk_cache, "_check_private", exchange)
    assert code_disk_cache.load_code(folder, NAME) == b"ours"
    folder.unlink()
    original.rename(folder)
    assert code_disk_cache.save_code(folder, NAME, b"new")
    monkeypatch.undo()
    assert code_disk_cache.load_code(original, NAME) == b"new"
    assert code_disk_cache.load_code(evil, NAME) == b"theirs"


def test_the_store_works_by_paths_without_folder_handles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store works by paths where there are no owners or folder handles."""
    monkeypatch.setattr(code_disk_cache, "_HAS_OWNERS", False)
    monkeypatch.setattr(code_disk_cache, "MAX_FILES", 1)
    assert code_disk_cache.save_code(tmp_path, "other.o", b"code")
    os.utime(tmp_path / "other.o", (0, 0))
    assert code_disk_cache.save_code(tmp_path, NAME, b"code")
    assert code_disk_cache.load_code(tmp_path, NAME) == b"code"
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_unwritable_folders_store_nothing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    assert not code_disk_cache.save_code(file / "kernels", NAME, b"code")
    assert not code_disk_cache.save_code(None, NAME, b"code")
    assert code_disk_cache.load_code(None, NAME) is None


def test_the_oldest_files_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder does not grow for ever."""
    monkeypatch.setattr(code_disk_cache, "MAX_FILES", 3)
    folder = tmp_path / "kernels"
    for number in range(5):
        name = code_disk_cache.code_file_name(str(number))
        code_disk_cache.save_code(folder, name, b"code")
        os.utime(folder / name, (number, number))
    left = {path.name for path in folder.iterdir()}
    assert left == {code_disk_cache.code_file_name(str(number)) for number in (2, 3, 4)}
