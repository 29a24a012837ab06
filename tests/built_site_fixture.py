"""Fixture of the real site, built once per test run and shared by all of its workers.

Import the fixture in a conftest.py:

    from tests.built_site_fixture import built_site  # noqa: F401  # a fixture

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

from tests.cli_runners import ROOT, CommandResult, run_python

ASSEMBLE = ROOT / "site" / "assemble.py"

if str(ASSEMBLE.parent) not in sys.path:
    sys.path.append(str(ASSEMBLE.parent))  # `assembly`, the builder's own package

from assembly.serve import QuietHttpServer  # noqa: E402  # found by the line before

__all__ = ["ASSEMBLE", "ROOT", "BuiltSite", "QuietHttpServer", "assemble", "built_site"]


@dataclass(frozen=True, slots=True)
class BuiltSite:
    """Site as built by `./dev site`."""

    folder: Path
    output: str

    @property
    def manifest(self) -> dict[str, Any]:
        """Content of site.json."""
        return json.loads((self.folder / "site.json").read_text("utf-8"))

    @property
    def lock(self) -> dict[str, Any]:
        """Content of the site's own Pyodide lock file."""
        path = self.folder / "runtime" / "pyodide-lock.json"
        return json.loads(path.read_text("utf-8"))


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, which the operating system frees when the
    process dies.
    """
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the temporary folder that all workers of a run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def assemble(*args: str, **environment: str) -> CommandResult:
    """Run the builder and return its result."""
    return run_python(ASSEMBLE, *args, timeout=900, **environment)


def build_once(base: Path) -> tuple[int, str]:
    """Build into `base`/site unless this run has tried before; return the exit code and
    output.
    """
    with file_lock(base / "site.lock"):
        outcome_file = base / "site-outcome.json"
        if not outcome_file.exists():
            result = assemble("--out", str(base / "site"))
            outcome_file.write_text(json.dumps([result.code, result.err]), "utf-8")
        code, output = json.loads(outcome_file.read_text("utf-8"))
    return code, output


@pytest.fixture(scope="session")
def built_site(tmp_path_factory: pytest.TempPathFactory) -> BuiltSite:
    """Build the whole site in a temporary folder; read only, since other tests share
    it.
    """
    base = shared_folder(tmp_path_factory)
    code, output = build_once(base)
    if code:
        pytest.fail(f"the site could not be built:\n{output}", pytrace=False)
    return BuiltSite(base / "site", output)
