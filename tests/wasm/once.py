"""The fixture of the tests that run Pyodide under node."""

from __future__ import annotations

import pytest

from tests.site_build import locked, shared_folder
from tests.wasm.ready import Ready, make_ready


@pytest.fixture(scope="session")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Ready:
    """Node, Pyodide and the wheels; fetched once, whoever comes first."""
    with locked(shared_folder(tmp_path_factory) / "wasm.lock"):
        return make_ready()
