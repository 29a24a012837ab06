"""The old site stays until the new one is whole; only our own files are replaced."""

from __future__ import annotations

from pathlib import Path

import pytest
from assembly.errors import SiteError
from assembly.publish import foreign_files, refuse_foreign, swap, write_manifest

from tests.unit.site.conftest import digest


def make_site(folder: Path, text: str) -> Path:
    """A folder as a build leaves it."""
    (folder / "runtime").mkdir(parents=True)
    (folder / "index.html").write_text(text, "utf-8")
    (folder / "runtime" / "core.wasm").write_bytes(b"wasm")
    write_manifest(folder, {"pyodide": "0.27.7"})
    return folder


def test_the_manifest_has_size_and_hash_of_every_file(tmp_path: Path) -> None:
    """The manifest has size and hash of every file, and their sum."""
    import json

    site = make_site(tmp_path / "site", "hello")
    said = json.loads((site / "site.json").read_text("utf-8"))
    assert said["files"] == {
        "index.html": {"bytes": 5, "sha256": digest(b"hello")},
        "runtime/core.wasm": {"bytes": 4, "sha256": digest(b"wasm")},
    }
    assert (said["schema"], said["pyodide"], said["bytes"]) == (1, "0.27.7", 9)


def test_a_new_site_replaces_the_old_one_whole(tmp_path: Path) -> None:
    """No file of the old one is left, nor any folder beside it."""
    old = make_site(tmp_path / "site", "old")
    new = make_site(tmp_path / "new", "new")
    (new / "only-in-the-old").mkdir()
    swap(new, old)
    assert (old / "index.html").read_text("utf-8") == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_the_first_site_needs_no_old_one(tmp_path: Path) -> None:
    """The first site needs no old one, and leaves no temporary folder."""
    swap(make_site(tmp_path / "new", "new"), tmp_path / "site")
    assert (tmp_path / "site" / "index.html").read_text("utf-8") == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


@pytest.mark.parametrize("name", ["notes.txt", "runtime/own.js", ".nojekyll"])
def test_a_file_of_somebody_else_is_never_deleted(tmp_path: Path, name: str) -> None:
    """A foreign file is named, and everything stays."""
    old = make_site(tmp_path / "site", "old")
    (old / name).write_text("mine", "utf-8")
    new = make_site(tmp_path / "new", "new")
    with pytest.raises(SiteError, match=f"1 of its files .*: {name}"):
        swap(new, old)
    assert (old / name).read_text("utf-8") == "mine"
    assert (old / "index.html").read_text("utf-8") == "old"


@pytest.mark.parametrize("text", [None, "", "[]", '{"files": 3}'])
def test_a_folder_without_a_true_manifest_is_not_ours(
    tmp_path: Path, text: str | None
) -> None:
    """An empty one is free to take."""
    refuse_foreign(tmp_path)
    site = make_site(tmp_path / "site", "old")
    (site / "site.json").unlink()
    if text is not None:
        (site / "site.json").write_text(text, "utf-8")
    assert "index.html" in foreign_files(site)
    with pytest.raises(SiteError, match="--out FOLDER"):
        refuse_foreign(site)


def test_a_file_in_the_way_is_not_replaced(tmp_path: Path) -> None:
    """A folder was asked for."""
    (tmp_path / "site").write_text("mine", "utf-8")
    with pytest.raises(SiteError, match="is a file"):
        refuse_foreign(tmp_path / "site")


def test_a_swap_that_fails_half_way_brings_the_old_site_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of the two renames is the one that may fail."""
    old = make_site(tmp_path / "site", "old")
    new = make_site(tmp_path / "new", "new")
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self == new:
            raise OSError("no space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="no space"):
        swap(new, old)
    assert (old / "index.html").read_text("utf-8") == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"site", "new"}
