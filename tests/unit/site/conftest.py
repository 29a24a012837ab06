"""A Pyodide and a wheel of a few bytes, with everything true of them but their size."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import site_build
from tests.site_build import built_site
from tests.unit.site.manual import manual

__all__ = ["built_site", "manual"]

assert str(site_build.ASSEMBLE.parent)  # importing it makes `assembly` importable

METADATA = """\
Metadata-Version: 2.4
Name: rlxweb
Version: 1.2.3
Requires-Dist: click<9,>=8.1; sys_platform != 'emscripten'
Requires-Dist: numpy>=2.0
Provides-Extra: plot
Requires-Dist: matplotlib>=3.8; extra == 'plot'
"""
NUMPY = "numpy-2.0.9-cp312-cp312-pyodide_2024_0_wasm32.whl"
BLAS = "blas-1.0.zip"


def digest(data: bytes) -> str:
    """The sha256 as a lock file writes it."""
    return hashlib.sha256(data).hexdigest()


def zipped(name: str) -> bytes:
    """An archive of one file, the same whenever it is made."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), f"this is {name}")
    return made.getvalue()


NUMPY_WHEEL = zipped("numpy/__init__.py")
BLAS_ZIP = zipped("blas/data")


def entry(name: str, version: str, file: str, data: bytes, *depends: str) -> Any:
    """A package in the form of Pyodide 0.27's lock file."""
    return {
        "depends": list(depends),
        "file_name": file,
        "imports": [name],
        "install_dir": "site",
        "name": name,
        "package_type": "package",
        "sha256": digest(data),
        "unvendored_tests": False,
        "version": version,
    }


@dataclass(frozen=True, slots=True)
class Small:
    """A folder with a core, its lock file, and the wheels NumPy needs."""

    folder: Path

    @property
    def lock(self) -> dict[str, Any]:
        return json.loads((self.folder / "pyodide-lock.json").read_text("utf-8"))

    @contextmanager
    def relocked(self) -> Iterator[dict[str, Any]]:
        """The lock, which is written back with the changes of the block."""
        lock = self.lock
        yield lock
        self.rewrite(lock)

    def rewrite(self, lock: dict[str, Any]) -> None:
        (self.folder / "pyodide-lock.json").write_text(json.dumps(lock), "utf-8")


@pytest.fixture
def small(tmp_path: Path) -> Small:
    """A Pyodide of a version that is supported but not pinned."""
    folder = tmp_path / "given"
    folder.mkdir()
    for name in ("pyodide.mjs", "pyodide.js", "pyodide.asm.js", "pyodide.asm.wasm"):
        (folder / name).write_text(f"this is {name}", "utf-8")
    (folder / "python_stdlib.zip").write_bytes(b"this is Python")
    (folder / NUMPY).write_bytes(NUMPY_WHEEL)
    (folder / BLAS).write_bytes(BLAS_ZIP)
    made = Small(folder)
    info = {"arch": "wasm32", "platform": "emscripten_3_1_58", "python": "3.12.7"}
    packages = {
        "blas": entry("blas", "1.0", BLAS, BLAS_ZIP),
        "numpy": entry("numpy", "2.0.9", NUMPY, NUMPY_WHEEL, "blas"),
        "scipy": entry("scipy", "1.14", "scipy-1.14.whl", b"SciPy", "numpy"),
    }
    made.rewrite({"info": {**info, "version": "0.28.5"}, "packages": packages})
    return made


def make_wheel(folder: Path, metadata: str = METADATA) -> Path:
    """A wheel with nothing but its own name in it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rlxweb-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("rlxweb/__init__.py", "")
        archive.writestr("rlxweb-1.2.3.dist-info/METADATA", metadata)
    return path


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel that needs NumPy in a tab, and more elsewhere."""
    return make_wheel(tmp_path / "wheel")
