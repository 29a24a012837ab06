"""Session fixture of the tests that run Pyodide under node."""

from __future__ import annotations

import pytest

from tests.built_site_fixture import file_lock, shared_folder
from tests.wasm.pyodide_setup import PyodideRun, prepare_pyodide


@pytest.fixture(scope="session")
def pyodide_run(tmp_path_factory: pytest.TempPathFactory) -> PyodideRun:
    """Return node, Pyodide and the wheels, fetched once by the first process that needs
    them.
    """
    with file_lock(shared_folder(tmp_path_factory) / "wasm.lock"):
        return prepare_pyodide()
