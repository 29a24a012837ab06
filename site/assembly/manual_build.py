"""Build the manual with mkdocs, and copy the demo pages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from assembly.errors import SiteError

# mkdocs-material prints a banner about its own future unless told not to.
MKDOCS_ENVIRONMENT = {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}


def build_manual(root: Path, folder: Path) -> None:
    """Run mkdocs into `folder`, which it empties; every warning is an error."""
    # without -q, which hides warnings from --strict too
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    process = subprocess.run(
        [*command, "-f", "site/mkdocs.yml", "-d", str(folder)],
        cwd=root,
        env={**os.environ, **MKDOCS_ENVIRONMENT},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if process.returncode:
        lines = [
            line
            for line in process.stderr.splitlines()
            if line and not line.startswith("INFO")
        ]
        raise SiteError(
            "building the manual",
            "mkdocs failed:\n    " + "\n    ".join(lines[-20:]) + "\n ",
            hint="fix the page it names; ./dev docs builds only the manual",
        )


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder into the site; no file may lie where the manual put one."""
    if not source.is_dir():
        raise SiteError(f"adding {target.name}/", f"the folder {source} does not exist")
    for path in iter_source_files(source):
        copy = target / path.relative_to(source)
        if copy.exists():
            raise SiteError(
                f"adding {target.name}/",
                f"the manual already has a page at {copy.relative_to(target.parent)}",
                hint="rename one of the two",
            )
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def iter_source_files(source: Path) -> Iterator[Path]:
    """Iterate over all files below, without hidden files and caches."""
    for path in sorted(source.rglob("*")):
        parts = path.relative_to(source).parts
        hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
        if path.is_file() and not hidden:
            yield path
