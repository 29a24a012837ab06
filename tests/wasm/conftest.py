"""The fixture of the tests here, but not where Pyodide loads this file as well."""

from __future__ import annotations

import sys

if sys.platform != "emscripten":
    from tests.wasm.once import ready  # noqa: F401  # a fixture
