"""The real site, built once for all tests of a run, however many workers it has.

Import the fixture in a conftest.py:

    from tests.site_build import built_site  # noqa: F401  # a fixture

Downloads are kept in build/cache of the checkout. When the site cannot be built, every
test that asks for it fails with what the builder said.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import ROOT, Said, python

ASSEMBLE = ROOT / "site" / "assemble.py"

if str(ASSEMBLE.parent) not in sys.path:
    sys.path.append(str(ASSEMBLE.parent))  # `assembly`, the builder's own package

from assembly.serve import Quiet  # noqa: E402  # found by the line before

__all__ = ["ASSEMBLE", "ROOT", "BuiltSite", "Quiet", "assemble", "built_site"]


@dataclass(frozen=True, slots=True)
class BuiltSite:
    """The site as `./dev site` makes it."""

    folder: Path
    said: str

    @property
    def manifest(self) -> dict[str, Any]:
        """What site.json says."""
        return json.loads((self.folder / "site.json").read_text("utf-8"))

    @property
    def lock(self) -> dict[str, Any]:
        """What the site's own Pyodide lock file says."""
        path = self.folder / "runtime" / "pyodide-lock.json"
        return json.loads(path.read_text("utf-8"))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time; the operating system frees it when the process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The temporary folder that all workers of a run have in common."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def assemble(*words: str, **environment: str) -> Said:
    """The builder, run to its end."""
    return python(ASSEMBLE, *words, timeout=900, **environment)


def build_once(base: Path) -> tuple[int, str]:
    """Build into `base`/site unless a process of this run has tried; how that ended."""
    with locked(base / "site.lock"):
        outcome = base / "site-outcome.json"
        if not outcome.exists():
            done = assemble("--out", str(base / "site"))
            outcome.write_text(json.dumps([done.code, done.err]), "utf-8")
        code, said = json.loads(outcome.read_text("utf-8"))
    return code, said


@pytest.fixture(scope="session")
def built_site(tmp_path_factory: pytest.TempPathFactory) -> BuiltSite:
    """The whole site in a temporary folder, for reading: other tests share it."""
    base = shared_folder(tmp_path_factory)
    code, said = build_once(base)
    if code:
        pytest.fail(f"the site could not be built:\n{said}", pytrace=False)
    return BuiltSite(base / "site", said)
