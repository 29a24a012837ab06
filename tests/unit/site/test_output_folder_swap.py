"""Publishing of a built site: the old site stays until the new one is complete, and
only the builder's files are replaced.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from assembly.errors import SiteError
from assembly.output_folder_swap import (
    foreign_files,
    refuse_foreign,
    swap_folders,
    write_manifest,
)

from tests.unit.site.conftest import sha256_hex


def make_site(folder: Path, text: str) -> Path:
    """Write a folder as a build leaves it, and return it."""
    (folder / "runtime").mkdir(parents=True)
    (folder / "index.html").write_text(text, "utf-8")
    (folder / "runtime" / "core.wasm").write_bytes(b"wasm")
    write_manifest(folder, {"pyodide": "0.27.7"})
    return folder


def test_the_manifest_has_size_and_hash_of_every_file(tmp_path: Path) -> None:
    """The manifest has size and hash of every file, and their sum."""
    import json

    site = make_site(tmp_path / "site", "hello")
    manifest = json.loads((site / "site.json").read_text("utf-8"))
    assert manifest["files"] == {
        "index.html": {"bytes": 5, "sha256": sha256_hex(b"hello")},
        "runtime/core.wasm": {"bytes": 4, "sha256": sha256_hex(b"wasm")},
    }
    assert (manifest["schema"], manifest["pyodide"], manifest["bytes"]) == (
        1,
        "0.27.7",
        9,
    )


def test_a_new_site_replaces_the_old_one_completely(tmp_path: Path) -> None:
    """No file of the old site is left, nor any folder beside it."""
    old = make_site(tmp_path / "site", "old")
    new = make_site(tmp_path / "new", "new")
    (new / "only-in-the-old").mkdir()
    swap_folders(new, old)
    assert (old / "index.html").read_text("utf-8") == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_the_first_site_needs_no_old_one(tmp_path: Path) -> None:
    """The first site needs no old one, and leaves no temporary folder."""
    swap_folders(make_site(tmp_path / "new", "new"), tmp_path / "site")
    assert (tmp_path / "site" / "index.html").read_text("utf-8") == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


@pytest.mark.parametrize("name", ["notes.txt", "runtime/own.js", ".nojekyll"])
def test_a_foreign_file_is_never_deleted(tmp_path: Path, name: str) -> None:
    """A foreign file is named, and everything stays."""
    old = make_site(tmp_path / "site", "old")
    (old / name).write_text("mine", "utf-8")
    new = make_site(tmp_path / "new", "new")
    with pytest.raises(SiteError, match=f"1 of its files .*: {name}"):
        swap_folders(new, old)
    assert (old / name).read_text("utf-8") == "mine"
    assert (old / "index.html").read_text("utf-8") == "old"


@pytest.mark.parametrize("text", [None, "", "[]", '{"files": 3}'])
def test_a_folder_without_a_valid_manifest_is_refused(
    tmp_path: Path, text: str | None
) -> None:
    """A folder without a valid manifest is refused; an empty one may be used."""
    refuse_foreign(tmp_path)
    site = make_site(tmp_path / "site", "old")
    (site / "site.json").unlink()
    if text is not None:
        (site / "site.json").write_text(text, "utf-8")
    assert "index.html" in foreign_files(site)
    with pytest.raises(SiteError, match="--out FOLDER"):
        refuse_foreign(site)


def test_a_file_at_the_target_path_is_refused(tmp_path: Path) -> None:
    """The target must be a folder."""
    (tmp_path / "site").write_text("mine", "utf-8")
    with pytest.raises(SiteError, match="is a file"):
        refuse_foreign(tmp_path / "site")


def test_a_failed_swap_restores_the_old_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old site is restored when the second of the two renames fails."""
    old = make_site(tmp_path / "site", "old")
    new = make_site(tmp_path / "new", "new")
    rename = Path.rename

    def fail_for_the_new_site(self: Path, target: Path) -> Path:
        if self == new:
            raise OSError("no space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_for_the_new_site)
    with pytest.raises(OSError, match="no space"):
        swap_folders(new, old)
    assert (old / "index.html").read_text("utf-8") == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"site", "new"}
