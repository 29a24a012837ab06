"""Session fixture `pyodide_run` for the tests of this folder; empty where Pyodide
itself loads this file.
"""

from __future__ import annotations

import sys

if sys.platform != "emscripten":
    from tests.wasm.pyodide_fixture import pyodide_run  # noqa: F401  # a fixture
