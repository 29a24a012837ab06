"""Publish a finished temporary folder as the site: manifest, check for foreign files,
swap.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from assembly.errors import SiteError
from assembly.hashing import sha256

MANIFEST = "site.json"
SCHEMA_VERSION = 1


def write_manifest(site: Path, facts: dict[str, Any]) -> int:
    """Write site.json, which lists every file of the site; return their bytes."""
    files = {
        path.relative_to(site).as_posix(): {
            "bytes": path.stat().st_size,
            "sha256": sha256(path),
        }
        for path in sorted(site.rglob("*"))
        if path.is_file()
    }
    total = sum(file["bytes"] for file in files.values())
    manifest = {"schema": SCHEMA_VERSION, **facts, "bytes": total, "files": files}
    (site / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")
    return total


def foreign_files(site: Path) -> list[str]:
    """Return the files in `site` that no build has written."""
    try:
        built_names = {
            MANIFEST,
            *json.loads((site / MANIFEST).read_text("utf-8"))["files"],
        }
    except (OSError, ValueError, KeyError, TypeError):
        built_names = set()
    names = (
        path.relative_to(site).as_posix()
        for path in site.rglob("*")
        if not path.is_dir()
    )
    return sorted(name for name in names if name not in built_names)


def refuse_foreign(site: Path) -> None:
    """Refuse to replace a folder with files that no build has written."""
    if site.exists() and not site.is_dir():
        raise SiteError("replacing the site", f"{site} is a file, not a folder")
    foreign = foreign_files(site) if site.is_dir() else []
    if foreign:
        listed = ", ".join(foreign[:3]) + (" …" if len(foreign) > 3 else "")
        raise SiteError(
            f"replacing {site}",
            f"{len(foreign)} of its files were not created by a build of the site: "
            f"{listed}",
            "only a folder created by a build may be replaced",
            "move these files away, or build into another folder: --out FOLDER",
        )


def swap_folders(new: Path, site: Path) -> None:
    """Replace `site` by `new`; restore the old one if that fails."""
    refuse_foreign(site)
    if not site.exists():
        new.rename(site)
        return
    backup_folder = Path(tempfile.mkdtemp(dir=site.parent, prefix=".site-old-"))
    try:
        site.rename(backup_folder / "site")
        try:
            new.rename(site)
        except OSError:
            (backup_folder / "site").rename(site)
            raise
    finally:
        shutil.rmtree(backup_folder)
