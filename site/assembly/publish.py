"""From a finished temporary folder to the site: manifest, ownership, swap."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from assembly.errors import SiteError
from assembly.hashing import sha256

MANIFEST = "site.json"
SCHEMA = 1


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
    said = {"schema": SCHEMA, **facts, "bytes": total, "files": files}
    (site / MANIFEST).write_text(json.dumps(said, indent=1) + "\n", "utf-8")
    return total


def foreign_files(site: Path) -> list[str]:
    """The files in `site` that no build has put there."""
    try:
        ours = {MANIFEST, *json.loads((site / MANIFEST).read_text("utf-8"))["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        ours = set()
    here = (p.relative_to(site).as_posix() for p in site.rglob("*") if not p.is_dir())
    return sorted(name for name in here if name not in ours)


def refuse_foreign(site: Path) -> None:
    """Refuse to replace a folder that holds files of somebody else."""
    if site.exists() and not site.is_dir():
        raise SiteError("replacing the site", f"{site} is a file, not a folder")
    foreign = foreign_files(site) if site.is_dir() else []
    if foreign:
        named = ", ".join(foreign[:3]) + (" …" if len(foreign) > 3 else "")
        raise SiteError(
            f"replacing {site}",
            f"{len(foreign)} of its files were made by no build of the site: {named}",
            "only a folder that a build made is replaced",
            "move them away, or build into another folder: --out FOLDER",
        )


def swap(new: Path, site: Path) -> None:
    """Put `new` where `site` is; where that fails, the old one is back."""
    refuse_foreign(site)
    if not site.exists():
        new.rename(site)
        return
    aside = Path(tempfile.mkdtemp(dir=site.parent, prefix=".site-old-"))
    try:
        site.rename(aside / "site")
        try:
            new.rename(site)
        except OSError:
            (aside / "site").rename(site)
            raise
    finally:
        shutil.rmtree(aside)
