"""The manual by mkdocs, and the demo pages as they are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from assembly.errors import SiteError

# mkdocs-material prints a banner about its own future unless told not to.
QUIET = {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}


def build_manual(root: Path, folder: Path) -> None:
    """Run mkdocs, where every warning is an error, into `folder` (which it empties)."""
    # without -q, which hides warnings from --strict too
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    said = subprocess.run(
        [*command, "-f", "site/mkdocs.yml", "-d", str(folder)],
        cwd=root,
        env={**os.environ, **QUIET},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if said.returncode:
        lines = [x for x in said.stderr.splitlines() if x and not x.startswith("INFO")]
        raise SiteError(
            "building the manual",
            "mkdocs said:\n    " + "\n    ".join(lines[-20:]) + "\n ",
            hint="mend the page it names; ./dev docs tries the manual alone",
        )


def add_folder(source: Path, target: Path) -> None:
    """Copy a folder into the site; no file may lie where the manual put one."""
    if not source.is_dir():
        raise SiteError(f"adding {target.name}/", f"there is no folder {source}")
    for path in own_files(source):
        copy = target / path.relative_to(source)
        if copy.exists():
            raise SiteError(
                f"adding {target.name}/",
                f"the manual already has a page at {copy.relative_to(target.parent)}",
                hint="give one of the two another name",
            )
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def own_files(source: Path) -> Iterator[Path]:
    """Every file below, without what Python and editors leave behind."""
    for path in sorted(source.rglob("*")):
        parts = path.relative_to(source).parts
        hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
        if path.is_file() and not hidden:
            yield path
