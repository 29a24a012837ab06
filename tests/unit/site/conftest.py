"""Tiny stand-ins for Pyodide and the wheel, valid in everything but their size."""

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

from tests import built_site_fixture
from tests.built_site_fixture import built_site
from tests.unit.site.built_manual import manual

__all__ = ["built_site", "manual"]

assert str(
    built_site_fixture.ASSEMBLE.parent
)  # importing it makes `assembly` importable

WHEEL_METADATA = """\
Metadata-Version: 2.4
Name: rlxweb
Version: 1.2.3
Requires-Dist: click<9,>=8.1; sys_platform != 'emscripten'
Requires-Dist: numpy>=2.0
Provides-Extra: plot
Requires-Dist: matplotlib>=3.8; extra == 'plot'
"""
NUMPY_FILE = "numpy-2.0.9-cp312-cp312-pyodide_2024_0_wasm32.whl"
BLAS_FILE = "blas-1.0.zip"


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 as a lock file writes it."""
    return hashlib.sha256(data).hexdigest()


def make_zip(name: str) -> bytes:
    """Return a ZIP archive of one file, identical each time."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), f"this is {name}")
    return buffer.getvalue()


NUMPY_WHEEL = make_zip("numpy/__init__.py")
BLAS_ZIP = make_zip("blas/data")


def lock_entry(
    name: str, version: str, file_name: str, data: bytes, *dependencies: str
) -> Any:
    """Return a package's entry in the form of Pyodide 0.27's lock file."""
    return {
        "depends": list(dependencies),
        "file_name": file_name,
        "imports": [name],
        "install_dir": "site",
        "name": name,
        "package_type": "package",
        "sha256": sha256_hex(data),
        "unvendored_tests": False,
        "version": version,
    }


@dataclass(frozen=True, slots=True)
class SmallPyodide:
    """Folder with a Pyodide core, its lock file, and the wheels that NumPy needs."""

    folder: Path

    @property
    def lock(self) -> dict[str, Any]:
        return json.loads((self.folder / "pyodide-lock.json").read_text("utf-8"))

    @contextmanager
    def edit_lock(self) -> Iterator[dict[str, Any]]:
        """Yield the lock file's content and write it back with the changes of the
        block.
        """
        lock = self.lock
        yield lock
        self.write_lock(lock)

    def write_lock(self, lock: dict[str, Any]) -> None:
        (self.folder / "pyodide-lock.json").write_text(json.dumps(lock), "utf-8")


@pytest.fixture
def small_pyodide(tmp_path: Path) -> SmallPyodide:
    """Small Pyodide of a version that is supported but not pinned."""
    folder = tmp_path / "given"
    folder.mkdir()
    for name in ("pyodide.mjs", "pyodide.js", "pyodide.asm.js", "pyodide.asm.wasm"):
        (folder / name).write_text(f"this is {name}", "utf-8")
    (folder / "python_stdlib.zip").write_bytes(b"this is Python")
    (folder / NUMPY_FILE).write_bytes(NUMPY_WHEEL)
    (folder / BLAS_FILE).write_bytes(BLAS_ZIP)
    pyodide = SmallPyodide(folder)
    info = {"arch": "wasm32", "platform": "emscripten_3_1_58", "python": "3.12.7"}
    packages = {
        "blas": lock_entry("blas", "1.0", BLAS_FILE, BLAS_ZIP),
        "numpy": lock_entry("numpy", "2.0.9", NUMPY_FILE, NUMPY_WHEEL, "blas"),
        "scipy": lock_entry("scipy", "1.14", "scipy-1.14.whl", b"SciPy", "numpy"),
    }
    pyodide.write_lock({"info": {**info, "version": "0.28.5"}, "packages": packages})
    return pyodide


def make_wheel(folder: Path, metadata: str = WHEEL_METADATA) -> Path:
    """Write a wheel with nothing but its own name in it; return its path."""
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
